"""The tests of a whole data set, each with one p-value, and what they say together."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from extensions.contamination.accuracy import Accuracy, accuracy
from extensions.contamination.dataset_tests import (
    FEWEST,
    codec,
    codec_prompts,
    equal_sets,
    kernel_divergence,
    order_p,
    order_prompts,
    order_sums,
)
from extensions.contamination.powers import (
    READ_CODEC,
    READ_KERNEL,
    Simulated,
    inference_power,
    order_power,
    rank_power,
    strongest,
)
from extensions.contamination.settings import ContaminationConfig
from fsd.config import again
from fsd.data.corpus import Corpus
from fsd.data.knowledge_cutoffs import labels_for
from fsd.data.near_duplicates import refuse_members, refuse_related, without_related
from fsd.data.readers import parse_columns, read_files
from fsd.data.reading import read_otherwise
from fsd.data.splitting import parse_cutoff
from fsd.errors import UsageError, at_least
from fsd.evaluation.findings import AGAINST, FOR, Finding, as_findings
from fsd.plugs import Question, entry_of
from fsd.progress import progress
from fsd.reporting.report import Column, Reader, Report, Section, Table, p_column, p_value, p_words
from fsd.scores import BASE, of_state
from fsd.scoring.deviation import score_texts
from fsd.scoring.model import Model, outline
from fsd.statistics.groups import group_means
from fsd.statistics.multiplicity import SLACK, holm
from fsd.statistics.ranks import check_level, rank_among
from fsd.token_stats import FloatArray, Prompt
from fsd.verdicts.dataset_inference import DatasetVerdict, compare_sets
from fsd.views import Detector
from pipelines.command.context import stage
from pipelines.command.deliver import deliver
from pipelines.command.job import Job, api_cost, files
from pipelines.experiment.detector_settings import cheap, load_detectors, shots_of
from pipelines.experiment.examination import examination, open_examined
from pipelines.experiment.power_sentences import TIMES

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel

ORDER = "exchangeability"
INFERENCE = "dataset inference"
CODEC = "CoDeC"
KERNEL = "kernel divergence"
READ_SETS = {CODEC: READ_CODEC, KERNEL: READ_KERNEL}
"""Test by a rank → how far a reading of the set raises its number."""


def power_cell(line: Any) -> str:
    """The power of a test at each number of readings; a dash for a test that was not simulated."""
    shares = [getattr(line, f"power_{times}") for times in TIMES]
    if np.isnan(shares).any():
        return "–"
    return " / ".join(f"{share:.0%}" for share in shares)


POWER_COLUMN = Column("power", power_cell, words=True)
COLUMNS = [
    Column("test", "name"),
    Column("statistic", words=True),
    Column("compared with", "null", words=True),
    p_column("p", "p"),
    p_column("p (Holm)", "p_holm"),
    POWER_COLUMN,
]
POWER = (
    "Power is the share of data sets that the test alone would have found, if they had been seen in training "
    f"{', '.join(TIMES.values())}: simulated, at the level of the first step of Holm's correction."
)


class Outcome(NamedTuple):
    """A test: its statistic and what that is compared with, and its p-value or the reason why it has none."""

    name: str
    statistic: str = "–"
    null: str = "–"
    p: float | None = None
    reason: str = ""
    finest: float = 0.0
    """The smallest p-value that the test can give."""


class Examined(NamedTuple):
    """The tests of one data set on one model, and how often they find what is there."""

    outcomes: Sequence[Outcome]
    verdict: DatasetVerdict | None = None
    powers: Sequence[Simulated] = ()
    accuracy: Accuracy | None = None

    @property
    def power(self) -> Simulated | None:
        """That of the test which finds most."""
        return strongest(self.powers) if self.powers else None


class Inputs(NamedTuple):
    """What the tests of a data set read."""

    suspect: Corpus
    nonmembers: Corpus
    detectors: Sequence[Detector]
    doubts: Sequence[str]
    """Why the labels of the known non-members may not hold."""
    remarks: Sequence[str]
    questions: Sequence[Question] = ()
    """What a task of lm-evaluation-harness asks, if its items can be compared with known non-members."""

    def planned(self, config: ContaminationConfig, model: Model) -> "Inputs":
        """The same with the detectors that an open model can compute."""
        # The test of order needs no detector, so that an API which allows none of them can still be asked.
        if not self.nonmembers:
            return self
        plan = model.plan(
            self.detectors, self.suspect.texts, strict=config.detection.named, use="used in dataset inference"
        )
        return self._replace(detectors=plan.detectors)


def prepare(config: ContaminationConfig) -> Job:
    """Read the texts and check them; the tests by sets of texts are counted roughly."""
    inputs = read(config)
    return job(config, inputs, partial(run, config, inputs))


def read(config: ContaminationConfig) -> Inputs:
    """Read the texts of a data set, and check them and the settings."""
    check_level("level", config.level)
    at_least(1, orders=config.orders, sets=config.sets)
    at_least(2, shard=config.shard)
    suspect = Corpus(read_files(config.files, _columns(config)))
    if len(suspect) < 2 * config.shard:
        raise UsageError(f"data must fill 2 shards of {config.shard} texts; got {len(suspect)} texts")
    # A paired detector compares two models, and the API's or the user's is the only one here.
    detectors = [detector for detector in cheap(load_detectors(config.detection)) if not detector.paired]
    nonmembers, doubts, remarks = read_nonmembers(config, suspect)
    if nonmembers and not detectors:
        raise UsageError("dataset inference must have a detector with a base score; got none")
    asked = []
    # Without known texts no item can be judged seen.
    if nonmembers:
        for entry in filter(None, map(entry_of, config.files)):
            asked += entry.questions()
    return Inputs(suspect, nonmembers, detectors, doubts, remarks, asked)


def _columns(config: ContaminationConfig) -> Mapping[str, str]:
    """The columns that the tests use: those of a benchmark that has labels or sources of its own say nothing here."""
    unread = ["label", "source", "period"]
    # Dates tell whether known texts are later; without them they have no use.
    if not config.known:
        unread.append("date")
    return parse_columns(config.columns, unread=unread)


def job(config: ContaminationConfig, inputs: Inputs, work: Callable[[], object]) -> Job:
    """The job of one data set and one model, with what it costs."""
    suspect = inputs.suspect
    nonmembers = inputs.nonmembers
    scored = suspect.texts + nonmembers.texts
    reads = {"data set": files(config.files, len(suspect))}
    notes = [*inputs.doubts, *inputs.remarks]
    # Without texts to train on, the plan counts no training.
    trained = []
    # The test of order reads the texts in every order; the tests by sets read them before and after the fine-tuning.
    readers = Counter(outline(config.model, ("base",)).plan(inputs.detectors, scored).passes)
    readers["base"] += (config.orders + 1) * len(suspect)
    if nonmembers:
        readers["base"] += 2 * len(suspect)
        readers["base"] += sum(len(question.prompts) for question in inputs.questions)
        reads["known non-members"] = files(config.known, len(nonmembers))
        trained = suspect.texts
        notes.append("the tests by sets of texts are counted roughly")
    return Job(
        work,
        reads,
        config.model,
        texts=scored,
        passes=readers,
        trained=trained,
        training=config.training,
        experiment=f"fsd-{config.domain}",
        notes=notes,
        api=config.api,
        asked=partial(api_cost, config.model, config.api, partial(asked, config, inputs)),
        read=read_otherwise(suspect),
    )


def asked(config: ContaminationConfig, inputs: Inputs) -> dict[str, dict[Prompt, None]]:
    """Scorer → the prompts that an API is asked by the tests, each once."""
    suspect = inputs.suspect
    nonmembers = inputs.nonmembers
    orders = order_prompts(suspect.texts, shard=config.shard, orders=config.orders, seed=config.seed)
    prompts = {"base": dict.fromkeys(orders)}
    if not nonmembers:
        return prompts
    scored = suspect.texts + nonmembers.texts
    for name, of_scorer in outline(config.model, ("base",)).plan(inputs.detectors, scored).asked.items():
        prompts.setdefault(name, {}).update(of_scorer)
    base = prompts["base"]
    for question in inputs.questions:
        base.update(dict.fromkeys(question.prompts))
    shots = shots_of(config.detection, config.model.model)
    for texts in _sets(suspect.one_per_family().texts, nonmembers.one_per_family().texts, config):
        base.update(dict.fromkeys(map(Prompt, texts)))
        base.update(dict.fromkeys(codec_prompts(texts, shots=shots, seed=config.seed)))
    return prompts


def read_nonmembers(config: ContaminationConfig, suspect: Corpus) -> tuple[Corpus, list[str], list[str]]:
    """The known non-members, none if their labels do not hold, with doubts about the labels and with remarks."""
    nonmembers = Corpus()
    if config.known:
        nonmembers = Corpus(read_files(config.known, _columns(config)))
    # The data set is what members would be: dates of known non-members are compared with it.
    members = [replace(document, member=True) for document in suspect]
    labels = labels_for(config.model.model, [*members, *nonmembers], last=parse_cutoff(config.cutoff))
    if not labels.hold:
        nonmembers = Corpus()
    remarks: list[str] = []
    # The splits of a task have texts in common, which its user did not choose: elsewhere a copy is a mistake.
    if config.near_duplicates == "drop" or any(map(entry_of, config.known)):
        kept, remarks = without_related(suspect, nonmembers)
        nonmembers = Corpus(kept)
    if nonmembers:
        refuse_members(nonmembers)
        refuse_related(suspect, nonmembers, "; leave such known texts out by --near-duplicates drop")
        # Drawn again in the test: sets that would be too small are refused before the model is loaded.
        equal_sets(len(suspect.one_per_family()), len(nonmembers.one_per_family()), config.sets)
    return nonmembers, labels.notes, remarks


def run(config: ContaminationConfig, inputs: Inputs) -> None:
    """Open the model, run the tests, track and print."""
    with stage("model"):
        model = open_examined(config, config.files[0])
        inputs = inputs.planned(config, model)
    with examination(config, "contamination", config.files) as tracked:
        with stage("scoring"):
            examined = examine(config, inputs, model)
        deliver(partial(report, examined, config, inputs.doubts, inputs.remarks), tracked)


def examine(config: ContaminationConfig, inputs: Inputs, model: Model) -> Examined:
    """Run the tests on an open model, and simulate what they would have found."""
    suspect = inputs.suspect
    nonmembers = inputs.nonmembers
    sums = order_sums(suspect.texts, model.scorers["base"], shard=config.shard, orders=config.orders, seed=config.seed)
    outcomes = [order_test(sums, config)]
    simulations = [partial(order_power, ORDER, sums)]
    verdict = None
    right = None
    if nonmembers:
        inference, verdict, scores = inference_test(suspect, nonmembers, inputs.detectors, model, config.seed)
        outcomes.append(inference)
        if verdict.reason:  # the others rest on the same comparison
            outcomes += [Outcome(test, reason=verdict.reason) for test in (CODEC, KERNEL)]
        else:
            right = accuracy(suspect, inputs.questions, verdict.group_p, config.level, model.scorers["base"])
            simulations.append(
                partial(inference_power, INFERENCE, scores, (verdict.suspect_groups, verdict.known_groups))
            )
            ranked = rank_tests(suspect.one_per_family().texts, nonmembers.one_per_family().texts, model, config)
            for outcome, numbers in ranked:
                outcomes.append(outcome)
                if numbers:
                    # The number of the data set itself may be that of a set which was read.
                    unread = np.array(numbers[1:])
                    simulations.append(partial(rank_power, outcome.name, unread, READ_SETS[outcome.name]))
    # The smallest p-value has to pass Holm's first step. Where others have passed theirs before, it passes more easily.
    level = config.level / max(1, len(able_tests(outcomes, config.level)))
    powers = [simulate(level, config.seed) for simulate in simulations]
    return Examined(outcomes, verdict, powers, right)


def _known_beside(file: str) -> str:
    """The training split of a benchmark, which is of the same kind, if the model has not read that as well."""
    entry = entry_of(file)
    if entry and entry.training_split:
        return entry.training_split
    return "FILE"


def report(
    examined: Examined, config: ContaminationConfig, doubts: Sequence[str] = (), remarks: Sequence[str] = ()
) -> Report:
    """The tests, corrected for their number, and what they say together."""
    outcomes, verdict, powers, right = examined
    power = examined.power
    name = config.model.model
    data = ", ".join(config.files)
    # Corrected before anything is said: with four tests, one in five data sets would be called read by chance.
    table = corrected(outcomes, config.level)
    for times in TIMES:
        shares = {simulated.test: simulated.by_times[times].value for simulated in powers}
        table[f"power_{times}"] = table["name"].map(shares).astype(float)
    tests = Table(
        table,
        COLUMNS,
        caption="p is the chance of such a result, or a clearer one, if the model was not trained on the data set; "
        f"p (Holm) is corrected for the number of tests. {POWER}",
        title="tests of the data set as a whole",
        name="results",
        kept=(0, 4, 3, 5, 1),
    )
    if config.known:
        advice = (
            "Texts on which the model cannot have been trained, but of another period or kind than the data set, make "
            "the comparison with them void."
        )
        commands = []
    else:
        advice = (
            "A comparison with texts of the same kind on which the model cannot have been trained (--known) would show "
            "what the order alone cannot."
        )
        command = again("contamination", config.files, config, ContaminationConfig(config.files))
        commands = [f"{command} --known {_known_beside(config.files[0])}"]
    metrics = {f"contamination_p/{test}": p for test, p in p_values(outcomes).items()}
    if verdict and verdict.blind:
        metrics["audit/blind_auc"] = verdict.blind.value
    if verdict and verdict.share:
        metrics["contamination/share"] = verdict.share.value
        metrics["contamination/share_low"] = verdict.share.low
        metrics["contamination/share_high"] = verdict.share.high
    if power:
        metrics |= power.metrics
    sections = [Section("Tests", tables=[tests])]
    if right:
        metrics |= right.metrics
        sections.append(Section("Accuracy", tables=[right.table]))
    # Without a test that can succeed there is no p-value.
    smallest = float(table["p_holm"].min())
    if not math.isnan(smallest):
        metrics["contamination/p"] = smallest
    findings = as_findings(doubts, AGAINST)
    findings += conclusions(table, verdict, config, power)
    if right:
        findings.append(right.finding(config.level))
    findings += as_findings(remarks)
    facts = [
        ("Model", name),
        ("Data set", data),
        ("Known non-members", ", ".join(config.known) or "none"),
        ("Seed", str(config.seed)),
    ]
    return Report(
        title="Was it in the training data? A data set as a whole",
        question=f"Was {name} trained on {data}?",
        findings=findings,
        sections=sections,
        facts=facts,
        changes=[advice],
        next=commands,
        score=f"p {p_value(smallest)}",
        metrics=metrics,
        reader=reader(table, config, power),
        numbers={"p": smallest, "share": metrics.get("contamination/share"), "blind": metrics.get("audit/blind_auc")},
    )


def reader(table: pd.DataFrame, config: ContaminationConfig, power: Simulated | None = None) -> Reader:
    """The answer for somebody who is no engineer."""
    model = config.model.model
    answer = f"The texts give evidence that {model} was trained on this data set."
    significant = bool((table["p_holm"] <= config.level).any())
    if not significant:
        answer = f"There is no evidence that {model} was trained on this data set. That does not show that it was not."
    errors = _chance(table, config.level)
    # What would have been found matters where nothing was.
    if power and not significant:
        errors.append(missed(power))
    compared = [
        f"The model read the texts of the data set in the order in which they were published, and in {config.orders} "
        "random orders. A model that was trained on the file finds its own order easier."
    ]
    if config.known:
        unread = ", ".join(config.known)
        compared.append(
            f"It also read texts on which it cannot have been trained ({unread}), and the two groups were compared."
        )
    else:
        compared.append("No texts on which it cannot have been trained were given, so that nothing else was compared.")
    return Reader([answer], errors, compared)


def _chance(table: pd.DataFrame, level: float) -> list[str]:
    """What chance explains, for somebody who is no engineer."""
    able = table["p_holm"].dropna()
    if able.empty:
        return ["So few texts cannot give evidence: no result could have been clear enough."]
    smallest = f"{100 * float(able.min()):.2g}"
    wrong = (
        f"If the model was not trained on the data set, such an examination finds evidence all the same in at most "
        f"{100 * level:g} of 100 cases: the limit was set before"
    )
    if able.size > 1:
        wrong += f", and is divided among {able.size} tests"
    chance = f"Chance alone gives a result like this one, or a clearer one, in up to {smallest} of 100 cases."
    return [chance, f"{wrong}."]


def missed(power: Simulated) -> str:
    """How much such an examination overlooks, for somebody who is no engineer."""
    shares = []
    for times, share in power.by_times.items():
        shares.append(f"{100 * share.value:.0f} if it read them {TIMES[times]}")
    return (
        f"Of 100 such data sets that a model was trained on, about so many would have been found: "
        f"{', '.join(shares)}. This is a simulation; another model may remember more of what it read, or less."
    )


def p_values(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The p-values of the tests that have one."""
    return {outcome.name: outcome.p for outcome in outcomes if outcome.p is not None}


def able_tests(outcomes: Sequence[Outcome], level: float) -> list[Outcome]:
    """The tests with a p-value that can be as small as the level: others cannot succeed, and count for nothing."""
    return [outcome for outcome in outcomes if outcome.p is not None and outcome.finest <= level * (1 + SLACK)]


def corrected(outcomes: Sequence[Outcome], level: float = 0.05) -> pd.DataFrame:
    """One row per test, the smallest p first, corrected by Holm's method for the number of those that can succeed."""
    table = pd.DataFrame(outcomes).sort_values("p", kind="stable", ignore_index=True)
    able = able_tests(outcomes, level)
    return table.assign(p_holm=table["name"].map(holm(p_values(able))))


def order_test(sums: Sequence[FloatArray], config: ContaminationConfig) -> Outcome:
    """Exchangeability: the published order of the texts against random ones."""
    p, z = order_p(sums, seed=config.seed)
    return Outcome(
        ORDER,
        f"mean z {z:+z.2f}",
        f"{config.orders} random orders a shard of {config.shard}",
        p,
        finest=(config.orders + 1) ** -len(sums),
    )


def inference_test(
    suspect: Corpus, nonmembers: Corpus, detectors: Sequence[Detector], model: Model, seed: int
) -> tuple[Outcome, DatasetVerdict, FloatArray]:
    """LLM Dataset Inference on base scores, with the AUC of the blind classifier; the scores of the known families."""
    scored = score_texts(suspect.texts + nonmembers.texts, detectors, model.scorers, shown=True)
    columns = of_state(scored.columns, BASE)
    verdict, _ = compare_sets(suspect, nonmembers, columns, seed=seed)
    of_nonmembers = np.stack([column[len(suspect) :] for column in columns.values()], axis=1)
    outcome = Outcome(
        INFERENCE,
        f"difference {verdict.difference:+z.2f}",
        f"{verdict.known_groups} known families, labels permuted",
        verdict.p,
        verdict.reason,
    )
    return outcome, verdict, group_means(of_nonmembers, nonmembers.family)


def rank_tests(
    suspect: Sequence[str], nonmembers: Sequence[str], model: Model, config: ContaminationConfig
) -> list[tuple[Outcome, Sequence[float]]]:
    """CoDeC and, with a model that can be fine-tuned, the kernel divergence score, by their ranks among known sets.

    Each comes with the numbers of the sets, the data set's first.
    """
    sets = _sets(suspect, nonmembers, config)
    null = f"rank among {config.sets} known sets of {len(sets[0])} texts"
    scorer = model.scorers["base"]
    shots = shots_of(config.detection, config.model.model)
    shares = [codec(texts, scorer, shots=shots, seed=config.seed) for texts in sets]
    by_codec = _ranked(CODEC, shares, ".2f", null)
    if not model.local:
        untested = Outcome(KERNEL, null=null, reason="it fine-tunes the model, which an API does not allow")
        return [(by_codec, shares), (untested, ())]
    scores = divergences(model.local, sets, config)
    return [(by_codec, shares), (_ranked(KERNEL, scores, ".3g", null), scores)]


def _sets(suspect: Sequence[str], nonmembers: Sequence[str], config: ContaminationConfig) -> list[list[str]]:
    """A set of the data set's texts, then those of known non-members."""
    chosen, reference = equal_sets(len(suspect), len(nonmembers), config.sets, seed=config.seed)
    sets = [[suspect[index] for index in chosen]]
    # Every set is as large as the data set's: the numbers of sets of other sizes cannot be compared.
    sets += [[nonmembers[index] for index in indices] for indices in reference]
    return sets


def _ranked(name: str, numbers: Sequence[float], form: str, null: str) -> Outcome:
    """The test by the rank of the data set's number, which comes before those of the known sets."""
    # Among R known sets there are R + 1 ranks.
    finest = 1 / len(numbers)
    p = rank_among(numbers[0], numbers[1:])
    return Outcome(name, format(numbers[0], form), null, p, finest=finest)


def divergences(model: "LanguageModel", sets: Sequence[Sequence[str]], config: ContaminationConfig) -> list[float]:
    """Kernel divergence score of each set, on which the model is fine-tuned."""
    from fsd.models import adapters
    from fsd.models.finetuning import finetune
    from fsd.scoring.model_scorer import hidden_states

    scores = []
    with progress(len(sets), KERNEL, "set", shown=True) as bar:
        for texts in sets:
            base = hidden_states(model, texts, depth=1, tuned=False)
            finetune(model, texts, config.training, seed=config.seed, shown=False)
            tuned = hidden_states(model, texts, depth=1, tuned=True)
            scores.append(kernel_divergence(base, tuned))
            # The next set begins from the same model.
            adapters.detach(model)
            bar.update()
    return scores


def conclusions(
    table: pd.DataFrame, verdict: DatasetVerdict | None, config: ContaminationConfig, power: Simulated | None = None
) -> list[Finding]:
    """The results in sentences, most important first."""
    model = config.model.model
    significant = table[table["p_holm"] <= config.level].set_index("name")["p_holm"].to_dict()
    if significant:
        tests = ", ".join(f"{name} ({p_words(p)})" for name, p in significant.items())
        number = table["p_holm"].count()
        result = f"evidence that {model} was trained on this data set, by {tests}, corrected for {number} tests"
    else:
        result = f"no evidence that {model} was trained on this data set; this does not show that it was not"
    findings = [Finding(result)]
    if power and not significant:
        findings.append(power.finding)
    findings += _unable(table, config)
    # Without a difference, the share would be told of texts that may all be unread.
    if verdict and verdict.share and INFERENCE in significant:
        findings.append(
            Finding(
                f"the share of the data set that the model was trained on is {verdict.share}, by its scores; used "
                "texts that score like unused ones are not counted, so it may be more",
                FOR,
            )
        )
    findings.append(
        Finding(
            f"{ORDER} is exact if the texts could as well have been published in any other order: not if they are "
            "sorted",
            AGAINST,
        )
    )
    if verdict and verdict.blind:
        findings.append(
            Finding(
                f"a blind classifier, which never sees the model, distinguishes the two sets with AUC {verdict.blind}; "
                "the other tests hold as far as they differ in nothing but membership",
                verdict.blind.low <= 0.5,
            )
        )
    elif not config.known:
        findings.append(Finding("without known non-members (--known) only the order was tested", AGAINST))
    reasons = table[table["p"].isna()].set_index("name")["reason"]
    untested = [f"{name} has no p-value: {reason}" for name, reason in reasons.items()]
    return findings + as_findings(untested, AGAINST)


def _unable(table: pd.DataFrame, config: ContaminationConfig) -> list[Finding]:
    """Which tests were left out, since none of their p-values could have been as small as the level."""
    unable = table[table["p"].notna() & table["p_holm"].isna()]
    if unable.empty:
        return []
    tests = " and ".join(unable["name"])
    limits = " and ".join(f"1/{1 / finest:.0f}" for finest in sorted(set(unable["finest"])))
    line = f"{tests} cannot fall below {limits} here, and so not to the level of {config.level:g}: left out"
    sets = math.ceil(1 / config.level - SLACK) - 1
    if config.sets < sets:
        line += f"; --sets {sets} lets a rank reach it, with {FEWEST * sets} known texts of different families"
    return [Finding(line, AGAINST)]
