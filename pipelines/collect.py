"""Collect texts of a domain that cannot be in a model's pretraining data: fsd collect --help.

--after (or --model, which takes the model's known cutoff) collects non-members, --before members, and both together a
balanced benchmark with a card that shows how fair it is. --contemporaries collects texts published up to the cutoff as
non-members. A killed run resumes when it is started again.

Examples:
    fsd collect --domain arxiv --limit 500 --after 2024-06-30
    fsd collect --domain wikipedia --limit 500 --before 2022-01-01 --after 2024-06-30 --out benchmark.jsonl
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from fsd.errors import UsageError
from pipelines.common.context import stage
from pipelines.common.deliver import show, tracked_run
from pipelines.common.job import Job

if TYPE_CHECKING:
    from fsd.collection.benchmark_card import Card
    from fsd.collection.engine import Collection, CollectionJob, CollectionSpec
    from fsd.reporting.report import Report
    from fsd.tracking import Run

Day = Annotated[str, arg(metavar="DAY", help_behavior_hint="")]
# The bounds of a window are exclusive, so that they are often a day apart from the days meant.
DAY = timedelta(days=1)


@dataclass(frozen=True)
class Collect:
    """Collect dated texts of a domain."""

    domain: Annotated[str, arg(metavar="NAME")]
    """arxiv, wikipedia, books, patents, stackexchange, local, or any other file in fsd/collection/domains."""
    limit: int
    """Most texts; of a benchmark, on each side."""
    after: Day = ""
    """Collect non-members: first published after this day (YYYY-MM-DD, exclusive)."""
    model: Annotated[str, arg(metavar="MODEL", help_behavior_hint="")] = ""
    """Take the cutoff, in place of --after (or --before), from the table of known ones: a hub id, or embedded."""
    before: Day = ""
    """Collect members: first published before this day (exclusive)."""
    contemporaries: bool = False
    """Collect non-members published before --before, known not to be in the training data; --after is a lower bound."""
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """The .jsonl file to write; by default named after the domain and the dates."""
    options: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE ...", help_behavior_hint="")] = ()
    """Options of the domain, e.g. categories=cs.CL,cs.LG or path=dump.jsonl; an unknown one lists them all."""
    language: Annotated[str, arg(metavar="CODE", help_behavior_hint="")] = ""
    """Language code that each text must match; by default the domain's own, `any` for no check."""
    min_words: int = 32
    """Drop shorter texts."""
    benchmark_of: Annotated[tuple[str, ...], arg(metavar="FILE ...", help_behavior_hint="")] = ()
    """Benchmark files; their texts and near-duplicates of them are dropped."""
    drop_shared: bool = False
    """Leave out what members and non-members share, instead of refusing the benchmark."""


def prepare(config: Collect) -> Job:
    """Check the settings and the files; only what an earlier command has not collected will be requested."""
    from fsd.collection import engine

    sides = specs(config)
    out = config.out or _default_out(config.domain, sides)
    if len(sides) == 2:
        # Each side has a file of its own, so that a killed run goes on with the one that is unfinished.
        files = [out.with_name(f"{out.stem}.{name}.jsonl") for name in ("members", "nonmembers")]
        writes = [*files, out]
        if out.exists():
            raise UsageError(f"out must be a file that does not exist yet; {out} exists: move it or name another")
    else:
        files = writes = [out]
    jobs = [engine.prepare(side, config.limit, file) for side, file in zip(sides, files, strict=True)]
    source = config.domain
    options = ", ".join(f"{name}={value}" for name, value in sides[0].options.items())
    if options:
        source += f" ({options})"
    reads = {"source": source}
    for job in jobs:
        extent = f"up to {job.limit:,} texts"
        if job.finished:
            extent = f"{len(job.finished.documents):,} texts, finished"
        kind = "members" if job.spec.member else "non-members"
        if config.contemporaries:
            kind = "contemporaries"
        reads[kind] = f"{extent}, {job.spec.window}"
    return Job(
        partial(run, config, jobs, out),
        reads,
        writes=writes,
        experiment=f"fsd-{config.domain}",
        notes=["no request was made; how long it takes depends on how many texts the source has in these days"],
    )


def _default_out(domain: str, sides: "list[CollectionSpec]") -> Path:
    name = f"{domain}-contemporaries" if sides[0].contemporaries else domain
    if upper := sides[0].window.before:
        name += f"-before-{upper}"
    if lower := sides[-1].window.after:
        name += f"-after-{lower}"
    return Path(f"{name}.jsonl")


def specs(config: Collect) -> "list[CollectionSpec]":
    """What to collect: members, non-members, or both, members first; or contemporaries."""
    from fsd.collection import domains
    from fsd.collection.engine import CollectionSpec
    from fsd.collection.source import Window

    lower, upper, because = _bounds(config)
    domain = domains.load(config.domain)
    if config.language == "any":
        language = ""
        options = domain.parse_options(config.options)
    else:
        options = domain.parse_options(config.options, config.language)
        # An edition of Wikipedia, say, is chosen by an option, and its texts are checked against that language.
        language = config.language or options.get("language") or domain.language
    # Contemporaries lie between the bounds; members before the one, non-members after the other.
    window = Window(lower, upper)
    spec = CollectionSpec(
        domain=config.domain,
        window=window,
        language=language,
        options=options,
        min_words=config.min_words,
        benchmark=config.benchmark_of,
        because=because,
        contemporaries=config.contemporaries,
    )
    if config.contemporaries:
        return [spec]
    windows = (Window(before=upper), Window(after=lower))
    return [replace(spec, window=window) for window in windows if window != Window()]


def _bounds(config: Collect) -> tuple[Date | None, Date | None, str]:
    """The bounds of the dates, both exclusive, and the reason for that of a model."""
    from fsd.data.knowledge_cutoffs import cutoff
    from fsd.data.periods import parse_day

    lower = parse_day("after", config.after) if config.after else None
    upper = parse_day("before", config.before) if config.before else None
    because = ""
    if config.model:
        flag = "before" if config.contemporaries else "after"
        if typed := upper if config.contemporaries else lower:
            raise UsageError(f"either --{flag} or --model must be given, not both; got {typed} and {config.model}")
        entry = cutoff(config.model)
        because = f"cutoff of {config.model}: {entry.source}"
        # What was published on the day of the cutoff is no non-member, but may be a contemporary.
        if config.contemporaries:
            upper = entry.day + DAY
        else:
            lower = entry.day
    _check_bounds(lower, upper, config.contemporaries)
    return lower, upper, because


def _check_bounds(lower: Date | None, upper: Date | None, contemporaries: bool) -> None:
    """Refuse bounds between which no day lies, or of which no side or both sides have a day."""
    if contemporaries and upper is None:
        raise UsageError("contemporaries must be published before a cutoff; give --before DAY or --model ID")
    if lower is None and upper is None:
        raise UsageError("a date must be given: --after DATE or --model ID for non-members, --before DATE for members")
    if lower is None or upper is None:
        return
    if contemporaries and upper <= lower + DAY:
        raise UsageError(f"after must be {upper - 2 * DAY} at most, so that there are days between; got {lower}")
    if not contemporaries and upper > lower + DAY:
        raise UsageError(f"before must be {lower + DAY} at most, so that no day is on both sides; got {upper}")


def run(config: Collect, jobs: "Sequence[CollectionJob]", out: Path) -> None:
    """Collect one side or both, each into its own file, unless it is finished, build the benchmark, and log all."""
    from fsd.collection import benchmark_card
    from fsd.reporting.report import document

    with stage("collecting"):
        collections = [job.run() for job in jobs]
    page = None
    if len(collections) == 1:
        report = about(collections[0], config.limit)
    else:
        members, nonmembers = (collection.documents for collection in collections)
        documents, card = benchmark_card.build(config.domain, members, nonmembers, drop_shared=config.drop_shared)
        page = document("benchmark_card.md", card=card)
        benchmark_card.write_benchmark(out, documents, card, page)
        report = about_benchmark(card, out)
    # What was meant, not what was typed: --model stands for a day, and a domain for its language.
    spec = jobs[0].spec
    settings = asdict(config) | {
        "after": jobs[-1].spec.window.after or "",
        "before": spec.window.before or "",
        "language": spec.language,
        "options": dict(spec.options),
    }
    with tracked_run(
        config,
        f"fsd-{config.domain}",
        "collect",
        params=settings,
        description=page,
    ) as run:
        for collection in collections:
            _log(run, collection)
        if page:
            for ending in (".card.json", ".card.md"):
                run.log(out.stem + ending, out.with_name(out.stem + ending))
            labels = [document.member for document in documents]
            texts = [document.text for document in documents]
            run.log_dataset(
                out.stem,
                texts,
                labels=labels,
                source=str(out),
                context="benchmark",
            )
        show(report, run)


def _log(run: "Run", collection: "Collection") -> None:
    """Log the manifest, its counts and the texts."""
    from fsd.collection.engine import MANIFEST

    path = collection.path
    manifest = collection.manifest
    run.log(path.stem + MANIFEST, path.with_suffix(MANIFEST))
    metrics = {"collect/kept": manifest["kept"], "collect/found": manifest["found"]}
    for reason, count in manifest["dropped"].items():
        metrics[f"collect/dropped.{reason}"] = count
    run.log_metrics(metrics)
    texts = [document.text for document in collection.documents]
    run.log_dataset(path.stem, texts, source=str(path), context="collected")


def about(collection: "Collection", limit: int) -> "Report":
    """How many texts were kept, and how many dropped for which reason."""
    import pandas as pd

    from fsd.evaluation.findings import as_findings
    from fsd.reporting.report import Report, Section, numbers

    manifest = collection.manifest
    kept = manifest["kept"]
    lines = [f"{kept:,} texts, {manifest['first_date']} to {manifest['last_date']}: {collection.path}"]
    if kept < limit:
        lines.append(f"the source has no more; the limit was {limit:,}")
    for reason, count in manifest["dropped"].items():
        lines.append(f"  {count:,} dropped: {reason}")
    if manifest["order"].get("contemporaries"):
        lines.append(
            "these texts are contemporaries only if they are known not to be in the training data: see "
            "docs/contrasts.md"
        )
    counts = {"kept": kept, **manifest["dropped"]}
    table = pd.DataFrame(counts.items(), columns=["what", "texts"])
    return Report(
        findings=as_findings(lines),
        sections=[Section("", tables=[numbers("manifest", table)])],
        files={"texts": collection.path},
    )


def about_benchmark(card: "Card", out: Path) -> "Report":
    """Size and fairness of a benchmark."""
    import pandas as pd

    from fsd.evaluation.findings import as_findings
    from fsd.reporting.report import Report, Section, numbers

    blind = card["aucs"]["blind"]
    n_members = card["members"]["texts"]
    auc = blind.get("reason") or "AUC {value:.2f} [{low:.2f}, {high:.2f}]".format(**blind)
    lines = [
        f"{2 * n_members:,} texts, {n_members:,} members and as many non-members: {out}",
        f"blind classifier: {auc}",
    ]
    if card["warning"]:
        lines.append(card["warning"])
    rows = pd.DataFrame([{"control": name, **auc} for name, auc in card["aucs"].items()])
    return Report(
        findings=as_findings(lines),
        sections=[Section("", tables=[numbers("controls", rows)])],
        files={"benchmark": out},
    )


if __name__ == "__main__":
    from pipelines.common.cli import command

    command(
        Collect,
        prepare,
        __doc__ or "",
        stages={"data": "settings", "collecting": "collecting"},
    )
