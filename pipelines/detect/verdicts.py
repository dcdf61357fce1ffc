"""Verdicts on a set of texts, with measured error rates and the test of the set as a whole."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.data import periods
from fsd.data.documents import Document
from fsd.data.near_duplicates import families, refuse_members, refuse_related
from fsd.errors import UsageError
from fsd.evaluation.audit import Control, controls
from fsd.evaluation.calibration import TOLERANCE, Calibration, observed_rate
from fsd.evaluation.contrasts import kinds_in
from fsd.evaluation.dataset_inference import DatasetVerdict, dataset_verdict
from fsd.evaluation.intervals import BoolArray, Estimate
from fsd.evaluation.sentences import AuditSummary
from fsd.evaluation.verdicts import ASSERTED, MEMBER, NO_VERDICT, NOT_SHOWN, OUT_OF_DOMAIN, Basis, Rules
from fsd.token_stats import FloatArray, Scores
from pipelines.detect.classifier import MembershipClassifier


class Measured(NamedTuple):
    """Error rates measured on labelled texts.

    Attributes:
        key: `test` for the test texts of the adapter's run, `labelled` for the user's texts; part of metric names.
        name: description of the texts.
        nonmembers: number of non-members.
        fpr: false-positive rate; None without non-members.
        members: number of members.
        tpr: true-positive rate; None without members.
    """

    key: str
    name: str
    nonmembers: int
    fpr: Estimate | None
    members: int
    tpr: Estimate | None


@dataclass(frozen=True)
class DatasetComparison:
    """Comparison of all texts together with known non-members.

    Attributes:
        verdict: result of dataset inference.
        date: AUC of the date alone between the texts and the known non-members.
        length: AUC of the length alone.
        left_out: number of texts on either side that were left out because no verdict can be given on them.
    """

    verdict: DatasetVerdict
    date: Control
    length: Control
    left_out: int


@dataclass(frozen=True)
class Verdicts:
    """Results of one call of pipelines.detect.

    Attributes:
        documents: the N texts.
        table: N rows with score, rank, p_value, verdict, basis, warning and selected.
        fpr: false-positive rate chosen by the user.
        calibration: calibration of the detector.
        measured: error rates on labelled texts.
        dataset: comparison of all texts with known non-members; None if there are none.
        audit: of the run that made the adapter; None if it is not known.
        bases: what the verdicts on the texts of each source rest on.
        fdr: false discovery rate of the column `selected`.
        remarks: what was left out.
    """

    documents: Sequence[Document]
    table: pd.DataFrame
    fpr: float
    calibration: Calibration
    measured: Sequence[Measured]
    dataset: DatasetComparison | None
    audit: AuditSummary | None
    bases: Sequence[Basis]
    fdr: float
    remarks: Sequence[str] = ()

    def count(self, verdict: str) -> int:
        """Number of texts with that verdict."""
        return int((self.table["verdict"] == verdict).sum())

    @property
    def in_domain(self) -> int:
        """Number of texts on which a verdict is given."""
        return self.count(MEMBER) + self.count(NOT_SHOWN)

    @property
    def asserted(self) -> bool:
        """Whether a verdict rests on the assertion that the texts are of the calibrated kind."""
        return any(basis.verdict == ASSERTED for basis in self.bases)

    def calls(self) -> tuple[int, int]:
        """Number of families of which the first judged text is called a member, and of all families judged.

        Passages of one book are called together, so that only one text of each family says how many calls are chance.
        """
        judged = np.flatnonzero(self.table["p_value"].notna())
        family = families([self.documents[at] for at in judged.tolist()])
        first = judged[np.unique(family, return_index=True)[1]]
        return int((self.table["verdict"][first] == MEMBER).sum()), first.size

    def frame(self) -> pd.DataFrame:
        """The table as written to files: source, text, label if there are labels, and the verdict."""
        columns = pd.DataFrame({"source": [d.source for d in self.documents], "text": [d.text for d in self.documents]})
        if any(document.member is not None for document in self.documents):
            columns["label"] = pd.array([d.member for d in self.documents], dtype="boolean").astype("Int64")
        return pd.concat([columns, self.table], axis=1)

    def metrics(self) -> dict[str, float]:
        """Counts and rates under the names by which they are tracked."""
        values = {
            "detect/members": float(self.count(MEMBER)),
            "detect/not_shown": float(self.count(NOT_SHOWN)),
            "detect/outside": float(self.count(OUT_OF_DOMAIN)),
            "detect/no_verdict": float(self.count(NO_VERDICT)),
            "detect/texts": float(len(self.documents)),
            "detect/selected": float(self.table["selected"].sum()),
        }
        tests = [basis.test.p for basis in self.bases if basis.test]
        if tests:
            values["detect/exchangeability_p"] = min(tests)
        for measured in self.measured:
            if measured.fpr:
                values[f"detect/{measured.key}_fpr"] = measured.fpr.value
            if measured.tpr:
                values[f"detect/{measured.key}_found"] = measured.tpr.value
        if self.dataset and self.dataset.verdict.p is not None:
            values["detect/corpus_p"] = self.dataset.verdict.p
        return values


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

    Args:
        classifier: the classifier.
        documents: N ≥ 1 texts; error rates are measured on those with labels.
        rules: rates, and whether the kind of the texts is asserted.
        test_scores: scores.parquet of the adapter's run, if available.
        known: matched texts known to be non-members, for dataset inference; none for verdicts on single texts alone.
        seed: random seed for dataset inference.

    Raises:
        UsageError: if the calibration does not support the rate, and as for `compare_dataset`.
    """
    calibration = classifier.calibration
    dataset = compare_dataset(classifier, documents, known, seed=seed) if known else None
    texts, family = [document.text for document in documents], families(documents)
    collections = [document.collection for document in documents]
    table, bases = classifier.classify(texts, rules, families=family, collections=collections)
    measured = []
    if test_scores is not None:
        test_scores = test_scores[test_scores["label"].notna()]  # an audit's table also has the texts that it judged
        compared = periods.compared(kinds_in(test_scores))  # as when the adapter was judged and calibrated
        held_out = test_scores[(test_scores["split"] == "test").to_numpy() & compared]
        names = [candidate.detector for candidate in calibration.candidates]
        columns = {name: held_out[f"{name}.{calibration.state}"].to_numpy(np.float64) for name in names}
        called = _p_values(calibration, columns, held_out) <= rules.fpr + TOLERANCE
        member = (held_out["label"] == 1).to_numpy()
        measured.append(_measure("test", "the adapter's own test texts", member, called, held_out["group"].tolist()))
    labelled = [
        at for at, d in enumerate(documents) if d.member is not None and table["verdict"][at] in (MEMBER, NOT_SHOWN)
    ]
    if labelled:
        called = (table["verdict"] == MEMBER).to_numpy()[labelled]
        member = np.array([bool(documents[at].member) for at in labelled])
        measured.append(
            _measure("labelled", "the labelled texts given", member, called, [family[at] for at in labelled])
        )
    return Verdicts(documents, table, rules.fpr, calibration, measured, dataset, classifier.audit, bases, rules.fdr)


def _p_values(calibration: Calibration, scores: Scores, texts: pd.DataFrame) -> FloatArray:
    """(N,) p-value of each text by the non-members of its source; NaN for a source without any."""
    sources = texts["source"].to_numpy() if "source" in texts else np.full(len(texts), "")
    p_values = np.full(len(texts), np.nan)
    for name in calibration.source_groups:
        own = sources == name
        p_values[own] = calibration.of(name).p_values({key: column[own] for key, column in scores.items()})
    return p_values


def _measure(key: str, name: str, member: BoolArray, called: BoolArray, groups: Sequence[Hashable]) -> Measured:
    group = np.array(groups)
    fpr, tpr = (observed_rate(called[side], group[side].tolist()) if side.any() else None for side in (~member, member))
    return Measured(key, name, int((~member).sum()), fpr, int(member.sum()), tpr)


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
    sides = [
        [d for d, why in zip(side, _left_out(classifier, side), strict=True) if not why] for side in (suspect, known)
    ]
    refuse_related(*sides)
    documents = [document for side in sides for document in side]
    texts = [document.text for document in documents]
    split = len(sides[0])
    groups = [*families(sides[0]), *(split + family for family in families(sides[1]))]
    labels = [at < split for at in range(len(texts))]
    scores = classifier.fsd_scores(texts)
    without_model = controls(documents, labels, groups, seed=seed)
    verdict = dataset_verdict(
        {name: column[:split] for name, column in scores.items()},
        {name: column[split:] for name, column in scores.items()},
        suspect_groups=groups[:split],
        known_groups=groups[split:],
        blind=without_model["blind"],
        seed=seed,
    )
    left_out = len(suspect) + len(known) - len(texts)
    return DatasetComparison(verdict, without_model["date"], without_model["length"], left_out)


def _left_out(classifier: MembershipClassifier, side: Sequence[Document]) -> list[str]:
    """(N,) reason why no verdict can be given on a text, whatever the others are; "" if one can."""
    texts, sources = [document.text for document in side], [document.collection for document in side]
    outside = classifier.judge.outside(texts, families(side), sources)
    unknown = [classifier.judge.unknown(source) for source in classifier.judge.sources(sources, len(texts))]
    return [a or b or c for a, b, c in zip(classifier.excluded(texts), outside, unknown, strict=True)]


def fetch_test_scores(uri: str) -> pd.DataFrame | None:
    """scores.parquet of the run that made the adapter; None if it does not exist."""
    version = tracking.version_info(uri)
    try:
        path = tracking.fetch_model_file(f"runs:/{version.run_id}" if version else uri, "scores.parquet")
    except UsageError:  # the run was deleted; its registered model remains
        return None
    return pd.read_parquet(path) if path else None
