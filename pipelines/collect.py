"""Collect texts of a domain that cannot be in a model's pretraining data: fsd collect --help.

--after (or --model, which takes the model's known cutoff) collects non-members, --before members, and both together a
balanced benchmark with a card that shows how fair it is. --contemporaries collects texts published up to the cutoff as
non-members. A killed run resumes when it is started again.

Examples:
    fsd collect --domain arxiv --limit 500 --after 2024-06-30
    fsd collect --domain wikipedia --limit 500 --before 2022-01-01 --after 2024-06-30 --out benchmark.jsonl
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from fsd.errors import UsageError
from pipelines.common.job import Job, show, stage, tracked_run

if TYPE_CHECKING:
    from fsd.collection.benchmark_card import Card
    from fsd.collection.engine import Collection, CollectionJob, CollectionSpec
    from fsd.reporting.report import Report

Day = Annotated[str, arg(metavar="DAY", help_behavior_hint="")]


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
    first, last = sides[0].window.before, sides[-1].window.after
    dates = (f"-before-{first}" if first else "") + (f"-after-{last}" if last else "")
    out = config.out or Path(f"{config.domain}{'-contemporaries' if config.contemporaries else ''}{dates}.jsonl")
    files = [out]
    if len(sides) == 2:
        files = [out.with_name(f"{out.stem}.{name}.jsonl") for name in ("members", "nonmembers")]
        if out.exists():
            raise UsageError(f"out must be a file that does not exist yet; {out} exists: move it or name another")
    jobs = [engine.prepare(side, config.limit, file) for side, file in zip(sides, files, strict=True)]
    reads = {}
    for job in jobs:
        kind = "contemporaries" if config.contemporaries else "members" if job.spec.member else "non-members"
        number = f"{len(job.finished.documents):,} texts, finished" if job.finished else f"up to {job.limit:,} texts"
        reads[kind] = f"{number}, {job.spec.window}"
    options = ", ".join(f"{name}={value}" for name, value in sides[0].options.items())
    return Job(
        partial(run, config, jobs, out),
        {"source": config.domain + (f" ({options})" if options else ""), **reads},
        writes=list(dict.fromkeys([*files, out])),
        experiment=f"fsd-{config.domain}",
        notes=["no request was made; how long it takes depends on how many texts the source has in these days"],
    )


def specs(config: Collect) -> "list[CollectionSpec]":
    """What to collect: members, non-members, or both, members first; or contemporaries."""
    from fsd.collection import domains
    from fsd.collection.engine import CollectionSpec
    from fsd.collection.source import Window

    after, before, because = _bounds(config)
    domain = domains.load(config.domain)
    language = "" if config.language == "any" else config.language
    options = domain.parse_options(config.options, language)
    if config.language != "any":
        language = str(language or options.get("language") or domain.language)
    windows = [Window(after, before)] if config.contemporaries else [Window(before=before), Window(after=after)]
    return [
        CollectionSpec(
            domain=config.domain,
            window=window,
            language=language,
            options=options,
            min_words=config.min_words,
            benchmark=config.benchmark_of,
            because=because,
            contemporaries=config.contemporaries,
        )
        for window in windows
        if window != Window()
    ]


def _bounds(config: Collect) -> tuple[Date | None, Date | None, str]:
    """The bounds of the dates, both exclusive, and the reason for that of a model."""
    from fsd.data.knowledge_cutoffs import cutoff

    day = timedelta(days=1)
    after, before, because = _day("after", config.after), _day("before", config.before), ""
    if config.model:
        replaced, given = ("before", before) if config.contemporaries else ("after", after)
        if given:
            raise UsageError(f"either --{replaced} or --model must be given, not both; got {given} and {config.model}")
        known = cutoff(config.model)
        because = f"cutoff of {config.model}: {known.source}"
        after, before = (after, known.day + day) if config.contemporaries else (known.day, before)
    if config.contemporaries and before is None:
        raise UsageError("contemporaries must be published before a cutoff; give --before DAY or --model ID")
    if after is None and before is None:
        raise UsageError("a date must be given: --after DATE or --model ID for non-members, --before DATE for members")
    if config.contemporaries and after and before and before <= after + day:
        raise UsageError(f"after must be {before - 2 * day} at most, so that there are days between; got {after}")
    if not config.contemporaries and after and before and before > after + day:
        raise UsageError(f"before must be {after + day} at most, so that no day is on both sides; got {before}")
    return after, before, because


def _day(name: str, text: str) -> Date | None:
    try:
        return Date.fromisoformat(text) if text else None
    except ValueError as error:
        raise UsageError(f"{name} must be a day like 2023-02-24; got {text!r}") from error


def run(config: Collect, jobs: "Sequence[CollectionJob]", out: Path) -> None:
    """Collect one side or both, each into its own file, unless it is finished, build the benchmark, and log all."""
    from fsd.collection import benchmark_card
    from fsd.collection.engine import MANIFEST
    from fsd.reporting.report import document

    with stage("collecting"):
        collections = [job.run() for job in jobs]
    documents, card, page = collections[0].documents, None, None
    if len(jobs) == 2:
        sides = (collection.documents for collection in collections)
        documents, card = benchmark_card.build(config.domain, *sides, drop_shared=config.drop_shared)
        page = document("benchmark_card.md", card=card)
        benchmark_card.write_benchmark(out, documents, card, page)
    first, last = jobs[0].spec, jobs[-1].spec
    days = {"after": last.window.after or "", "before": first.window.before or ""}
    settings = asdict(config) | days | {"language": first.language, "options": dict(first.options)}
    with tracked_run(config, f"fsd-{config.domain}", "collect", params=settings, description=page) as run:
        for path, manifest, texts in ((c.path, c.manifest, [d.text for d in c.documents]) for c in collections):
            run.log(path.stem + MANIFEST, path.with_suffix(MANIFEST))
            counts = {"kept": manifest["kept"], "found": manifest["found"]}
            counts |= {f"dropped.{reason}": count for reason, count in manifest["dropped"].items()}
            run.log_metrics({f"collect/{name}": float(count) for name, count in counts.items()})
            run.log_dataset(path.stem, texts, source=str(path), context="collected")
        if card:
            for ending in (".card.json", ".card.md"):
                run.log(out.stem + ending, out.with_name(out.stem + ending))
            labels = [document.member for document in documents]
            texts = [document.text for document in documents]
            run.log_dataset(out.stem, texts, labels=labels, source=str(out), context="benchmark")
        show(about_benchmark(card, out) if card else about(collections[0], config.limit), run)


def about(collection: "Collection", limit: int) -> "Report":
    """How many texts were kept, and how many dropped for which reason."""
    import pandas as pd

    from fsd.reporting.report import Report, Section, numbers

    manifest = collection.manifest
    lines = [f"{manifest['kept']:,} texts, {manifest['first_date']} to {manifest['last_date']}: {collection.path}"]
    if manifest["kept"] < limit:
        lines.append(f"the source has no more; the limit was {limit:,}")
    lines += [f"  {count:,} dropped: {reason}" for reason, count in manifest["dropped"].items()]
    if manifest["order"].get("contemporaries"):
        lines.append(
            "these texts are contemporaries only if they are known not to be in the training data: see "
            "docs/contrasts.md"
        )
    table = pd.DataFrame({"kept": manifest["kept"], **manifest["dropped"]}.items(), columns=["what", "texts"])
    return Report(
        findings=lines, sections=[Section("", tables=[numbers("manifest", table)])], files={"texts": collection.path}
    )


def about_benchmark(card: "Card", out: Path) -> "Report":
    """Size and fairness of a benchmark."""
    import pandas as pd

    from fsd.reporting.report import Report, Section, numbers

    blind, members = card["aucs"]["blind"], card["members"]["texts"]
    lines = [
        f"{2 * members:,} texts, {members:,} members and as many non-members: {out}",
        f"blind classifier: {blind.get('reason') or 'AUC {value:.2f} [{low:.2f}, {high:.2f}]'.format(**blind)}",
        *filter(None, [card["warning"]]),
    ]
    rows = pd.DataFrame([{"control": name, **auc} for name, auc in card["aucs"].items()])
    return Report(findings=lines, sections=[Section("", tables=[numbers("controls", rows)])], files={"benchmark": out})


if __name__ == "__main__":
    from pipelines.common.cli import command

    command(Collect, prepare, __doc__ or "", stages={"data": "settings", "collecting": "collecting"})
