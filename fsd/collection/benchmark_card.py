"""A benchmark of members before one day and non-members after another, and the card that shows how fair it is."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from fsd.collection.engine import pretty_json
from fsd.data.documents import Document, json_line
from fsd.data.near_duplicates import contradictions, families, ngrams, words
from fsd.errors import UsageError
from fsd.leftovers import write_whole

NGRAMS = (7, 13)
"""Lengths of the n-grams compared: 7 as in fsd.data.near_duplicates, 13 as in MIMIR."""
LISTED = 5
Card = Mapping[str, Any]
"""Contents of a benchmark, and what separates its sides without any model, as in FILE.card.json:

- members, nonmembers: number of texts and groups (0 if unknown); first, median and last day; fewest, median and most
  words;
- left_out: reason -> number of texts left out of the two sides;
- ngram_overlap: n -> mean share of a non-member's n-grams that some member has;
- aucs: control (blind, date, length) -> its AUC with the 95 % interval, or why there is none;
- overlaps: property -> overlap of the two sides and its value by chance, see `fsd.evaluation.audit`;
- warning: the conclusion that the controls forbid; "" if none.
"""


def build(
    domain: str,
    members: Sequence[Document],
    nonmembers: Sequence[Document],
    *,
    drop_shared: bool = False,
) -> tuple[list[Document], Card]:
    """Members and non-members, as many of each, the first as they are collected, and the card."""
    left_out = Counter[str]()
    pairs = shared(members, nonmembers)
    if pairs and not drop_shared:
        listed = [
            f"{members[i].source} ({members[i].date}) = {nonmembers[j].source} ({nonmembers[j].date}), {reason}"
            for i, j, reason in pairs[:LISTED]
        ]
        more = f"; and {len(pairs) - LISTED} more" if len(pairs) > LISTED else ""
        raise UsageError(
            f"the two sides must share no text; {len(pairs)} pairs do: {'; '.join(listed)}{more}; "
            "remove them at the source, or leave them out of both sides with --drop-shared"
        )
    old, new = {i for i, _, _ in pairs}, {j for _, j, _ in pairs}
    members = [document for i, document in enumerate(members) if i not in old]
    nonmembers = [document for j, document in enumerate(nonmembers) if j not in new]
    size = min(len(members), len(nonmembers))
    if not size:
        raise UsageError("a benchmark must have texts on both sides; none is left on one of them")
    left_out["shared by both sides"] = len(old) + len(new)
    left_out["over the smaller side"] = len(members) + len(nonmembers) - 2 * size
    return [*members[:size], *nonmembers[:size]], _card(domain, members[:size], nonmembers[:size], +left_out)


def shared(members: Sequence[Document], nonmembers: Sequence[Document]) -> list[tuple[int, int, str]]:
    """Pairs of a member and a non-member that are copies or of one group: index on each side, and the reason."""
    sides = [Document(d.text, side) for side, part in ((True, members), (False, nonmembers)) for d in part]
    pairs = {(i, j - len(members)): "copy" for i, j in contradictions(sides)}
    in_group = defaultdict(list)
    for i, member in enumerate(members):
        in_group[member.group].append(i)
    for j, other in enumerate(nonmembers):
        for i in in_group.get(other.group, ()) if other.group else ():
            pairs.setdefault((i, j), f"group {other.group}")
    return [(i, j, reason) for (i, j), reason in sorted(pairs.items())]


def ngram_overlap(members: Sequence[str], nonmembers: Sequence[str], n: int) -> float:
    """Mean share of a non-member's distinct n-grams of words that some member has, as in arXiv 2402.07841, § 5."""
    in_members = {gram for text in members for gram in ngrams(text, n)}
    return mean(len(g & in_members) / len(g) if g else 0.0 for g in (ngrams(text, n) for text in nonmembers))


def _card(
    domain: str, members: Sequence[Document], nonmembers: Sequence[Document], left_out: Mapping[str, int]
) -> Card:
    from fsd.evaluation.audit import controls, overlaps

    documents = [*members, *nonmembers]
    found = controls(documents, [bool(document.member) for document in documents], families(documents))
    shifted = [
        f"{description} reaches AUC {auc}"
        for name, description in (("blind", "a classifier of words"), ("length", "the length alone"))
        if (auc := found[name].auc) is not None and auc.low > 0.5
    ]
    warning = (
        f"SHIFTED: without any model, {' and '.join(shifted)}; "
        "a detector's AUC up to that value is no evidence of membership"
    )
    return {
        "domain": domain,
        "members": _side(members),
        "nonmembers": _side(nonmembers),
        "left_out": dict(left_out),
        "ngram_overlap": {n: ngram_overlap([d.text for d in members], [d.text for d in nonmembers], n) for n in NGRAMS},
        "aucs": {
            name: control.auc._asdict() if control.auc else {"value": None, "reason": control.reason}
            for name, control in found.items()
        },
        "overlaps": {name: asdict(overlap) for name, overlap in overlaps(documents).items()},
        "warning": warning if shifted else "",
    }


def _side(documents: Sequence[Document]) -> dict[str, Any]:
    days = sorted(document.date.isoformat() for document in documents if document.date)
    counts = [len(words(document.text)) for document in documents]
    return {
        "texts": len(documents),
        "groups": len({document.group for document in documents} - {""}),
        "dates": [days[0], days[(len(days) - 1) // 2], days[-1]],
        "words": [min(counts), median(counts), max(counts)],
    }


def write_benchmark(out: Path, documents: Sequence[Document], card: Card, page: str) -> None:
    """Write FILE.card.json, the card as a page, FILE.card.md, and then the benchmark itself, each atomically."""
    write_whole(out.with_name(f"{out.stem}.card.json"), pretty_json(card))
    write_whole(out.with_name(f"{out.stem}.card.md"), page.encode())
    write_whole(out, b"".join(map(json_line, documents)))
