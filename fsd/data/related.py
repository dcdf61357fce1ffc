"""Texts of one side that are related to those of another: known non-members, and the background of a model."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from fsd.data.documents import Document, Documents
from fsd.data.near_duplicates import Link, connected, contradictions, copies_among, listed, near_duplicates, pairs_are
from fsd.errors import UsageError


def refuse_copies(documents: Documents, background: Documents) -> None:
    """Refuse a background of a model to be trained of which a text is a copy or near-copy of a document."""
    # a contradiction is a copy on the other side, whatever the labels of the texts are
    sides = [replace(text, member=True, context="") for text in documents]
    sides += [replace(text, member=False, context="") for text in background]
    pairs = contradictions(sides)
    if pairs:
        i, j = pairs[0]
        raise UsageError(
            "background must hold other texts than the members and non-members, which would be trained on with it; "
            f"{len(pairs)} copies, the first {sides[i].origin} = {sides[j].origin}"
        )


def refuse_members(nonmembers: Documents) -> None:
    """UsageError if a text of --known is labelled a member."""
    for document in nonmembers:
        if document.member:
            raise UsageError(f"known must hold texts that are non-members; {document.origin_url} is labelled a member")


def refuse_related(suspect: Documents, nonmembers: Documents) -> None:
    """UsageError if non-members share a group or near-duplicates with the suspect texts."""
    # "" is no group: texts without one have nothing in common
    shared = sorted(_groups(suspect) & _groups(nonmembers) - {""})
    if shared:
        raise UsageError(f"known must hold other groups than the texts to be judged; both have {shared[0]!r}")
    links = _links_between(suspect, nonmembers)
    if links:
        raise UsageError(
            f"known must hold other texts than those to be judged; {pairs_are(links)} alike: "
            f"{_named(suspect, nonmembers, links)}; leave such known texts out by --near-duplicates drop"
        )


def _groups(documents: Documents) -> set[str]:
    return {document.group for document in documents}


def without_related(suspect: Documents, nonmembers: Documents) -> tuple[list[Document], list[str]]:
    """The non-members that are no near-duplicates of a suspect text, and a remark that counts and names the others.

    What is left is compared again: a passage of many texts links none, until few of them are left.
    """
    rows = list(range(len(nonmembers)))
    dropped: list[Link] = []
    while links := _links_between(suspect, [nonmembers[row] for row in rows]):
        links = [link._replace(j=rows[link.j]) for link in links]
        dropped += links
        rows = sorted(set(rows) - {link.j for link in links})
    remark = f"{len(nonmembers) - len(rows):,} known texts are near-duplicates of the data set and were left out"
    if dropped:
        remark += f": {_named(suspect, nonmembers, sorted(dropped))}"
    return [nonmembers[row] for row in rows], [remark]


def _named(suspect: Documents, nonmembers: Documents, links: Sequence[Link]) -> str:
    """The first `LISTED` pairs of a suspect text and a non-member, each with its rule."""
    pairs = []
    for i, j, reason in links:
        pairs.append(f"{suspect[i].origin} = {nonmembers[j].origin} ({reason})")
    return listed(pairs)


def _links_between(suspect: Documents, nonmembers: Documents) -> list[Link]:
    """Near-duplicates `i` of the suspect texts and `j` of the non-members, and all copies of the latter."""
    size = len(suspect)
    texts = [document.whole for document in chain(suspect, nonmembers)]
    links = near_duplicates(texts)
    between = [link for link in links if link.i < size <= link.j]
    # Many copies are linked in a chain, in which a non-member may be linked to other ones alone.
    family = connected(len(texts), copies_among(links))
    of_family = {family[link.j]: link for link in reversed(between)}
    copies = set(range(size, len(texts))) - {link.j for link in between}
    for j in copies:
        link = of_family.get(family[j])
        if link:
            between.append(link._replace(j=j))
    return [link._replace(j=link.j - size) for link in sorted(between)]
