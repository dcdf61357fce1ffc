"""A benchmark of members before one day and non-members after another, and the card that shows how fair it is."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, median
from typing import Any

from fsd.collection.engine import json_line, pretty_json
from fsd.data.documents import Document
from fsd.data.near_duplicates import contradictions, families, words
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
    seed: int = 0,
) -> tuple[list[Document], Card]:
    """Members and non-members, as many of each, and the card; what they share is refused, or left out.

    The larger side loses the texts farthest from the other in time, so both must be dated and sorted with the nearest
    day first, as they are collected.
    """
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
    return [*members[:size], *nonmembers[:size]], _card(domain, members[:size], nonmembers[:size], +left_out, seed)


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
    """Mean share of a non-member's distinct n-grams of words that some member has.

    As in MIMIR (Duan et al. 2024, arXiv 2402.07841, section 5), which compares with the whole training data.
    Non-members of fewer than n words count as 0.
    """
    in_members = {gram for text in members for gram in _ngrams(text, n)}
    return mean(len(g & in_members) / len(g) if g else 0.0 for g in (_ngrams(text, n) for text in nonmembers))


def _ngrams(text: str, n: int) -> set[tuple[str, ...]]:
    tokens = words(text)
    return set(zip(*(tokens[start:] for start in range(n)), strict=False))


def _card(
    domain: str, members: Sequence[Document], nonmembers: Sequence[Document], left_out: Mapping[str, int], seed: int
) -> Card:
    from fsd.evaluation.audit import controls, overlaps

    documents = [*members, *nonmembers]
    found = controls(documents, [bool(document.member) for document in documents], families(documents), seed=seed)
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
        "overlaps": {name: asdict(overlap) for name, overlap in overlaps(documents, seed=seed).items()},
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


PAGE = """# Benchmark: {domain}

{sides}

The dates are the source's own. A text published after the cutoff cannot be in the pretraining data; one published \
before it may be.

## Separation of the sides without any model

{warning}

{aucs}

The date separates the sides by design.

{overlaps}
"""


def markdown(card: Card) -> str:
    """The card as a Markdown page."""
    both = card["members"], card["nonmembers"]
    sides = [
        *((name, *(side[name] for side in both)) for name in ("texts", "groups")),
        ("first, median, last day", *(", ".join(side["dates"]) for side in both)),
        ("fewest, median, most words", *(", ".join(f"{n:g}" for n in side["words"]) for side in both)),
    ]
    aucs = [
        (name, auc.get("reason") or "{value:.3f} [{low:.3f}, {high:.3f}]".format(**auc))
        for name, auc in card["aucs"].items()
    ]
    overlaps = [(name, f"{o['value']:.2f}", f"{o['chance']:.2f}") for name, o in card["overlaps"].items()]
    shares = card["ngram_overlap"].items()
    overlaps += [(f"{n}-grams of a non-member that some member has", f"{share:.4f}", "") for n, share in shares]
    page = PAGE.format(
        domain=card["domain"],
        sides=_table(("", "members (1)", "non-members (0)"), sides),
        warning=card["warning"] or "Neither the words nor the length separate them better than chance.",
        aucs=_table(("control", "AUC [95 %]"), aucs),
        overlaps=_table(("overlap", "observed", "by chance"), overlaps),
    )
    left_out = ", ".join(f"{count} {reason}" for reason, count in card["left_out"].items())
    return page + (f"\nLeft out: {left_out}.\n" if left_out else "")


def _table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (header, ["-"] * len(header), *rows))


def write_benchmark(out: Path, documents: Sequence[Document], card: Card) -> None:
    """Write FILE.card.json and FILE.card.md, and then the benchmark itself, each atomically."""
    write_whole(out.with_name(f"{out.stem}.card.json"), pretty_json(card))
    write_whole(out.with_name(f"{out.stem}.card.md"), markdown(card).encode())
    write_whole(out, b"".join(map(json_line, documents)))
