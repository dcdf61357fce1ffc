"""A benchmark of members before one day and non-members after another, and the card that shows how fair it is."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, median, median_low
from typing import Any

from fsd.collection.engine import days, n_groups, pretty_json
from fsd.data.corpus import Corpus
from fsd.data.documents import Document, Documents, json_line
from fsd.data.near_duplicates import contradictions, listed, ngrams, words
from fsd.errors import UsageError
from fsd.files import JSON
from fsd.leftovers import write_whole

NGRAMS = (7, 13)
"""Lengths of the n-grams compared: 7 as in fsd.data.near_duplicates, 13 as in MIMIR."""
Card = Mapping[str, Any]
"""Contents of a benchmark, and what separates its sides without any model, as in FILE.card.json:

- members, nonmembers: number of texts and groups (0 if unknown); first, median and last day; fewest, median and most
  words;
- left_out: reason -> number of texts left out of the two sides;
- ngram_overlap: n -> mean share of a non-member's n-grams that some member has;
- aucs: control (blind, date, length) -> its AUC with the 95 % interval, or why there is none;
- warning: the conclusion that the controls forbid; "" if none.
"""


def build(
    domain: str, members: Documents, nonmembers: Documents, *, drop_shared: bool = False
) -> tuple[list[Document], Card]:
    """Members and non-members, as many of each, the first as they are collected, and the card."""
    pairs = shared(members, nonmembers)
    if pairs and not drop_shared:
        alike = []
        for i, j, reason in pairs:
            old = members[i]
            new = nonmembers[j]
            alike.append(f"{old.origin_url} ({old.date}) = {new.origin_url} ({new.date}), {reason}")
        raise UsageError(
            f"the two sides must share no text; {len(pairs)} pairs do: {listed(alike)}; "
            "remove them at the source, or leave them out of both sides with --drop-shared"
        )
    n_collected = len(members) + len(nonmembers)
    # Both texts of a pair go: which of the two the model has seen is not known.
    members = _without(members, {i for i, _, _ in pairs})
    nonmembers = _without(nonmembers, {j for _, j, _ in pairs})
    n_distinct = len(members) + len(nonmembers)
    size = min(len(members), len(nonmembers))
    if not size:
        raise UsageError("a benchmark must have texts on both sides; none is left on one of them")
    # The first are the nearest to the cutoff on each side, which differ the least in anything but membership.
    members = members[:size]
    nonmembers = nonmembers[:size]
    left_out = {"shared by both sides": n_collected - n_distinct, "over the smaller side": n_distinct - 2 * size}
    return members + nonmembers, _card(domain, members, nonmembers, left_out)


def _without(documents: Documents, left_out: set[int]) -> list[Document]:
    return [document for number, document in enumerate(documents) if number not in left_out]


def shared(members: Documents, nonmembers: Documents) -> list[tuple[int, int, str]]:
    """Pairs of a member and a non-member that are copies or of one group: index on each side, and the reason."""
    reasons = {(i, j - len(members)): "copy" for i, j in contradictions(list(chain(members, nonmembers)))}
    in_group = defaultdict(list)
    for i, member in enumerate(members):
        in_group[member.group].append(i)
    # Texts whose group is unknown are of no common group.
    in_group.pop("", None)
    for j, nonmember in enumerate(nonmembers):
        for i in in_group.get(nonmember.group, ()):
            reasons.setdefault((i, j), f"group {nonmember.group}")
    return [(i, j, reason) for (i, j), reason in sorted(reasons.items())]


def ngram_overlap(members: Sequence[str], nonmembers: Sequence[str], n: int) -> float:
    """Mean share of a non-member's distinct n-grams of words that some member has, as in arXiv 2402.07841, § 5."""
    in_members = set[tuple[str, ...]]().union(*(ngrams(text, n) for text in members))
    shares = []
    for text in nonmembers:
        grams = ngrams(text, n)
        # A text that is shorter than n words has no n-gram that a member could have.
        shares.append(len(grams & in_members) / max(len(grams), 1))
    return mean(shares)


def _card(domain: str, members: Documents, nonmembers: Documents, left_out: Mapping[str, int]) -> Card:
    from fsd.text_audit.audit import controls

    corpus = Corpus(chain(members, nonmembers))
    results = controls(corpus, corpus.members.tolist(), corpus.family.tolist())
    aucs = {}
    for name, control in results.items():
        aucs[name] = control.auc._asdict() if control.auc else {"value": None, "reason": control.reason}
    # The date is no shift: it parts the sides by construction.
    shifted = []
    for name, description in (("blind", "a classifier of words"), ("length", "the length alone")):
        auc = results[name].auc
        if auc and auc.low > 0.5:
            shifted.append(f"{description} reaches AUC {auc}")
    warning = ""
    if shifted:
        warning = (
            f"SHIFTED: without any model, {' and '.join(shifted)}; "
            "a detector's AUC up to that value is no evidence of membership"
        )
    member_texts = corpus.texts[: len(members)]
    nonmember_texts = corpus.texts[len(members) :]
    overlap = {n: ngram_overlap(member_texts, nonmember_texts, n) for n in NGRAMS}
    left_out = {reason: count for reason, count in left_out.items() if count}
    return {
        "domain": domain,
        "members": _side(members),
        "nonmembers": _side(nonmembers),
        "left_out": left_out,
        "ngram_overlap": overlap,
        "aucs": aucs,
        "warning": warning,
    }


def _side(documents: Documents) -> JSON:
    dates = days(documents)
    lengths = [len(words(document.text)) for document in documents]
    return {
        "texts": len(documents),
        "groups": n_groups(documents),
        "dates": [dates[0], median_low(dates), dates[-1]],
        "words": [min(lengths), median(lengths), max(lengths)],
    }


def write_benchmark(out: Path, documents: Documents, card: Card, page: str) -> None:
    """Write FILE.card.json, the card as a page, FILE.card.md, and then the benchmark itself, each atomically."""
    # The benchmark comes last: once it exists, the same command is refused.
    write_whole(out.with_name(f"{out.stem}.card.json"), pretty_json(card))
    write_whole(out.with_name(f"{out.stem}.card.md"), page.encode())
    write_whole(out, b"".join(map(json_line, documents)))
