"""Was this text in the training data? Verdicts on new texts at a false-positive rate of your choice.

`python -m pipelines.detect FILE --adapter models:/fsd-arxiv@champion` scores each text with an adapter registered by
`pipelines.fsd` and compares the score with those of texts known to be non-members. FILE is JSONL, CSV or Parquet with a
column `text`, a .txt file, or a folder of .txt files. With --known, all texts are also tested together as one data set.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from fsd.config import CleaningConfig, OptionalModel, OptionalPath, flags
from pipelines.common.cli import command


@dataclass(frozen=True)
class DetectConfig:
    """Texts, adapter and output of pipelines.detect."""

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE [FILE ...]")]
    """JSONL, CSV or Parquet files with a column `text`; .txt files, one text each; folders of .txt files."""
    adapter: str
    """Adapter with its calibration: models:/fsd-arxiv@champion, models:/fsd-arxiv/3, runs:/<id> or a folder."""
    fpr: float = 0.05
    """False-positive rate: share of non-members that may be called members."""
    fdr: float = 0.1
    """False discovery rate of the column `selected`: share of selected texts that may be non-members, on average."""
    storey: bool = False
    """Estimate the share of non-members for `selected` (Storey), which selects more if many texts are members."""
    known: tuple[str, ...] = ()
    """Texts known to be non-members, of the same source, time and kind as FILE; adds a test of FILE as a whole."""
    columns: str = ""
    """Column names that differ from the defaults, e.g. text=Example_A,group=ID."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    out: OptionalPath = None
    """Output file for the verdicts: .parquet, .csv or .jsonl. The tracked run has a copy in any case."""
    report: OptionalPath = None
    """Output file for the report: .html. The tracked run has a copy in any case."""
    model: OptionalModel = None
    """Location of the base model, if it has changed since the adapter was trained."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or spread: over all GPUs, then memory, for a model larger than one GPU."""
    seed: int = 42
    """Random seed for the test of FILE as a whole."""


def main(config: DetectConfig) -> None:
    """Read the texts, load the classifier, judge, write, track and print."""
    from fsd import tracking
    from fsd.evaluation.discoveries import check_fdr
    from pipelines.common import datasets
    from pipelines.common.output import check_space
    from pipelines.common.report import run_name
    from pipelines.detect import report, verdicts
    from pipelines.detect.classifier import MembershipClassifier

    check_fdr(config.fdr)
    documents, cleaned = datasets.read_cleaned(config.files, config.columns, config.cleaning)
    known, unknown = datasets.read_own(config.known, config.columns, config.cleaning) if config.known else ([], [])
    check_outputs(config)
    check_space(document.text for document in (*documents, *known))
    version = tracking.version_info(config.adapter)
    adapter = version.uri if version else config.adapter
    classifier = MembershipClassifier(adapter, model=config.model, device=config.device)
    classifier.calibration.threshold_at(config.fpr)
    test_scores = verdicts.fetch_test_scores(adapter)
    tags = {"task": "detect", "adapter": adapter}
    name = run_name(classifier.language_model.identity.id, config.files, "detect")
    with tracking.run(f"fsd-{classifier.domain}", name, params=flags(config), tags=tags) as run:
        result = verdicts.judge(
            classifier,
            documents,
            fpr=config.fpr,
            fdr=config.fdr,
            storey=config.storey,
            test_scores=test_scores,
            known=known,
            seed=config.seed,
        )
        result = replace(result, remarks=[*cleaned, *unknown])
        report.deliver(result, classifier, adapter, run, files=config.files, out=config.out, report=config.report)
        report.show(result)
        for path in (config.out, config.report):
            if path and path not in run.losses:
                print(f"wrote {path}")


def check_outputs(config: DetectConfig) -> None:
    """Check the output paths before any work is done."""
    from fsd.errors import UsageError
    from pipelines.common.output import check_path, check_table_path

    inputs = [*config.files, *config.known]
    if config.out:
        check_table_path(Path(config.out), inputs)
    if config.report:
        if not config.report.lower().endswith((".html", ".htm")):
            raise UsageError(f"report must end in .html; got {config.report}")
        check_path(Path(config.report), inputs)


if __name__ == "__main__":
    command(DetectConfig, main, __doc__ or "")
