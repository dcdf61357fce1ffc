"""A user's texts and what was found about them: verdicts, the error rates behind them, the corpus as a whole."""

import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from fsd import tracking
from fsd.data.documents import Document
from fsd.data.near_duplicates import families, near_duplicates, words
from fsd.data.readers import read_files
from fsd.errors import UsageError
from fsd.evaluation.audit import Control, alone, blind
from fsd.evaluation.calibration import Calibration, observed_rate
from fsd.evaluation.dataset_inference import DatasetVerdict, dataset_verdict
from fsd.evaluation.intervals import BoolArray, Estimate
from pipelines.detect.classifier import MEMBER, OUTSIDE, Detective

ENDINGS = (".parquet", ".csv", ".jsonl")
"""Of the file of verdicts."""


class Measured(NamedTuple):
    """How often labelled texts were called members.

    Attributes:
        name: which texts, in words.
        others: number of non-members; `wrong` is the share of them called members, None without any.
        wrong: see above.
        members: number of members; `found` is the share of them called members, None without any.
        found: see above.
    """

    name: str
    others: int
    wrong: Estimate | None
    members: int
    found: Estimate | None


@dataclass(frozen=True)
class Corpus:
    """The verdict on all texts together.

    Attributes:
        verdict: p-value or refusal.
        date: AUC of the date alone between the texts and the known non-members.
        length: AUC of the length alone.
        left_out: texts of either side that no verdict can be given on, and that were therefore left out.
    """

    verdict: DatasetVerdict
    date: Control
    length: Control
    left_out: int


@dataclass(frozen=True)
class Case:
    """All that a user is told.

    Attributes:
        documents: the texts asked about.
        verdicts: a row a text: score, p_value, verdict, warning.
        fpr: the chosen false-positive rate.
        calibration: of the detector.
        measured: error rates on labelled texts, the adapter's own test texts first.
        corpus: None where no known non-members were given.
    """

    documents: Sequence[Document]
    verdicts: pd.DataFrame
    fpr: float
    calibration: Calibration
    measured: Sequence[Measured]
    corpus: Corpus | None

    def count(self, verdict: str) -> int:
        """Number of texts of that verdict."""
        return int((self.verdicts["verdict"] == verdict).sum())

    @property
    def inside(self) -> int:
        """Number of texts that a verdict is given on."""
        return len(self.documents) - self.count(OUTSIDE)

    def frame(self) -> pd.DataFrame:
        """The table that is written: where each text is from, the text, its label if it has one, and the verdict."""
        table = pd.DataFrame({"source": [d.source for d in self.documents], "text": [d.text for d in self.documents]})
        if any(document.member is not None for document in self.documents):
            labels = [None if d.member is None else int(d.member) for d in self.documents]
            table["label"] = pd.array(labels, dtype="Int64")
        return pd.concat([table, self.verdicts], axis=1)


def read(paths: Sequence[str | Path], columns: Mapping[str, str]) -> list[Document]:
    """The texts of all files: rows of data files, a .txt file as one text, a folder as the .txt files in it.

    Raises:
        UsageError: for a folder without .txt files, a blank or undecodable text, and as `fsd.data.readers.read_files`.
    """
    found: list[Document] = []
    for path in map(Path, paths):
        if path.is_dir():
            files = sorted(p for p in path.rglob("*.txt") if p.is_file())
            if not files:
                raise UsageError(f"a folder must hold .txt files, one text each; {path} has none")
            found += [_whole(file) for file in files]
        elif path.suffix.lower() == ".txt":
            found.append(_whole(path))
        else:
            found += read_files([path], columns)
    if not found:
        raise UsageError("at least one file must be given; got none")
    return found


def _whole(path: Path) -> Document:
    try:
        text = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not" if isinstance(error, UnicodeDecodeError) else (error.strerror or "").lower()
        raise UsageError(f"{path} must be a readable text file in UTF-8; {reason}") from error
    if not text:
        raise UsageError(f"{path} must hold a text that is not blank; it has none")
    return Document(text, source=str(path))


def consider(
    detective: Detective,
    documents: Sequence[Document],
    *,
    fpr: float,
    tests: pd.DataFrame | None = None,
    known: Sequence[Document] = (),
    seed: int = 0,
) -> Case:
    """Verdicts on the texts, with every error rate that can be measured.

    Args:
        detective: the adapter at work.
        documents: the texts.
        fpr: chosen false-positive rate.
        tests: scores.parquet of the adapter's run, if it is at hand.
        known: texts known not to be members and like the others: adds the verdict on the corpus.
        seed: of the corpus test.

    Raises:
        UsageError: for a rate that the calibration cannot support, and as `together`.
    """
    calibration = detective.calibration
    threshold = calibration.threshold_at(fpr)
    corpus = together(detective, documents, known, seed=seed) if known else None
    verdicts = detective.verdicts([document.text for document in documents], fpr=fpr)
    measured = [] if tests is None else [_on_tests(tests, calibration, threshold)]
    labelled = [at for at, d in enumerate(documents) if d.member is not None and not verdicts["warning"][at]]
    if labelled:
        called = (verdicts["verdict"] == MEMBER).to_numpy()[labelled]
        member = np.array([bool(documents[at].member) for at in labelled])
        groups = families([documents[at] for at in labelled])
        measured.append(_measure("the labelled texts given", member, called, groups))
    return Case(documents, verdicts, fpr, calibration, measured, corpus)


def _on_tests(tests: pd.DataFrame, calibration: Calibration, threshold: float) -> Measured:
    held = tests[tests["split"] == "test"]
    called = (held[f"{calibration.detector}.{calibration.state}"] >= threshold).to_numpy()
    member = (held["label"] == 1).to_numpy()
    return _measure("the adapter's own test texts", member, called, held["group"].tolist())


def _measure(name: str, member: BoolArray, called: BoolArray, groups: Sequence[Hashable]) -> Measured:
    group = np.array(groups)
    shares = [observed_rate(called[s], group[s].tolist()) if s.any() else None for s in (~member, member)]
    return Measured(name, int((~member).sum()), shares[0], int(member.sum()), shares[1])


def together(detective: Detective, suspect: Sequence[Document], known: Sequence[Document], *, seed: int = 0) -> Corpus:
    """Was the corpus as a whole in the training data, by comparison with texts known not to be?

    Texts on which no verdict can be given are left out on both sides. The scores of those that the adapter was trained
    on measure the fine-tuning, and a few texts in another language are enough to raise the mean of their side.

    Raises:
        UsageError: if a known text is labelled a member, or is (nearly) one of the suspect texts, and as
            `fsd.evaluation.dataset_inference.dataset_verdict`.
    """
    wrong = next((d for d in known if d.member), None)
    if wrong:
        raise UsageError(f"known must hold texts that are no members; {wrong.source} is labelled a member")
    sides = [[d for d in side if not detective.warning(d.text)] for side in (suspect, known)]
    shared = ({d.group for d in sides[0]} & {d.group for d in sides[1]}) - {""}
    if shared:
        raise UsageError(f"known must hold other groups than the texts asked about; both have {min(shared)!r}")
    documents = [document for side in sides for document in side]
    texts = [document.text for document in documents]
    split = len(sides[0])
    for link in near_duplicates(texts):
        if link.i < split <= link.j:
            pair = f"{documents[link.i].source} and {documents[link.j].source}"
            raise UsageError(f"known must hold other texts than those asked about; {pair} are alike ({link.reason})")
    groups = [*families(sides[0]), *(split + family for family in families(sides[1]))]
    labels = [at < split for at in range(len(texts))]
    scores = detective.every_score(texts)
    verdict = dataset_verdict(
        {name: column[:split] for name, column in scores.items()},
        {name: column[split:] for name, column in scores.items()},
        suspect_groups=groups[:split],
        known_groups=groups[split:],
        blind=blind(texts, labels, groups, seed=seed),
        seed=seed,
    )
    dates = [document.date.toordinal() if document.date else None for document in documents]
    return Corpus(
        verdict,
        alone(dates, labels, groups, seed=seed),
        alone([len(words(text)) for text in texts], labels, groups, seed=seed),
        len(suspect) + len(known) - len(texts),
    )


def tests_of(uri: str) -> pd.DataFrame | None:
    """The scores of the run that made the adapter; None where they are not to be had."""
    version = tracking.version_info(uri)
    try:
        path = tracking.fetch_model_file(f"runs:/{version.run_id}" if version else uri, "scores.parquet")
    except UsageError:  # the run was deleted for good; its model lives on
        return None
    return pd.read_parquet(path) if path else None


def check_out(path: Path) -> None:
    """Refuse a file of verdicts that could not be written.

    Raises:
        UsageError: for another ending or a folder that does not exist.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"out must end in {', '.join(ENDINGS)}; got {path}")
    check_folder(path)


def check_folder(path: Path) -> None:
    """Refuse a file in a folder that does not exist.

    Raises:
        UsageError: see above.
    """
    if not path.resolve().parent.is_dir() or path.is_dir():
        raise UsageError(f"a file to write must lie in a folder that exists, and be none itself; got {path}")


def write(table: pd.DataFrame, path: Path) -> None:
    """Write the table as the ending says; the file appears whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.suffix.lower() == ".parquet":
            table.to_parquet(draft, index=False)
        elif path.suffix.lower() == ".csv":
            table.to_csv(draft, index=False)
        else:
            table.to_json(draft, orient="records", lines=True, force_ascii=False, double_precision=15)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_text(text: str, path: Path) -> None:
    """Write a text file; it appears whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
