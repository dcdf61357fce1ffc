"""The report of a run of the main job: the answer, how sure it is, the method, tables and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fsd.config import FSDConfig
from fsd.evaluation import sentences
from fsd.evaluation.answer import Answer
from fsd.evaluation.findings import Finding, as_findings
from fsd.evaluation.results import Results, summary
from fsd.models.language_model import BaseIdentity
from fsd.reporting.report import Picture, Reader, Report, Section, limits
from fsd.reporting.results import contrast_tables, detectors_table, placebo_table
from pipelines.experiment.experiment import Experiment
from pipelines.experiment.power_sentences import measured_power


def identity_text(identity: BaseIdentity) -> str:
    """The model with its revision and the hash of its weights, for reports."""
    return f"{identity.id}, revision {identity.revision or 'local'}, weights {identity.fingerprint}"


def named(sources: Mapping[str, str]) -> str:
    """The files and benchmarks that texts were read from, with their versions."""
    return ", ".join(f"{name} {version}" for name, version in sources.items())


def report(answer: Answer, experiment: Experiment, identity: BaseIdentity, pictures: Sequence[Picture]) -> Report:
    """The answer, how sure it is, the method, the results, and what they do not prove.

    The first of the pictures is that of the headline.
    """
    results = answer.results
    headline, *further = pictures
    detectors = detectors_table(results)
    tables = contrast_tables(results)
    tables.append(detectors)
    if results.control_name is not None:
        tables.append(placebo_table(results))
    what_was_done = method(results, experiment.config, identity)
    sections = [
        Section("The result in a figure", pictures=[headline]),
        Section("What was done", paragraphs=[what_was_done]),
        Section("Every detector", tables=tables),
        Section("Further figures", pictures=further),
        limits(),
    ]
    caveats = "; ".join(sentences.caveats(answer))
    artifacts = {
        "scores.parquet": results.scores,
        "summary.csv": summary(results.table, caveats),
        "leaks.json": [leak._asdict() for leak in results.audit.leaks.pairs],
    }
    model = sentences.of_model(identity.id)
    in_words = sentences.in_words(answer)
    sure = sentences.sure(answer)
    findings = as_findings(sentences.notes(answer))
    power = _power(answer)
    if power:
        # Beside the conclusion that nothing is shown, which is the first.
        findings.insert(1, power)
    return Report(
        title=f"Was it in the pretraining data? {experiment.config.data.domain}",
        question=f"Can texts that {model} was pretrained on be distinguished from texts that it never saw?",
        headline=sentences.headline(answer),
        answer=in_words,
        sure=sure,
        findings=findings,
        brief=replace(detectors, title=""),
        signs=sentences.signs(answer),
        changes=sentences.changes(answer),
        sections=sections,
        facts=_facts(results, experiment, identity),
        score=f"{results.headline_title} {results.auc.short}",
        rate=answer.rate,
        description=sentences.description(answer),
        metrics=answer.metrics(),
        numbers=answer.for_gate,
        reader=Reader(in_words, sentences.errors(answer), [what_was_done, *sure]),
        artifacts=artifacts,
    )


def _power(answer: Answer) -> Finding | None:
    """How many members a call on a single text finds, where the run shows nothing."""
    results = answer.results
    is_shown = results.auc.low > 0.5 and answer.control != "no lead"
    # What a model never read cannot be found.
    if is_shown or results.never_saw:
        return None
    members = int(results.judged["label"].sum())
    return measured_power(answer.found, f"the {members:,} members in the test", 0.05)


def _facts(results: Results, experiment: Experiment, identity: BaseIdentity) -> list[tuple[str, str]]:
    """What is needed to repeat the run."""
    config = experiment.config
    training = config.training
    trained = (
        f"{training.method}, rank {training.rank}, learning rate {training.learning_rate}, {training.epochs} epochs, "
        f"batch {training.batch_size}"
    )
    sizes = []
    for part, texts in results.parts._asdict().items():
        sizes.append(f"{len(texts)} {part}")
    facts = {"Model": identity_text(identity), "Texts": named(experiment.sources)}
    facts["Split"] = f"{config.data.split}: {', '.join(sizes)}"
    facts["Adapter"] = config.adapter or trained
    facts["Control model"] = results.control_name or "none"
    facts["Calibration"] = _calibrated(results)
    facts["Seed"] = str(config.seed)
    return list(facts.items())


def _calibrated(results: Results) -> str:
    if results.calibration:
        nonmembers = "contemporaries" if results.has_contemporaries else "non-members"
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
