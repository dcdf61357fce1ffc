"""Collect texts of a domain that a model cannot have seen: python -m pipelines.collect --help.

--after (or --model, whose known cutoff it takes) collects non-members, --before members, both together a balanced
benchmark with a card that says how fair it is. A killed run goes on where it was when it is started again.
"""

from dataclasses import dataclass
from datetime import date as Date  # noqa: N812 - the same name as in fsd.data.documents
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsd.collection import Card, Collected, Order
    from fsd.data.documents import Document


@dataclass(frozen=True)
class Collect:
    """Collect dated texts of a domain."""

    domain: str
    """arxiv, wikipedia, books, patents, stackexchange, local or what else lies in fsd/domains."""
    limit: int
    """Most texts; of a benchmark, on each side."""
    after: str = ""
    """Non-members: first published after this day, year-month-day, that day excluded."""
    model: str = ""
    """Take the day for --after from the table of known cutoffs: a hub id, or embedded."""
    before: str = ""
    """Members: first published before this day, that day excluded."""
    out: Path | None = None
    """The .jsonl file to write; by default named after the domain and the dates."""
    options: tuple[str, ...] = ()
    """The domain's own options, e.g. categories=cs.CL,cs.LG or path=dump.jsonl; a wrong one lists them all."""
    language: str = ""
    """Code of the language that each text must be in; by default the domain's own, `any` for no check."""
    min_words: int = 32
    """Shorter texts are dropped."""
    benchmark_of: tuple[str, ...] = ()
    """Files of a benchmark whose texts and near-duplicates must not come again."""
    drop_shared: bool = False
    """Leave out what members and non-members share, instead of refusing the benchmark."""


def main(config: Collect) -> None:
    """One side or two, each into its own file, and the manifests into the tracker."""
    from fsd import tracking
    from fsd.collection import collect, log_manifest

    sides = orders(config)
    out = config.out or Path(f"{config.domain}{_dates(sides)}.jsonl")
    if len(sides) == 2:
        benchmark(config, sides, out)
        return
    tracking.open_store()  # a store that cannot be opened should fail before the hours of collecting, not after
    collected = collect(sides[0], config.limit, out)
    with tracking.run(f"fsd-{config.domain}", "collect", params=params(config, sides)) as run:
        log_manifest(run, collected)
    show(collected, config.limit)


def orders(config: Collect) -> "list[Order]":
    """What the settings ask for: members, non-members, or both, members first.

    Raises:
        UsageError: for no date, dates that contradict each other, or options that the domain has not.
    """
    from fsd.collection import Order, domains
    from fsd.collection.knowledge_cutoffs import cutoff
    from fsd.collection.source import Window
    from fsd.errors import UsageError

    if config.after and config.model:
        raise UsageError(f"either --after or --model must be given, not both; got {config.after} and {config.model}")
    fact = cutoff(config.model) if config.model else None
    after = fact.day if fact else _day("after", config.after)
    before = _day("before", config.before)
    if after is None and before is None:
        raise UsageError("a date must be given: --after DATE or --model ID for non-members, --before DATE for members")
    if after and before and before > after + timedelta(days=1):
        raise UsageError(
            f"before must be {after + timedelta(days=1)} at most, so that no day is on both sides; got {before}"
        )
    domain = domains.load(config.domain)
    named = "" if config.language == "any" else config.language
    options = domain.parse_options(config.options, named)
    language = "" if config.language == "any" else str(named or options.get("language") or domain.language)
    windows = [Window(before=before)] if before else []
    windows += [Window(after=after)] if after else []
    because = f"cutoff of {config.model}: {fact.source}" if fact else ""
    return [
        Order(config.domain, window, language, options, config.min_words, config.benchmark_of, because)
        for window in windows
    ]


def benchmark(config: Collect, sides: "list[Order]", out: Path) -> None:
    """Both sides, kept as files of their own so that neither is collected twice, then the balanced whole."""
    from fsd import tracking
    from fsd.collection import build, collect, log_manifest, markdown, reusable, write_benchmark
    from fsd.errors import UsageError

    if out.exists():
        raise UsageError(f"out must be a file that is not there yet; {out} exists: move it or name another")
    tracking.open_store()
    found = []
    for name, order in zip(("members", "nonmembers"), sides, strict=True):
        part = out.with_name(f"{out.stem}.{name}.jsonl")
        found.append(reusable(order, config.limit, part) or collect(order, config.limit, part))
    documents, card = build(config.domain, *(side.documents for side in found), drop_shared=config.drop_shared)
    write_benchmark(out, documents, card)
    with tracking.run(
        f"fsd-{config.domain}", "collect", params=params(config, sides), description=markdown(card)
    ) as run:
        for side in found:
            log_manifest(run, side)
        for ending in (".card.json", ".card.md"):
            run.log_file(out.with_name(out.stem + ending))
        run.log_dataset(out.stem, [d.text for d in documents], source=str(out), context="benchmark")
    show_benchmark(documents, card, out)


def params(config: Collect, sides: "list[Order]") -> dict[str, object]:
    """Every setting under its flag's name, with the dates as they were understood."""
    from dataclasses import asdict

    days = {"after": sides[-1].window.after or "", "before": sides[0].window.before or ""}
    return asdict(config) | days | {"language": sides[0].language, "options": dict(sides[0].options)}


def show(collected: "Collected", limit: int) -> None:
    """What was kept and what was dropped, for the terminal."""
    manifest = collected.manifest
    print(f"{manifest['kept']:,} texts, {manifest['first_date']} to {manifest['last_date']}: {collected.path}")
    if manifest["kept"] < limit:
        print(f"the source has no more: {limit:,} were asked for")
    for reason, count in manifest["dropped"].items():
        print(f"  {count:,} dropped: {reason}")


def show_benchmark(documents: "list[Document]", card: "Card", out: Path) -> None:
    """Size and fairness of a benchmark, for the terminal."""
    print(f"{len(documents):,} texts, {card.members.texts:,} members and as many non-members: {out}")
    blind = card.aucs["blind"]
    print(f"blind classifier: {blind.get('reason') or 'AUC {value:.2f} [{low:.2f}, {high:.2f}]'.format(**blind)}")
    if card.warning:
        print(card.warning)


def _day(name: str, text: str) -> Date | None:
    from fsd.errors import UsageError

    try:
        return Date.fromisoformat(text) if text else None
    except ValueError as error:
        raise UsageError(f"{name} must be a day like 2023-02-24; got {text!r}") from error


def _dates(sides: "list[Order]") -> str:
    days = [("before", sides[0].window.before), ("after", sides[-1].window.after)]
    return "".join(f"-{name}-{day}" for name, day in days if day)


if __name__ == "__main__":
    from pipelines.common.cli import command

    command(Collect, main, "Collect texts of a domain that a model cannot have seen, or a benchmark of both sides.")
