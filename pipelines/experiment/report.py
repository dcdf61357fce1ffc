"""The report of a run of the main job: the answer, how sure it is, the method, tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fsd.config import FSDConfig
from fsd.evaluation import sentences
from fsd.evaluation.findings import Finding, as_findings
from fsd.evaluation.results import Results, summary
from fsd.models.language_model import BaseIdentity
from fsd.reporting.report import Picture, Reader, Report, Section, limits
from fsd.reporting.results import contrast_tables, detectors_table, placebo_table
from pipelines.experiment.power_sentences import measured_power


def identity_text(identity: BaseIdentity) -> str:
    """The model with its revision and the hash of its weights, for reports."""
    return f"{identity.id}, revision {identity.revision or 'local'}, weights {identity.fingerprint}"


def named(sources: Mapping[str, str]) -> str:
    """The files and benchmarks that texts were read from, with their versions."""
    return ", ".join(f"{name} {version}" for name, version in sources.items())


def report(
    results: Results, config: FSDConfig, identity: BaseIdentity, sources: Mapping[str, str], pictures: Sequence[Picture]
) -> Report:
    """The answer, how sure it is, the method, the results, and what they do not prove.

    The first of the pictures is that of the headline.
    """
    headline, *further = pictures
    detectors = detectors_table(results)
    tables = contrast_tables(results)
    tables.append(detectors)
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
        score=f"{results.headline_title} {results.auc.short}",
        rate=sentences.verdict_rate(results),
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
    is_shown = results.auc.low > 0.5 and (results.lead is None or results.lead.low > 0)
    share = results.number(results.headline, "tpr_at_5fpr")
    # What a model never read cannot be found.
    if is_shown or share is None or results.never_saw:
        return None
    members = int(results.judged["label"].sum())
    return measured_power(share, f"the {members:,} members in the test", 0.05)


def _facts(
    results: Results, config: FSDConfig, identity: BaseIdentity, sources: Mapping[str, str]
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


def method(results: Results, config: FSDConfig, identity: BaseIdentity) -> str:
    """The method in plain words."""
    unseen, validation, test = map(len, results.parts)
    model = sentences.of_model(identity.id)
    tuned = "was fine-tuned briefly"
    if config.adapter:
        tuned = f"was combined with the adapter {config.adapter}, fine-tuned"
    chosen = f"hresholds and the score of the findings, “{results.headline_title}”, were chosen on"
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
