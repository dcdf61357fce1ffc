"""A benchmark of two sides, members before a day and non-members after another, and the card of how fair it is."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from fsd.collection.resume import as_json, line, write_atomically
from fsd.data.documents import Document
from fsd.data.near_duplicates import families, near_duplicates, words
from fsd.errors import UsageError

if TYPE_CHECKING:
    from fsd.evaluation.audit import Control

NGRAMS = (7, 13)
"""Lengths of n-grams compared: 7 as in fsd.data.near_duplicates, 13 as in MIMIR."""
LISTED = 5


@dataclass(frozen=True)
class Side:
    """What the texts of one label are.

    Attributes:
        texts: their number.
        groups: articles, papers, books.
        dates: first, median and last day.
        words: fewest, median and most words.
    """

    texts: int
    groups: int
    dates: tuple[str, str, str]
    words: tuple[int, float, int]


@dataclass(frozen=True)
class Card:
    """What a benchmark is, and what tells its sides apart without any model.

    Attributes:
        domain: of the texts.
        members: label 1.
        nonmembers: label 0.
        left_out: reason → texts left out of the two sides.
        ngram_overlap: n → mean share of a non-member's n-grams that some member has.
        aucs: control → its AUC with the 95 % interval, or why there is none: blind (bag of words), date, length.
        overlaps: respect → overlap of the two sides and what chance would show, see fsd.evaluation.distribution_shift.
        warning: what the controls forbid to conclude; "" if nothing.
    """

    domain: str
    members: Side
    nonmembers: Side
    left_out: Mapping[str, int]
    ngram_overlap: Mapping[int, float]
    aucs: Mapping[str, Mapping[str, Any]]
    overlaps: Mapping[str, Mapping[str, float]]
    warning: str

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def build(
    domain: str,
    members: Sequence[Document],
    nonmembers: Sequence[Document],
    *,
    drop_shared: bool = False,
    seed: int = 0,
) -> tuple[list[Document], Card]:
    """Balance two sides and examine them.

    Of the larger side the texts farthest from the other in time are left out, so both must come with the nearest
    day first, as `fsd.collection.collect` gives them.

    Args:
        domain: for the card.
        members: label 1, dated.
        nonmembers: label 0, dated.
        drop_shared: leave out what the sides share, instead of refusing.
        seed: of the controls.

    Returns:
        Members and non-members, as many of each, and the card.

    Raises:
        UsageError: if the sides share texts (the same words, or a near-copy) or groups, listing them.
    """
    left_out = Counter[str]()
    common = shared(members, nonmembers)
    if common and not drop_shared:
        raise UsageError(_refusal(common, members, nonmembers))
    if common:
        old, new = {i for i, _, _ in common}, {j for _, j, _ in common}
        members = [document for i, document in enumerate(members) if i not in old]
        nonmembers = [document for j, document in enumerate(nonmembers) if j not in new]
        left_out["shared by both sides"] = len(old) + len(new)
    size = min(len(members), len(nonmembers))
    if not size:
        raise UsageError("a benchmark must have texts on both sides; none is left on one of them")
    left_out["over the smaller side"] = len(members) + len(nonmembers) - 2 * size
    documents = [*members[:size], *nonmembers[:size]]
    return documents, _card(domain, documents, +left_out, seed)


def shared(members: Sequence[Document], nonmembers: Sequence[Document]) -> list[tuple[int, int, str]]:
    """Pairs of a member and a non-member that are one text or of one group: places on their sides, and why."""
    count = len(members)
    pairs = {
        (link.i, link.j - count): "copy"
        for link in near_duplicates([document.text for document in (*members, *nonmembers)])
        if link.i < count <= link.j and link.reason == "copy"
    }
    places: dict[str, list[int]] = {}
    for i, document in enumerate(members):
        if document.group:
            places.setdefault(document.group, []).append(i)
    for j, document in enumerate(nonmembers):
        for i in places.get(document.group, ()):
            pairs.setdefault((i, j), f"group {document.group}")
    return [(i, j, why) for (i, j), why in sorted(pairs.items())]


def _refusal(
    common: Sequence[tuple[int, int, str]], members: Sequence[Document], nonmembers: Sequence[Document]
) -> str:
    listed = [
        f"{members[i].source} ({members[i].date}) = {nonmembers[j].source} ({nonmembers[j].date}), {why}"
        for i, j, why in common[:LISTED]
    ]
    more = f"; and {len(common) - LISTED} more" if len(common) > LISTED else ""
    return (
        f"the two sides must share no text; {len(common)} pairs do: {'; '.join(listed)}{more}; "
        "remove them at the source, or leave them out of both sides with --drop-shared"
    )


def ngram_overlap(members: Sequence[str], nonmembers: Sequence[str], n: int) -> float:
    """Mean over the non-members of the share of their distinct n-grams of words that some member has.

    As MIMIR measures it (Duan et al. 2024, §5), there against the whole training data. Non-members shorter than n words
    have none and count as 0.
    """
    known = {gram for text in members for gram in _grams(text, n)}
    shares = []
    for text in nonmembers:
        own = set(_grams(text, n))
        shares.append(len(own & known) / len(own) if own else 0.0)
    return mean(shares)


def _grams(text: str, n: int) -> Iterator[tuple[str, ...]]:
    found = words(text)
    return zip(*(found[start:] for start in range(n)), strict=False)


def _card(domain: str, documents: Sequence[Document], left_out: Mapping[str, int], seed: int) -> Card:
    from fsd.evaluation.audit import alone, blind
    from fsd.evaluation.distribution_shift import overlaps

    texts = [document.text for document in documents]
    labels = [bool(document.member) for document in documents]
    groups = families(documents)
    lengths = [float(len(words(text))) for text in texts]
    days = [float(document.date.toordinal()) if document.date else None for document in documents]
    half = len(documents) // 2
    controls = {
        "blind": blind(texts, labels, groups, seed=seed),
        "length": alone(lengths, labels, groups, seed=seed),
        "date": alone(days, labels, groups, seed=seed),
    }
    return Card(
        domain=domain,
        members=_side(documents[:half]),
        nonmembers=_side(documents[half:]),
        left_out=dict(left_out),
        ngram_overlap={n: ngram_overlap(texts[:half], texts[half:], n) for n in NGRAMS},
        aucs={name: _shown(control) for name, control in controls.items()},
        overlaps={name: asdict(overlap) for name, overlap in overlaps(documents, seed=seed).items()},
        warning=_warning(controls["blind"], controls["length"]),
    )


def _side(documents: Sequence[Document]) -> Side:
    days = sorted(document.date.isoformat() for document in documents if document.date)
    counts = [len(words(document.text)) for document in documents]
    return Side(
        texts=len(documents),
        groups=len({document.group for document in documents}),
        dates=(days[0], days[(len(days) - 1) // 2], days[-1]),
        words=(min(counts), median(counts), max(counts)),
    )


def _shown(control: "Control") -> dict[str, Any]:
    if control.auc is None:
        return {"value": None, "reason": control.reason}
    return {"value": control.auc.value, "low": control.auc.low, "high": control.auc.high}


def _warning(blind: "Control", length: "Control") -> str:
    told = [
        f"{name} reaches AUC {control.auc}"
        for name, control in (("a classifier of words", blind), ("the length alone", length))
        if control.auc is not None and control.auc.low > 0.5
    ]
    if not told:
        return ""
    return (
        f"SHIFTED: without any model, {' and '.join(told)}; "
        "what a detector reaches up to there is no evidence of membership"
    )


def markdown(card: Card) -> str:
    """The card for people."""
    lines = [f"# Benchmark: {card.domain}", "", "| | members (1) | non-members (0) |", "|-|-|-|"]
    old, new = card.members, card.nonmembers
    for label, one, other in (
        ("texts", old.texts, new.texts),
        ("groups", old.groups, new.groups),
        ("first, median, last day", ", ".join(old.dates), ", ".join(new.dates)),
        ("fewest, median, most words", _joined(old.words), _joined(new.words)),
    ):
        lines.append(f"| {label} | {one} | {other} |")
    lines += [
        "",
        "The dates are the source's own. A text after the cutoff cannot have been seen; one before it may have been.",
        "",
        "## What tells the sides apart without any model",
        "",
        card.warning or "Neither the words nor the length tell them apart better than chance.",
        "",
        "| control | AUC [95 %] |",
        "|-|-|",
    ]
    for name, auc in card.aucs.items():
        told = auc["value"] is not None
        lines.append(
            f"| {name} | {auc['value']:.3f} [{auc['low']:.3f}, {auc['high']:.3f}] |"
            if told
            else f"| {name} | {auc['reason']} |"
        )
    lines += ["", "The date tells the sides apart by design.", "", "| overlap | found | by chance |", "|-|-|-|"]
    lines += [f"| {name} | {o['value']:.2f} | {o['chance']:.2f} |" for name, o in card.overlaps.items()]
    lines += [
        f"| {n}-grams of a non-member that some member has | {share:.4f} | |" for n, share in card.ngram_overlap.items()
    ]
    if card.left_out:
        lines += ["", "Left out: " + ", ".join(f"{count} {reason}" for reason, count in card.left_out.items()) + "."]
    return "\n".join(lines) + "\n"


def write_benchmark(out: Path, documents: Sequence[Document], card: Card) -> None:
    """The benchmark, and beside it FILE.card.json and FILE.card.md; the benchmark appears last, and whole."""
    write_atomically(out.with_name(f"{out.stem}.card.json"), as_json(card.to_json()))
    write_atomically(out.with_name(f"{out.stem}.card.md"), markdown(card).encode())
    write_atomically(out, b"".join(map(line, documents)))


def _joined(numbers: tuple[int, float, int]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)
