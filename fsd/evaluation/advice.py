"""Which score to trust where no labels say: the one table of this advice, which docs/lab.md measures."""

from collections.abc import Collection
from typing import NamedTuple

from fsd.evaluation.results import MEMBERSHIP, Results


class Advice(NamedTuple):
    """What somebody has, the score to trust with it, as in `wbc.base`, and the reason."""

    having: str
    score: str
    reason: str


ADVICE = (
    Advice(
        "a reference model of the same vocabulary, and 40 unread texts of the same source, in `fsd run`",
        "adapted_unread_z.base",
        "the reference was also fine-tuned on unread texts, so that it knows their kind",
    ),
    Advice(
        "a reference model of the same vocabulary, and 20 unread texts of the same source",
        "unread_z.base",
        "four scores say how unlike a text that was not read it is",
    ),
    Advice(
        "a reference model of the same vocabulary",
        "wbc.base",
        "windows of tokens vote between the model and its reference",
    ),
    Advice(
        "a reference model that divides these texts into the same tokens",
        "min_k_reference.base",
        "it compares each token with a reference model",
    ),
    Advice(
        "the model alone, with its whole distributions",
        "min_k_pp.base",
        "no detector in use compares with a reference model of the same tokenizer, which would tell more",
    ),
    Advice(
        "the log-probabilities of the tokens",
        "min_k.base",
        "no detector in use compares with a reference model or the whole distribution of the next token",
    ),
    Advice("the log-probability of a text", "loss.base", "no better detector is in use"),
)
"""The first row whose score was computed is the advice, within one period.

Against later texts scores differ in more than membership, and none is advised.
"""


def advised(scores: Collection[str]) -> Advice | None:
    """What to trust within one period, of the scores computed (`loss.base`); None if none of those in `ADVICE` was."""
    return next((row for row in ADVICE if row.score in scores), None)


def advice(results: Results) -> list[str]:
    """The advice in one line; none if there is no score to trust, or the texts of the run say otherwise."""
    row = advised(set(map(str, results.scores)))
    if row is None or row.score != str(results.best_base) or row.score not in _best_on_test(results):
        return []
    line = (
        f"advice without labels, within one period: trust {row.score.removesuffix('.base')}, base score: "
        f"{row.reason}; against later texts no score is advised"
    )
    if row.score != str(results.headline):
        line += f"; here labels chose {results.headline_title}, by which the answer is given"
    return [line]


def _best_on_test(results: Results) -> set[str]:
    """The base scores with the highest AUC in the table that the run prints, within a period if it has both kinds."""
    table = results.table
    metric = f"auc_{MEMBERSHIP.name}"
    if metric not in set(table["metric"]):
        metric = "auc"
    rows = table[(table["metric"] == metric) & (table["state"] == results.states.single)]
    best = rows[rows["value"] == rows["value"].max()]
    return set(best["detector"] + ".base")
