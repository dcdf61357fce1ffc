"""Results of a run as one long data frame, from which everything is made, and the choices behind it.

Three contrasts tell membership from familiarity with a period: contemporaries differ from later texts in the period
alone, and from members in membership alone (docs/contrasts.md).
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fsd.data import splitting
from fsd.data.corpus import Corpus
from fsd.data.documents import content_hash
from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.data.splitting import CONTEMPORARY, LATER, MEMBER, Split
from fsd.evaluation.audit import Audit, audit
from fsd.evaluation.calibration import Calibration, calibrate, family_aucs
from fsd.evaluation.domain_check import Reference
from fsd.evaluation.rows import Row, by_key, compare
from fsd.scores import ALL_STATES, BASE, FSD, IN_RUN, Score, ScoreColumns, StatePair, columns_of, of_state
from fsd.scoring.deviation import ScoreTable
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.intervals import Estimate
from fsd.statistics.metrics import METRICS, auc, best_thresholds, estimates
from fsd.token_stats import BoolArray, FloatArray, Scores
from fsd.views import Detector


class Contrast(NamedTuple):
    """Two kinds of text that are compared; the first should score higher. Its metrics end in its name."""

    name: str
    positive: str
    negative: str
    title: str
    meaning: str

    def among(self, kind: NDArray[np.str_]) -> BoolArray:
        """(N,) texts that it compares."""
        return np.isin(kind, (self.positive, self.negative))

    def possible(self, kind: NDArray[np.str_]) -> bool:
        """Whether there are texts of both kinds."""
        return {self.positive, self.negative} <= set(kind.tolist())


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
WITH_ENDS = ("auc", *(f"auc_{contrast.name}" for contrast in CONTRASTS))
"""Metrics whose intervals are tracked as well."""
COMPARISONS = {"auc_gain": "gain", "placebo_auc": "placebo_fsd_auc", "placebo_lead": "placebo_lead"}
"""Metric that compares → its column in summary.csv."""
CHARTED = ("auc", "auc_gain", "placebo_lead")
"""Metrics of every detector by which runs are compared in MLflow; the others are in summary.csv."""


def kinds_in(scores: pd.DataFrame) -> NDArray[np.str_]:
    """(N,) kind of each text of a table like scores.parquet, see `fsd.data.splitting.kinds`."""
    named = scores["period"] if "period" in scores else [""] * len(scores)
    return splitting.kinds(scores["label"].to_numpy(bool), list(map(str, named)))


def evaluate(
    scores: pd.DataFrame,
    labels: ArrayLike,
    groups: Sequence[Hashable] | None = None,
    *,
    states: StatePair = IN_RUN,
    thresholds: Mapping[Score, float] | None = None,
    control: Scores | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every metric of every score with its interval, FSD against base, and the lead over the control's (N,) FSD.

    In an audit, differences from the base model stand against scores of the fine-tuned one alone.

    See `fsd.library.evaluate`; `thresholds` are from other texts, for the accuracy.
    """
    bootstrap = Bootstrap.draw(labels, groups, resamples=resamples, seed=seed)
    thresholds = thresholds or {}
    control = control or {}
    columns = columns_of(scores, ALL_STATES)
    rows = []
    for score, column in columns.items():
        measured = estimates(bootstrap, column, thresholds.get(score))
        rows += [Row(*score, metric, *estimate) for metric, estimate in measured.items()]
    differences = of_state(columns, states.difference)
    rows += compare(bootstrap, of_state(columns, states.single), differences).values()
    for detector, lead in compare(bootstrap, control, differences).items():
        score = Score(detector, states.difference)
        rows.append(Row(*score, "placebo_auc", *estimates(bootstrap, control[detector])["auc"]))
        rows.append(lead._replace(state=score.state, metric="placebo_lead"))
    return _table(rows, [Score.parse(name).detector for name in map(str, scores)])


def _table(rows: Sequence[Row], detectors: Sequence[str]) -> pd.DataFrame:
    """The rows as a data frame, detector by detector."""
    ordered: list[Row] = sorted(rows, key=lambda row: detectors.index(row.detector))
    return pd.DataFrame(ordered, columns=list(Row._fields))


def tracked(table: pd.DataFrame, *, uncertainty: bool = True) -> dict[str, float]:
    """The table under the names that MLflow lines up: `auc/loss.fsd`, and with `uncertainty` `auc_low/loss.fsd`."""
    metrics: dict[str, float] = {}
    for row in by_key(table).values():
        values = {"": row.value}
        if uncertainty:
            if row.metric in WITH_ENDS:
                values |= {"_low": row.low, "_high": row.high}
            values |= {"_p": row.p, "_p_holm": row.p_holm}
        name = f"{row.detector}.{row.state}".rstrip(".")
        metrics |= {f"{row.metric}{end}/{name}": value for end, value in values.items() if not math.isnan(value)}
    return metrics


def charted(table: pd.DataFrame) -> dict[str, float]:
    """The numbers of `CHARTED`: a chart for each of the others would hide these."""
    return tracked(table[table["metric"].isin(CHARTED)], uncertainty=False)


def summary(table: pd.DataFrame, caveat: str = "") -> pd.DataFrame:
    """One row per detector for summary.csv: every number with the ends of its interval, and the caveat, if any."""
    keys = product((BASE, FSD), METRICS, ("", "_low", "_high"))
    columns = [f"{state}_{name}{end}" for state, name, end in keys]
    lines: dict[str, dict[str, Any]] = {}
    for row in by_key(table).values():
        line = lines.setdefault(row.detector, {"detector": row.detector, **dict.fromkeys(columns)})
        name = f"{row.state}_{row.metric}".strip("_")
        if row.state != "base":
            name = COMPARISONS.get(row.metric, name)
        line[name] = row.value
        # the AUC on validation chooses, and has no interval
        if row.metric != "validation_auc":
            line |= {f"{name}_low": row.low, f"{name}_high": row.high}
        if not math.isnan(row.p):
            # the gain came first, and its p-values are just "p"
            prefix = "" if name == "gain" else f"{name}_"
            line |= {f"{prefix}p": row.p, f"{prefix}p_holm": row.p_holm}
    frame = pd.DataFrame(list(lines.values()))
    return frame.assign(caveat=caveat) if caveat else frame


class Evaluation(pd.DataFrame):
    """The table of `evaluate`, which prints one row per detector; selections of it are plain data frames."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def wide(self) -> pd.DataFrame:
        """One row per detector: AUC of base and FSD, gain, and TPR of the FSD at 5 % FPR, each with its interval."""
        rows = by_key(pd.DataFrame(self))
        columns = {
            "base AUC": ("base", "auc"),
            "FSD AUC": ("fsd", "auc"),
            "gain": ("", "auc_gain"),
            "TPR at 5 % FPR": ("fsd", "tpr_at_5fpr"),
        }

        def cell(detector: str, state: str, metric: str) -> str:
            row = rows.get((detector, state, metric))
            if row is None:
                return "–"
            return row.estimate.signed if metric == "auc_gain" else str(row.estimate)

        names = self["detector"].unique()
        cells = {title: [cell(name, *key) for name in names] for title, key in columns.items()}
        return pd.DataFrame(cells, index=pd.Index(names, name="detector"))

    def __repr__(self) -> str:
        return self.wide().to_string()

    def _repr_html_(self) -> str:
        return str(self.wide().to_html())


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

    @cached_property
    def rows(self) -> dict[tuple[str, str, str], Row]:
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
    def auc(self) -> Estimate:
        """AUC of the headline score on the test texts."""
        return self.rows[*self.headline, "auc"].estimate

    @property
    def verdict_score(self) -> Score:
        """The score by which verdicts are given; that of the headline, if the run gives none."""
        return self.calibration.score if self.calibration else self.headline

    @property
    def validation_auc(self) -> float:
        """AUC of the score of the verdicts on the validation texts; NaN without them."""
        estimate = self.number(self.verdict_score, "validation_auc")
        return estimate.value if estimate else math.nan

    @property
    def kind(self) -> NDArray[np.str_]:
        """(N,) kind of each scored text, see `fsd.data.splitting.kinds`."""
        return kinds_in(self.scores)

    @property
    def contrasts(self) -> bool:
        """Whether there are contemporaries and later texts, so that all three contrasts were measured."""
        return splitting.has_both(self.kind)

    @property
    def compared(self) -> pd.DataFrame:
        """The scored texts that membership is judged on: without later texts, if there are contemporaries."""
        return self.scores[splitting.compared(self.kind)]

    @property
    def judged(self) -> pd.DataFrame:
        """The test texts among those `compared`."""
        return self.compared[self.compared["split"] == "test"]

    def metrics(self) -> dict[str, float]:
        """The numbers under the names that all runs share, with the few by which runs are compared first."""
        numbers = {
            "auc": self.auc,
            "blind": self.audit.blind.auc,
            "gain": self.gain and self.gain.estimate,
            "lead": self.number(self.headline, "placebo_lead"),
            "tpr5": self.number(self.headline, "tpr_at_5fpr"),
        }
        headline = {f"headline/{name}": round(number.value, 4) for name, number in numbers.items() if number}
        return headline | self.audit.metrics() | charted(self.table)


def compute_results(
    parts: Split,
    scored: ScoreTable,
    control: tuple[str, ScoreTable] | None,
    detectors: Sequence[Detector],
    *,
    seed: int,
    remarks: Sequence[str] = (),
    cross_validated: Mapping[Score, float] | None = None,
    repeats: int | None = None,
) -> Results:
    """Metrics with intervals on the test texts, thresholds from validation, and every control beside them.

    Later texts are in the contrasts alone where there are contemporaries. `scored`, and the control model's scores
    beside its name, are of the validation, then the test texts; `cross_validated` are validation AUCs in place of those
    chosen by.
    """
    control_name, of_control = control or (None, ScoreTable())
    control_fsd = of_state(of_control.columns, scored.states.difference)
    texts = ScoredTexts(parts, score_table(parts, scored), scored, seed)
    choice = choose(texts)
    test_rows = texts.measured(texts.tested, texts.member, control_fsd, thresholds(texts))
    gain, control_rows = compare_headline(texts, choice, of_control)
    rows = test_rows + contrast_rows(texts, control_fsd, test_rows) + control_rows
    calibration = None
    # without validation texts nothing is calibrated: the texts that measure must not give p-values as well
    if parts.validation:
        rows += validation_rows(texts, cross_validated or {})
        calibration = calibration_of(texts, detectors)
    headline_of_control = of_control.columns.get(choice.headline)
    return Results(
        parts=parts,
        scores=texts.table,
        table=_table(rows, list(dict.fromkeys(row.detector for row in rows))),
        audit=audit(parts, seed=seed, repeats=repeats),
        remarks=[*remarks, *fallback_remarks(scored, len(texts.table))],
        control_name=control_name,
        headline=choice.headline,
        best_fsd=choice.best_fsd,
        best_base=choice.best_base,
        gain=gain,
        calibration=calibration,
        states=scored.states,
        ranked=choice.ranked,
        control=None if headline_of_control is None else headline_of_control[texts.tested],
    )


@dataclass(frozen=True)
class ScoredTexts:
    """The (N,) scored texts of a run, those of validation first, and which of them serve for what."""

    parts: Split
    table: pd.DataFrame  # see `score_table`
    scored: ScoreTable
    seed: int

    @cached_property
    def family(self) -> NDArray[np.int64]:
        """(N,) family of each text."""
        return self.table["group"].to_numpy(np.int64)

    @cached_property
    def member(self) -> BoolArray:
        """(N,) whether each text is a member."""
        return self.table["label"].to_numpy(bool)

    @cached_property
    def is_test(self) -> BoolArray:
        """(N,) whether each text is a test text."""
        return np.asarray(self.table["split"] == "test")

    @cached_property
    def kind(self) -> NDArray[np.str_]:
        """(N,) kind of each text, see `fsd.data.splitting.kinds`."""
        return kinds_in(self.table)

    @cached_property
    def compared(self) -> BoolArray:
        """(N,) whether membership is judged on a text: not on later ones, if there are contemporaries."""
        return splitting.compared(self.kind)

    @cached_property
    def tested(self) -> BoolArray:
        """(N,) test texts on which membership is judged."""
        return self.compared & self.is_test

    @cached_property
    def chosen_on(self) -> BoolArray:
        """(N,) texts on which detectors and thresholds are chosen: of validation; without it, all of them."""
        return self.compared & ~self.is_test if self.parts.validation else self.compared

    def validation(self, column: FloatArray) -> FloatArray:
        """The scores of the texts `chosen_on`."""
        return column[self.chosen_on]

    @property
    def validation_member(self) -> BoolArray:
        """Whether each text `chosen_on` is a member."""
        return self.member[self.chosen_on]

    @property
    def validation_family(self) -> list[int]:
        """Family of each text `chosen_on`."""
        return list(self.family[self.chosen_on].tolist())

    @property
    def compared_scores(self) -> ScoreColumns:
        """The scores among which one is chosen."""
        return {score: column for score, column in self.scored.columns.items() if score.state in self.scored.states}

    def measured(
        self, among: BoolArray, positive: BoolArray, control: Scores, thresholds: Mapping[Score, float] | None = None
    ) -> list[Row]:
        """Every metric of some texts, with the lead over the control model."""
        columns = [str(score) for score in self.compared_scores]
        table = evaluate(
            self.table.loc[among, columns],
            positive[among],
            self.family[among].tolist(),
            states=self.scored.states,
            thresholds=thresholds,
            control={name: column[among] for name, column in control.items()},
            seed=self.seed,
        )
        return list(by_key(table).values())


def thresholds(texts: ScoredTexts) -> dict[Score, float]:
    """Score → the threshold with the highest accuracy on validation."""
    best = {}
    for score, column in texts.compared_scores.items():
        best[score] = float(best_thresholds(texts.validation_member, texts.validation(column))[0])
    return best


def contrast_rows(texts: ScoredTexts, control: Scores, test_rows: Sequence[Row]) -> list[Row]:
    """The metrics of each contrast that the test texts allow."""
    rows = []
    for contrast in CONTRASTS:
        if not contrast.possible(texts.kind[texts.is_test]):
            continue
        among = contrast.among(texts.kind) & texts.is_test
        # what was measured on the test texts is not measured again
        same = np.array_equal(among, texts.tested)
        contrasted = test_rows if same else texts.measured(among, texts.kind == contrast.positive, control)
        rows += [row._replace(metric=f"{row.metric}_{contrast.name}") for row in contrasted if row.metric in MEASURES]
    return rows


class Choice(NamedTuple):
    """What is best on validation: of all scores, with fine-tuning, and without (None if nothing has a base score)."""

    headline: Score
    best_fsd: Score
    best_base: Score | None
    ranked: Sequence[str]


def choose(texts: ScoredTexts) -> Choice:
    """The scores with the highest AUC on the validation texts, each family of non-members counted once."""
    columns = {score: texts.validation(column) for score, column in texts.compared_scores.items()}
    aucs = family_aucs(texts.validation_member, columns, texts.validation_family)

    def best(scores: Iterable[Score]) -> Score | None:
        return max(scores, key=lambda score: aucs[score], default=None)

    best_fsd = best(score for score in aucs if score.state == texts.scored.states.difference)
    best_base = best(score for score in aucs if score.state == texts.scored.states.single)
    assert best_fsd is not None  # whatever is scored has a deviation
    # a score with fine-tuning goes first where both are equally good
    headline = best([best_fsd, best_base]) if best_base else best_fsd
    highest: dict[str, float] = {}
    for score, value in aucs.items():
        highest[score.detector] = max(value, highest.get(score.detector, 0.0))
    ranked = sorted(highest, key=lambda detector: -highest[detector])
    return Choice(headline or best_fsd, best_fsd, best_base, ranked)


def compare_headline(texts: ScoredTexts, choice: Choice, control: ScoreTable) -> tuple[Row | None, list[Row]]:
    """The gain of the best score with fine-tuning over the best without, and rows of the control of a base score.

    Controls of scores with fine-tuning are measured with all others.
    """
    base = choice.best_base
    if base is None:
        return None, []
    bootstrap = Bootstrap.draw(
        texts.member[texts.tested],
        texts.family[texts.tested].tolist(),
        seed=texts.seed,
    )

    def gain(name: str, reference: FloatArray, candidate: FloatArray) -> Row:
        return compare(bootstrap, {name: reference[texts.tested]}, {name: candidate[texts.tested]})[name]

    # both sides are chosen on the same texts, so that neither is favoured
    columns = texts.scored.columns
    of_fsd = gain(choice.best_fsd.detector, columns[base], columns[choice.best_fsd])
    if choice.headline != base or base not in control.columns:
        return of_fsd, []
    of_control = control.columns[base]
    control_auc = estimates(bootstrap, of_control[texts.tested])["auc"]
    lead = gain(base.detector, of_control, columns[base])
    return of_fsd, [
        Row(*base, "placebo_auc", *control_auc),
        lead._replace(state=base.state, metric="placebo_lead"),
    ]


def validation_rows(texts: ScoredTexts, cross_validated: Mapping[Score, float]) -> list[Row]:
    """The AUC of each score on the validation texts."""
    rows = []
    for score, column in texts.compared_scores.items():
        value = cross_validated.get(score)
        if value is None:
            value = auc(texts.validation_member, texts.validation(column))
        rows.append(Row(*score, "validation_auc", value))
    return rows


def calibration_of(texts: ScoredTexts, detectors: Sequence[Detector]) -> Calibration | None:
    """The calibration of the best score on the validation texts; None if all need texts with known labels."""
    # new texts come without labelled ones
    unlabelled = {detector.name: detector for detector in detectors if not detector.needs_labels}
    scores: ScoreColumns = {}
    settings = {}
    # of equally good scores the first is chosen: one that both models give, as in the headline
    by_state = sorted(texts.compared_scores, key=lambda score: score.state == texts.scored.states.single)
    for score in by_state:
        if score.detector in unlabelled:
            scores[score] = texts.validation(texts.scored.columns[score])
            settings[score] = unlabelled[score.detector].settings_in(score.state)
    if not scores:
        return None
    return calibrate(
        texts.validation_member.tolist(),
        scores,
        texts.validation_family,
        reference=reference_of(texts.parts),
        sources=list(compress(texts.parts.judged.sources, texts.chosen_on)),
        settings=settings,
    )


def fallback_remarks(scored: ScoreTable, texts: int) -> list[str]:
    """What took the place of scores that could not be computed, each said once, of the state with most such texts."""
    counts: dict[tuple[str, str], int] = {}
    for (score, fallback), count in sorted(scored.fallbacks.items()):
        key = (score.detector, fallback)
        counts[key] = max(count, counts.get(key, 0))
    remarks = []
    for (name, fallback), count in counts.items():
        in_texts = fallback.replace(";", f" in {count:,} of {texts:,} texts;")
        remarks.append(f"{name}: {in_texts}")
    return remarks


def reference_of(parts: Split, *, unseen: bool = False) -> Reference:
    """The non-members that membership is judged against; with `unseen` also the unseen texts, unless later ones."""
    judged = parts.without_later().judged
    nonmembers = judged.take(~judged.members)
    # where there are contemporaries and later texts, the unseen ones are later
    if unseen and not splitting.has_both(parts.judged.kind):
        nonmembers = Corpus(nonmembers + parts.unseen)
    return Reference(
        texts=tuple(nonmembers.texts),
        families=tuple(nonmembers.family.tolist()),
        sources=tuple(nonmembers.sources),
        power={},
    )


def score_table(parts: Split, scored: ScoreTable) -> pd.DataFrame:
    """One row per scored text, those of validation first, as in `scored`; period and source if they are known."""
    corpus = parts.judged
    columns = {
        "id": [content_hash(text)[:16] for text in corpus.texts],
        "text": corpus.texts,
        "label": corpus.members.astype(int),
        "group": list(map(str, corpus.family)),
        "split": ["validation"] * len(parts.validation) + ["test"] * len(parts.test),
    }
    periods = [document.period for document in corpus]
    if any(periods):
        columns["period"] = periods
    if any(corpus.sources):
        columns["source"] = corpus.sources
    return pd.concat([pd.DataFrame(columns), scored.frame()], axis=1)
