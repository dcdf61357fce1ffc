"""The tests of a whole data set, each with one p-value."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pandas as pd

from fsd.config import AdapterConfig
from fsd.data.documents import Document
from fsd.data.near_duplicates import families
from fsd.evaluation.audit import blind
from fsd.evaluation.dataset_inference import dataset_verdict
from fsd.evaluation.intervals import Estimate, holm
from fsd.evidence import dataset_tests
from fsd.models import adapters
from fsd.models.finetuning import finetune
from fsd.models.language_model import LanguageModel
from fsd.progress import progress
from fsd.scoring.deviation import evaluate
from fsd.scoring.hidden_states import hidden_states
from fsd.token_stats import Scorer
from fsd.views import Detector

ORDER, INFERENCE, CODEC, KERNEL = "exchangeability", "dataset inference", "CoDeC", "kernel divergence"


@dataclass(frozen=True)
class Outcome:
    """One test.

    Attributes:
        name: of the test.
        statistic: its number in words.
        null: what it is compared with.
        p: p-value; None if it was not computed.
        reason: why not.
    """

    name: str
    statistic: str
    null: str
    p: float | None
    reason: str = ""


def corrected(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """p-values corrected for their number by Holm's method."""
    return holm({outcome.name: outcome.p for outcome in outcomes if outcome.p is not None})


def frame(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row per test."""
    holm = corrected(outcomes)
    return pd.DataFrame([{**asdict(outcome), "p_holm": holm.get(outcome.name)} for outcome in outcomes])


def one_per_family(documents: Sequence[Document]) -> list[str]:
    """The first text of each family, so that the texts of a set are independent."""
    first: dict[int, str] = {}
    for family, document in zip(families(documents), documents, strict=True):
        first.setdefault(family, document.text)
    return list(first.values())


def withheld(reason: str) -> list[Outcome]:
    """The rank tests without p-values, if dataset inference has none; they rest on the same comparison."""
    return [Outcome(name, "–", "–", None, reason) for name in (CODEC, KERNEL)] if reason else []


def order_test(texts: Sequence[str], scorer: Scorer, *, shard: int, orders: int, seed: int) -> Outcome:
    """Whether the model prefers the order of the file."""
    p, z = dataset_tests.exchangeability(texts, scorer, shard=shard, orders=orders, seed=seed)
    return Outcome(ORDER, f"mean z {z:+.2f}", f"{orders} random orders a shard of {shard}", p)


def inference_test(
    suspect: Sequence[Document],
    known: Sequence[Document],
    detectors: Sequence[Detector],
    scorers: Mapping[str, Scorer],
    *,
    seed: int,
) -> tuple[Outcome, Estimate | None]:
    """LLM Dataset Inference on the base scores of the detectors, and the AUC of the blind classifier."""
    texts = [document.text for document in (*suspect, *known)]
    scores = evaluate(texts, detectors, scorers, shown=True).base
    groups = [*families(suspect), *(len(suspect) + family for family in families(known))]
    cut = len(suspect)
    control = blind(texts, [at < cut for at in range(len(texts))], groups, seed=seed)
    verdict = dataset_verdict(
        {name: column[:cut] for name, column in scores.items()},
        {name: column[cut:] for name, column in scores.items()},
        suspect_groups=groups[:cut],
        known_groups=groups[cut:],
        blind=control,
        seed=seed,
    )
    null = f"{verdict.known_groups} known families, labels permuted"
    return Outcome(INFERENCE, f"difference {verdict.difference:+.2f}", null, verdict.p, verdict.reason), control.auc


def rank_tests(
    suspect: Sequence[str],
    known: Sequence[str],
    model: LanguageModel | None,
    scorer: Scorer,
    *,
    sets: int,
    shots: int,
    training: AdapterConfig,
    seed: int,
) -> list[Outcome]:
    """CoDeC and, with a model that can be fine-tuned, the kernel divergence score, by their ranks among known sets."""
    chosen, others = dataset_tests.equal_sets(len(suspect), len(known), sets, seed=seed)
    groups = [[suspect[at] for at in chosen], *([known[at] for at in other] for other in others)]
    null = f"rank among {sets} known sets of {len(groups[0])} texts"
    values = [dataset_tests.codec(group, scorer, shots=shots, seed=seed) for group in groups]
    outcomes = [Outcome(CODEC, f"{values[0]:.2f}", null, dataset_tests.rank_among(values[0], values[1:]))]
    if model is None:
        reason = "it fine-tunes the model, which an API does not allow"
        return [*outcomes, Outcome(KERNEL, "–", null, None, reason)]
    divergences = []
    with progress(len(groups), KERNEL, "set", shown=True) as bar:
        for group in groups:
            before = hidden_states(model, group, depth=1, tuned=False)
            finetune(model, group, training, seed=seed, shown=False)
            divergences.append(
                dataset_tests.kernel_divergence(before, hidden_states(model, group, depth=1, tuned=True))
            )
            adapters.detach(model)
            bar.update()
    p = dataset_tests.rank_among(divergences[0], divergences[1:])
    return [*outcomes, Outcome(KERNEL, f"{divergences[0]:.3g}", null, p)]
