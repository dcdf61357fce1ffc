"""Was this text in the training data? Verdicts on new texts at a false-positive rate of your choice.

`fsd detect FILE --adapter models:/fsd-arxiv@champion` scores each text with an adapter registered by
`fsd run` and compares the score with those of texts known to be non-members. FILE is JSONL, CSV or Parquet with a
column `text`, a .txt file, or a folder of the ones or the others. With --known, all texts are also tested together as
one data set.

Examples:
    fsd detect suspect.txt --adapter models:/fsd-arxiv@champion
    fsd detect texts.jsonl --adapter models:/fsd-arxiv@champion --fpr 0.01 --out verdicts.csv --json
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import (
    FPR,
    CleaningConfig,
    Columns,
    ModelConfig,
    OptionalDay,
    OptionalModel,
    OptionalPath,
    OptionalPaths,
    ShardConfig,
    again,
)
from pipelines.command.cli import command
from pipelines.command.context import stage
from pipelines.command.deliver import page_of, publish, run_name, show, tracked_run
from pipelines.command.job import Job, files
from pipelines.command.output import check_path, check_table_path, write_table, write_text

if TYPE_CHECKING:
    from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents

    from fsd.data.corpus import Corpus
    from fsd.data.documents import Document
    from fsd.verdicts.verdicts import Verdicts
    from pipelines.detect.owners import Holder


@dataclass(frozen=True)
class DetectConfig:
    """Texts, adapter and output of pipelines.detect."""

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE [FILE ...]", help_behavior_hint="")]
    """JSONL, CSV or Parquet files with a column `text`; .txt files, one text each; folders of the ones or others."""
    adapter: str
    """Adapter with its calibration: models:/fsd-arxiv@champion, models:/fsd-arxiv/3, runs:/<id> or a folder."""
    fpr: float = FPR
    """False-positive rate: share of non-members that may be called members."""
    fdr: float = 0.1
    """False discovery rate of the column `selected`: share of selected texts that may be non-members, on average."""
    same_source: bool = False
    """Assert that the texts are of the source, time and kind of the adapter's non-members, where that is not tested."""
    storey: bool = False
    """Estimate the share of non-members for `selected` (Storey), which selects more if many texts are members."""
    known: OptionalPaths = ()
    """Texts known to be non-members, of the same source, time and kind as FILE; adds a test of FILE as a whole."""
    columns: Columns = ""
    cutoff: OptionalDay = None
    """Last day of the model's data, if it is not a known one: dated non-members must be later."""
    cleaning: CleaningConfig = field(default_factory=CleaningConfig)
    out: OptionalPath = None
    """Output file for the verdicts (.parquet, .csv, .jsonl; the tracked run has a copy), or a folder of shards."""
    shards: ShardConfig = field(default_factory=ShardConfig)
    report: OptionalPath = None
    """Output file for the report: .html. The tracked run has a copy in any case."""
    model: OptionalModel = None
    """Location of the base model, if it has changed since the adapter was trained."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, or spread: over all GPUs, then memory, for a model larger than one GPU."""
    seed: int = 42
    """Random seed for the test of FILE as a whole."""


def prepare(config: DetectConfig) -> Job:
    """Read the texts, and check the settings; the adapter, which is not fetched yet, tells which model is loaded."""
    from fsd.data.corpus import Corpus
    from fsd.data.periods import parse_cutoff
    from fsd.data.readers import files_of_texts
    from fsd.data.reading import read_otherwise
    from fsd.data.related import without_related
    from fsd.errors import UsageError
    from fsd.files import digest
    from fsd.plugs import first
    from fsd.statistics.multiplicity import check_fdr
    from pipelines.command.workers import RowWork
    from pipelines.detect.owners import holders
    from pipelines.experiment.inputs import read_cleaned, read_own

    check_fdr(config.fdr)
    last_day = parse_cutoff(config.cutoff)
    together = {
        "known": " ".join(config.known),
        "report": config.report,
        "cutoff": config.cutoff,
        "near_duplicates": config.cleaning.near_duplicates != "refuse" and "drop",
    }
    checks = [partial(check_adapter, config)]
    work = RowWork("detect", "pipelines.detect.classifier", config, config.files, together, checks=checks)
    job: Job | None = first("compute", work)
    if job:
        return job
    documents, remarks = read_cleaned(config.files, config.columns, config.cleaning)
    # Of what was read: at the end of the command another file may stand there.
    hashes = {file: digest(*files_of_texts(Path(file))) for file in config.files}
    nonmembers = Corpus()
    remarks_on_nonmembers: list[str] = []
    if config.known:
        nonmembers, remarks_on_nonmembers = read_own(config.known, config.columns, config.cleaning)
        if config.cleaning.near_duplicates == "drop":
            kept, dropped = without_related(documents, nonmembers)
            nonmembers = Corpus(kept)
            remarks_on_nonmembers += dropped
    inputs = list(config.files) + list(config.known)
    check_table_path(config.out, inputs)
    if config.report:
        if not config.report.lower().endswith((".html", ".htm")):
            raise UsageError(f"report must end in .html; got {config.report}")
        check_path(Path(config.report), inputs)
    named = holders(config.files)
    reads = {"texts": files(config.files, len(documents)), "adapter": config.adapter}
    if nonmembers:
        reads["known non-members"] = files(config.known, len(nonmembers))
    model = None
    if config.model:
        model = ModelConfig(model=config.model, device=config.device)
    passes = "each text takes two forward passes, one with the adapter and one without, by its base model"
    return Job(
        partial(run, config, documents, nonmembers, remarks + remarks_on_nonmembers, last_day, named, hashes),
        reads,
        model,
        texts=documents.texts,
        passes={"base": len(documents), "tuned": len(documents)},
        writes=[config.out, config.report],
        experiment="of the adapter's domain",
        notes=[*remarks, passes],
        checks=[partial(check_adapter, config, documents + nonmembers)],
        read=read_otherwise(documents),
    )


def check_adapter(config: DetectConfig, documents: "Sequence[Document]" = ()) -> None:
    """Refuse an adapter that gives no verdicts on such rows at this rate, before its base model is loaded."""
    from fsd import tracking
    from pipelines.detect.classifier import CalibratedAdapter

    if not config.model:
        tracking.check_one_base(config.adapter)
    CalibratedAdapter(config.adapter, model=config.model, device=config.device).check(config.fpr, documents)


def run(
    config: DetectConfig,
    documents: "Corpus",
    nonmembers: "Corpus",
    remarks: Sequence[str],
    last_day: "Date | None",
    named: "Mapping[str, Holder]",
    hashes: "Mapping[str, str]",
) -> None:
    """Load the classifier, judge, write, track and print."""
    with stage("model"):
        from fsd import tracking
        from fsd.data.knowledge_cutoffs import labels_for
        from fsd.verdicts.verdicts import Rules
        from pipelines.detect.classifier import MembershipClassifier
        from pipelines.detect.error_rates import comparable_sides, compare_dataset, on_held_out, on_labelled
        from pipelines.detect.owners import owners_table
        from pipelines.detect.report import Findings, report

        version = tracking.version_info(config.adapter)
        adapter = version.uri if version else config.adapter
        classifier = MembershipClassifier(adapter, model=config.model, device=config.device)
        classifier.calibration.threshold_at(config.fpr)  # refuses a rate that the calibration does not support
        measured = on_held_out(adapter, classifier.verdict_maker, config.fpr)
        model = classifier.language_model.identity.id
        # a text that is not labelled a non-member may be a member, whose age says nothing against the labels
        dated_texts = [replace(document, member=document.member is not False) for document in documents]
        labels = labels_for(model, [*dated_texts, *nonmembers], last=last_day)
        sides = None
        # before a run is opened, which a refusal would leave as a failed one
        if nonmembers and labels.hold:
            sides = comparable_sides(classifier, documents, nonmembers, drop=config.cleaning.near_duplicates == "drop")
    tags = {"task": "detect", "adapter": adapter}
    name = run_name(model, config.files, "detect")
    with tracked_run(config, f"fsd-{classifier.setup.domain}", name, tags=tags) as tracked:
        with stage("scoring"):
            dataset = compare_dataset(classifier, sides, seed=config.seed) if sides else None
            rules = Rules(config.fpr, config.fdr, config.storey, config.same_source)
            verdicts = classifier.classify(documents, rules)
            if labels.hold:
                measured += on_labelled(documents, verdicts)
        with stage("recording"):
            owners = owners_table(documents, verdicts, named, model, last_day)
            findings = Findings(classifier, documents, verdicts, measured, dataset, remarks, labels.notes, owners)
            result = report(findings, adapter, hashes)
            with tracked.storing():
                write_table(findings.frame, config.out)
            if config.report:
                with tracked.storing():
                    write_text(page_of(result, tracked), Path(config.report))
            tracked.log_dataset(
                "suspect",
                documents.texts,
                labels=[document.member for document in documents],
                source=", ".join(config.files),
                context="detect",
            )
            # a file that could not be stored is noted as a failure, and is not named as written
            outputs = {"verdicts": config.out, "report": config.report}
            written = {name: path for name, path in outputs.items() if path and Path(path).exists()}
            result = replace(result, files=written, next=_next_commands(config, verdicts))
            publish(result, tracked)
        show(result, tracked)


def _next_commands(config: DetectConfig, verdicts: "Verdicts") -> list[str]:
    """The test of the file as a whole, if it was not made and enough texts can be compared."""
    from fsd.verdicts.dataset_inference import FEWEST

    scored = verdicts.table["score"].notna()
    if config.known or len(set(verdicts.family[scored].tolist())) < FEWEST:
        return []
    return [f"{again('detect', config.files, config, DetectConfig(config.files, ''))} --known FILE"]


if __name__ == "__main__":
    command(DetectConfig, prepare, __doc__ or "")
