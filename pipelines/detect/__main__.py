"""Verdicts on texts whose origin is not known, at an error rate of your choice.

`python -m pipelines.detect FILE --adapter models:/fsd-arxiv@champion` scores each text with an adapter that
`pipelines.fsd` registered, and compares it with texts known not to be in the training data. FILE is JSONL, CSV or
Parquet with a column text, a .txt file, or a folder of them. With --known it also judges all texts as one corpus.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.tracking import Run
    from pipelines.detect.classifier import Detective
    from pipelines.detect.verdicts import Case


@dataclass(frozen=True)
class DetectConfig:
    """Which texts, judged by which adapter, and where the verdicts go."""

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE [FILE ...]")]
    """JSONL, CSV or Parquet files with a column text; .txt files, one text each; folders of .txt files."""
    adapter: str
    """Adapter with its calibration: models:/fsd-arxiv@champion, models:/fsd-arxiv/3, runs:/<id> or a folder."""
    fpr: float = 0.05
    """Share of texts outside the training data that may be called members."""
    known: tuple[str, ...] = ()
    """Texts known not to be in the training data, of the same source, time and kind as FILE: adds one verdict on
    FILE as a whole corpus."""
    columns: str = ""
    """Other column names, e.g. text=Example_A,group=ID."""
    out: str | None = None
    """File for the verdicts: .parquet, .csv or .jsonl. The tracked run holds them too."""
    report: str | None = None
    """File for the report, .html. The tracked run holds it too."""
    model: str | None = None
    """Where the base model is, if not where it was when the adapter was trained."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or spread: over all cards, then memory, for a model larger than a card."""
    seed: int = 42
    """Of the test of the corpus as a whole."""


def main(config: DetectConfig) -> None:
    """Read, judge, write, track and show."""
    from fsd import tracking
    from fsd.data.readers import parse_columns
    from pipelines.detect import report as _dossier
    from pipelines.detect import verdicts as _case
    from pipelines.detect.classifier import Detective

    columns = parse_columns(config.columns)
    documents = _case.read(config.files, columns)
    known = _case.read(config.known, columns) if config.known else []
    check_targets(config)
    version = tracking.version_info(config.adapter)
    adapter = version.uri if version else config.adapter
    detective = Detective.fetch(adapter, model=config.model, device=config.device)
    detective.calibration.threshold_at(config.fpr)
    tests = _case.tests_of(adapter)
    with tracking.run(
        f"fsd-{detective.domain}", "detect", params=params(config), tags={"task": "detect", "adapter": adapter}
    ) as run:
        case = _case.consider(detective, documents, fpr=config.fpr, tests=tests, known=known, seed=config.seed)
        deliver(case, detective, adapter, config, run)
    _dossier.show(case)
    for target in (config.out, config.report):
        if target:
            print(f"wrote {target}")


def check_targets(config: DetectConfig) -> None:
    """Refuse files that could not be written, before any work is done."""
    from fsd.errors import UsageError
    from pipelines.detect import verdicts as _case

    if config.out:
        _case.check_out(Path(config.out))
    if config.report:
        if not config.report.lower().endswith((".html", ".htm")):
            raise UsageError(f"report must end in .html; got {config.report}")
        _case.check_folder(Path(config.report))


def deliver(case: "Case", detective: "Detective", adapter: str, config: DetectConfig, run: "Run") -> None:
    """Write what was asked for, and keep everything in the run."""
    from fsd.reporting import html as report
    from pipelines.detect import report as _dossier
    from pipelines.detect import verdicts as _case

    table = case.frame()
    page = report.render(_dossier.content(case, detective, adapter, config.files))
    if config.out:
        _case.write(table, Path(config.out))
    if config.report:
        _case.write_text(page, Path(config.report))
    run.log_dataset(
        "suspect", (d.text for d in case.documents), source=", ".join(map(str, config.files)), context="detect"
    )
    run.log_table("verdicts.parquet", table)
    run.log_text("report.html", page)
    run.log_bytes("verdicts.png", _dossier.picture(case))
    run.log_metrics(numbers(case))


def numbers(case: "Case") -> dict[str, float]:
    """Counts and rates by the names they are tracked under."""
    from pipelines.detect.classifier import MEMBER, NOT_SHOWN, OUTSIDE

    found = {f"detect/{name}": float(case.count(v)) for name, v in (("members", MEMBER), ("not_shown", NOT_SHOWN))}
    found |= {"detect/outside": float(case.count(OUTSIDE)), "detect/texts": float(len(case.documents))}
    for measured, name in zip(case.measured, ("test", "labelled"), strict=False):
        found |= {f"detect/{name}_fpr": measured.wrong.value} if measured.wrong else {}
        found |= {f"detect/{name}_found": measured.found.value} if measured.found else {}
    if case.corpus and case.corpus.verdict.p is not None:
        found["detect/corpus_p"] = case.corpus.verdict.p
    return found


def params(config: DetectConfig) -> dict[str, object]:
    """Every setting under its flag's name."""
    from dataclasses import asdict

    return asdict(config)


if __name__ == "__main__":
    command(DetectConfig, main, __doc__ or "")
