"""Verdicts on a set of texts, with measured error rates and the test of the set as a whole."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.data import splitting
from fsd.data.documents import Document
from fsd.data.near_duplicates import families, refuse_members, refuse_related
from fsd.errors import UsageError
from fsd.evaluation.audit import Control, controls
from fsd.evaluation.calibration import TOLERANCE, Calibration, observed_rate
from fsd.evaluation.dataset_inference import DatasetVerdict, dataset_verdict
from fsd.evaluation.metrics import BoolArray, Estimate, by_state
from fsd.evaluation.results import kinds_in
from fsd.evaluation.sentences import AuditSummary
from fsd.evaluation.verdicts import ASSERTED, MEMBER, NO_VERDICT, NOT_SHOWN, OUT_OF_DOMAIN, Classified, Rules
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
    def of(cls, key: str, name: str, member: BoolArray, called: BoolArray, groups: Sequence[Hashable]) -> "Measured":
        """The rates of (N,) calls on texts with labels, by groups of related texts."""
        group = np.array(groups)
        sides = (~member, member)
        fpr, tpr = (observed_rate(called[side], group[side].tolist()) if side.any() else None for side in sides)
        return cls(key, name, int((~member).sum()), fpr, int(member.sum()), tpr)


class DatasetComparison(NamedTuple):
    """Comparison of all texts together with known non-members."""

    verdict: DatasetVerdict
    controls: dict[str, Control]
    """What date and length alone, and a blind classifier, reach between the texts and the known non-members."""
    left_out: int
    """Number of texts on either side on which no verdict can be given."""


@dataclass(frozen=True)
class Verdicts:
    """Results of one call of pipelines.detect on N texts."""

    documents: Sequence[Document]
    classified: Classified
    rules: Rules
    calibration: Calibration
    measured: Sequence[Measured]
    dataset: DatasetComparison | None
    audit: AuditSummary | None
    """Of the run that made the adapter; None if it is not known."""
    remarks: Sequence[str] = ()

    @property
    def table(self) -> pd.DataFrame:
        """N rows with score, rank, p_value, verdict, basis, warning and selected."""
        return self.classified.table

    def count(self, *verdicts: str) -> int:
        """Number of texts with one of these verdicts."""
        return int(self.table["verdict"].isin(verdicts).sum())

    @property
    def in_domain(self) -> int:
        """Number of texts on which a verdict is given."""
        return self.count(MEMBER, NOT_SHOWN)

    @property
    def asserted(self) -> bool:
        """Whether a verdict rests on the assertion that the texts are of the calibrated kind."""
        return any(basis.verdict == ASSERTED for basis in self.classified.bases)

    def calls(self) -> tuple[int, int]:
        """Number of families of which the first judged text is called a member, and of all families judged.

        Passages of one book are called together, so that only one text of each family says how many calls are chance.
        """
        judged = np.flatnonzero(self.table["p_value"].notna())
        first = judged[np.unique(np.array(self.classified.families)[judged], return_index=True)[1]]
        return int((self.table["verdict"][first] == MEMBER).sum()), first.size

    def frame(self) -> pd.DataFrame:
        """The table as written to files: source, text, label if there are labels, and the verdict."""
        columns = pd.DataFrame({"source": [d.source for d in self.documents], "text": [d.text for d in self.documents]})
        if any(document.member is not None for document in self.documents):
            columns["label"] = pd.array([d.member for d in self.documents], dtype="boolean").astype("Int64")
        return pd.concat([columns, self.table], axis=1)

    def metrics(self) -> dict[str, float]:
        """Counts and rates under the names by which they are tracked."""
        tests = [basis.test.p for basis in self.classified.bases if basis.test]
        values = {
            "members": self.count(MEMBER),
            "not_shown": self.count(NOT_SHOWN),
            "outside": self.count(OUT_OF_DOMAIN),
            "no_verdict": self.count(NO_VERDICT),
            "texts": len(self.documents),
            "selected": self.table["selected"].sum(),
            "exchangeability_p": min(tests, default=None),
            "corpus_p": self.dataset.verdict.p if self.dataset else None,
        }
        for measured in self.measured:
            values[f"{measured.key}_fpr"] = measured.fpr.value if measured.fpr else None
            values[f"{measured.key}_found"] = measured.tpr.value if measured.tpr else None
        return {f"detect/{name}": float(value) for name, value in values.items() if value is not None}


def judge(
    classifier: MembershipClassifier,
    documents: Sequence[Document],
    rules: Rules,
    *,
    test_scores: pd.DataFrame | None = None,
    known: Sequence[Document] = (),
    seed: int = 0,
) -> Verdicts:
    """Classify the texts and measure every error rate that can be measured.

    `test_scores` is scores.parquet of the adapter's run, if available; `known` are matched texts known to be
    non-members, for the test of the texts as a whole. A UsageError if the calibration does not support the rate, and as
    for `compare_dataset`.
    """
    calibration = classifier.calibration
    dataset = compare_dataset(classifier, documents, known, seed=seed) if known else None
    classified = classifier.classify(documents, rules)
    measured = []
    if test_scores is not None:
        test_scores = test_scores[test_scores["label"].notna()]  # an audit's table also has the texts that it judged
        compared = splitting.compared(kinds_in(test_scores))  # as when the adapter was judged and calibrated
        held_out = test_scores[(test_scores["split"] == "test").to_numpy() & compared]
        scores = by_state(held_out, (calibration.state,))[calibration.state]
        sources = held_out["source"].to_numpy() if "source" in held_out else np.full(len(held_out), "")
        called = calibration.p_values_by_source(scores, sources) <= rules.fpr + TOLERANCE
        member, groups = (held_out["label"] == 1).to_numpy(), held_out["group"].tolist()
        measured.append(Measured.of("test", "the adapter's own test texts", member, called, groups))
    judged = classified.table["verdict"].isin((MEMBER, NOT_SHOWN))
    labelled = [at for at, document in enumerate(documents) if document.member is not None and judged[at]]
    if labelled:
        called = (classified.table["verdict"] == MEMBER).to_numpy()[labelled]
        member = np.array([bool(documents[at].member) for at in labelled])
        groups = [classified.families[at] for at in labelled]
        measured.append(Measured.of("labelled", "the labelled texts given", member, called, groups))
    return Verdicts(documents, classified, rules, calibration, measured, dataset, classifier.audit)


def compare_dataset(
    classifier: MembershipClassifier, suspect: Sequence[Document], known: Sequence[Document], *, seed: int = 0
) -> DatasetComparison:
    """Test whether the texts as a whole were in the training data, by comparison with known non-members.

    Texts on which no verdict can be given are left out on both sides: the scores of those that the adapter was trained
    on reflect fine-tuning, and a few texts in another language can shift the mean of their side.

    Raises:
        UsageError: if a known text is labelled a member, shares a group with a suspect text or is a near-duplicate of
            one, and as for `fsd.evaluation.dataset_inference.dataset_verdict`.
    """
    refuse_members(known)
    left, right = (
        [d for d, why in zip(side, classifier.left_out(side), strict=True) if not why] for side in (suspect, known)
    )
    refuse_related(left, right)
    documents, split = [*left, *right], len(left)
    groups = [*families(left), *(split + family for family in families(right))]
    texts = [document.text for document in documents]
    scores = classifier.scores(texts, classifier.cheap(texts))
    labels = [at < split for at in range(len(documents))]
    without_model = controls(documents, labels, groups, seed=seed)
    verdict = dataset_verdict(
        {name: column[:split] for name, column in scores.items()},
        {name: column[split:] for name, column in scores.items()},
        suspect_groups=groups[:split],
        known_groups=groups[split:],
        blind=without_model["blind"],
        seed=seed,
    )
    return DatasetComparison(verdict, without_model, len(suspect) + len(known) - len(documents))


def fetch_test_scores(uri: str) -> pd.DataFrame | None:
    """scores.parquet of the run that made the adapter; None if it does not exist."""
    version = tracking.version_info(uri)
    try:
        path = tracking.fetch_model_file(f"runs:/{version.run_id}" if version else uri, "scores.parquet")
    except UsageError:  # the run was deleted; its registered model remains
        return None
    return pd.read_parquet(path) if path else None
