"""Collect texts of a domain that cannot be in a model's pretraining data: python -m pipelines.collect --help.

--after (or --model, which takes the model's known cutoff) collects non-members, --before members, and both together a
balanced benchmark with a card that shows how fair it is. --contemporaries collects texts published up to the cutoff as
non-members. A killed run resumes when it is started again.

Examples:
    fsd collect --domain arxiv --limit 500 --after 2024-06-30
    fsd collect --domain wikipedia --limit 500 --before 2022-01-01 --after 2024-06-30 --out benchmark.jsonl
"""

from dataclasses import asdict, dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

if TYPE_CHECKING:
    import pandas as pd

    from fsd.collection.benchmark_card import Card
    from fsd.collection.engine import Collection, CollectionSpec
    from fsd.data.documents import Document
    from pipelines.common.dry_run import Plan


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


def main(config: Collect) -> None:
    """Collect one side or both, each into its own file, unless it is finished, and log the manifests."""
    from fsd import tracking
    from fsd.collection.engine import check, collect, log_manifest, reusable
    from pipelines.common.outcome import Outcome, tracked_run
    from pipelines.common.outcome import show as show_outcome

    sides = specs(config)
    out = config.out or Path(f"{config.domain}{_dates(sides)}.jsonl")
    if len(sides) == 2:
        benchmark(config, sides, out)
        return
    collection = reusable(sides[0], config.limit, out)
    if collection is None:
        check(sides[0], config.limit, out)
    tracking.open_store()  # a store that cannot be opened should fail before the hours of collecting, not after
    collection = collection or collect(sides[0], config.limit, out)
    with tracked_run(config, f"fsd-{config.domain}", "collect", params=params(config, sides)) as run:
        log_manifest(run, collection)
        lines = summary(collection, config.limit)
        found = Outcome(lines[0], {"manifest": manifest_table(collection)}, lines, {"texts": collection.path})
        show_outcome(found, run, lambda: print(*lines, sep="\n"))


def plan(config: Collect) -> "Plan":
    """What would be requested: only what an earlier command with the same settings has not collected."""
    from fsd.collection.engine import check, reusable
    from pipelines.common import dry_run

    sides = specs(config)
    out = config.out or Path(f"{config.domain}{_dates(sides)}.jsonl")
    both = len(sides) == 2
    if both:
        _check_new(out)
    files = _parts(out) if both else [out]
    reads = {}
    for spec, file in zip(sides, files, strict=True):
        collection = reusable(spec, config.limit, file)
        if collection is None:
            check(spec, config.limit, file)
        days = [f"{name} {day}" for name, day in (("after", spec.window.after), ("before", spec.window.before)) if day]
        what = (
            f"up to {config.limit:,} texts" if collection is None else f"{len(collection.documents):,} texts, finished"
        )
        kind = "contemporaries" if spec.contemporaries else "members" if spec.window.before else "non-members"
        reads[kind] = f"{what}, {' and '.join(days)}"
    options = ", ".join(f"{name}={value}" for name, value in sides[0].options.items())
    return dry_run.Plan(
        {"source": config.domain + (f" ({options})" if options else ""), **reads},
        writes=dry_run.tracked(f"fsd-{config.domain}", *files, *([out] if both else [])),
        notes=["no request was made; how long it takes depends on how many texts the source has in these days"],
    )


def _parts(out: Path) -> list[Path]:
    """Files of the two sides of a benchmark, members first."""
    return [out.with_name(f"{out.stem}.{name}.jsonl") for name in ("members", "nonmembers")]


def _check_new(out: Path) -> None:
    from fsd.errors import UsageError

    if out.exists():
        raise UsageError(f"out must be a file that does not exist yet; {out} exists: move it or name another")


def specs(config: Collect) -> "list[CollectionSpec]":
    """What to collect: members, non-members, or both, members first; or contemporaries.

    Raises:
        UsageError: for no date, dates that contradict each other, or options that the domain does not have.
    """
    from fsd.collection import domains
    from fsd.collection.engine import CollectionSpec
    from fsd.collection.knowledge_cutoffs import cutoff
    from fsd.collection.source import Window
    from fsd.errors import UsageError

    instead = "before" if config.contemporaries else "after"
    if config.model and (day := getattr(config, instead)):
        raise UsageError(f"either --{instead} or --model must be given, not both; got {day} and {config.model}")
    known = cutoff(config.model) if config.model else None
    after, before = _day("after", config.after), _day("before", config.before)
    if known and config.contemporaries:
        before = known.day + timedelta(days=1)
    elif known:
        after = known.day
    if config.contemporaries:
        _check_contemporaries(after, before)
    elif after is None and before is None:
        raise UsageError("a date must be given: --after DATE or --model ID for non-members, --before DATE for members")
    elif after and before and before > after + timedelta(days=1):
        raise UsageError(
            f"before must be {after + timedelta(days=1)} at most, so that no day is on both sides; got {before}"
        )
    domain = domains.load(config.domain)
    language = "" if config.language == "any" else config.language
    options = domain.parse_options(config.options, language)
    if config.language != "any":
        language = str(language or options.get("language") or domain.language)
    if config.contemporaries:
        windows = [Window(after=after, before=before)]
    else:
        windows = [Window(before=before)] if before else []
        windows += [Window(after=after)] if after else []
    because = f"cutoff of {config.model}: {known.source}" if known else ""
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
    ]


def _check_contemporaries(after: Date | None, before: Date | None) -> None:
    from fsd.errors import UsageError

    if before is None:
        raise UsageError("contemporaries must be published before a cutoff; give --before DAY or --model ID")
    if after and before <= after + timedelta(days=1):
        raise UsageError(
            f"after must be {before - timedelta(days=2)} at most, so that there are days between; got {after}"
        )


def benchmark(config: Collect, sides: "list[CollectionSpec]", out: Path) -> None:
    """Collect both sides into files of their own, so that neither is collected twice, and build the benchmark."""
    import pandas as pd

    from fsd import tracking
    from fsd.collection.benchmark_card import build, markdown, write_benchmark
    from fsd.collection.engine import check, collect, log_manifest, reusable
    from pipelines.common.outcome import Outcome, tracked_run
    from pipelines.common.outcome import show as show_outcome

    _check_new(out)
    parts = _parts(out)
    finished = [reusable(spec, config.limit, part) for spec, part in zip(sides, parts, strict=True)]
    for spec, part, collection in zip(sides, parts, finished, strict=True):
        if collection is None:
            check(spec, config.limit, part)
    tracking.open_store()
    collections = [
        collection or collect(spec, config.limit, part)
        for spec, part, collection in zip(sides, parts, finished, strict=True)
    ]
    documents, card = build(config.domain, *(c.documents for c in collections), drop_shared=config.drop_shared)
    write_benchmark(out, documents, card)
    with tracked_run(
        config, f"fsd-{config.domain}", "collect", params=params(config, sides), description=markdown(card)
    ) as run:
        for collection in collections:
            log_manifest(run, collection)
        for ending in (".card.json", ".card.md"):
            run.log_file(out.with_name(out.stem + ending))
        labels = [d.member for d in documents]
        run.log_dataset(out.stem, [d.text for d in documents], labels=labels, source=str(out), context="benchmark")
        lines = benchmark_summary(documents, card, out)
        rows = pd.DataFrame([{"control": name, **numbers} for name, numbers in card.aucs.items()])
        found = Outcome(lines[0], {"controls": rows}, lines, {"benchmark": out})
        show_outcome(found, run, lambda: print(*lines, sep="\n"))


def params(config: Collect, sides: "list[CollectionSpec]") -> dict[str, object]:
    """Every setting under the name of its flag, with the dates, language and options in effect."""
    days = {"after": sides[-1].window.after or "", "before": sides[0].window.before or ""}
    return asdict(config) | days | {"language": sides[0].language, "options": dict(sides[0].options)}


def summary(collection: "Collection", limit: int) -> list[str]:
    """How many texts were kept, and how many dropped for which reason."""
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
    return lines


def manifest_table(collection: "Collection") -> "pd.DataFrame":
    """Number of texts that were kept, and that were dropped for each reason."""
    import pandas as pd

    counts = {"kept": collection.manifest["kept"], **collection.manifest["dropped"]}
    return pd.DataFrame({"what": list(counts), "texts": list(counts.values())})


def benchmark_summary(documents: "list[Document]", card: "Card", out: Path) -> list[str]:
    """Size and fairness of a benchmark."""
    blind = card.aucs["blind"]
    lines = [
        f"{len(documents):,} texts, {card.members.texts:,} members and as many non-members: {out}",
        f"blind classifier: {blind.get('reason') or 'AUC {value:.2f} [{low:.2f}, {high:.2f}]'.format(**blind)}",
    ]
    return [*lines, card.warning] if card.warning else lines


def _day(name: str, text: str) -> Date | None:
    from fsd.errors import UsageError

    try:
        return Date.fromisoformat(text) if text else None
    except ValueError as error:
        raise UsageError(f"{name} must be a day like 2023-02-24; got {text!r}") from error


def _dates(sides: "list[CollectionSpec]") -> str:
    days = [("before", sides[0].window.before), ("after", sides[-1].window.after)]
    kind = "-contemporaries" if sides[0].contemporaries else ""
    return kind + "".join(f"-{name}-{day}" for name, day in days if day)


if __name__ == "__main__":
    from pipelines.common.cli import command

    command(Collect, main, __doc__ or "", plan=plan)
