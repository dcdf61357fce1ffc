"""The report of a run of the main job: the answer, how sure it is, the method, tables and figures."""

from collections.abc import Mapping
from dataclasses import replace

from fsd.config import FSDConfig
from fsd.evaluation import sentences
from fsd.evaluation.calibration import Calibration
from fsd.evaluation.findings import Finding, as_findings
from fsd.evaluation.results import Results, summary
from fsd.models.language_model import BaseIdentity
from fsd.reporting import figures
from fsd.reporting.report import Picture, Reader, Report, Section, limits
from fsd.reporting.results import contrast_tables, detectors_table, placebo_table
from fsd.scores import BASE, FSD, Score, ScoreColumns, columns_of, of_state
from fsd.token_stats import FloatArray
from pipelines.common.power_sentences import measured_power

# Detectors in the figures that have a panel for each: more would be too small to be read.
DRAWN = 6


def identity_text(identity: BaseIdentity) -> str:
    """The model with its revision and the hash of its weights, for reports."""
    return f"{identity.id}, revision {identity.revision or 'local'}, weights {identity.fingerprint}"


def named(sources: Mapping[str, str]) -> str:
    """The files and benchmarks that texts were read from, with their versions."""
    return ", ".join(f"{name} {version}" for name, version in sources.items())


def report(
    results: Results,
    config: FSDConfig,
    identity: BaseIdentity,
    sources: Mapping[str, str],
) -> Report:
    """The answer, how sure it is, the method, the results, and what they do not prove."""
    headline, *further = pictures(results)
    detectors = detectors_table(results)
    tables = [*contrast_tables(results), detectors]
    if results.control_name is not None:
        tables.append(placebo_table(results))
    what_was_done = method(results, config, identity)
    sections = [
        Section("The result in a figure", pictures=[headline]),
        Section("What was done", paragraphs=[what_was_done]),
        Section("Every detector", tables=tables),
        Section("Further figures", pictures=further),
        limits(),
    ]
    caveats = "; ".join(sentences.caveats(results))
    artifacts = {
        "scores.parquet": results.scores,
        "summary.csv": summary(results.table, caveats),
        "leaks.json": [leak._asdict() for leak in results.audit.leaks.pairs],
    }
    model = sentences.of_model(identity.id)
    findings = as_findings(sentences.notes(results))
    power = _power(results)
    if power:
        # Beside the conclusion that nothing is shown, which is the first.
        findings.insert(1, power)
    return Report(
        title=f"Was it in the pretraining data? {config.data.domain}",
        question=f"Can texts that {model} was pretrained on be distinguished from texts that it never saw?",
        headline=sentences.headline(results),
        answer=sentences.answer(results),
        sure=sentences.sure(results),
        findings=findings,
        brief=replace(detectors, title=""),
        signs=sentences.signs(results),
        changes=sentences.changes(results),
        sections=sections,
        facts=_facts(results, config, identity, sources),
        score=f"{results.title(results.headline)} {results.auc.short}",
        verdicts=results.calibration is not None,
        description=sentences.description(results),
        metrics=results.metrics(),
        numbers=gate_numbers(results),
        reader=Reader(sentences.answer(results), errors(results), [what_was_done, *sentences.sure(results)]),
        artifacts=artifacts,
    )


def errors(results: Results) -> list[str]:
    """How often the answer is wrong, without terms of the field."""
    members, nonmembers = sentences.families_of(results)
    lines = [
        f"The numbers rest on {members} independent texts from the training data and {nonmembers} from outside it; "
        "other texts of the same kind would give numbers in the ranges that stand in brackets in 95 of 100 cases."
    ]
    if results.audit.blind.auc:
        right = round(100 * results.audit.blind.auc.value)
        lines.append(
            f"A program that reads the texts alone, and never asks the model, is right in {right} of 100 pairs; "
            "guessing gets 50. What it can tell says nothing about the model."
        )
    return lines


def gate_numbers(results: Results) -> dict[str, float | None]:
    """The numbers of the answer, by the names of a gate."""
    blind = results.audit.blind.auc
    control = results.number(results.headline, "placebo_auc")
    return {
        "auc": results.auc.value,
        "low": results.auc.low,
        "high": results.auc.high,
        "blind": blind and blind.value,
        "control": control and control.value,
        "found": results.rows[*results.headline, "tpr_at_5fpr"].value,
    }


def _power(results: Results) -> Finding | None:
    """How many members a call on a single text finds, where the run shows nothing."""
    shown = results.auc.low > 0.5 and (results.lead is None or results.lead.low > 0)
    share = results.number(results.headline, "tpr_at_5fpr")
    if shown or share is None:
        return None
    members = int(results.judged["label"].sum())
    return measured_power(share, f"the {members:,} members in the test", 0.05)


def _facts(
    results: Results,
    config: FSDConfig,
    identity: BaseIdentity,
    sources: Mapping[str, str],
) -> list[tuple[str, str]]:
    """What is needed to repeat the run."""
    training = config.training
    trained = (
        f"{training.method}, rank {training.rank}, learning rate {training.learning_rate}, {training.epochs} epochs, "
        f"batch {training.batch_size}"
    )
    sizes = ", ".join(f"{len(texts)} {part}" for part, texts in results.parts._asdict().items())
    facts = {"Model": identity_text(identity), "Texts": named(sources)}
    facts["Split"] = f"{config.data.split}: {sizes}"
    facts["Adapter"] = config.adapter or trained
    facts["Control model"] = results.control_name or "none"
    facts["Calibration"] = _calibrated(results)
    facts["Seed"] = str(config.seed)
    return list(facts.items())


def _calibrated(results: Results) -> str:
    if results.calibration:
        contemporaries = sentences.audit_summary(results).contemporaries
        nonmembers = "contemporaries" if contemporaries else "non-members"
        score = results.title(results.verdict_score)
        return f"{score}, on {results.calibration.n_families} groups of held-out {nonmembers}"
    if results.labels.hold:
        return "none: there are no validation texts"
    return "none: the labels do not hold"


def pictures(results: Results) -> list[Picture]:
    """The figures, of the best detectors; at the root of the run, where MLflow compares them."""
    columns = columns_of(results.judged)
    drawn = [_headline_picture(results), *_pictures_of_detectors(results, columns)]
    if results.calibration:
        drawn.append(_reliability_picture(results, results.calibration, columns))
    if results.contrasts:
        drawn.append(_contrasts_picture(results))
    return drawn


def _headline_picture(results: Results) -> Picture:
    curves = _headline_curves(results)
    chosen_on = "validation" if results.parts.validation else "these very"
    test = results.judged
    figure = figures.headline(test["label"], test["group"].tolist(), curves)
    return Picture(
        figures.png(figure),
        "How many members are found, for each share of non-members wrongly called members. The higher the curve, "
        f"the better; the dotted line is guessing. The scores were chosen on {chosen_on} texts. In the bands lies the "
        "true value at each rate in 95 of 100 cases.",
        f"Two panels of ROC curves with bands, linear and logarithmic: {'; '.join(curves)}.",
        "headline.png",
    )


def _headline_curves(results: Results) -> dict[str, tuple[FloatArray, str]]:
    """The best base score, the best fine-tuned one and `combined`, each with its AUC, and the control of the best."""
    scores = [results.best_fsd]
    if results.best_base:
        scores.insert(0, results.best_base)
    combined = Score("combined")
    if str(combined) in results.scores and combined not in scores:
        scores.append(combined)
    curves = {}
    for score in scores:
        name = results.title(score)
        if results.paired(score.detector):
            name += " (both models)"
        auc = results.rows[*score, "auc"].estimate
        column = results.judged[str(score)].to_numpy(float)
        curves[f"{name}: AUC {auc}"] = (column, _colour(results, score))
    if results.control is not None:
        of_control = results.number(results.headline, "placebo_auc")
        name = f"{results.title(results.headline)} on the control model: AUC {of_control}"
        curves[name] = (results.control, figures.CONTROL)
    return curves


def _colour(results: Results, score: Score) -> str:
    """The colour of a score: a paired detector compares the base model and the fine-tuned one itself."""
    if results.paired(score.detector):
        return figures.BOTH
    return figures.BASE if score.state == BASE else figures.FSD


def _pictures_of_detectors(results: Results, columns: ScoreColumns) -> list[Picture]:
    """The two figures that have a panel for each of the best detectors."""
    labels = results.judged["label"]
    ranked = [Score(detector, state) for detector in results.ranked[:DRAWN] for state in results.states]
    best = {score: columns[score] for score in ranked if score in columns}
    base = of_state(best, BASE)
    fsd = of_state(best, FSD)
    which = ""
    if len(results.ranked) > DRAWN:
        left_out = len(results.ranked) - DRAWN
        chosen_on = "validation" if results.parts.validation else "test"
        which = f"The {DRAWN} best on the {chosen_on} texts; fsd.plot draws the other {left_out} from scores.parquet. "
    roc = Picture(
        figures.png(figures.roc(labels, base, fsd)),
        f"{which}Members found for each share of non-members wrongly called members, with few of these enlarged.",
        "ROC curves of the best detectors before and after fine-tuning; the areas under them are in the table.",
        "roc.png",
    )
    distributions = Picture(
        figures.png(figures.score_distributions(labels, base, fsd)),
        f"{which}Share of the members (dark) and of the non-members (grey) that have at least each score: the "
        "wider the coloured gap, the better they are distinguished. The axes leave out 1 % of the texts at either "
        "end.",
        "Cumulative distributions of the scores of members and non-members, for the best detectors, base and FSD.",
        "scores.png",
    )
    return [roc, distributions]


def _reliability_picture(results: Results, calibration: Calibration, columns: ScoreColumns) -> Picture:
    """The p-values of the test texts that are no members, which should be uniform."""
    nonmember = ~results.judged["label"].to_numpy(bool)
    of_nonmembers = {score: column[nonmember] for score, column in columns.items()}
    p_values = calibration.p_values(of_nonmembers)
    groups = results.judged.loc[nonmember, "group"].nunique()
    name = results.title(calibration.score)
    figure = figures.reliability(
        name,
        p_values,
        calibration=calibration.n_families,
        texts=groups,
        colour=_colour(results, calibration.score),
    )
    return Picture(
        figures.png(figure),
        f"How often “{name}” wrongly calls a text a member: for each chosen error rate, the share of "
        "the non-members among the test texts that is called members. If the error rates are right, the whole "
        "line stays in the grey band in 95 of 100 such tests. Above the band are more wrong calls than chosen, "
        "below it fewer. This figure says nothing about membership.",
        f"Share of the held-out non-members that {name} calls members, against the chosen error rate, "
        "with the band for valid error rates.",
        "reliability.png",
    )


def _contrasts_picture(results: Results) -> Picture:
    return Picture(
        figures.png(figures.contrasts(results.rows)),
        "AUC of every detector, with 95 % intervals, by the base score, by the FSD, or by both models. On the "
        "left, what a benchmark split by time measures; in the middle, texts that the model was never trained "
        "on, distinguished by their period alone; on the right, texts of one period, some of which it was "
        "trained on. The dotted line is guessing.",
        "AUC of every detector in three comparisons of members, contemporaries and later texts; the numbers "
        "are in the tables.",
        "contrasts.png",
    )


def method(results: Results, config: FSDConfig, identity: BaseIdentity) -> str:
    """The method in plain words."""
    unseen, validation, test = map(len, results.parts)
    model = sentences.of_model(identity.id)
    tuned = "was fine-tuned briefly"
    if config.adapter:
        tuned = f"was combined with the adapter {config.adapter}, fine-tuned"
    chosen = f"hresholds and the score of the findings, “{results.title(results.headline)}”, were chosen on"
    if validation:
        choices = f"T{chosen} {validation} validation texts; no test text was used to choose anything."
    else:
        choices = (
            f"There were no validation texts: t{chosen} the test texts themselves, which makes these numbers "
            "optimistic."
        )
    return (
        f"{model[0].upper()}{model[1:]} {tuned} on {unseen} texts that the model cannot have seen. Every detector then "
        f"scored {test} test texts before and after fine-tuning. Scores of texts from the training data move less than "
        f"scores of others; the difference is the fine-tuned score deviation (FSD). {choices}"
    )
