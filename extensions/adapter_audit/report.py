"""What an audit says: the answer in sentences, the table of detectors, and the page."""

from extensions.adapter_audit.audit import Audit
from extensions.adapter_audit.settings import AuditConfig
from fsd.api import (
    AGAINST,
    OUT_OF_DOMAIN,
    Answer,
    Finding,
    Picture,
    Reader,
    Report,
    Score,
    Section,
    Table,
    Verdicts,
    as_findings,
    asks_whether_reversed,
    charted,
    figures,
    limits,
    numbers,
    observed_rate,
    p_value,
    plain,
)
from pipelines.api import basis_sentences, chance_sentence, measured_power, power_sentences, rate_sentences

HEADINGS = (
    "detector",
    "fine-tuned AUC\n[95 % CI]",
    "calibrated AUC\n[95 % CI]",
    "gain",
    "p (Holm)",
    "TPR@5%FPR",
    "TPR@1%FPR",
)
DATA = "fine-tuning data"


def report(audit: Audit, config: AuditConfig, fingerprint: str, word: str) -> Report:
    """The report, with the hash of the base's weights, and what is taken on the user's word of it."""
    base = config.model.model
    summary = audit.summary
    judged = audit.scores[audit.scores["split"] == "judged"]
    section = Section("Results", tables=[detectors_table(audit), numbers("verdicts", judged)], pictures=[_roc(audit)])
    facts = {"Base": base, "Fine-tuned model": config.name, "Texts": ", ".join(config.places), "Seed": str(config.seed)}
    facts["Base weights"] = fingerprint
    return Report(
        title="Was it in the fine-tuning data?",
        question=f"Can texts that {config.name} was fine-tuned on be distinguished from others, given the base {base}?",
        findings=conclusions(audit, config.fpr) + as_findings(filter(None, [word]), AGAINST),
        sections=[section, limits()],
        facts=list(facts.items()),
        changes=[
            "Texts of both labels from one period and kind, if a classifier without the model separates these.",
            "More labelled texts, which narrow the intervals.",
        ],
        score=f"{summary.detector} {summary.auc.short}",
        metrics=audit.results.audit.metrics() | charted(audit.table),
        numbers=gate_numbers(audit),
        rate=Answer(audit.results).rate,
        reader=reader(audit, config),
        artifacts={
            "scores.parquet": audit.scores,
            "summary.csv": audit.table,
            "calibration.json": audit.calibration.to_json(),
        },
        files={"scores": config.out} if config.out else {},
    )


def detectors_table(audit: Audit) -> Table:
    """One line per detector; the best on validation first, the others by their AUC."""
    rows = audit.results.rows
    _, difference = audit.results.states
    aucs = _aucs(audit, difference)
    # The best one gives the verdicts, whatever the others reach on the test texts.
    best = audit.calibration.detector
    lines = []
    for detector in sorted(aucs, key=lambda detector: (detector != best, -aucs[detector])):
        cells = [detector]
        for state in audit.results.states:
            auc = audit.results.number(Score(detector, state), "auc")
            cells.append(str(auc or "–"))
        # A detector that reads both models has no score of one of them, over which it could gain.
        gain = rows.get((detector, "", "auc_gain"))
        cells += [f"{gain.value:+z.2f}", p_value(gain.p_holm)] if gain else ["–", "–"]
        for metric in ("tpr_at_5fpr", "tpr_at_1fpr"):
            cells.append(f"{rows[detector, difference, metric].value:.2f}")
        lines.append(cells)
    title = f"{len(audit.results.parts.test)} test texts"
    return plain(
        HEADINGS,
        lines,
        caption="AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % "
        "intervals by groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others "
        "are called fine-tuning texts. A detector without a fine-tuned AUC compares the two models itself.",
        title=title,
        name="results",
        frame=audit.table,
        marked=(0,),
        kept=(0, 2, 1, 3, 4),
    )


def _aucs(audit: Audit, state: str) -> dict[str, float]:
    """Detector → its AUC in a state."""
    aucs = {}
    for row in audit.results.rows.values():
        if row.state == state and row.metric == "auc":
            aucs[row.detector] = row.value
    return aucs


def conclusions(audit: Audit, fpr: float) -> list[Finding]:
    """The results in sentences, most important first; `fpr` is the rate at which texts are called."""
    summary = audit.summary
    title = audit.results.title(audit.calibration.score)
    meaning, _ = _meaning(audit)
    findings = [
        Finding(
            f"{title}, best on validation: AUC {summary.auc} on {len(audit.results.parts.test)} test texts{meaning}"
        )
    ]
    if summary.blind is None:
        findings.append(Finding(f"no blind classifier could be trained: {summary.reason}", AGAINST))
    else:
        blind = f"a blind classifier, which never sees the model, reaches {summary.blind}"
        findings.append(
            Finding(blind + asks_whether_reversed(summary.blind), summary.blind.low <= 0.5 <= summary.blind.high)
        )
    if summary.base is not None:
        findings.append(
            Finding(f"the base model, which never saw the {DATA}, reaches {summary.base}", summary.base.low <= 0.5)
        )
    called, judged = audit.calls
    # Nothing is said of the power if no text is of a source that is judged.
    if not audit.found.empty and (summary.auc.low <= 0.5 or called < judged):
        share = observed_rate(audit.found["called"].to_numpy(), audit.found["group"].tolist())
        findings.append(measured_power(share, f"the {len(audit.found):,} texts of the {DATA} in the test", fpr))
    if audit.verdicts is not None:
        findings += _of_verdicts(audit, audit.verdicts)
    elif Answer(audit.results).contradiction:
        findings.append(Finding(f"no verdicts: {Answer(audit.results).contradiction}", AGAINST))
    return findings + as_findings(audit.results.remarks)


def _meaning(audit: Audit) -> tuple[str, str]:
    """What the AUC of an audit means: the end of a conclusion, and a sentence without terms of the field."""
    summary = audit.summary
    reversed_labels = asks_whether_reversed(summary.auc)
    if reversed_labels:
        return reversed_labels, "No answer: the other texts score higher, as where labels are reversed."
    if summary.auc.low <= 0.5:
        return (
            ": not distinguishable from chance",
            f"Not shown: guessing distinguishes the texts of the {DATA} from others as well.",
        )
    if summary.texts_explain:
        return (
            f"; a blind classifier reaches {summary.blind}: the two sides differ without the model",
            "No answer: the two groups of texts differ without the model.",
        )
    if summary.base_explains:
        return (
            f"; the base model reaches {summary.base}: the two sides differ before the fine-tuning",
            "No answer: the two groups of texts differ for the model before its fine-tuning, too.",
        )
    meaning = f"texts of the {DATA} can be distinguished from others"
    return f": {meaning}", f"{meaning.capitalize()}."


def _of_verdicts(audit: Audit, verdicts: Verdicts) -> list[Finding]:
    """How many of the texts without a label are called, what that rests on, and what chance explains."""
    number = len(verdicts.table)
    called, judged = audit.calls
    answer = f"no verdict on any of the {number} texts without a label"
    if judged:
        answer = (
            f"{called} of the {number} texts without a label are called {DATA} at a false-positive rate of "
            f"{verdicts.rules.fpr:.1%}; it holds for texts of the kind of the labelled ones"
        )
    findings = [Finding(answer, called > 0)]
    outside = verdicts.table[verdicts.table["verdict"] == OUT_OF_DOMAIN]
    if len(outside):
        example = f"{len(outside)} of them are outside the calibrated domain, such as: {outside['warning'].iloc[0]}"
        findings.append(Finding(example, AGAINST))
    findings += basis_sentences(verdicts.bases)
    if judged > 1:
        findings.append(chance_sentence(verdicts, audit.calibration, DATA, DATA))
    return findings + rate_sentences(verdicts, audit.calibration) + power_sentences(audit.calibration.reference)


def reader(audit: Audit, config: AuditConfig) -> Reader:
    """The answer for somebody who is no engineer."""
    right, low, high = (round(100 * number) for number in audit.summary.auc)
    _, verdict = _meaning(audit)
    answer = [
        verdict,
        f"Take one text from the {DATA} and one from outside it. The score is higher for the former in "
        f"{right} of 100 such pairs ({low} to {high}); guessing gets 50.",
    ]
    wrong = []
    if audit.verdicts is not None:
        called, judged = audit.calls
        answer.append(f"Of {judged} texts in question that can be judged, {called} are called {DATA}.")
        wrongly = round(1000 * audit.verdicts.rules.fpr)
        wrong.append(f"Of 1,000 texts outside the {DATA}, about {wrongly} are called so all the same.")
    share = round(100 * _found(audit))
    wrong.append(f"If 5 of 100 outside texts may wrongly be called so, {share} of 100 fine-tuning texts are found.")
    compared = (
        f"The model {config.name} is the model {config.model.model} after fine-tuning. Each of the {len(audit.scores)} "
        "texts was scored by both; the difference can come from the fine-tuning alone. The score was chosen on one "
        "half of the texts whose origin is known, and measured on the other."
    )
    return Reader(answer, wrong, [compared])


def _found(audit: Audit) -> float:
    """The share of the fine-tuning texts of the test that is found where 5 of 100 others are called."""
    return audit.results.rows[*audit.calibration.score, "tpr_at_5fpr"].value


def gate_numbers(audit: Audit) -> dict[str, float | None]:
    """The numbers of the answer, by the names of a gate."""
    summary = audit.summary
    answer: dict[str, float | None] = {"auc": summary.auc.value, "low": summary.auc.low, "high": summary.auc.high}
    answer["blind"] = summary.blind and summary.blind.value
    answer["base"] = summary.base and summary.base.value
    answer["found"] = _found(audit)
    if audit.verdicts is not None:
        called, judged = audit.calls
        # Where nothing was judged, nothing was found to be in order.
        answer |= {"called": called if judged else None, "share": called / judged if judged else None}
    return answer


def _roc(audit: Audit) -> Picture:
    """The curves of all detectors on the test texts, by the fine-tuned model alone and beside the base."""
    test = audit.scores[audit.scores["split"] == "test"]
    curves = []
    for state in audit.results.states:
        of_state = {name: test[str(Score(name, state))].to_numpy() for name in _aucs(audit, state)}
        curves.append(of_state)
    of_model, calibrated = curves
    figure = figures.roc(test["label"].to_numpy(bool), of_model, calibrated, names=("fine-tuned", "calibrated score"))
    return Picture(
        figures.png(figure),
        "Share of fine-tuning texts found against share of other texts wrongly called so.",
        name="roc.png",
    )
