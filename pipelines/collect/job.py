"""The steps of `fsd collect`: its checks, the collection of one side or both, the benchmark, and what is recorded."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from functools import partial
from pathlib import Path

import pandas as pd

from fsd.collection import benchmark_card, domains, engine
from fsd.collection.benchmark_card import Card
from fsd.collection.engine import MANIFEST, Collection, CollectionJob, CollectionSpec
from fsd.collection.source import Window
from fsd.data.corpus import Corpus
from fsd.data.knowledge_cutoffs import cutoff
from fsd.data.periods import parse_day
from fsd.errors import UsageError
from fsd.evaluation.findings import as_findings
from fsd.reporting.report import Report, Section, document, numbers
from fsd.tracking import Run
from pipelines.collect import Collect
from pipelines.command.context import stage
from pipelines.command.deliver import show, tracked_run
from pipelines.command.job import Job, Stated

# The bounds of a window are exclusive, so that they are often a day apart from the days meant.
DAY = timedelta(days=1)


def prepare(config: Collect) -> Job:
    """Check the settings and the files; only what an earlier command has not collected will be requested."""
    sides = specs(config)
    out = config.out or _default_out(config.domain, sides)
    files = [out]
    writes = files
    if len(sides) == 2:
        engine.check_new(out)
        # Each side has a file of its own, so that a killed run goes on with the one that is unfinished.
        files = [out.with_name(f"{out.stem}.{name}.jsonl") for name in ("members", "nonmembers")]
        writes = [*files, out]
    jobs = [engine.prepare(side, config.limit, file) for side, file in zip(sides, files, strict=True)]
    options = ", ".join(f"{name}={value}" for name, value in sides[0].options.items())
    reads = {"source": config.domain}
    if options:
        reads["source"] += f" ({options})"
    for job in jobs:
        kind = "members" if job.spec.member else "non-members"
        if config.contemporaries:
            kind = "contemporaries"
        reads[kind] = _extent(job)
    checks = [job.check for job in jobs]
    return Job(
        partial(run, config, jobs, out),
        reads,
        writes=writes,
        experiment=f"fsd-{config.domain}",
        notes=["no request was made; how long it takes depends on how many texts the source has in these days"],
        checks=checks,
    )


def _extent(job: CollectionJob) -> Stated:
    """How many texts of which days are collected, or are there already."""
    window = job.spec.window
    texts: dict[str, object] = {"texts_at_most": job.limit}
    words = f"up to {job.limit:,} texts"
    if job.finished:
        texts = {"finished_texts": len(job.finished.documents)}
        words = f"{len(job.finished.documents):,} texts, finished"
    days = {name: day and day.isoformat() for name, day in window.bounds.items()}
    return Stated(f"{words}, {window}", texts | days)


def _default_out(domain: str, sides: Sequence[CollectionSpec]) -> Path:
    parts = [domain]
    if sides[0].contemporaries:
        parts.append("contemporaries")
    if upper := sides[0].window.before:
        parts.append(f"before-{upper}")
    if lower := sides[-1].window.after:
        parts.append(f"after-{lower}")
    return Path(f"{'-'.join(parts)}.jsonl")


def specs(config: Collect) -> list[CollectionSpec]:
    """What to collect: members, non-members, or both, members first; or contemporaries."""
    lower, upper, because = _bounds(config)
    domain = domains.load(config.domain)
    language = ""
    if config.language == "any":
        options = domain.parse_options(config.options)
    else:
        options = domain.parse_options(config.options, config.language)
        # An edition of Wikipedia, say, is chosen by an option, and its texts are checked against that language.
        language = config.language or options.get("language") or domain.language
    windows = []
    if config.contemporaries:
        windows.append(Window(lower, upper))
    else:
        if upper:
            windows.append(Window(before=upper))
        if lower:
            windows.append(Window(after=lower))
    spec = partial(
        CollectionSpec,
        config.domain,
        language=language,
        options=options,
        min_words=config.min_words,
        benchmark=config.benchmark_of,
        because=because,
        contemporaries=config.contemporaries,
    )
    return list(map(spec, windows))


def _bounds(config: Collect) -> tuple[Date | None, Date | None, str]:
    """The bounds of the dates, both exclusive, and the reason for that of a model.

    Non-members are later than the lower one, members earlier than the upper one, and contemporaries lie between them.
    """
    days: dict[str, Date | None] = {"after": None, "before": None}
    for name, text in (("after", config.after), ("before", config.before)):
        if text:
            days[name] = parse_day(name, text)
    because = ""
    if config.model:
        flag = "after"
        if config.contemporaries:
            flag = "before"
        if days[flag]:
            raise UsageError(f"either --{flag} or --model must be given, not both; got {days[flag]} and {config.model}")
        entry = cutoff(config.model)
        because = f"cutoff of {config.model}: {entry.source}"
        # What was published on the day of the cutoff is no non-member, but may be a contemporary.
        days[flag] = entry.day + DAY * config.contemporaries
    _check_bounds(days["after"], days["before"], config.contemporaries)
    return days["after"], days["before"], because


def _check_bounds(lower: Date | None, upper: Date | None, contemporaries: bool) -> None:
    """Refuse dates between which no contemporary lies, none at all, and those by which a day is on both sides."""
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


def run(config: Collect, jobs: Sequence[CollectionJob], out: Path) -> None:
    """Collect one side or both, each into its own file, unless it is finished, build the benchmark, and log all."""
    with stage("collecting"):
        collections = [job.run() for job in jobs]
    page = None
    if len(collections) == 1:
        report = about(collections[0], config.limit)
    else:
        # Members first, as in `specs`.
        members, nonmembers = (collection.documents for collection in collections)
        documents, card = benchmark_card.build(config.domain, members, nonmembers, drop_shared=config.drop_shared)
        page = document("benchmark_card.md", card=card)
        benchmark_card.write_benchmark(out, documents, card, page)
        report = about_benchmark(card, out)
    # What was meant, not what was typed: --model stands for a day, and a domain for its language.
    spec = jobs[0].spec
    meant: dict[str, object] = {"language": spec.language, "options": dict(spec.options)}
    meant |= {"after": jobs[-1].spec.window.after or "", "before": spec.window.before or ""}
    experiment = f"fsd-{config.domain}"
    with tracked_run(config, experiment, "collect", params=asdict(config) | meant, description=page) as run:
        for collection in collections:
            _log(run, collection)
        if page:
            for name in (f"{out.stem}.card.json", f"{out.stem}.card.md"):
                run.log(name, out.with_name(name))
            benchmark = Corpus(documents)
            labels = benchmark.members.tolist()
            run.log_dataset(out.stem, benchmark.texts, labels=labels, source=str(out), context="benchmark")
        show(report, run)


def _log(run: Run, collection: Collection) -> None:
    """Log the manifest, its counts and the texts."""
    path = collection.path
    manifest = collection.manifest
    run.log(path.stem + MANIFEST, path.with_suffix(MANIFEST))
    metrics = {"collect/kept": manifest["kept"], "collect/found": manifest["found"]}
    for reason, count in manifest["dropped"].items():
        metrics[f"collect/dropped.{reason}"] = count
    run.log_metrics(metrics)
    run.log_dataset(path.stem, Corpus(collection.documents).texts, source=str(path), context="collected")


def about(collection: Collection, limit: int) -> Report:
    """How many texts were kept, and how many dropped for which reason."""
    manifest = collection.manifest
    kept = manifest["kept"]
    contemporaries = manifest["order"].get("contemporaries")
    lines = [f"{kept:,} texts, {manifest['first_date']} to {manifest['last_date']}: {collection.path}"]
    if kept < limit:
        lines.append(f"the source has no more; the limit was {limit:,}")
    for reason, count in manifest["dropped"].items():
        lines.append(f"  {count:,} dropped: {reason}")
    if contemporaries:
        lines.append(
            "these texts are contemporaries only if they are known not to be in the training data: see "
            "docs/contrasts.md"
        )
    counts = {"kept": kept} | manifest["dropped"]
    rows = pd.DataFrame(counts.items(), columns=["what", "texts"])
    commands = []
    # Members alone, or contemporaries, are no texts to fine-tune on.
    if not (manifest["label"] or contemporaries):
        commands.append(f"fsd run --model MODEL --data FILE --unseen {shlex.quote(str(collection.path))}")
    sections = [Section("", tables=[numbers("manifest", rows)])]
    return Report(findings=as_findings(lines), sections=sections, files={"texts": collection.path}, next=commands)


def about_benchmark(card: Card, out: Path) -> Report:
    """Size and fairness of a benchmark."""
    blind = card["aucs"]["blind"]
    members = card["members"]["texts"]
    auc = blind.get("reason") or "AUC {value:.2f} [{low:.2f}, {high:.2f}]".format(**blind)
    lines = [f"{2 * members:,} texts, {members:,} members and as many non-members: {out}", f"blind classifier: {auc}"]
    if card["warning"]:
        lines.append(card["warning"])
    rows = pd.DataFrame([{"control": name, **auc} for name, auc in card["aucs"].items()])
    command = f"fsd run --model MODEL --domain {card['domain']} --data {shlex.quote(str(out))}"
    sections = [Section("", tables=[numbers("controls", rows)])]
    return Report(findings=as_findings(lines), sections=sections, files={"benchmark": out}, next=[command])
