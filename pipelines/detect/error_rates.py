"""What is measured beside the verdicts: error rates on labelled texts, and the test of the texts as a whole."""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.data.corpus import Corpus
from fsd.data.documents import Documents
from fsd.data.related import refuse_members, refuse_related, without_related
from fsd.errors import UsageError
from fsd.scores import of_state
from fsd.statistics.intervals import Estimate, observed_rate
from fsd.text_audit.audited import Control
from fsd.verdicts.calibration import Calibration
from fsd.verdicts.dataset_inference import DatasetVerdict, check_sizes, compare_sets
from fsd.verdicts.verdicts import MEMBER, NOT_SHOWN, VerdictMaker, Verdicts
from pipelines.detect.classifier import MembershipClassifier


class Measured(NamedTuple):
    """Error rates measured on labelled texts; None where there are no texts of a side."""

    key: str
    """Part of metric names: `test` for held-out texts of the adapter's run, `labelled` for the user's texts."""
    name: str
    nonmembers: int
    fpr: Estimate | None
    members: int
    tpr: Estimate | None

    def contradicts(self, fpr: float) -> bool:
        """Whether significantly more non-members were called than the rate allows."""
        return self.fpr is not None and self.fpr.low > fpr

    @classmethod
    def of(cls, key: str, name: str, texts: pd.DataFrame) -> "Measured":
        """The rates of calls on texts with labels: rows with member, called and group."""
        is_member = texts["member"].astype(bool)
        nonmembers = texts[~is_member]
        members = texts[is_member]
        return cls(
            key, name, nonmembers=len(nonmembers), fpr=_rate_of(nonmembers), members=len(members), tpr=_rate_of(members)
        )


def _rate_of(texts: pd.DataFrame) -> Estimate | None:
    if texts.empty:
        return None
    return observed_rate(texts["called"].to_numpy(), texts["group"].tolist())


def on_held_out(uri: str, maker: VerdictMaker, fpr: float) -> list[Measured]:
    """The rates on held-out texts of the run that made the adapter, for each source on whose texts verdicts are given.

    The test non-members calibrate, so that those of validation try the rate. The members are those of the test, if the
    scores.parquet of the run is still there.
    """
    calibration = maker.calibration
    members = maker.called(_test_members(uri, calibration), fpr)
    rates = []
    for source in calibration.judged_at(fpr):
        of_source = calibration.of(source)
        called = members[members["source"] == source]
        name = "the adapter's own texts (non-members of validation, members of the test)"
        if source:
            name += f", source {source!r}"
        tried = of_source.tried(fpr)
        rates.append(Measured("test", name, len(of_source.validation.scores), tried, len(called), _rate_of(called)))
    return [rate for rate in rates if rate.fpr or rate.tpr]


def _test_members(uri: str, calibration: Calibration) -> pd.DataFrame:
    """The rows of the test members in the scores of the run that made the adapter; none if these are gone."""
    version = tracking.version_info(uri)
    # the scores stay with the run; a registered version has the adapter's files alone
    run = f"runs:/{version.run_id}" if version else uri
    try:
        path = tracking.fetch_model_file(run, "scores.parquet")
    except UsageError:  # the run was deleted; its registered model remains
        path = None
    # an adapter from a folder has none
    if path is None:
        return pd.DataFrame(columns=["group", "text", str(calibration.score)])
    scores = pd.read_parquet(path)
    return scores[(scores["label"] == 1) & (scores["split"] == "test")]


def on_labelled(documents: Documents, verdicts: Verdicts) -> list[Measured]:
    """The rates on the texts given, if any that were judged are labelled."""
    calls = verdicts.table["verdict"]
    texts = pd.DataFrame(
        {"member": [document.member for document in documents], "called": calls == MEMBER, "group": verdicts.family}
    )
    judged = texts[texts["member"].notna() & calls.isin((MEMBER, NOT_SHOWN))]
    if judged.empty:
        return []
    return [Measured.of("labelled", "the labelled texts given", judged)]


class DatasetComparison(NamedTuple):
    """Comparison of all texts together with known non-members."""

    verdict: DatasetVerdict
    controls: dict[str, Control]
    """What date and length alone, and a blind classifier, reach between the texts and the known non-members."""
    left_out: int
    """Number of texts on either side on which no verdict can be given."""


class Sides(NamedTuple):
    """Suspect texts and known non-members that can be compared as sets, and how many on either side cannot."""

    suspect: Corpus
    nonmembers: Corpus
    left_out: int


def comparable_sides(
    classifier: MembershipClassifier, suspect: Documents, nonmembers: Documents, *, drop: bool = False
) -> Sides:
    """The texts of both sides on which a verdict can be given.

    The scores of those that the adapter was trained on reflect fine-tuning, and a few texts in another language can
    shift the mean of their side. A UsageError if too few are left on a side, or if a known text is labelled a member,
    shares a group with a suspect text or is a near-duplicate of one, unless these are to be dropped.
    """
    refuse_members(nonmembers)
    comparable_suspect = _comparable(classifier, suspect, "texts")
    comparable_nonmembers = _comparable(classifier, nonmembers, "known texts")
    # a passage of many texts links none, until texts have been left out
    if drop:
        comparable_nonmembers = Corpus(without_related(comparable_suspect, comparable_nonmembers)[0])
    # a text on both sides would pull them together, and a relative of one as well
    refuse_related(comparable_suspect, comparable_nonmembers)
    check_sizes(*(np.unique(side.family).size for side in (comparable_suspect, comparable_nonmembers)))
    left_out = len(suspect) + len(nonmembers) - len(comparable_suspect) - len(comparable_nonmembers)
    return Sides(comparable_suspect, comparable_nonmembers, left_out)


def compare_dataset(classifier: MembershipClassifier, sides: Sides, *, seed: int) -> DatasetComparison:
    """Test whether the texts as a whole were in the training data, by comparison with known non-members.

    A UsageError as for `fsd.verdicts.dataset_inference.compare_sets`.
    """
    scored = classifier.scores(sides.suspect.prompts + sides.nonmembers.prompts, every=True)
    # a version by base scores alone has no adapter to compare with
    single, difference = scored.states
    scores = of_state(scored.columns, difference) or of_state(scored.columns, single)
    verdict, without_model = compare_sets(sides.suspect, sides.nonmembers, scores, seed=seed)
    return DatasetComparison(verdict, without_model, sides.left_out)


def _comparable(classifier: MembershipClassifier, documents: Documents, side: str) -> Corpus:
    """The texts on which a verdict can be given, as a corpus of their own; a UsageError if there is none."""
    reasons = classifier.left_out(documents)
    kept = Corpus(document for document, reason in zip(documents, reasons, strict=True) if not reason)
    if not kept:
        ((reason, count),) = Counter(reasons).most_common(1)
        raise UsageError(
            f"{side} must have some that can be compared as a set; of {len(documents)} none can, "
            f"{count} for this reason: {reason}"
        )
    return kept
