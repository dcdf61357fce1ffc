"""Results of a run as one long data frame, from which everything is made, and the choices behind it.

Three contrasts tell membership from familiarity with a period: contemporaries differ from later texts in the period
alone, and from members in membership alone (docs/contrasts.md).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fsd.data import splitting
from fsd.data.documents import content_hash
from fsd.data.knowledge_cutoffs import HOLDING, Labels
from fsd.data.near_duplicates import families
from fsd.data.splitting import CONTEMPORARY, LATER, MEMBER, Split, without_later
from fsd.evaluation.audit import Audit, audit
from fsd.evaluation.calibration import Calibration, calibrate, family_aucs
from fsd.evaluation.domain_check import Reference
from fsd.evaluation.rows import Row, by_key, by_state, compare
from fsd.scoring.deviation import Deviation
from fsd.statistics.bootstrap import Bootstrap
from fsd.statistics.intervals import Estimate
from fsd.statistics.metrics import METRICS, auc, best_thresholds, estimates
from fsd.token_stats import BoolArray, FloatArray, Scores
from fsd.views import Detector

STATES = ("base", "tuned", "fsd")


class Contrast(NamedTuple):
    """Two kinds of text that are compared; the first should score higher. Its metrics end in its name."""

    name: str
    first: str
    second: str
    title: str
    meaning: str

    def among(self, kind: NDArray[np.str_]) -> BoolArray:
        """(N,) texts that it compares."""
        return np.isin(kind, (self.first, self.second))

    def possible(self, kind: NDArray[np.str_]) -> bool:
        """Whether there are texts of both kinds."""
        return {self.first, self.second} <= set(kind.tolist())


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
    states: Sequence[str] = STATES,
    thresholds: Mapping[str, float] | None = None,
    placebo: Scores | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """Every metric of every detector with its interval, FSD against base, and the lead over the placebo's (N,) FSD.

    See `fsd.library.evaluate`; `thresholds` of columns are from other texts, for the accuracy.
    """
    bootstrap = Bootstrap.draw(labels, groups, resamples=resamples, seed=seed)
    thresholds = thresholds or {}
    placebo = placebo or {}
    columns = by_state(scores, states)
    rows = []
    for state, of_state in columns.items():
        for detector, column in of_state.items():
            measured = estimates(bootstrap, column, thresholds.get(f"{detector}.{state}"))
            rows += [Row(detector, state, metric, *estimate) for metric, estimate in measured.items()]
    fsd = columns.get("fsd", {})
    rows += compare(bootstrap, columns.get("base", {}), fsd).values()
    for detector, lead in compare(bootstrap, placebo, fsd).items():
        rows.append(Row(detector, "fsd", "placebo_auc", *estimates(bootstrap, placebo[detector])["auc"]))
        rows.append(lead._replace(state="fsd", metric="placebo_lead"))
    return _table(rows, [str(name).rpartition(".")[0] for name in scores])


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
    keys = product(("base", "fsd"), METRICS, ("", "_low", "_high"))
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


class Score(NamedTuple):
    """A detector by one state: `base` before fine-tuning, or `fsd`, which compares before and after."""

    detector: str
    state: str

    def __str__(self) -> str:
        """Its column in scores.parquet."""
        return f"{self.detector}.{self.state}"


@dataclass(frozen=True)
class Results:
    """Everything that a run measured; the best are chosen on validation, without it on test."""

    parts: Split
    scores: pd.DataFrame  # one row per text, see `score_table`
    table: pd.DataFrame  # one row per number, see `evaluate`
    audit: Audit
    remarks: Sequence[str]
    placebo: str | None  # name of the control model
    best: str  # detector with the highest FSD AUC
    top: Score  # the best score of all states
    base: str  # detector with the best base score
    gain: Row | None  # the AUC of the best fine-tuned score over it
    calibration: Calibration | None
    never_saw: bool = False  # whether the model was trained on none of the texts
    labels: Labels = HOLDING
    ranked: Sequence[str] = ()  # the detectors, the best by either state first
    control: FloatArray | None = None  # the `top` score of the texts `judged` on the control model

    @cached_property
    def rows(self) -> dict[tuple[str, str, str], Row]:
        """(detector, state, metric) → row of the table."""
        return by_key(self.table)

    def estimate(self, metric: str, state: str = "fsd") -> Estimate | None:
        """A number of the best detector with its interval; None if it was not measured."""
        row = self.rows.get((self.best, state, metric))
        return row and row.estimate

    def of_top(self, metric: str) -> Estimate | None:
        """A number of the best score of all; None if it was not measured."""
        row = self.rows.get((*self.top, metric))
        return row and row.estimate

    @property
    def top_auc(self) -> Estimate:
        """AUC of the best score of all on the test texts."""
        return self.rows[*self.top, "auc"].estimate

    def named(self, score: Score) -> str:
        """A score in words: `min_k base score`, `loss FSD`, or the detector alone where it uses both models."""
        if (score.detector, "base", "auc") not in self.rows:
            return score.detector
        return f"{score.detector} {'base score' if score.state == 'base' else 'FSD'}"

    @property
    def auc(self) -> Estimate:
        """FSD AUC of the best detector on the test texts."""
        return self.rows[self.best, "fsd", "auc"].estimate

    @property
    def validation_auc(self) -> float:
        """FSD AUC of the best detector on the validation texts; NaN without them."""
        estimate = self.estimate("validation_auc")
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
            "auc": self.top_auc,
            "blind": self.audit.blind.auc,
            "gain": self.gain and self.gain.estimate,
            "lead": self.of_top("placebo_lead"),
            "tpr5": self.of_top("tpr_at_5fpr"),
        }
        headline = {f"headline/{name}": round(number.value, 4) for name, number in numbers.items() if number}
        return headline | self.audit.metrics() | charted(self.table)


def compute_results(
    parts: Split,
    deviation: Deviation,
    placebo: tuple[str, Deviation] | None,
    detectors: Sequence[Detector],
    *,
    seed: int,
    remarks: Sequence[str] = (),
    cross_validated: Mapping[str, float] | None = None,
    repeats: int | None = None,
) -> Results:
    """Metrics with intervals on the test texts, thresholds from validation, and every control beside them.

    Later texts are in the contrasts alone where there are contemporaries. `deviation`, and `placebo` beside its name,
    have scores of the validation, then the test texts; `cross_validated` are validation AUCs in place of those chosen
    by.
    """
    control_name, control = placebo or (None, Deviation())
    texts = ScoredTexts(parts, score_table(parts, deviation), seed)
    choice = choose(texts, deviation)
    test_rows = texts.measured(texts.tested, texts.member, control.fsd, thresholds(texts))
    gain, control_rows = compare_headline(texts, choice, deviation, control)
    rows = test_rows + contrast_rows(texts, control.fsd, test_rows) + control_rows
    calibration = None
    # without validation texts nothing is calibrated: the texts that measure must not give p-values as well
    if parts.validation:
        validation_auc = {
            name: auc(texts.validation_member, texts.validation(column)) for name, column in deviation.fsd.items()
        }
        validation_auc |= cross_validated or {}
        rows += [Row(name, "fsd", "validation_auc", value) for name, value in validation_auc.items()]
        calibration = calibration_of(texts, deviation, detectors)
    control_scores = control.base if choice.headline.state == "base" else control.fsd
    headline_of_control = control_scores.get(choice.headline.detector)
    return Results(
        parts=parts,
        scores=texts.table,
        table=_table(rows, list(dict.fromkeys(row.detector for row in rows))),
        audit=audit(parts, seed=seed, repeats=repeats),
        remarks=[*remarks, *fallback_remarks(deviation, len(texts.table))],
        placebo=control_name,
        best=choice.best_fsd,
        top=choice.headline,
        base=choice.best_base,
        gain=gain,
        calibration=calibration,
        ranked=choice.ranked,
        control=None if headline_of_control is None else headline_of_control[texts.tested],
    )


@dataclass(frozen=True)
class ScoredTexts:
    """The (N,) scored texts of a run, those of validation first, and which of them serve for what."""

    parts: Split
    table: pd.DataFrame  # see `score_table`
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

    def measured(
        self, among: BoolArray, positive: BoolArray, control: Scores, thresholds: Mapping[str, float] | None = None
    ) -> list[Row]:
        """Every metric of some texts, with the lead over the control model."""
        table = evaluate(
            self.table[among],
            positive[among],
            self.family[among].tolist(),
            states=("base", "fsd"),
            thresholds=thresholds,
            placebo={name: column[among] for name, column in control.items()},
            seed=self.seed,
        )
        return list(by_key(table).values())


def thresholds(texts: ScoredTexts) -> dict[str, float]:
    """Column → the threshold with the highest accuracy on validation."""
    best = {}
    for state, columns in by_state(texts.table).items():
        for name, column in columns.items():
            best[f"{name}.{state}"] = float(best_thresholds(texts.validation_member, texts.validation(column))[0])
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
        contrasted = test_rows if same else texts.measured(among, texts.kind == contrast.first, control)
        rows += [row._replace(metric=f"{row.metric}_{contrast.name}") for row in contrasted if row.metric in MEASURES]
    return rows


class Choice(NamedTuple):
    """What is best on validation: by FSD, by a base score ("" without any), and of all."""

    best_fsd: str
    best_base: str
    headline: Score
    ranked: Sequence[str]


def choose(texts: ScoredTexts, deviation: Deviation) -> Choice:
    """The detectors with the highest AUC on the validation texts, each family of non-members counted once."""
    aucs = []
    for scores in (deviation.fsd, deviation.base):
        columns = {name: texts.validation(column) for name, column in scores.items()}
        aucs.append(family_aucs(texts.validation_member, columns, texts.validation_family))
    of_fsd, of_base = aucs
    best_fsd = max(of_fsd, key=lambda name: of_fsd[name])
    best_base = max(of_base, key=lambda name: of_base[name], default="")
    headline = Score(best_fsd, "fsd")
    if best_base and of_base[best_base] > of_fsd[best_fsd]:
        headline = Score(best_base, "base")
    ranked = sorted(of_fsd, key=lambda name: -max(of_fsd[name], of_base.get(name, 0)))
    return Choice(best_fsd, best_base, headline, ranked)


def compare_headline(
    texts: ScoredTexts, choice: Choice, deviation: Deviation, control: Deviation
) -> tuple[Row | None, list[Row]]:
    """The gain of the best FSD over the best base score, and how a base score that leads does on the control model."""
    base = choice.best_base
    if not base:
        return None, []
    bootstrap = Bootstrap.draw(texts.member[texts.tested], texts.family[texts.tested].tolist(), seed=texts.seed)

    def gain(name: str, reference: FloatArray, candidate: FloatArray) -> Row:
        return compare(bootstrap, {name: reference[texts.tested]}, {name: candidate[texts.tested]})[name]

    # both sides are chosen on the same texts, so that neither is favoured
    of_fsd = gain(choice.best_fsd, deviation.base[base], deviation.fsd[choice.best_fsd])
    if choice.headline.state != "base" or base not in control.base:
        return of_fsd, []
    control_auc = estimates(bootstrap, control.base[base][texts.tested])["auc"]
    lead = gain(base, control.base[base], deviation.base[base])
    return of_fsd, [
        Row(base, "base", "placebo_auc", *control_auc),
        lead._replace(state="base", metric="placebo_lead"),
    ]


def calibration_of(texts: ScoredTexts, deviation: Deviation, detectors: Sequence[Detector]) -> Calibration:
    """The calibration of the best deviation on the validation texts."""
    documents = compress([*texts.parts.validation, *texts.parts.test], texts.chosen_on)
    scores = {name: texts.validation(column) for name, column in deviation.fsd.items()}
    return calibrate(
        texts.validation_member.tolist(),
        scores,
        texts.validation_family,
        reference=reference_of(texts.parts),
        collections=[document.collection for document in documents],
        settings={detector.name: detector.settings for detector in detectors},
    )


def fallback_remarks(deviation: Deviation, texts: int) -> list[str]:
    """What took the place of scores that could not be computed, each said once, of the state with most such texts."""
    counts: dict[tuple[str, str], int] = {}
    for (name, _, fallback), count in sorted(deviation.fallbacks.items()):
        counts[name, fallback] = max(count, counts.get((name, fallback), 0))
    remarks = []
    for (name, fallback), count in counts.items():
        in_texts = fallback.replace(";", f" in {count:,} of {texts:,} texts;")
        remarks.append(f"{name}: {in_texts}")
    return remarks


def reference_of(parts: Split, *, unseen: bool = False) -> Reference:
    """The non-members that membership is judged against; with `unseen` also the unseen texts, unless later ones."""
    judged = without_later(parts)
    documents = [document for document in (*judged.validation, *judged.test) if not document.member]
    # where there are contemporaries and later texts, the unseen ones are later
    if unseen and not splitting.has_both(splitting.kinds_of([*parts.validation, *parts.test])):
        documents += parts.unseen
    return Reference(
        texts=tuple(document.text for document in documents),
        families=tuple(families(documents)),
        collections=tuple(document.collection for document in documents),
        power={},
    )


def score_table(parts: Split, deviation: Deviation) -> pd.DataFrame:
    """One row per scored text, those of validation first, as in `deviation`; period and source if they are known."""
    documents = [*parts.validation, *parts.test]
    columns = {
        "id": [content_hash(document.text)[:16] for document in documents],
        "text": [document.text for document in documents],
        "label": [int(bool(document.member)) for document in documents],
        "group": list(map(str, families(documents))),
        "split": ["validation"] * len(parts.validation) + ["test"] * len(parts.test),
    }
    periods = [document.period for document in documents]
    if any(periods):
        columns["period"] = periods
    sources = [document.collection for document in documents]
    if any(sources):
        columns["source"] = sources
    return pd.concat([pd.DataFrame(columns), deviation.frame()], axis=1)
