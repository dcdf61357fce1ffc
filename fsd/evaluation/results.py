"""Results of a run as one long data frame, from which everything is made, and the choices behind it.

Three contrasts tell membership from familiarity with a period: contemporaries differ from later texts in the period
alone, and from members in membership alone (docs/contrasts.md).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
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
from fsd.evaluation.metrics import (
    METRICS,
    BoolArray,
    Bootstrap,
    Estimate,
    Row,
    auc,
    best_thresholds,
    by_key,
    by_state,
    compare,
    estimates,
)
from fsd.scoring.deviation import Deviation
from fsd.token_stats import FloatArray, Scores
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
    columns = by_state(scores, states)
    rows = [
        Row(detector, state, metric, *estimate)
        for state, of_state in columns.items()
        for detector, column in of_state.items()
        for metric, estimate in estimates(bootstrap, column, (thresholds or {}).get(f"{detector}.{state}")).items()
    ]
    fsd = columns.get("fsd", {})
    rows += compare(bootstrap, columns.get("base", {}), fsd).values()
    for detector, lead in compare(bootstrap, placebo or {}, fsd).items():
        rows.append(Row(detector, "fsd", "placebo_auc", *estimates(bootstrap, (placebo or {})[detector])["auc"]))
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
            values |= {"_low": row.low, "_high": row.high} if row.metric in WITH_ENDS else {}
            values |= {"_p": row.p, "_p_holm": row.p_holm}
        name = f"{row.detector}.{row.state}".rstrip(".")
        metrics |= {f"{row.metric}{end}/{name}": value for end, value in values.items() if not math.isnan(value)}
    return metrics


def charted(table: pd.DataFrame) -> dict[str, float]:
    """The numbers of `CHARTED`: a chart for each of the others would hide these."""
    return tracked(table[table["metric"].isin(CHARTED)], uncertainty=False)


def summary(table: pd.DataFrame, caveat: str = "") -> pd.DataFrame:
    """One row per detector for summary.csv: every number with the ends of its interval, and the caveat, if any."""
    columns = [f"{state}_{name}{end}" for state in ("base", "fsd") for name in METRICS for end in ("", "_low", "_high")]
    lines: dict[str, dict[str, Any]] = {}
    for row in by_key(table).values():
        line = lines.setdefault(row.detector, {"detector": row.detector, **dict.fromkeys(columns)})
        own = f"{row.state}_{row.metric}".strip("_")
        name = own if row.state == "base" else COMPARISONS.get(row.metric, own)
        line |= {name: row.value}
        if row.metric != "validation_auc":
            line |= {f"{name}_low": row.low, f"{name}_high": row.high}
        if not math.isnan(row.p):
            start = "" if name == "gain" else f"{name}_"
            line |= {f"{start}p": row.p, f"{start}p_holm": row.p_holm}
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

        names = list(dict.fromkeys(self["detector"]))
        shown = {title: [cell(name, *key) for name in names] for title, key in columns.items()}
        return pd.DataFrame(shown, index=pd.Index(names, name="detector"))

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
        return row.estimate if row else None

    def of_top(self, metric: str) -> Estimate | None:
        """A number of the best score of all; None if it was not measured."""
        row = self.rows.get((*self.top, metric))
        return row.estimate if row else None

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
        found = self.estimate("validation_auc")
        return found.value if found else math.nan

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
        first = {
            "auc": self.top_auc,
            "blind": self.audit.blind.auc,
            "gain": self.gain and self.gain.estimate,
            "lead": self.of_top("placebo_lead"),
            "tpr5": self.of_top("tpr_at_5fpr"),
        }
        headline = {f"headline/{name}": round(number.value, 4) for name, number in first.items() if number is not None}
        return headline | self.audit.metrics() | charted(self.table)


def judge(
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
    documents = [*parts.validation, *parts.test]
    scores = score_table(parts, deviation)
    family = scores["group"].to_numpy(np.int64)
    member, is_test = scores["label"].to_numpy(bool), scores["split"].to_numpy() == "test"
    kind, control = kinds_in(scores), placebo[1].fsd if placebo else {}
    compared = splitting.compared(kind)
    tested, chosen_on = compared & is_test, compared & ~is_test if parts.validation else compared

    def measured(among: BoolArray, positive: BoolArray, thresholds: Mapping[str, float] | None = None) -> list[Row]:
        table = evaluate(
            scores[among],
            positive[among],
            family[among].tolist(),
            states=("base", "fsd"),
            thresholds=thresholds,
            placebo={name: column[among] for name, column in control.items()},
            seed=seed,
        )
        return list(by_key(table).values())

    thresholds = {
        f"{name}.{state}": float(best_thresholds(member[chosen_on], column[chosen_on])[0])
        for state, columns in by_state(scores).items()
        for name, column in columns.items()
    }
    judged = measured(tested, member, thresholds)
    rows = [*judged]
    for contrast in (one for one in CONTRASTS if one.possible(kind[is_test])):
        among = contrast.among(kind) & is_test
        found = judged if np.array_equal(among, tested) else measured(among, kind == contrast.first)
        rows += [row._replace(metric=f"{row.metric}_{contrast.name}") for row in found if row.metric in MEASURES]
    sides, groups = member[chosen_on], family[chosen_on].tolist()
    chosen_by = {name: column[chosen_on] for name, column in deviation.fsd.items()}
    before = {name: column[chosen_on] for name, column in deviation.base.items()}
    aucs, of_base = (family_aucs(sides, columns, groups) for columns in (chosen_by, before))
    best = max(aucs, key=lambda name: aucs[name])
    first = max(of_base, key=lambda name: of_base[name], default="")
    top, gain = Score(best, "fsd"), None
    beside = placebo[1].base if placebo else {}
    if first:
        top = Score(first, "base") if of_base[first] > aucs[best] else top
        bootstrap = Bootstrap.draw(member[tested], family[tested].tolist(), resamples=1000, seed=seed)
        pair = ({best: columns[name][tested]} for columns, name in ((deviation.base, first), (deviation.fsd, best)))
        gain = compare(bootstrap, *pair)[best]
        if top.state == "base" and first in beside:
            lead = compare(bootstrap, {first: beside[first][tested]}, {first: deviation.base[first][tested]})[first]
            control_auc = estimates(bootstrap, beside[first][tested])["auc"]
            rows.append(Row(first, "base", "placebo_auc", *control_auc))
            rows.append(lead._replace(state="base", metric="placebo_lead"))
    of_control = (beside if top.state == "base" else control).get(top.detector)
    calibration = None
    if parts.validation:
        reported = {name: auc(sides, column) for name, column in chosen_by.items()} | dict(cross_validated or {})
        rows += [Row(name, "fsd", "validation_auc", value) for name, value in reported.items()]
        calibration = calibrate(
            sides.tolist(),
            chosen_by,
            groups,
            reference=reference_of(parts),
            collections=[document.collection for document in compress(documents, chosen_on)],
            settings={detector.name: detector.settings for detector in detectors},
        )
    fallbacks: dict[tuple[str, str], int] = {}  # of the state with most of them, so that each is said once
    for (name, _, fallback), count in sorted(deviation.fallbacks.items()):
        fallbacks[name, fallback] = max(count, fallbacks.get((name, fallback), 0))
    replaced = [
        f"{name}: {fallback.replace(';', f' in {count:,} of {len(scores):,} texts;')}"
        for (name, fallback), count in fallbacks.items()
    ]
    return Results(
        parts=parts,
        scores=scores,
        table=_table(rows, list(dict.fromkeys(row.detector for row in rows))),
        audit=audit(parts, seed=seed, repeats=repeats),
        remarks=[*remarks, *replaced],
        placebo=placebo[0] if placebo else None,
        best=best,
        top=top,
        base=first,
        gain=gain,
        calibration=calibration,
        ranked=sorted(aucs, key=lambda name: -max(aucs[name], of_base.get(name, 0))),
        control=None if of_control is None else of_control[tested],
    )


def reference_of(parts: Split, *, unseen: bool = False) -> Reference:
    """The non-members that membership is judged against; with `unseen` also the unseen texts, unless later ones."""
    judged = without_later(parts)
    later = splitting.has_both(splitting.kinds_of([*parts.validation, *parts.test]))
    documents = [d for d in (*judged.validation, *judged.test) if not d.member]
    documents += parts.unseen if unseen and not later else ()
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
        "period": [document.period for document in documents],
        "source": [document.collection for document in documents],
    }
    table = pd.DataFrame(columns)
    unknown = [name for name in ("period", "source") if not table[name].any()]
    return pd.concat([table.drop(columns=unknown), deviation.frame()], axis=1)
