"""What is said of verdicts, whichever command gives them: what they rest on, what chance explains, what was tried."""

from collections.abc import Iterable, Mapping

from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.verdicts.calibration import Calibration
from fsd.verdicts.domain_check import LATER, OWN, Reference
from fsd.verdicts.verdicts import ASSERTED, Basis, Verdicts

GUESTS = (
    "The rate below is that of all texts of the calibrated kind. Of unread texts of another source among such texts, "
    "99 of 100 were recognised in simulations and none was called. A text that the model wrote can score as high as "
    "one that it read: most of these are recognised, and none was called (docs/verdicts.md)."
)
"""What happens to a text of another source, for whoever is accused by a single verdict."""


def source_of(basis: Basis) -> str:
    """The beginning of a sentence on the texts of one source; "" if sources have no names."""
    if not basis.source:
        return ""
    return f"source {basis.source!r}: "


def basis_sentences(bases: Iterable[Basis]) -> list[Finding]:
    """What the verdicts on each source rest on, where it is not a test that was passed without more to say."""
    bases = list(bases)
    sentences = []
    for basis in bases:
        sentence = _basis_sentence(basis)
        if sentence:
            source = source_of(basis) if len(bases) > 1 else ""
            sentences.append(f"WARNING: {source}{sentence}")
    return as_findings(sentences, AGAINST)


def _basis_sentence(basis: Basis) -> str:
    if basis.verdict == ASSERTED:
        return "asserted, not tested: the texts are said to be of the calibrated kind (--same-source)"
    if basis.reason:
        return f"no verdict, since {basis.reason}{_difference(basis)}"
    return ""


def _difference(basis: Basis) -> str:
    """What tells texts that were refused from those of the benchmark."""
    test = basis.test
    if test is None or not test.rejected:
        return ""
    if test.classifier_p is not None and test.classifier_p <= test.outside_p:
        difference = f"a classifier distinguishes the two with AUC {test.auc:.2f}"
    else:
        difference = "more of them are outside the calibrated domain than chance explains"
    if test.telling:
        difference += f"; most telling: {', '.join(test.telling)}"
    return f"; {difference}: judge texts of one kind at a time, by an adapter whose non-members are of that kind"


def rate_sentences(verdicts: Verdicts, calibration: Calibration) -> list[Finding]:
    """The range of the false-positive rate, for each source on whose texts verdicts are given."""
    fpr = verdicts.rules.fpr
    sentences = []
    for basis in verdicts.bases:
        if not basis.verdict:
            continue
        calibrated = calibration.of(basis.source)
        rate = calibrated.rate(fpr)
        rests_on = f"this calibration rests on {calibrated.n_families} test non-members"
        interval = f"between {rate.low:.1%} and {rate.high:.1%} with 95 % confidence"
        sentences.append(
            f"{source_of(basis)}the false-positive rate of {fpr:.1%} holds on average over calibration sets: "
            f"{rests_on}, and the rate of its threshold is {interval}"
        )
    return as_findings(sentences)


def chance_sentence(verdicts: Verdicts, calibration: Calibration, data: str, called_what: str) -> Finding:
    """The number of families called, compared with that among texts none of which is in the `data`."""
    called, judged = verdicts.calls()
    sources = [basis.source for basis in verdicts.bases if basis.verdict]
    if len(sources) > 1:
        return Finding(f"{called} of {judged} independent texts are called; each source has a rate of its own")
    fpr = verdicts.rules.fpr
    expected = fpr * judged
    most = calibration.of(*sources).false_alarms(fpr, judged)
    # Of few texts the number of the expected is below one.
    digits = 0 if expected >= 3 else 1
    start = (
        f"if none of the {judged:,} independent texts judged had been in the {data}, about {expected:.{digits}f} would "
        f"still be called {called_what}, and in 95 of 100 cases at most {most}"
    )
    short = f"by chance {expected:.{digits}f} of {judged:,} are called, at most {most} in 95 of 100 cases"
    if not called:
        return Finding(start)
    if called > most:
        meaning = f"{called} are more than chance explains"
        if verdicts.asserted:
            meaning += ", if they are of the calibrated kind"
            return Finding(f"{start}: {meaning}", AGAINST, f"{short}: {meaning}")
        return Finding(f"{start}: {meaning} for texts of the calibrated kind", FOR, f"{short}: {meaning}")
    are = "is" if called == 1 else "are"
    calls = "call is" if called == 1 else "calls together are"
    return Finding(
        f"{start}: {called} such {calls} no evidence of membership", AGAINST, f"{short}: {called} {are} no evidence"
    )


def power_sentences(reference: Reference) -> list[Finding]:
    """What the domain check was shown to find, and, by name, what it does not recognise."""
    sentences = [_power_sentence(reference)]
    if reference.unrecognised:
        named = ", ".join(f"{kind} ({share:.0%} found)" for kind, share in reference.unrecognised.items())
        sentences.append(Finding(f"the domain check does not recognise most texts of these kinds: {named}", AGAINST))
    return sentences


def _power_sentence(reference: Reference) -> Finding:
    if not reference.power:
        return Finding("domain check: not tried on texts of other kinds", AGAINST)
    other_kinds = {kind: share for kind, share in reference.power.items() if kind not in (LATER, OWN)}
    tried = f"domain check: it found {_shares('texts of other kinds', other_kinds)}"
    short = f"domain check found {_average('other kinds', other_kinds)}"
    for kind, in_short in ((LATER, LATER), (OWN, "own texts")):
        if kind in reference.power:
            share = f", {reference.power[kind]:.0%} of "
            tried += share + kind
            short += share + in_short
    if reference.edits:
        edited = _shares("them", reference.edits)
        tried += f"; of the benchmark's own texts after edits {edited}"
        short += f", {_average('edited ones', reference.edits)}"
    if OWN not in reference.power:
        tried += f"; it was not tried on {OWN}"
    return Finding(tried, reference.powerful, short)


def _shares(kinds: str, shares: Mapping[str, float]) -> str:
    average = _average(kinds, shares)
    if not shares:
        return average
    weakest = min(shares, key=shares.__getitem__)
    return f"{average}, least of {weakest} ({shares[weakest]:.0%})"


def _average(kinds: str, shares: Mapping[str, float]) -> str:
    if not shares:
        return f"no {kinds}"
    return f"{sum(shares.values()) / len(shares):.0%} of {kinds}"
