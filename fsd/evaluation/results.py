"""Results of a run as one long data frame, and what is made from it.

`evaluate` measures scores; its table has one row per number, with the columns of `fsd.evaluation.metrics.Row`. MLflow
metrics, summary.csv, the report and the terminal are all made from that table.
"""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from fsd.data import periods
from fsd.data.documents import content_hash
from fsd.data.near_duplicates import families
from fsd.data.splitting import Split, without_later
from fsd.evaluation.advice import advise
from fsd.evaluation.audit import Audit, audit
from fsd.evaluation.audit_summary import AuditSummary
from fsd.evaluation.calibration import Calibration, calibrate, family_aucs
from fsd.evaluation.conclusions import conclusions
from fsd.evaluation.contrasts import CONTRASTS, kinds_in, measure_all
from fsd.evaluation.domain_check import Reference
from fsd.evaluation.intervals import Bootstrap
from fsd.evaluation.metrics import METRICS, Row, auc, best_threshold, by_key, caveats, compare, estimates
from fsd.scoring.deviation import Deviation
from fsd.token_stats import Scores
from fsd.views import Detector

STATES = ("base", "tuned", "fsd")
WITH_ENDS = ("auc", *(f"auc_{contrast.name}" for contrast in CONTRASTS))
"""Metrics whose intervals are tracked as well."""
LARGE_FAMILY = 0.2
"""Share of a kind's test texts above which one family is remarked on."""
UNCERTAINTY = re.compile(r".*_(low|high|p_holm)|(?!auc_gain_p$).*_p")
"""Groups of metrics about uncertainty, but for the p-values of the gains; see `points`."""


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
    """Every metric of every detector with its 95 % interval, FSD against base, and the lead over the placebo.

    Intervals and tests are by whole groups; p-values of the gains, and of the leads, are corrected for the number of
    detectors (Holm).

    Args:
        scores: N rows; columns `<detector>.base`, `<detector>.tuned` and `<detector>.fsd` as in scores.parquet. Other
            columns are ignored.
        labels: (N,), true for members.
        groups: (N,) texts of one group are related; None if all are independent.
        states: those to measure.
        thresholds: column → decision threshold from other texts, for the accuracy.
        placebo: detector → (N,) FSD of a control model trained on none of these texts.
        resamples: number of bootstrap resamples.
        seed: of the bootstrap.

    Returns:
        One row per number, with the columns detector, state, metric, value, low, high, p and p_holm. The state is empty
        for auc_gain, which compares FSD with base.

    Raises:
        UsageError: unless two groups have members and two have non-members.
    """
    bootstrap = Bootstrap.draw(labels, groups, resamples=resamples, seed=seed)
    columns: dict[str, Scores] = {state: {} for state in STATES}
    rows = []
    for name in map(str, scores.columns):
        detector, _, state = name.rpartition(".")
        if detector and state in states:
            column = columns[state][detector] = scores[name].to_numpy(np.float64)
            measured = estimates(bootstrap, column, (thresholds or {}).get(name))
            rows += [Row(detector, state, metric, *estimate) for metric, estimate in measured.items()]
    base, fsd = columns["base"], columns["fsd"]
    for detector, (gain, p, p_holm) in compare(bootstrap, base, fsd).items():
        rows.append(Row(detector, "", "auc_gain", *gain, p, p_holm))
    control = {detector: column for detector, column in (placebo or {}).items() if detector in fsd}
    for detector, (lead, p, p_holm) in compare(bootstrap, control, fsd).items():
        rows.append(Row(detector, "fsd", "placebo_auc", *estimates(bootstrap, control[detector])["auc"]))
        rows.append(Row(detector, "fsd", "placebo_lead", *lead, p, p_holm))
    return _table(rows)


def _table(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows as a data frame, detector by detector."""
    place = {detector: at for at, detector in enumerate(dict.fromkeys(row.detector for row in rows))}
    ordered: list[Row] = sorted(rows, key=lambda row: place[row.detector])
    return pd.DataFrame(ordered, columns=list(Row._fields))


def tracked(table: pd.DataFrame) -> dict[str, float]:
    """The table under the names that MLflow lines up: `auc/loss.fsd`, `auc_low/loss.fsd`, `auc_gain_p/loss`."""
    metrics: dict[str, float] = {}
    for row in by_key(table).values():
        name = f"{row.detector}.{row.state}" if row.state else row.detector
        ends = {"_low": row.low, "_high": row.high} if row.metric in WITH_ENDS else {}
        values = {"": row.value, **ends, "_p": row.p, "_p_holm": row.p_holm}
        metrics |= {f"{row.metric}{end}/{name}": value for end, value in values.items() if not math.isnan(value)}
    return metrics


def points(table: pd.DataFrame) -> dict[str, float]:
    """The metrics of `tracked` without intervals and corrected p-values, as a chart for each would hide the others."""
    return {name: value for name, value in tracked(table).items() if not UNCERTAINTY.fullmatch(name.partition("/")[0])}


def summary(table: pd.DataFrame, caveat: str = "") -> pd.DataFrame:
    """One row per detector for summary.csv: every number with the ends of its interval, and the caveat, if any."""
    columns = [f"{state}_{name}{end}" for state in ("base", "fsd") for name in METRICS for end in ("", "_low", "_high")]
    lines: dict[str, dict[str, Any]] = {}
    for row in by_key(table).values():
        line = lines.setdefault(row.detector, {"detector": row.detector, **dict.fromkeys(columns)})
        if row.metric == "auc_gain":
            name, p_values = "gain", {"p": row.p, "p_holm": row.p_holm}
        elif row.metric in ("placebo_auc", "placebo_lead"):
            name = row.metric.replace("placebo_auc", "placebo_fsd_auc")
            tested = {"placebo_lead_p": row.p, "placebo_lead_p_holm": row.p_holm}
            p_values = tested if row.metric == "placebo_lead" else {}
        elif row.metric in METRICS:
            name, p_values = f"{row.state}_{row.metric}", {}
        elif row.metric.endswith(tuple(contrast.name for contrast in CONTRASTS)):
            name = f"{row.state}_{row.metric}".strip("_")
            p_values = {} if math.isnan(row.p) else {f"{name}_p": row.p, f"{name}_p_holm": row.p_holm}
        else:
            continue
        line |= {name: row.value, f"{name}_low": row.low, f"{name}_high": row.high, **p_values}
    frame = pd.DataFrame(list(lines.values()))
    return frame.assign(caveat=caveat) if caveat else frame


@dataclass(frozen=True)
class Results:
    """Everything that a run measured.

    Attributes:
        parts: the split.
        scores: one row per validation and test text, as in scores.parquet (see `score_table`).
        table: one row per number (see `evaluate`), on the test texts that membership is judged on, and those of the
            contrasts that the periods of the texts allow (see `fsd.evaluation.contrasts`).
        audit: leaks, blind baseline, distribution shift between members and non-members.
        conclusions: what the numbers support, in plain words.
        remarks: detectors that were left out and why, and other remarks.
        placebo: name of the control model; None without a placebo.
        best: the detector with the highest FSD AUC on validation, otherwise on test.
        calibration: of the best detector; None without validation texts.
        never_saw: whether the model is known to have been trained on none of these texts.
    """

    parts: Split
    scores: pd.DataFrame
    table: pd.DataFrame
    audit: Audit
    conclusions: list[str]
    remarks: Sequence[str]
    placebo: str | None
    best: str
    calibration: Calibration | None
    never_saw: bool = False

    @property
    def validation_auc(self) -> float:
        """FSD AUC of the best detector on the validation texts; NaN without them."""
        row = by_key(self.table).get((self.best, "fsd", "validation_auc"))
        return row.value if row else math.nan

    @property
    def audit_summary(self) -> AuditSummary:
        """What the audit says about the best detector."""
        auc = by_key(self.table)[self.best, "fsd", "auc"].estimate
        contemporaries = bool((self.kind == periods.CONTEMPORARY).any())
        return AuditSummary(self.best, auc, self.audit.blind.auc, self.audit.blind.reason, contemporaries)

    @property
    def kind(self) -> NDArray[np.str_]:
        """(N,) kind of each scored text, see `fsd.data.periods.kinds`."""
        return kinds_in(self.scores)

    @property
    def contrasts(self) -> bool:
        """Whether there are contemporaries and later texts, so that all three contrasts were measured."""
        return periods.has_both(self.kind)

    @property
    def judged(self) -> pd.DataFrame:
        """The scored test texts that membership is judged on: without later texts, if there are contemporaries."""
        return self.scores[(self.scores["split"] == "test").to_numpy() & periods.compared(self.kind)]

    @property
    def barred(self) -> str:
        """Why a registered version of this run must not become champion; empty if it may.

        Its result must neither be explained by a blind classifier nor be one that the control model may have as well.
        Without a control model nothing is known of the latter.
        """
        if self.audit_summary.explains:
            return self.audit_summary.sentence
        lead = by_key(self.table).get((self.best, "fsd", "placebo_lead"))
        if lead and not lead.low > 0:
            return f"the lead of {self.best} over the control model, {lead.estimate}, may be zero"
        return ""

    def metrics(self) -> dict[str, float]:
        """The numbers under the names that all runs share; intervals and corrected p-values are in the tables."""
        return self.audit.metrics() | points(self.table)

    @property
    def compared(self) -> pd.DataFrame:
        """The scored texts, validation and test, that membership is judged on (see `judged`)."""
        return self.scores[periods.compared(self.kind)]

    def caveats(self) -> list[str]:
        """What too few families in the test (`fsd.evaluation.metrics.caveats`), or one large one, do not support."""
        lines = caveats(self.judged.loc[self.judged["label"] == 0, "group"].nunique())
        tested = (self.scores["split"] == "test").to_numpy()
        for kind, family in self.scores["group"][tested].groupby(self.kind[tested]):
            largest = int(family.value_counts().iloc[0])
            if largest > max(1, LARGE_FAMILY * len(family)):
                lines.append(
                    f"{largest} of the {len(family)} {kind} test texts are one family of related texts, of "
                    f"{family.nunique()} families in all: numbers on these texts rest largely on it"
                )
        return lines

    def notes(self) -> list[str]:
        """The conclusions, and whatever was left out or replaced along the way, one line each."""
        lines = list(self.conclusions)
        if not self.parts.validation:
            lines.append("no validation texts: the accuracy is at the best threshold on the test texts themselves")
        advice = advise([str(name) for name in self.scores.columns])
        return [*lines, *([str(advice)] if advice else []), *self.caveats(), *self.remarks]


def judge(
    parts: Split,
    deviation: Deviation,
    placebo: tuple[str, Deviation] | None,
    detectors: Sequence[Detector],
    *,
    seed: int,
    remarks: Sequence[str] = (),
    never_saw: bool = False,
    cross_validated: Mapping[str, float] | None = None,
) -> Results:
    """Metrics with intervals on the test texts, thresholds from validation, and every control beside them.

    Where there are contemporaries and later texts (see `fsd.data.periods`), membership is judged on members and
    contemporaries: all metrics, thresholds, the choice of the detector, its calibration and the audit. Later texts are
    in the three contrasts alone, because they differ from members in more than membership.

    Args:
        parts: the split.
        deviation: scores of its validation texts and then its test texts.
        placebo: name of the control model and its scores of the same texts.
        detectors: those that were scored; the settings of the best are kept with the calibration.
        seed: of the bootstrap and the folds of the audit.
        remarks: detectors that were left out and why, and other remarks.
        never_saw: whether the model is known to have been trained on none of these texts.
        cross_validated: detector → validation AUC to report in place of the one that its settings were chosen by.
    """
    family = families([*parts.validation, *parts.test])
    scores = score_table(parts, deviation, family)
    member, held = scores["label"].to_numpy(bool), len(parts.validation)
    kind, is_test = kinds_in(scores), scores["split"].to_numpy() == "test"
    compared = periods.compared(kind)
    tested, chosen_on = compared & is_test, compared & ~is_test if held else compared
    family_of = np.asarray(family)
    control = placebo[1].fsd if placebo else {}
    measured = [column for column in map(str, scores) if column.endswith((".base", ".fsd"))]
    table = evaluate(
        scores[tested],
        member[tested],
        family_of[tested].tolist(),
        states=("base", "fsd"),
        thresholds={name: best_threshold(member[chosen_on], scores[name][chosen_on]) for name in measured},
        placebo={name: column[tested] for name, column in control.items()},
        seed=seed,
    )
    contrasted = measure_all(
        scores[is_test],
        kind[is_test],
        family_of[is_test].tolist(),
        list(by_key(table).values()),
        placebo={name: column[is_test] for name, column in control.items()},
        seed=seed,
    )
    chosen_by = {name: auc(member[chosen_on], column[chosen_on]) for name, column in deviation.fsd.items()}
    by_family = family_aucs(
        member[chosen_on],
        {name: column[chosen_on] for name, column in deviation.fsd.items()},
        family_of[chosen_on].tolist(),
    )
    best = max(by_family, key=lambda name: by_family[name])
    if held:
        reported = chosen_by | dict(cross_validated or {})
        contrasted += [Row(name, "fsd", "validation_auc", value) for name, value in reported.items()]
    table = _table([*by_key(table).values(), *contrasted])
    audited = audit(parts, seed=seed)
    calibration = None
    if held:
        calibration = calibrate(
            member[chosen_on].tolist(),
            {name: column[chosen_on] for name, column in deviation.fsd.items()},
            family_of[chosen_on].tolist(),
            reference=reference_of(parts),
            collections=[d.collection for d in compress((*parts.validation, *parts.test), chosen_on)],
            settings={detector.name: detector.settings for detector in detectors},
        )
    return Results(
        parts=parts,
        scores=scores,
        table=table,
        audit=audited,
        conclusions=conclusions(audited, table, best, on_validation=bool(held), never_saw=never_saw),
        remarks=[
            *remarks,
            *(
                f"{name} fell back to {fallback} on {count} of {len(scores)} texts ({state} model)"
                for (name, state, fallback), count in sorted(deviation.fallbacks.items())
            ),
        ],
        placebo=placebo[0] if placebo else None,
        best=best,
        calibration=calibration,
        never_saw=never_saw,
    )


def reference_of(parts: Split, *, unseen: bool = False) -> Reference:
    """The non-members that membership is judged against, for the domain check.

    Args:
        parts: the split.
        unseen: whether its unseen texts are of the benchmark; they count unless they are later texts.
    """
    judged = without_later(parts)
    later = periods.has_both(periods.kinds_of([*parts.validation, *parts.test]))
    documents = [d for d in (*judged.validation, *judged.test) if not d.member]
    documents += parts.unseen if unseen and not later else ()
    return Reference(
        texts=tuple(document.text for document in documents),
        families=tuple(families(documents)),
        collections=tuple(document.collection for document in documents),
        power={},
    )


def score_table(parts: Split, deviation: Deviation, family: Sequence[int]) -> pd.DataFrame:
    """One row per scored text: id, text, label, group, split, and every detector's base, tuned and FSD score.

    Columns `period` and `source` follow the split if those of the texts are known.

    Args:
        parts: the split; its validation texts come first, then its test texts.
        deviation: their scores, in the same order.
        family: (N,) number of the family of each text.
    """
    documents = [*parts.validation, *parts.test]
    columns = {
        "id": [content_hash(document.text)[:16] for document in documents],
        "text": [document.text for document in documents],
        "label": [int(bool(document.member)) for document in documents],
        "group": [str(number) for number in family],
        "split": ["validation"] * len(parts.validation) + ["test"] * len(parts.test),
    }
    if any(document.period for document in documents):
        columns["period"] = [document.period for document in documents]
    if any(document.collection for document in documents):
        columns["source"] = [document.collection for document in documents]
    return pd.concat([pd.DataFrame(columns), deviation.frame()], axis=1)
