"""One data set and one model: what is read of them, what the tests cost, and what they give."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from extensions.contamination.accuracy import accuracy, with_ends
from extensions.contamination.dataset_tests import (
    check_order,
    codec,
    codec_prompts,
    equal_sets,
    exchangeability,
    kernel_divergence,
    order_prompts,
)
from extensions.contamination.powers import READ_CODEC, READ_KERNEL, rank_power, set_power
from extensions.contamination.settings import ContaminationConfig
from fsd.api import (
    READ,
    SLACK,
    Corpus,
    DatasetVerdict,
    Detector,
    Estimate,
    Model,
    Prompt,
    Question,
    ScoreTable,
    ScoringPlan,
    UsageError,
    check_level,
    choice_power,
    compare_sets,
    entry_of,
    group_means,
    holm,
    labels_for,
    load_tokenizer,
    outline,
    parse_columns,
    parse_cutoff,
    progress,
    rank_among,
    read_files,
    refuse_members,
    refuse_related,
    resolve_precision,
    without_related,
)
from fsd.api import fingerprint_of_tokenizer as fingerprint
from pipelines.api import TIMES, Job, by_times, cheap, files, load_detectors, read_besides, shots_of, tag, weights_of

if TYPE_CHECKING:
    from fsd.api import LanguageModel

ORDER = "exchangeability"
INFERENCE = "dataset inference"
CODEC = "CoDeC"
KERNEL = "kernel divergence"


class Outcome(NamedTuple):
    """A test: its statistic and what that is compared with, and its p-value or the reason why it has none."""

    name: str
    statistic: str = "–"
    null: str = "–"
    p: float | None = None
    reason: str = ""
    finest: float = 0.0
    """The smallest p-value that the test can give."""
    power: Callable[..., Estimate] | None = None
    """How often it finds what was read, by a shift, and by level and seed."""
    shifts: Mapping[int, float] = READ
    """Times that a set was read → the shift that stands for it."""


class Examined(NamedTuple):
    """What the tests of one data set on one model gave.

    `powers` are of each test by how often a set was read, and `right` is the accuracy on the items of a task.
    """

    table: pd.DataFrame
    verdict: DatasetVerdict | None = None
    powers: Mapping[str, Mapping[int, Estimate]] = {}
    right: Mapping[str, float] = {}

    @property
    def strongest(self) -> str:
        """The test that finds most, over all numbers of readings."""
        return max(self.powers, key=lambda test: sum(share.value for share in self.powers[test].values()))

    def found(self, level: float) -> dict[str, float]:
        """The tests with evidence, each with its corrected p-value."""
        chosen = self.table[self.table["p_holm"] <= level]
        return dict(zip(chosen["name"], chosen["p_holm"], strict=True))

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers under the names by which they are tracked."""
        tested = self.table.dropna(subset="p")
        numbers = {}
        for name, p in zip(tested["name"], tested["p"], strict=True):
            numbers[f"contamination_p/{name}"] = p
        # Without a test that can succeed there is no p-value.
        if self.table["p_holm"].notna().any():
            numbers["contamination/p"] = float(self.table["p_holm"].min())
        if self.verdict and self.verdict.blind:
            numbers["audit/blind_auc"] = self.verdict.blind.value
        if self.verdict and self.verdict.share:
            numbers |= with_ends("contamination/share", self.verdict.share)
        if self.powers:
            for times, share in self.powers[self.strongest].items():
                numbers[f"contamination_power/read_{times}"] = share.value
        for name, value in self.right.items():
            numbers[f"contamination_accuracy/{name}"] = value
        return numbers


def corrected(outcomes: Sequence[Outcome], level: float, powers: Mapping[str, Mapping[int, Estimate]]) -> pd.DataFrame:
    """One row per test, the smallest p first, corrected by Holm's method for the number of those that can succeed."""
    table = pd.DataFrame([outcome[:6] for outcome in outcomes], columns=Outcome._fields[:6])
    able = {}
    for outcome in outcomes:
        if outcome.p is not None and can_reach(outcome, level):
            able[outcome.name] = outcome.p
    table["p_holm"] = table["name"].map(holm(able)).astype(float)
    for times in TIMES:
        shares = {name: of_test[times].value for name, of_test in powers.items()}
        table[f"power_{times}"] = table["name"].map(shares).astype(float)
    return table.sort_values("p", kind="stable", ignore_index=True)


def can_reach(outcome: Outcome, level: float) -> bool:
    """Whether a test has a p-value that can be as small as the level: others cannot succeed, and count for nothing."""
    return outcome.p is not None and outcome.finest <= level * (1 + SLACK)


@dataclass(frozen=True)
class Cell:
    """A data set, known non-members and the settings of a model.

    `doubts` say why the labels of the known non-members may not hold; `questions` are those of a task of
    lm-evaluation-harness, if its items can be compared with known non-members.
    """

    config: ContaminationConfig
    suspect: Corpus
    nonmembers: Corpus
    detectors: Sequence[Detector]
    doubts: Sequence[str]
    remarks: Sequence[str]
    questions: Sequence[Question] = ()

    @property
    def name(self) -> str:
        """The model and the data set."""
        return f"{self.config.model.model} on {self.config.files[0]}"

    @property
    def texts(self) -> list[str]:
        """The texts of the data set, then those of the known non-members."""
        return self.suspect.texts + self.nonmembers.texts

    @property
    def shots(self) -> int:
        """Texts before each text of CoDeC."""
        return shots_of(self.config.detection, self.config.model.model)

    def draw(self) -> list[list[str]]:
        """A set of the data set's texts, then those of known non-members; each family counts once."""
        suspect, nonmembers = (side.one_per_family().texts for side in (self.suspect, self.nonmembers))
        # Every set is as large as the data set's: the numbers of sets of other sizes cannot be compared.
        return equal_sets(suspect, nonmembers, self.config.sets, seed=self.config.seed)

    @property
    def order(self) -> dict[str, int]:
        """The settings of the test of order."""
        return {"shard": self.config.shard, "orders": self.config.orders, "seed": self.config.seed}

    def job(self, work: Callable[[], object]) -> Job:
        """The job of the tests, with what they cost."""
        config = self.config
        # The test of order reads the texts in every order.
        passes = Counter(base=(config.orders + 1) * len(self.suspect))
        reads = {"data set": files(config.files, len(self.suspect))}
        notes = [*self.doubts, *self.remarks]
        # Without texts to train on, nothing is trained.
        trained = []
        plan = self.plan(outline(config.model, ("base",)))
        if plan:
            passes.update(plan.passes)
            # The tests by sets read the texts before and after the fine-tuning.
            passes["base"] += 2 * len(self.suspect)
            passes["base"] += sum(len(question.prompts) for question in self.questions)
            reads["known non-members"] = files(config.known, len(self.nonmembers))
            trained = self.suspect.texts
            notes.append("the tests by sets of texts are counted roughly")
        return Job(
            work,
            reads,
            config.model,
            texts=self.texts,
            passes=passes,
            trained=trained,
            training=config.training,
            experiment=f"fsd-{config.domain}",
            notes=notes,
            api=config.api,
        )

    def asked(self) -> Iterator[tuple[str, Iterable[Prompt]]]:
        """All that the tests ask an API: names of scorers with their prompts; a name may come several times."""
        yield "base", order_prompts(self.suspect.texts, **self.order)
        plan = self.plan(outline(self.config.model, ("base",)))
        if not plan:
            return
        yield from plan.asked.items()
        for question in self.questions:
            yield "base", question.prompts
        for texts in self.draw():
            yield "base", codec_prompts(texts, shots=self.shots, seed=self.config.seed)

    def plan(self, model: Model) -> ScoringPlan | None:
        """The scoring of both sides by the detectors that a model can compute; None without known non-members."""
        # The test of order needs no detector, so that an API which allows none of them can still be asked.
        if not self.nonmembers:
            return None
        return model.plan(
            self.detectors, self.texts, strict=self.config.detection.named, use="used in dataset inference"
        )

    @cached_property
    def tag(self) -> str:
        """A hash of all that its numbers depend on, of weights and texts themselves, not of their names.

        It has no `known`, `columns`, `cutoff`, `near_duplicates`: they choose the texts, which are in it. Nor `chats`,
        `chat_template`: a chat is read as its words. Nor `samples`, `neighbours`: no cheap detector takes them. Nor
        `domain`, `answers`, `cache`, `max_batch_tokens`, and how fast an API is asked: they change no number.
        """
        config = self.config
        model = config.model
        device, dtype = resolve_precision(model)
        content: dict[str, Any] = dict(read_besides(model, self.detectors))
        # What is behind an API has no other identity than its name.
        content["model"] = model.model if model.by_api else weights_of(model.model, model.revision)
        content["precision"] = [device.type, str(dtype), model.bits]
        content["first token"] = model.first_token
        content["api"] = [config.api.base_url, config.api.start_token]
        if config.api.tokenizer:
            tokenizer, _ = load_tokenizer(config.api.tokenizer, revision=model.revision)
            content["tokenizer"] = fingerprint(tokenizer, special=True)
        for name, side in (("suspect", self.suspect), ("known", self.nonmembers)):
            content[name] = [(document.text, document.group, str(document.date)) for document in side]
        # The tests compare base scores alone.
        content["detectors"] = {detector.name: dict(detector.settings_in("base")) for detector in self.detectors}
        content["shots"] = self.shots
        content["training"] = asdict(config.training)
        content["tests"] = [config.shard, config.orders, config.sets, config.level, config.seed]
        content["questions"] = [question.prompts for question in self.questions]
        return tag(content)


def read(config: ContaminationConfig) -> Cell:
    """Read the texts of a data set, and check them and the settings."""
    check_level("level", config.level)
    suspect = Corpus(read_files(config.files, _columns(config)))
    check_order(len(suspect), shard=config.shard, orders=config.orders)
    # A paired detector compares two models, and the API's or the user's is the only one here.
    detectors = [detector for detector in cheap(load_detectors(config.detection)) if not detector.paired]
    nonmembers, doubts, remarks = _nonmembers(config, suspect)
    cell = Cell(config, suspect, nonmembers, detectors, doubts, remarks)
    # Without known texts no item can be judged seen.
    if not nonmembers:
        return cell
    if not detectors:
        raise UsageError("dataset inference must have a detector with a base score; got none")
    # Drawn again in the test: sets that would be too small are refused before the model is loaded.
    cell.draw()
    entries = filter(None, map(entry_of, config.files))
    return replace(cell, questions=[question for entry in entries for question in entry.questions()])


def _columns(config: ContaminationConfig) -> Mapping[str, str]:
    """The columns that the tests use: those of a benchmark that has labels or sources of its own say nothing here."""
    unread = ["label", "source", "period"]
    # Dates tell whether known texts are later; without them they have no use.
    if not config.known:
        unread.append("date")
    return parse_columns(config.columns, unread=unread)


def _nonmembers(config: ContaminationConfig, suspect: Corpus) -> tuple[Corpus, Sequence[str], Sequence[str]]:
    """The known non-members, none if their labels do not hold, with doubts about the labels and with remarks."""
    nonmembers = Corpus(read_files(config.known, _columns(config)) if config.known else ())
    # The data set is what members would be: dates of known non-members are compared with it.
    members = [replace(document, member=True) for document in suspect]
    labels = labels_for(config.model.model, [*members, *nonmembers], last=parse_cutoff(config.cutoff))
    if not labels.hold or not nonmembers:
        return Corpus(), labels.notes, ()
    refuse_members(nonmembers)
    # The splits of a task have texts in common, which its user did not choose: elsewhere a copy is a mistake.
    if config.near_duplicates == "drop" or any(map(entry_of, config.known)):
        kept, remarks = without_related(suspect, nonmembers)
        return Corpus(kept), labels.notes, remarks
    refuse_related(suspect, nonmembers)
    return nonmembers, labels.notes, ()


def examine(cell: Cell, model: Model) -> Examined:
    """Run the tests on an open model, and simulate what they would have found."""
    plan = cell.plan(model)
    config = cell.config
    outcomes = [order_test(cell, model)]
    verdict = None
    right: Mapping[str, float] = {}
    if plan:
        inference, verdict = inference_test(cell.suspect, cell.nonmembers, plan.score(), config.seed)
        outcomes.append(inference)
        if verdict.reason:  # the others rest on the same comparison
            outcomes += [Outcome(test, reason=verdict.reason) for test in (CODEC, KERNEL)]
        else:
            right = accuracy(cell.suspect, cell.questions, verdict.group_p, config.level, model.scorers["base"])
            outcomes += rank_tests(cell, model)
    # The smallest p-value has to pass Holm's first step. Where others have passed theirs before, it passes more easily.
    level = config.level / max(1, sum(can_reach(outcome, config.level) for outcome in outcomes))
    powers = {}
    for outcome in outcomes:
        if outcome.power:
            powers[outcome.name] = by_times(outcome.shifts, partial(outcome.power, level=level, seed=config.seed))
    return Examined(corrected(outcomes, config.level, powers), verdict, powers, right)


def order_test(cell: Cell, model: Model) -> Outcome:
    """Exchangeability: the published order of the texts against random ones."""
    config = cell.config
    p, z, sums = exchangeability(cell.suspect.texts, model.scorers["base"], **cell.order)
    finest = (config.orders + 1) ** -len(sums)
    null = f"{config.orders} random orders a shard of {config.shard}"
    return Outcome(ORDER, f"mean z {z:+z.2f}", null, p, finest=finest, power=partial(choice_power, sums))


def inference_test(
    suspect: Corpus, nonmembers: Corpus, scored: ScoreTable, seed: int
) -> tuple[Outcome, DatasetVerdict]:
    """LLM Dataset Inference on the base scores of both sides, with the AUC of the blind classifier."""
    columns = {score.detector: column for score, column in scored.columns.items() if score.state == "base"}
    verdict, _ = compare_sets(suspect, nonmembers, columns, seed=seed)
    # With a reason the p-value is withheld, and there is nothing to find.
    power = None
    if not verdict.reason:
        of_nonmembers = np.stack([column[len(suspect) :] for column in columns.values()], axis=1)
        power = partial(
            set_power, group_means(of_nonmembers, nonmembers.family), (verdict.suspect_groups, verdict.known_groups)
        )
    null = f"{verdict.known_groups} known families, labels permuted"
    outcome = Outcome(INFERENCE, f"difference {verdict.difference:+z.2f}", null, verdict.p, verdict.reason, power=power)
    return outcome, verdict


def rank_tests(cell: Cell, model: Model) -> list[Outcome]:
    """CoDeC and, with a model that can be fine-tuned, the kernel divergence, by their ranks among known sets."""
    sets = cell.draw()
    null = f"rank among {cell.config.sets} known sets of {len(sets[0])} texts"
    shares = [codec(texts, model.scorers["base"], shots=cell.shots, seed=cell.config.seed) for texts in sets]
    by_codec = _ranked(CODEC, shares, ".2f", null, READ_CODEC)
    if not model.local:
        return [by_codec, Outcome(KERNEL, null=null, reason="it fine-tunes the model, which an API does not allow")]
    return [by_codec, _ranked(KERNEL, divergences(model.local, sets, cell.config), ".3g", null, READ_KERNEL)]


def _ranked(name: str, numbers: Sequence[float], form: str, null: str, shifts: Mapping[int, float]) -> Outcome:
    """The test by the rank of the data set's number, which comes before those of the known sets."""
    value, *unread = numbers
    # The number of the data set itself may be that of a set which was read.
    power = partial(rank_power, np.array(unread))
    # Among R known sets there are R + 1 ranks.
    return Outcome(name, format(value, form), null, rank_among(value, unread), "", 1 / len(numbers), power, shifts)


def divergences(model: "LanguageModel", sets: Sequence[Sequence[str]], config: ContaminationConfig) -> list[float]:
    """Kernel divergence score of each set, on which the model is fine-tuned."""
    from fsd.api import adapters, finetune, hidden_states

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
