"""Was this text in the fine-tuning data of a model whose base is public?

`python -m pipelines.adapter_audit --model BASE --adapter URI --data FILE` scores texts with the adapter on and off. The
base is the perfect reference: it differs from the fine-tuned model in the fine-tuning alone. FILE has texts labelled 1
(in the fine-tuning data) and 0 (not), and may have texts without a label, which are judged. `--demo` shows it offline.

Examples:
    fsd adapter-audit --model ./my-model --adapter ./adapter --data corpus.jsonl
    fsd adapter-audit --demo
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import DetectorConfig, ModelConfig, OptionalModel, OptionalPath, OptionalPaths, OptionalURI, flags
from pipelines.common.cli import command

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.documents import Document
    from fsd.data.splitting import Split
    from fsd.evaluation.audit import Audit
    from fsd.evaluation.calibration import Calibration
    from fsd.scoring.deviation import Deviation
    from fsd.token_stats import Scorer, Scores
    from fsd.tracking import Run
    from pipelines.common.dry_run import Plan

FOUND, OUTSIDE = "in the fine-tuning data", "outside the calibrated domain"
HEADINGS = ["detector", "fine-tuned AUC\n[95 % CI]", "calibrated AUC\n[95 % CI]", "gain", "p (Holm)", "TPR@5%FPR"]


@dataclass(frozen=True)
class AuditConfig:
    """Base, fine-tuned model, and texts."""

    data: OptionalPaths = ()
    """Files (JSONL, CSV, Parquet) with text, label (1 in the fine-tuning data, 0 not, empty to be judged), group."""
    model: ModelConfig = field(default_factory=ModelConfig)
    adapter: OptionalURI = None
    """Adapter of the fine-tuned model: models:/NAME@ALIAS, runs:/<id>/adapter or a folder."""
    tuned: OptionalModel = None
    """The fine-tuned model as a whole (merged, or fully fine-tuned), in place of --adapter: a folder or a hub id."""
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    columns: str = ""
    """Column names that differ from the defaults, e.g. text=body,label=used."""
    validation: float = 0.5
    """Share of the labelled texts on which the detector is chosen and calibrated; the others measure it."""
    fpr: float = 0.05
    """False-positive rate of the verdicts on texts without a label."""
    out: OptionalPath = None
    """Output file for scores and verdicts: .parquet, .csv or .jsonl. The tracked run has a copy in any case."""
    domain: str = "adapter-audit"
    """Part of the experiment's name, fsd-<domain>."""
    seed: int = 42
    """Random seed for the split and the bootstrap."""
    demo: bool = False
    """Fine-tune the embedded model in front of you, and audit it; the other flags have no effect."""


@dataclass(frozen=True)
class AuditResults:
    """What an audit measured.

    Attributes:
        parts: validation and test texts; no unseen ones.
        judged: the texts without a label.
        scores: one row per text, the judged ones last, with `<detector>.base`, `.tuned` and `.calibrated`.
        table: one row per number, with the states "tuned" and "calibrated".
        audit: what separates the two sides without the model.
        calibration: of the detector that was best on validation.
        remarks: detectors that were left out.
    """

    parts: "Split"
    judged: "Sequence[Document]"
    scores: "pd.DataFrame"
    table: "pd.DataFrame"
    audit: "Audit"
    calibration: "Calibration"
    remarks: Sequence[str]


def main(config: AuditConfig) -> None:
    """Read the texts, load the models, score, judge, write, track and print."""
    from fsd import tracking
    from pipelines.common import outcome
    from pipelines.common.output import check_table_path, write_table
    from pipelines.common.report import run_name

    if config.demo:
        demo(config.seed)
        return
    check(config)
    if config.out:
        check_table_path(Path(config.out), config.data)
    parts, judged = read(config)
    tracking.check_store()
    scorers, name = build_scorers(config)
    tags = {"task": "adapter audit", "model": config.model.model, "adapter": name}
    called = run_name(config.model.model, config.data, "adapter audit")
    with outcome.tracked_run(config, f"fsd-{config.domain}", called, params=flags(config), tags=tags) as run:
        results = judge(parts, judged, scorers, config)
        record(run, results, config, name)
        if config.out:
            write_table(results.scores, Path(config.out))
        notes = conclusions(results, config.fpr)
        verdicts = results.scores[results.scores["split"] == "judged"]
        found = outcome.Outcome(
            notes[0],
            {"results": results.table, "verdicts": verdicts},
            notes,
            {"scores": config.out} if config.out else {},
            report=outcome.REPORT,
        )
        outcome.show(found, run, lambda: show(results, notes))


def plan(config: AuditConfig) -> "Plan":
    """What would be scored: every text by the base and by the fine-tuned model."""
    from fsd.errors import UsageError
    from pipelines.common import dry_run
    from pipelines.common.detection import cheap, load_detectors
    from pipelines.common.output import check_table_path

    if config.demo:
        raise UsageError("dry-run must be without --demo, which always does the same; got both")
    check(config)
    if config.out:
        check_table_path(Path(config.out), config.data)
    parts, judged = read(config)
    detectors = [detector for detector in cheap(load_detectors(config.detection)) if not detector.paired]
    texts = [document.text for document in (*parts.validation, *parts.test, *judged)]
    sizes = f"{len(parts.validation):,} validation, {len(parts.test):,} test, {len(judged):,} to be judged"
    return dry_run.Plan(
        {
            "texts": f"{dry_run.files(config.data, len(texts))}: {sizes}",
            "fine-tuned model": str(config.adapter or config.tuned),
        },
        config.model,
        texts=texts,
        passes=dry_run.passes(detectors, texts, config.model),
        writes=dry_run.tracked(f"fsd-{config.domain}", config.out),
    )


def check(config: AuditConfig) -> None:
    """Check the settings that need no file.

    Raises:
        UsageError: unless there are data, one fine-tuned model, and shares between 0 and 1.
    """
    from fsd.errors import UsageError

    if not config.data:
        raise UsageError("data must be given, files with labelled texts (or --demo); got none")
    if (config.adapter is None) == (config.tuned is None):
        given = "both" if config.adapter else "none"
        raise UsageError(f"the fine-tuned model must be given by either --adapter or --tuned; got {given}")
    for name in ("validation", "fpr"):
        if not 0 < getattr(config, name) < 1:
            raise UsageError(f"{name} must be above 0 and below 1; got {getattr(config, name):g}")


def read(config: AuditConfig) -> "tuple[Split, list[Document]]":
    """The labelled texts in two parts, by family, and the texts to be judged.

    Raises:
        UsageError: if a file cannot be read, a class is missing or too small, or a text to be judged is also labelled.
    """
    from fsd.data.near_duplicates import families, refuse_contradictions
    from fsd.data.readers import parse_columns, read_files
    from fsd.data.splitting import split_labelled
    from fsd.errors import UsageError

    documents = read_files(config.data, parse_columns(config.columns))
    labelled = [document for document in documents if document.member is not None]
    judged = [document for document in documents if document.member is None]
    known = {document.text for document in labelled}
    both = next((document for document in judged if document.text in known), None)
    if both:
        raise UsageError(f"a text to be judged must not be labelled elsewhere; {both.source} is")
    refuse_contradictions(labelled)
    parts = split_labelled(labelled, validation=config.validation, seed=config.seed)
    groups = len(set(families([document for document in parts.validation if not document.member])))
    if judged and config.fpr < 1 / (groups + 1):
        raise UsageError(
            f"fpr must be at least {1 / (groups + 1):.4g} = 1/({groups}+1), with {groups} families of other texts in "
            f"validation; got {config.fpr:g}"
        )
    return parts, judged


def build_scorers(config: AuditConfig) -> "tuple[dict[str, Scorer], str]":
    """Scorers of the base and the fine-tuned model, and the name of the latter.

    Raises:
        UsageError: if a model cannot be loaded, the adapter is of another base, or the tokenizers differ.
    """
    from fsd import tracking
    from fsd.errors import UsageError
    from fsd.models import language_model
    from fsd.models.adapters import attach
    from fsd.scoring import scorers
    from fsd.scoring.token_frequencies import fingerprint

    adapter = tracking.fetch_adapter(config.adapter) if config.adapter else None
    base = language_model.load(config.model)
    if adapter:
        attach(base, adapter)
        return scorers.build_scorers(base, config.model), str(config.adapter)
    tuned = language_model.load(config.model, model=config.tuned, revision=None)
    if fingerprint(base.tokenizer) != fingerprint(tuned.tokenizer):
        raise UsageError(f"tuned must have the tokenizer of its base {config.model.model}; {config.tuned} has another")
    built = scorers.build_scorers(base, config.model)
    return {**built, "tuned": scorers.build_scorers(tuned, config.model)["base"]}, str(config.tuned)


def judge(
    parts: "Split", judged: "Sequence[Document]", scorers: "dict[str, Scorer]", config: AuditConfig
) -> AuditResults:
    """Score all texts, measure on the test texts, calibrate on validation, and give p-values to the others.

    The score of a text by a detector S is S(fine-tuned) − S(base): fine-tuning raises S of what it read.
    """
    import pandas as pd

    from fsd.data.near_duplicates import families
    from fsd.errors import UsageError
    from fsd.evaluation.audit import audit
    from fsd.evaluation.calibration import calibrate
    from fsd.evaluation.metrics import auc
    from fsd.evaluation.results import evaluate
    from fsd.scoring import deviation
    from fsd.views import ViewInputs
    from pipelines.common.detection import cheap, load_detectors

    requested = load_detectors(config.detection)
    plain = [detector for detector in cheap(requested) if not detector.paired]
    documents = [*parts.validation, *parts.test, *judged]
    texts = [document.text for document in documents]
    computable, left_out = deviation.usable(plain, texts, scorers, ViewInputs())
    left_out |= {d.name: "an audit compares plain scores" for d in requested if d not in plain}
    if left_out and (config.detection.detectors != "all" or not computable):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be used in an audit: {reason}")
    scored = deviation.evaluate(texts, computable, scorers, shown=True)
    calibrated = calibrated_scores(scored)
    held, labelled = len(parts.validation), len(parts.validation) + len(parts.test)
    family = families([*parts.validation, *parts.test])
    member = [bool(document.member) for document in documents[:labelled]]
    states = {"base": scored.tuned, "fsd": calibrated}  # `evaluate` compares the second with the first
    test = slice(held, labelled)
    frame = pd.DataFrame({f"{name}.{state}": of[name][test] for state, of in states.items() for name in of})
    table = evaluate(frame, member[held:], family[held:], states=("base", "fsd"), seed=config.seed)
    table["state"] = table["state"].replace({"base": "tuned", "fsd": "calibrated"})
    on_validation = {name: auc(member[:held], column[:held]) for name, column in calibrated.items()}
    best = max(on_validation, key=lambda name: on_validation[name])
    calibration = calibrate(
        member[:held],
        {name: column[:held] for name, column in calibrated.items()},
        texts[:held],
        family[:held],
        detector=best,
        state="calibrated",
        settings={detector.name: detector.settings for detector in computable},
    )
    scores, remarks = score_table(parts, judged, scored, calibration, config.fpr)
    return AuditResults(
        parts=parts,
        judged=judged,
        scores=scores,
        table=table,
        audit=audit(parts, seed=config.seed),
        calibration=calibration,
        remarks=[*remarks, *(f"{name} left out: {reason}" for name, reason in left_out.items())],
    )


def calibrated_scores(scored: "Deviation") -> "Scores":
    """Detector → (N,) fine-tuned minus base score, which is minus the FSD."""
    return {name: -column for name, column in scored.fsd.items()}


def score_table(
    parts: "Split", judged: "Sequence[Document]", scored: "Deviation", calibration: "Calibration", fpr: float
) -> "tuple[pd.DataFrame, list[str]]":
    """One row per text: id, text, label, group, split, scores, and for the judged texts p_value and verdict.

    Texts that are not of the kind of the calibration texts get neither; the remarks say so.
    """
    import numpy as np
    import pandas as pd

    from fsd.data.documents import content_hash
    from fsd.data.near_duplicates import families
    from fsd.evaluation.domain_check import DomainCheck
    from fsd.evaluation.exchangeability import exchangeability

    sides = {"validation": parts.validation, "test": parts.test, "judged": judged}
    documents = [document for side in sides.values() for document in side]
    table = pd.DataFrame(
        {
            "id": [content_hash(document.text)[:16] for document in documents],
            "text": [document.text for document in documents],
            "label": pd.array([None if d.member is None else int(d.member) for d in documents], dtype="Int64"),
            "group": [document.group for document in documents],
            "split": [name for name, side in sides.items() for _ in side],
        }
    )
    calibrated = calibrated_scores(scored)
    for name, column in calibrated.items():
        table[f"{name}.base"], table[f"{name}.tuned"] = scored.base[name], scored.tuned[name]
        table[f"{name}.calibrated"] = column
    p = np.full(len(documents), np.nan)
    verdicts: list[str | None] = [None] * (len(documents) - len(judged))
    remarks = []
    if judged:
        last = slice(len(verdicts), None)
        texts = [document.text for document in judged]
        check = DomainCheck(calibration.texts, calibration.families)
        test = exchangeability(check, texts, families(judged))
        outside = check.outside(texts)
        p[last] = calibration.p_values({name: column[last] for name, column in calibrated.items()})
        if test.rejected:
            remarks.append(
                f"no verdicts: the texts without a label are not of the kind of the labelled ones (p = {test.p:.2g})"
            )
        p[last] = [
            math.nan if test.rejected or reason else value for value, reason in zip(p[last], outside, strict=True)
        ]
        verdicts += [
            OUTSIDE if math.isnan(value) else FOUND if value <= fpr + 1e-9 else "not shown" for value in p[last]
        ]
    return table.assign(p_value=p, verdict=pd.array(verdicts, dtype="string")), remarks


def rows(table: "pd.DataFrame", best: str) -> list[list[str]]:
    """The cells of the table of detectors, see `HEADINGS`; the best on validation first."""
    from fsd.evaluation.metrics import by_key
    from fsd.reporting.html import p_shown, shown

    found = by_key(table)
    names = sorted({name for name, state, _ in found if state == "calibrated"}, key=lambda name: (name != best, name))
    return [
        [
            name,
            shown(found.get((name, "tuned", "auc"))),
            shown(found.get((name, "calibrated", "auc"))),
            f"{found[name, '', 'auc_gain'].value:+.2f}",
            p_shown(found[name, "", "auc_gain"].p_holm),
            f"{found[name, 'calibrated', 'tpr_at_5fpr'].value:.2f}",
        ]
        for name in names
    ]


def conclusions(results: AuditResults, fpr: float) -> list[str]:
    """The results in sentences, most important first."""
    from fsd.evaluation.audit import explains
    from fsd.evaluation.metrics import by_key

    best = results.calibration.detector
    auc = by_key(results.table)[best, "calibrated", "auc"].estimate
    many = len(results.parts.test)
    start = f"{best}, best on validation: fine-tuned minus base score, AUC {auc} on {many} test texts"
    blind = results.audit.blind.auc
    if auc.low <= 0.5:
        lines = [f"{start}: not distinguishable from chance"]
    elif blind is not None and explains(blind, auc):
        lines = [f"{start}; a blind classifier reaches {blind}: the two sides differ without the model"]
    else:
        lines = [f"{start}: texts of the fine-tuning data can be told from others"]
    lines.append(
        f"a blind classifier, which never sees the model, reaches {blind}"
        if blind is not None
        else f"no blind classifier could be trained: {results.audit.blind.reason}"
    )
    if results.judged:
        called = int((results.scores["verdict"] == FOUND).sum())
        rate = results.calibration.rate(fpr)
        lines.append(
            f"{called} of the {len(results.judged)} texts without a label are called fine-tuning data at a "
            f"false-positive rate of {fpr:.1%} (of this calibration, between {rate.low:.1%} and {rate.high:.1%}); it "
            "holds for texts of the kind of the labelled ones"
        )
    return [*lines, *results.remarks]


def record(run: "Run", results: AuditResults, config: AuditConfig, name: str) -> None:
    """Log scores, calibration, metrics, figure and report."""
    from fsd.evaluation.metrics import by_key
    from fsd.evaluation.results import points
    from fsd.reporting import figures, html
    from pipelines.common.report import publish

    run.log_table("scores.parquet", results.scores)
    run.log_table("summary.csv", results.table)
    run.log_text("calibration.json", results.calibration.to_json())
    run.log_metrics(results.audit.metrics() | points(results.table))
    test = results.scores[results.scores["split"] == "test"]
    tuned, calibrated = (
        {name.removesuffix(end): test[name].to_numpy(float) for name in map(str, test) if name.endswith(end)}
        for end in (".tuned", ".calibrated")
    )
    names = ("fine-tuned", "calibrated score")
    picture = figures.png(figures.roc(test["label"].to_numpy(bool), tuned, calibrated, names=names))
    run.log_bytes("roc.png", picture)
    table = html.Table(
        "AUC of the fine-tuned model's scores alone, and of their difference from the base model's; 95 % intervals by "
        "groups of related texts. TPR@5%FPR is the share of fine-tuning texts found when 5 of 100 others are called "
        "fine-tuning texts.",
        HEADINGS,
        rows(results.table, results.calibration.detector),
        marked=(0,),
        name="results",
    )
    caption = "Share of fine-tuning texts found against share of other texts wrongly called so."
    best = results.calibration.detector
    publish(
        run,
        html.Page(
            title="Was it in the fine-tuning data?",
            question=f"Can texts that {name} was fine-tuned on be told from others, given the base "
            f"{config.model.model}?",
            findings=conclusions(results, config.fpr),
            sections=[
                html.Section("Results", tables=[table], pictures=[html.Picture(picture, caption)]),
                html.limits(),
            ],
            facts=[
                ("Base", config.model.model),
                ("Fine-tuned model", name),
                ("Texts", ", ".join(config.data)),
                ("Seed", str(config.seed)),
            ],
            changes=[
                "Texts of both labels from one period and kind, if a classifier without the model separates these.",
                "More labelled texts, which narrow the intervals.",
            ],
        ),
        f"{best} {str(by_key(results.table)[best, 'calibrated', 'auc'].estimate).partition(' ')[0]}",
    )


def show(results: AuditResults, notes: Sequence[str]) -> None:
    """Print the table and the conclusions."""
    from fsd.reporting import console

    lines = rows(results.table, results.calibration.detector)
    console.table(HEADINGS, lines, notes, title=f"{len(results.parts.test)} test texts", kept=(0, 2, 1, 3, 4))


def demo(seed: int) -> None:
    """Fine-tune the embedded model on some abstracts, and tell them from others, with the base and without."""
    from dataclasses import replace

    from fsd.config import AdapterConfig
    from fsd.data.embedded import corpus
    from fsd.data.splitting import split_labelled
    from fsd.models import language_model
    from fsd.models.finetuning import finetune
    from fsd.scoring.scorers import build_scorers as scorers_of
    from pipelines.common import outcome

    detection = DetectorConfig(detectors="loss,min_k,zlib")
    config = AuditConfig(model=ModelConfig(cache="none"), detection=detection, seed=seed)
    others = [document for document in corpus() if not document.member][:100]
    half = len(others) // 2
    documents = [replace(document, member=at < half) for at, document in enumerate(others)]
    parts = split_labelled(documents, validation=config.validation, seed=seed)
    model = language_model.load(config.model)
    training = AdapterConfig(epochs=8, learning_rate=3e-3, batch_size=4)
    finetune(model, [d.text for d in documents if d.member], training, seed=seed)
    scorers = scorers_of(model, config.model)
    lines = []
    for name, tuned in (("fine-tuned on half", "tuned"), ("control, not fine-tuned", "base")):
        results = judge(parts, [], {**scorers, "tuned": scorers[tuned]}, config)
        lines += [[name, *row[:3], row[-1]] for row in rows(results.table, results.calibration.detector)]
    notes = ["the control is the base itself in place of the fine-tuned model: the same texts and labels, no training"]
    headings = ["model", *HEADINGS[:3], HEADINGS[-1]]
    title = f"{len(parts.test)} test texts, half of them fine-tuning data"
    outcome.show_table(title, headings, lines, notes)


if __name__ == "__main__":
    command(AuditConfig, main, __doc__ or "", plan=plan)
