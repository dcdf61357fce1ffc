"""Results of a run as one long data frame, from which everything is made, and the choices behind it.

Three contrasts tell membership from familiarity with a period: contemporaries differ from later texts in the period
alone, and from members in membership alone (docs/contrasts.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fsd.data.corpus import Corpus, Split
from fsd.data.documents import content_hash
from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.data.periods import CONTEMPORARY, LATER, MEMBER, Kinds, compared, has_both, kinds
from fsd.evaluation.rows import ByScore, Row, Rows, by_key, compare, control_rows, measure, table_of
from fsd.scores import BASE, FSD, IN_AUDIT, IN_RUN, Score, ScoreColumns, StatePair, of_state, rows_of
from fsd.scoring.deviation import ScoreTable
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.intervals import Estimate
from fsd.statistics.metrics import METRICS, auc, best_thresholds, estimates
from fsd.text_audit.audited import Audit
from fsd.token_stats import BoolArray, FloatArray, Scores
from fsd.verdicts.calibration import Calibration, calibrate, family_aucs
from fsd.verdicts.domain_check import Reference
from fsd.views import Detector


class Contrast(NamedTuple):
    """Two kinds of text that are compared; the first should score higher. Its metrics end in its name."""

    name: str
    positive: str
    negative: str
    title: str
    meaning: str

    def among(self, kind: Kinds) -> BoolArray:
        """(N,) texts that it compares."""
        return np.isin(kind, (self.positive, self.negative))

    def possible(self, kind: Kinds) -> bool:
        """Whether there are texts of both kinds."""
        return bool(np.isin((self.positive, self.negative), kind).all())


WITH_LATER = Contrast("members_vs_later", MEMBER, LATER, "members against later texts", "what a split by time measures")
FAMILIARITY = Contrast(
    "contemporaries_vs_later",
    CONTEMPORARY,
    LATER,
    "contemporaries against later texts",
    "familiarity with the period: the model was trained on neither",
)
MEMBERSHIP = Contrast(
    "members_vs_contemporaries", MEMBER, CONTEMPORARY, "members against contemporaries", "membership, within one period"
)
CONTRASTS = (WITH_LATER, FAMILIARITY, MEMBERSHIP)
MEASURES = ("auc", "auc_gain", "placebo_auc", "placebo_lead")
"""Metrics that a contrast has, as in auc_gain_members_vs_later."""
OF_CONTRASTS = tuple(f"auc_{contrast.name}" for contrast in CONTRASTS)
WITH_ENDS = ("auc", *OF_CONTRASTS)
"""Metrics whose intervals are tracked as well."""
COMPARISONS = {"auc_gain": "gain", "placebo_auc": "placebo_fsd_auc", "placebo_lead": "placebo_lead"}
"""Metric that compares → its column in summary.csv."""
# Metric of a score: the share of the scored texts whose score is a fallback of the detector.
FALLBACK = "fallback"
ENDINGS = ("", "_low", "_high")
"""What the names of a number and of the ends of its interval end in, in summary.csv."""


def kinds_in(scores: pd.DataFrame) -> Kinds:
    """(N,) kind of each text of a table like scores.parquet, see `fsd.data.periods.kinds`."""
    periods = list(map(str, scores.get("period", [""] * len(scores))))
    return kinds(scores["label"].to_numpy(bool), periods)


def tracked(table: pd.DataFrame, *, uncertainty: bool = True) -> dict[str, float]:
    """The table under the names that MLflow lines up: `auc/loss.fsd`, and with `uncertainty` `auc_low/loss.fsd`."""
    metrics: dict[str, float] = {}
    for row in by_key(table).values():
        values = {"": row.value}
        if uncertainty:
            if row.metric in WITH_ENDS:
                values |= {"_low": row.low, "_high": row.high}
            values |= {"_p": row.p, "_p_holm": row.p_holm}
        # a comparison of states has none of its own
        name = f"{row.detector}.{row.state}".rstrip(".")
        for ending, value in values.items():
            if not math.isnan(value):
                metrics[f"{row.metric}{ending}/{name}"] = value
    return metrics


def charted(table: pd.DataFrame, compared: Sequence[Score] = ()) -> dict[str, float]:
    """The numbers of every detector that MLflow charts, and those by which the scores `compared` are compared as well.

    More charts would hide these; the other numbers are in summary.csv.
    """
    # Comparisons are no metrics of their own.
    every = ["auc_gain", "placebo_lead"]
    further = list(OF_CONTRASTS)
    for name, metric in METRICS.items():
        if metric.charted:
            every.append(name)
        if metric.compared:
            further.append(name)
    numbers = tracked(table[table["metric"].isin(every)], uncertainty=False)
    rows = table[table["metric"].isin(further)]
    for detector, state in compared:
        numbers |= tracked(rows[(rows["detector"] == detector) & (rows["state"] == state)], uncertainty=False)
    return numbers


def summary(table: pd.DataFrame, caveat: str = "") -> pd.DataFrame:
    """One row per detector for summary.csv: every number with the ends of its interval, and the caveat, if any."""
    columns = [f"{state}_{name}{ending}" for state, name, ending in product((BASE, FSD), METRICS, ENDINGS)]
    lines: dict[str, dict[str, Any]] = {}
    for row in by_key(table).values():
        empty = {"detector": row.detector, **dict.fromkeys(columns)}
        line = lines.setdefault(row.detector, empty)
        name = f"{row.state}_{row.metric}".strip("_")
        if row.state != BASE:
            name = COMPARISONS.get(row.metric, name)
        line[name] = row.value
        # the AUC on validation chooses, and has no interval
        if row.metric not in ("validation_auc", FALLBACK):
            line |= {f"{name}_low": row.low, f"{name}_high": row.high}
        if not math.isnan(row.p):
            # the gain came first, and its p-values are just "p"
            p_name = f"{name}_p".removeprefix("gain_")
            line |= {p_name: row.p, f"{p_name}_holm": row.p_holm}
    frame = pd.DataFrame(list(lines.values()))
    if caveat:
        frame["caveat"] = caveat
    return frame


@dataclass(frozen=True)
class Results:
    """Everything that a run measured; the best are chosen on validation, without it on test."""

    parts: Split
    scores: pd.DataFrame  # one row per text, see `score_table`
    table: pd.DataFrame  # one row per number, see `evaluate`
    audit: Audit
    remarks: Sequence[str]
    control_name: str | None  # of the control model
    headline: Score  # the best score of all states
    best_fsd: Score  # the best that needs fine-tuning
    best_base: Score | None  # the best that needs none
    gain: Row | None  # the AUC of the best score with fine-tuning over that of the best without
    calibration: Calibration | None
    never_saw: bool = False  # whether the model was trained on none of the texts
    labels: Labels = HOLDING
    states: StatePair = IN_RUN
    ranked: Sequence[str] = ()  # the detectors, the best by either state first
    control: FloatArray | None = None  # the headline score of the texts `judged` on the control model
    uncontrolled: str = ""  # why the control model that was named has no headline score; "" without one

    @cached_property
    def rows(self) -> Rows:
        """(detector, state, metric) → row of the table."""
        return by_key(self.table)

    def number(self, score: Score, metric: str) -> Estimate | None:
        """A number of a score with its interval; None if it was not measured."""
        row = self.rows.get((*score, metric))
        return row and row.estimate

    def paired(self, detector: str) -> bool:
        """Whether the detector reads both models itself, so that it has no base score."""
        return (detector, self.states.single, "auc") not in self.rows

    def title(self, score: Score) -> str:
        """A score in words, see `fsd.scores.Score.title`."""
        return score.title(paired=self.paired(score.detector))

    @property
    def headline_title(self) -> str:
        """The headline score in words."""
        return self.title(self.headline)

    @property
    def auc(self) -> Estimate:
        """AUC of the headline score on the test texts."""
        return self.rows[*self.headline, "auc"].estimate

    @property
    def lead(self) -> Estimate | None:
        """AUC of the headline score minus its AUC on the control model."""
        return self.number(self.headline, "placebo_lead")

    @property
    def verdict_score(self) -> Score:
        """The score by which verdicts are given; that of the headline, if the run gives none."""
        if self.calibration:
            return self.calibration.score
        return self.headline

    @property
    def validation_auc(self) -> float:
        """AUC of the score of the verdicts on the validation texts; NaN without them."""
        estimate = self.number(self.verdict_score, "validation_auc")
        if estimate:
            return estimate.value
        return math.nan

    @property
    def kind(self) -> Kinds:
        """(N,) kind of each scored text, see `fsd.data.periods.kinds`."""
        return kinds_in(self.scores)

    @property
    def has_contemporaries(self) -> bool:
        """Whether there are non-members of the members' own period."""
        return CONTEMPORARY in self.kind

    @property
    def contrasts(self) -> bool:
        """Whether there are contemporaries and later texts, so that all three contrasts were measured."""
        return has_both(self.kind)

    @property
    def judged(self) -> pd.DataFrame:
        """The test texts on which membership is judged: without later texts, if there are contemporaries."""
        scores = self.scores[compared(self.kind)]
        return scores[scores["split"] == "test"]

    def measured(self, metric: str) -> list[Row]:
        """The rows of a metric, one for each score or comparison."""
        return [row for row in self.rows.values() if row.metric == metric]


def compute_results(
    parts: Split,
    scored: ScoreTable,
    control: tuple[str, ScoreTable] | None,
    detectors: Sequence[Detector],
    *,
    seed: int,
    remarks: Sequence[str] = (),
    cross_validated: ByScore | None = None,
    audited: Callable[[], Audit] | None = None,
) -> Results:
    """Metrics with intervals on the test texts, thresholds from validation, and every control beside them.

    Later texts are in the contrasts alone where there are contemporaries. `scored`, and the control model's scores
    beside its name, are of the validation, then the test texts; `cross_validated` are validation AUCs in place of those
    chosen by. `audited` gives the text audit, if it is made elsewhere.
    """
    if audited is None:
        from fsd.text_audit.audit import audit

        audited = partial(audit, parts, seed=seed)
    control_name, of_control = control or (None, ScoreTable())
    control_fsd = of_state(of_control.columns, scored.states.difference)
    texts = ScoredTexts(parts, score_table(parts, scored), scored, seed)
    choice = choose(texts)
    bootstrap = Bootstrap.draw(texts.test.member, texts.test.family, seed=seed)
    tested_fsd = rows_of(control_fsd, texts.tested)
    test_rows = measure(bootstrap, texts.test.columns, scored.states, tested_fsd, thresholds(texts.validation))
    rows = test_rows + contrast_rows(texts, control_fsd, test_rows)
    for (score, _), count in scored.fallbacks.items():
        rows.append(Row(*score, FALLBACK, count / scored.texts))
    reported = [choice.headline]
    calibration = None
    # without validation texts nothing is calibrated: those that chose the score must not give p-values as well
    if parts.validation:
        calibration = calibration_of(texts, detectors)
    if calibration:
        reported.append(calibration.score)
    for score in dict.fromkeys(reported):
        rows += base_control_rows(texts, score, of_control, bootstrap)
        rows += untrained_rows(texts, score, bootstrap)
    if parts.validation:
        rows += validation_rows(texts.validation, cross_validated or {})
    headline_of_control = of_control.columns.get(choice.headline)
    if headline_of_control is not None:
        headline_of_control = headline_of_control[texts.tested]
    return Results(
        parts=parts,
        scores=texts.table,
        table=table_of(rows),
        audit=audited(),
        remarks=list(remarks) + fallback_remarks(scored),
        control_name=control_name,
        gain=fine_tuning_gain(texts.test, choice, bootstrap),
        calibration=calibration,
        states=scored.states,
        control=headline_of_control,
        **choice._asdict(),
    )


class Part(NamedTuple):
    """Some of the scored texts: whether each is a member, its family, and its scores in the states of the run."""

    member: BoolArray
    family: list[int]
    columns: ScoreColumns


@dataclass(frozen=True)
class ScoredTexts:
    """The (N,) scored texts of a run, those of validation first, and which of them serve for what."""

    parts: Split
    table: pd.DataFrame  # see `score_table`
    scored: ScoreTable
    seed: int

    @cached_property
    def member(self) -> BoolArray:
        """(N,) whether each text is a member."""
        return self.table["label"].to_numpy(bool)

    @cached_property
    def is_test(self) -> BoolArray:
        """(N,) whether each text is a test text."""
        return np.asarray(self.table["split"] == "test")

    @cached_property
    def kind(self) -> Kinds:
        """(N,) kind of each text, see `fsd.data.periods.kinds`."""
        return kinds_in(self.table)

    @cached_property
    def compared(self) -> BoolArray:
        """(N,) whether membership is judged on a text: not on later ones, if there are contemporaries."""
        return compared(self.kind)

    @cached_property
    def tested(self) -> BoolArray:
        """(N,) test texts on which membership is judged."""
        return self.compared & self.is_test

    @cached_property
    def chosen_on(self) -> BoolArray:
        """(N,) texts on which detectors and thresholds are chosen: of validation; without it, all of them."""
        if self.parts.validation:
            return self.compared & ~self.is_test
        return self.compared

    def part(self, among: BoolArray) -> Part:
        """Some of the texts, by a mask."""
        columns = {}
        for score, column in self.scored.columns.items():
            if score.state in self.scored.states:
                columns[score] = column[among]
        family = self.table.loc[among, "group"].astype(int).tolist()
        return Part(self.member[among], family, columns)

    @cached_property
    def validation(self) -> Part:
        """The texts `chosen_on`."""
        return self.part(self.chosen_on)

    @cached_property
    def test(self) -> Part:
        """The texts `tested`."""
        return self.part(self.tested)

    def measured(self, among: BoolArray, positive: BoolArray, control: Scores) -> list[Row]:
        """Every metric of some texts, with the lead over the control model."""
        part = self.part(among)
        bootstrap = Bootstrap.draw(positive[among], part.family, seed=self.seed)
        return measure(bootstrap, part.columns, self.scored.states, rows_of(control, among), {})


def thresholds(validation: Part) -> dict[Score, float]:
    """Score → the threshold with the highest accuracy on validation."""
    best = {}
    for score, column in validation.columns.items():
        best[score] = best_thresholds(validation.member, column)[0]
    return best


def contrast_rows(texts: ScoredTexts, control: Scores, test_rows: Sequence[Row]) -> list[Row]:
    """The metrics of each contrast that the test texts allow."""
    rows = []
    for contrast in CONTRASTS:
        if not contrast.possible(texts.kind[texts.is_test]):
            continue
        among = contrast.among(texts.kind) & texts.is_test
        # what was measured on the test texts is not measured again
        contrasted = test_rows
        if not np.array_equal(among, texts.tested):
            contrasted = texts.measured(among, texts.kind == contrast.positive, control)
        measured = [row for row in contrasted if row.metric in MEASURES]
        rows += [row._replace(metric=f"{row.metric}_{contrast.name}") for row in measured]
    return rows


class Choice(NamedTuple):
    """What is best on validation: of all scores, with fine-tuning, and without (None if nothing has a base score)."""

    headline: Score
    best_fsd: Score
    best_base: Score | None
    ranked: Sequence[str]


def choose(texts: ScoredTexts) -> Choice:
    """The scores with the highest AUC on the validation texts, each family of non-members counted once."""
    validation = texts.validation
    aucs = family_aucs(validation.member, validation.columns, validation.family)
    ordered = sorted(aucs, key=aucs.__getitem__, reverse=True)
    best = {}
    # the best is the last, which stays
    for score in reversed(ordered):
        best[score.state] = score
    # whatever is scored has a deviation
    best_fsd = best[texts.scored.states.difference]
    best_base = best.get(texts.scored.states.single)
    headline = best_fsd
    # a score with fine-tuning goes first where both are equally good
    if best_base and aucs[best_base] > aucs[best_fsd]:
        headline = best_base
    detectors = dict.fromkeys(score.detector for score in ordered)
    return Choice(headline, best_fsd, best_base, list(detectors))


def fine_tuning_gain(test: Part, choice: Choice, bootstrap: Bootstrap) -> Row | None:
    """The gain of the best score with fine-tuning over the best without; None if nothing has a base score."""
    if choice.best_base is None:
        return None
    # both sides are chosen on the same texts, so that neither is favoured
    base = test.columns[choice.best_base]
    fine_tuned = test.columns[choice.best_fsd]
    name = choice.best_fsd.detector
    return compare(bootstrap, {name: base}, {name: fine_tuned})[name]


def base_control_rows(texts: ScoredTexts, base: Score, control: ScoreTable, bootstrap: Bootstrap) -> list[Row]:
    """The control of a score if it is one without fine-tuning; controls of FSD are measured with all others."""
    if base.state != texts.scored.states.single or base not in control.columns:
        return []
    of_control = {base.detector: control.columns[base][texts.tested]}
    of_model = {base.detector: texts.test.columns[base]}
    return control_rows(bootstrap, of_control, of_model, base.state)


def untrained_rows(texts: ScoredTexts, score: Score, bootstrap: Bootstrap) -> list[Row]:
    """In an audit, the AUC of the base model, which never saw the fine-tuning data, on the test texts.

    Its detector, and which side scores higher, are those that separate the validation texts best. No row without a
    detector that reads one model alone.
    """
    if texts.scored.states != IN_AUDIT:
        return []
    of_base = of_state(texts.scored.columns, BASE)
    if not of_base:
        return []
    # Texts that the base knows have higher scores by either model, and move less between them.
    validation_aucs = {}
    for name, column in of_base.items():
        validation_aucs[name] = auc(texts.validation.member, column[texts.chosen_on])
    detector = max(validation_aucs, key=lambda name: abs(validation_aucs[name] - 0.5))
    column = of_base[detector][texts.tested]
    if validation_aucs[detector] < 0.5:
        column = -column
    return [Row(*score, "base_auc", *estimates(bootstrap, column)["auc"])]


def validation_rows(validation: Part, cross_validated: ByScore) -> list[Row]:
    """The AUC of each score on the validation texts."""
    rows = []
    for score, column in validation.columns.items():
        value = cross_validated.get(score)
        if value is None:
            value = auc(validation.member, column)
        rows.append(Row(*score, "validation_auc", value))
    return rows


def calibration_of(texts: ScoredTexts, detectors: Sequence[Detector]) -> Calibration | None:
    """The calibration of the best score on validation by the test non-members; None if all need labelled texts."""
    # new texts come without labelled ones
    unlabelled = {detector.name: detector for detector in detectors if not detector.needs_labels}
    judged = texts.part(texts.compared)
    scores: ScoreColumns = {}
    settings = {}
    # Of equally good scores the first is chosen. Scores of both models stand before those of one, as in the headline:
    # False is sorted before True.
    for score in sorted(judged.columns, key=lambda score: score.state == texts.scored.states.single):
        detector = unlabelled.get(score.detector)
        if detector:
            scores[score] = judged.columns[score]
            settings[score] = detector.settings_in(score.state)
    if not scores:
        return None
    sources = compress(texts.parts.judged.sources, texts.compared)
    return calibrate(
        judged.member,
        scores,
        judged.family,
        reference=reference_of(texts.parts),
        sources=list(sources),
        settings=settings,
        is_test=texts.is_test[texts.compared],
    )


def fallback_remarks(scored: ScoreTable) -> list[str]:
    """What took the place of scores that could not be computed, each said once, of the state with most such texts."""
    remarks = {}
    # The state with most such texts is the last, which stays.
    for (score, fallback), count in reversed(scored.fallbacks.most_common()):
        counted = fallback.replace(";", f" in {count:,} of {scored.texts:,} texts;")
        remarks[score.detector] = f"{score.detector}: {counted}"
    return list(remarks.values())


def reference_of(parts: Split, *, unseen: bool = False) -> Reference:
    """The non-members that membership is judged against; with `unseen` also the unseen texts, unless later ones."""
    judged = parts.without_later().judged
    nonmembers = judged.take(~judged.members)
    # where there are contemporaries and later texts, the unseen ones are later
    if unseen and not has_both(parts.judged.kind):
        nonmembers = Corpus(nonmembers + parts.unseen)
    read_as = dict.fromkeys(document.read_as for document in nonmembers)
    families = nonmembers.family.tolist()
    return Reference(
        texts=tuple(nonmembers.wholes),
        families=tuple(families),
        sources=tuple(nonmembers.sources),
        power={},
        read_as=tuple(read_as),
    )


def score_table(parts: Split, scored: ScoreTable) -> pd.DataFrame:
    """One row per scored text, those of validation first, as in `scored`; period and source if a text has one."""
    corpus = parts.judged
    table = pd.DataFrame({"id": [content_hash(text)[:16] for text in corpus.texts]})
    table["text"] = corpus.texts
    table["label"] = corpus.members.astype(int)
    table["group"] = list(map(str, corpus.family))
    table["split"] = ["validation"] * len(parts.validation) + ["test"] * len(parts.test)
    periods = [document.period for document in corpus]
    if any(periods):
        table["period"] = periods
    if any(corpus.sources):
        table["source"] = corpus.sources
    return pd.concat([table, scored.frame()], axis=1)
