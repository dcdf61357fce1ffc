"""What the numbers can and cannot support, in plain words: for the terminal, MLflow and the report."""

from fsd.evaluation.advice import advice
from fsd.evaluation.answer import GROUNDS, REVERSED, Answer, meaning_of_blind, percents, with_doubts
from fsd.evaluation.findings import AGAINST, Finding, as_findings
from fsd.evaluation.results import CONTRASTS, FAMILIARITY, MEMBERSHIP, WITH_LATER, Contrast, Results
from fsd.scores import FSD
from fsd.statistics.intervals import shortened
from fsd.statistics.metrics import METRICS
from fsd.text_audit.audited import Audit, Leaks, Telling, below_chance

QUESTION = "Was it in the training data?"
SIGNIFICANT = 0.05
LARGE_FAMILY = 0.2
"""Share of a kind's test texts above which one family is remarked on."""


def headline(answer: Answer) -> str:
    """The question, the answer, and its numbers, each with its name."""
    verdict = answer.judgement.answer.split(":")[0]
    line = f"{QUESTION} {verdict}: AUC {answer.results.auc} ({answer.results.headline_title})"
    controls = []
    if answer.of_control:
        controls.append(f"control model {answer.of_control.short}")
    if answer.blind:
        controls.append(f"texts alone {answer.blind.short}")
    return "; ".join(filter(None, [line, ", ".join(controls)]))


def description(answer: Answer) -> str:
    """The headline, the answer and what would change it."""
    verdict, change = answer.judgement
    return f"{headline(answer)}\n\n{verdict}. The answer would be changed by {change}."


def in_words(answer: Answer) -> list[str]:
    """The answer in words and numbers, without terms of the field."""
    right, low, high = percents(answer.results.auc)
    detected, least, most = percents(answer.found)
    pairs = (
        "Take one text from the training data and one from outside it. The best score, "
        f"“{answer.results.headline_title}”, is higher for the former in {right} of 100 such pairs; guessing gets 50. "
        f"With other texts of the same kind it could be {low} to {high} (95 % interval)."
    )
    return [
        f"{answer.judgement.answer}.",
        pairs,
        f"If 5 of 100 outside texts may wrongly be called training texts, {detected} of 100 training texts are found "
        f"({least} to {most}).",
    ]


def errors(answer: Answer) -> list[str]:
    """How often the answer is wrong, without terms of the field."""
    members, nonmembers = answer.families
    lines = [
        f"The numbers rest on {members} independent texts from the training data and {nonmembers} from outside it; "
        "other texts of the same kind would give numbers in the ranges that stand in brackets in 95 of 100 cases."
    ]
    if answer.blind:
        lines.append(
            f"A program that reads the texts alone, and never asks the model, is right in {percents(answer.blind)[0]} "
            "of 100 pairs; guessing gets 50. What it can tell says nothing about the model."
        )
    return lines


def sure(answer: Answer) -> list[str]:
    """What the answer rests on, without terms of the field: the texts alone, a control, the period, the division."""
    texts, control, period, division = [ground.plain for ground in answer.grounds]
    # The run takes the place of the control model, which it has none of.
    if answer.results.never_saw:
        control = "This run is itself the control: whatever it distinguishes, it distinguishes by the texts alone."
    lines = [texts, control, period, division]
    return with_doubts(lines, answer.results.labels, lambda doubt: f"{doubt[0].upper()}{doubt[1:]}.")


def changes(answer: Answer) -> list[str]:
    """What would change the answer, in sentences."""
    _, low, high = percents(answer.results.auc)
    members, nonmembers = answer.families
    lines = [
        f"The answer would be changed by {answer.judgement.change}.",
        f"The range of {low} to {high} rests on {members} independent texts from the training data and {nonmembers} "
        "from outside it; four times as many would about halve it.",
    ]
    if not answer.results.parts.validation:
        lines.append("The detector was chosen on these very texts; on new texts it is likely to do less well.")
    return lines


def signs(answer: Answer) -> list[Finding]:
    """What speaks for the result and against it, each in a few words."""
    results = answer.results
    texts, control, period, division = [Finding(ground.short, ground.sign) for ground in answer.grounds]
    lines = []
    if results.never_saw:
        lines.append(
            Finding("a control run, of a model that saw none of these texts: name another by --model", AGAINST)
        )
    lines.append(texts)
    telling = results.audit.telling
    if telling and _tells(telling):
        lines.append(Finding(f"a sign distinguishes the texts: {telling.phrase}; bring texts without it", AGAINST))
    lines += [control, period]
    lines = with_doubts(lines, results.labels, lambda doubt: Finding(doubt, AGAINST))
    lines.append(division)
    if results.gain:
        gains = results.gain.low > 0
        line = f"{results.title(results.best_fsd)} against the best base score: {results.gain.estimate.signed}"
        if not gains:
            line += "; read base scores"
        lines.append(Finding(line, gains))
    against = _remarks_with_a_remedy(results)
    if answer.contradiction:
        against.insert(0, f"no verdicts: {answer.contradiction}")
    if not results.parts.validation:
        against.append("chosen on the test texts, which flatters: set others aside by --validation 0.2")
    return lines + as_findings(against, AGAINST)


def _remarks_with_a_remedy(results: Results) -> list[str]:
    """The remarks on detectors that name a flag by which to avoid them; the report has the others as well."""
    detectors = {str(column).rpartition(".")[0] for column in results.scores}
    remarks = []
    for remark in results.remarks:
        subject, _, _ = remark.partition(":")
        if subject in detectors and "try --" in remark:
            remarks.append(remark)
    return remarks


def notes(answer: Answer) -> list[str]:
    """The conclusions, and whatever was left out or replaced along the way, one line each."""
    results = answer.results
    lines = conclusions(answer)
    if answer.contradiction:
        lines.append(f"no verdicts: {answer.contradiction}")
    if not results.parts.validation:
        lines.append("no validation texts: the accuracy is at the best threshold on the test texts themselves")
    return lines + advice(results) + caveats(answer) + list(results.remarks)


def conclusions(answer: Answer) -> list[str]:
    """Cautious sentences about the best detector, the most important first."""
    results = answer.results
    lines = [_result(answer), _placebo(answer)]
    if results.never_saw:
        control = (
            "this model was trained on none of these texts: the whole run is a control, and any separation here is "
            "not evidence of membership"
        )
        lines = [control, lines[0]]
    lines = with_doubts(lines, results.labels, str)
    return lines + _gain(results) + _contrasts(answer) + _gains(results) + _of_texts(results.audit)


def _result(answer: Answer) -> str:
    results = answer.results
    auc = results.auc
    blind = answer.blind
    line = f"{results.headline_title} {auc}{_choice(results)}"
    # What chance explains needs no other cause: none is sought below.
    if below_chance(auc):
        line += f": {REVERSED}"
    elif auc.low <= 0.5:
        line += ": not distinguishable from chance, this shows nothing about membership"
    if blind is None:
        line += f"; no blind classifier could be trained ({results.audit.blind.reason})"
        if auc.low > 0.5:
            line += ": the cause of the result is open"
        return line
    line += f"; a blind classifier, which never sees the model, reaches {blind} here"
    meaning = meaning_of_blind(blind, auc, "this")
    if below_chance(blind):
        meaning = f", {REVERSED}"
    elif not meaning:
        meaning = ", no better than chance"
        if not _tells(results.audit.telling):
            meaning += ": without the model, members and non-members were not distinguishable"
    return line + meaning


def _choice(results: Results) -> str:
    """Among how many scores the headline was chosen, and on which texts; empty for a single score."""
    n_scores = len(results.measured("auc"))
    if n_scores < 2:
        return ""
    if results.parts.validation:
        return f", the best of {n_scores} scores on the validation texts"
    return f", the best of {n_scores} scores on the test texts themselves, which makes it optimistic"


def _tells(telling: Telling | None) -> bool:
    """Whether a single word, pair of words or sign separates the two sides significantly."""
    return telling is not None and telling.p < SIGNIFICANT


def _gain(results: Results) -> list[str]:
    """What fine-tuning adds to the best base score, or why it adds nothing."""
    gain = results.gain
    if gain is None:
        return []
    line = (
        f"{results.title(results.best_fsd)}, the best score with fine-tuning, against the best without: "
        f"{gain.estimate.signed}: it is "
    )
    if gain.low > 0:
        return [f"{line}higher"]
    return [line + ("lower" if gain.high < 0 else "not significantly higher")]


def _placebo(answer: Answer) -> str:
    results = answer.results
    name = results.headline_title
    meaning = GROUNDS[answer.control].meaning
    control = answer.of_control
    if control is None or results.lead is None:
        # A control model may lack the best score alone.
        of_score = f" for {name}" if results.measured("placebo_auc") else ""
        return f"{results.uncontrolled or f'no control model{of_score}'}{meaning}"
    if answer.control == "lead":
        if control.low > 0.5:
            meaning = " is the most that can be due to membership"
        if answer.period == "no contemporaries":
            meaning += "; a control model cannot exclude that it is familiarity with the members' period"
    if below_chance(control):
        meaning += f"; the control model is {REVERSED}"
    return (
        f"control model, trained on none of these texts: {name} reaches {control}; the difference, "
        f"{results.lead.signed},{meaning}"
    )


def _contrasts(answer: Answer) -> list[str]:
    """The contrasts and what follows from them, or what cannot be said without them."""
    results = answer.results
    missing = []
    for contrast in CONTRASTS:
        metric = f"auc_{contrast.name}"
        if not results.number(results.best_fsd, metric):
            missing.append(contrast)
    if not missing:
        return [_three(answer)]
    titles = " and ".join(contrast.title for contrast in missing)
    if MEMBERSHIP not in missing:
        return [
            "all non-members are contemporaries, of the members' own period, so that familiarity with the period "
            f"cannot explain the result; {titles} cannot be compared: there are no later texts"
        ]
    unknown = (
        "without contemporaries (non-members of the members' own period) a separation may be familiarity with that "
        "period; neither the blind classifier nor a control model excludes this"
    )
    if WITH_LATER not in missing:
        return [f"{unknown}; {titles} cannot be compared: all non-members are later texts"]
    # Without a separation there is nothing that a period could explain.
    if results.never_saw or results.auc.low <= 0.5:
        return []
    return [f"{unknown}; a column period, or --cutoff DAY, shows which texts are contemporaries"]


def _three(answer: Answer) -> str:
    """The headline score in all three contrasts, and what they mean together; the tables have all numbers."""
    results = answer.results
    numbers = ", ".join(_contrast(results, contrast) for contrast in CONTRASTS)
    line = f"{results.headline_title}: {numbers}"
    # A control has no membership to speak of: its numbers stand alone.
    if results.never_saw:
        return line
    return f"{line}; {_familiarity(results)}; {GROUNDS[answer.period].meaning}"


def _contrast(results: Results, contrast: Contrast) -> str:
    return f"{contrast.title} {results.number(results.headline, f'auc_{contrast.name}')}"


def _familiarity(results: Results) -> str:
    """What separates contemporaries, which the model never saw, from later texts by the headline's detector."""
    difference = results.headline._replace(state=FSD)
    familiar = results.number(difference, f"auc_{FAMILIARITY.name}")
    if familiar is None or familiar.low <= 0.5:
        return f"no familiarity with the period was shown by {difference.detector}"
    lead = results.number(difference, f"placebo_lead_{FAMILIARITY.name}")
    cause = "a difference of the texts, which the control model shows as well"
    if lead is None:
        cause = "familiarity with the period, or by a difference of the texts that a control model would show"
    elif lead.low > 0:
        cause = "familiarity with the period"
    return f"contemporaries, which the model never saw, are separated from later texts by {cause}"


def _gains(results: Results) -> list[str]:
    """For which detectors FSD is significantly better or worse than the base score, corrected for their number."""
    gains = results.measured("auc_gain")
    if not gains:
        return []
    significant = [row for row in gains if row.p_holm < SIGNIFICANT]
    better = [row.detector for row in significant if row.value > 0]
    worse = [row.detector for row in significant if row.value < 0]
    parts = []
    if better:
        parts.append(f"better for {', '.join(better)}")
    if worse:
        parts.append(f"worse for {', '.join(worse)}")
    n_open = len(gains) - len(better) - len(worse)
    if n_open:
        rest = "the other " if parts else ""
        parts.append(f"no significant difference for {rest}{n_open}")
    return [f"FSD against the base score (p < .05 after Holm's correction): {'; '.join(parts)}"]


def _of_texts(audit: Audit) -> list[str]:
    """What distinguishes the texts without the model: a word or sign, leaks, dates and lengths."""
    lines = []
    if audit.telling:
        lines.append(_telling(audit.telling))
    lines.append(_leaks(audit.leaks))
    for name, control in (("date", audit.date), ("length", audit.length)):
        if control.auc is not None and control.auc.low > 0.5:
            lines.append(f"the {name} alone separates members from non-members with AUC {control.auc}")
    return lines


def _telling(telling: Telling) -> str:
    p = f"(p = {shortened(telling.p, '.2g')}, corrected for {telling.looked_at:,} words, pairs and signs)"
    if _tells(telling):
        return (
            f"the most telling word, pair or sign, {telling.phrase}, is in {telling.members:.0%} of the members and "
            f"{telling.nonmembers:.0%} of the non-members {p}"
        )
    return (
        "no single word, pair of words or sign separates members from non-members; the most telling is "
        f"{telling.phrase} {p}"
    )


def _leaks(leaks: Leaks) -> str:
    if not leaks.groups:
        return "no group and no set of near-duplicates spans two parts of the split"
    return (
        f"LEAK: groups of texts that span more than one part of the split: {leaks.groups}; of {leaks.test} test texts, "
        f"{leaks.tested} belong to a group that was used for fine-tuning, which their scores measure, and "
        f"{leaks.calibrated} to one that was used to choose thresholds"
    )


def caveats(answer: Answer) -> list[str]:
    """What too few families in the test, or one large one, do not support."""
    results = answer.results
    lines = too_few(answer.families[1])
    tested = (results.scores["split"] == "test").to_numpy()
    # Kind by kind, since each contrast rests on two of them.
    for kind, families in results.scores["group"][tested].groupby(results.kind[tested]):
        sizes = families.value_counts()
        # Among few texts a single one may be above the share, but it is no family.
        if sizes.iloc[0] > max(1, LARGE_FAMILY * len(families)):
            lines.append(
                f"{sizes.iloc[0]} of the {len(families)} {kind} test texts are one family of related texts, of "
                f"{len(sizes)} families in all: numbers on these texts rest largely on it"
            )
    return lines


def too_few(nonmembers: int) -> list[str]:
    """One line for the metrics whose intervals are too narrow with this number of families of non-members."""
    lacking = [metric for metric in METRICS.values() if nonmembers < metric.needs]
    names = [f"{metric.label} (reliable from about {metric.needs} on)" for metric in lacking]
    if not names:
        return []
    intervals = "interval" if len(names) == 1 else "intervals"
    return [
        f"too few independent non-members, {nonmembers}, for the {intervals} of {', '.join(names)}: it depends on the "
        "few highest of them and is too narrow"
    ]


def of_model(identity: str) -> str:
    """The model in a sentence."""
    if identity.startswith("embedded"):
        return f"the {identity} model"
    return f"the model “{identity}”"
