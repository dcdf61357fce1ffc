"""What is measured beside the verdicts: error rates on labelled texts, and the test of the texts as a whole."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from fsd import tracking
from fsd.data import splitting
from fsd.data.documents import Document
from fsd.data.near_duplicates import families, refuse_members, refuse_related
from fsd.errors import UsageError
from fsd.evaluation.audit import Control, controls
from fsd.evaluation.calibration import TOLERANCE, Calibration, observed_rate
from fsd.evaluation.dataset_inference import DatasetVerdict, dataset_verdict
from fsd.evaluation.metrics import Estimate, by_state
from fsd.evaluation.results import kinds_in
from fsd.evaluation.verdicts import MEMBER, NOT_SHOWN, Verdicts
from pipelines.detect.classifier import MembershipClassifier


class Measured(NamedTuple):
    """Error rates measured on labelled texts; None where there are no texts of a side."""

    key: str
    """Part of metric names: `test` for the test texts of the adapter's run, `labelled` for the user's texts."""
    name: str
    nonmembers: int
    fpr: Estimate | None
    members: int
    tpr: Estimate | None

    @classmethod
    def of(cls, key: str, name: str, texts: pd.DataFrame) -> "Measured":
        """The rates of calls on texts with labels: rows with member, called and group."""
        sides = [texts[texts["member"] == side] for side in (False, True)]
        fpr, tpr = (
            observed_rate(own["called"].to_numpy(), own["group"].tolist()) if len(own) else None for own in sides
        )
        return cls(key, name, len(sides[0]), fpr, len(sides[1]), tpr)


def on_test(uri: str, calibration: Calibration, fpr: float) -> list[Measured]:
    """The rates on the test texts of the run that made the adapter, if its scores.parquet is still there."""
    version = tracking.version_info(uri)
    try:
        path = tracking.fetch_model_file(f"runs:/{version.run_id}" if version else uri, "scores.parquet")
    except UsageError:  # the run was deleted; its registered model remains
        return []
    if path is None:
        return []
    scores = pd.read_parquet(path)
    scores = scores[scores["label"].notna()]  # an audit's table also has the texts that it judged
    compared = splitting.compared(kinds_in(scores))  # as when the adapter was judged and calibrated
    held_out = scores[(scores["split"] == "test").to_numpy() & compared]
    sources = held_out["source"].tolist() if "source" in held_out else [""] * len(held_out)
    p_values = calibration.p_values(by_state(held_out, (calibration.state,))[calibration.state], sources)
    texts = held_out.assign(member=held_out["label"] == 1, called=p_values <= fpr + TOLERANCE)
    return [Measured.of("test", "the adapter's own test texts", texts)]


def on_labelled(documents: Sequence[Document], found: Verdicts) -> list[Measured]:
    """The rates on the texts given, if any that were judged are labelled."""
    calls = found.table["verdict"]
    texts = pd.DataFrame({"member": [d.member for d in documents], "called": calls == MEMBER, "group": found.family})
    texts = texts[texts["member"].notna() & calls.isin((MEMBER, NOT_SHOWN))]
    return [Measured.of("labelled", "the labelled texts given", texts)] if len(texts) else []


class DatasetComparison(NamedTuple):
    """Comparison of all texts together with known non-members."""

    verdict: DatasetVerdict
    controls: dict[str, Control]
    """What date and length alone, and a blind classifier, reach between the texts and the known non-members."""
    left_out: int
    """Number of texts on either side on which no verdict can be given."""


def compare_dataset(
    classifier: MembershipClassifier, suspect: Sequence[Document], known: Sequence[Document], *, seed: int = 0
) -> DatasetComparison:
    """Test whether the texts as a whole were in the training data, by comparison with known non-members.

    Texts on which no verdict can be given are left out on both sides: the scores of those that the adapter was trained
    on reflect fine-tuning, and a few texts in another language can shift the mean of their side. A UsageError if a
    known text is labelled a member, shares a group with a suspect text or is a near-duplicate of one, and as for
    `fsd.evaluation.dataset_inference.dataset_verdict`.
    """
    refuse_members(known)
    left, right = (
        [d for d, why in zip(side, classifier.left_out(side), strict=True) if not why] for side in (suspect, known)
    )
    refuse_related(left, right)
    documents, split = [*left, *right], len(left)
    groups = [*families(left), *(split + family for family in families(right))]
    texts = [document.text for document in documents]
    scores = classifier.scores(texts, every=True)
    without_model = controls(documents, [at < split for at in range(len(documents))], groups, seed=seed)
    verdict = dataset_verdict(
        {name: column[:split] for name, column in scores.items()},
        {name: column[split:] for name, column in scores.items()},
        suspect_groups=groups[:split],
        known_groups=groups[split:],
        blind=without_model["blind"],
        seed=seed,
    )
    return DatasetComparison(verdict, without_model, len(suspect) + len(known) - len(documents))
