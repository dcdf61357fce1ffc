"""Base scores of texts, without fine-tuning, by a local model or through a completions API.

`python -m pipelines.score --model api:NAME --base-url http://localhost:8000/v1 --data FILE --out scores.parquet`. An
API returns log-probabilities of the text's own tokens only; detectors that need more are left out, with a remark.
Without `api:`, --model is a local model or a hub id. AUCs are computed if there are labels.

Examples:
    fsd score --data corpus.jsonl --model ./my-model --out scores.parquet
    fsd score --data corpus.jsonl --model ./my-model --out scores.csv --detectors loss,min_k --json
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import ScoreConfig, flags
from pipelines.common.cli import command

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.documents import Document
    from fsd.evaluation.intervals import Estimate
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore
    from fsd.scoring.deviation import Deviation
    from fsd.token_stats import Scorer
    from fsd.tracking import Run
    from fsd.views import Detector, ViewInputs
    from pipelines.common.dry_run import Plan


BASE_ONLY = "Base scores alone: what separates the texts may be their period or kind as well as membership."


def main(config: ScoreConfig) -> None:
    """Read the texts, announce the requests to an API, score, write, evaluate labelled texts, track and print."""
    from fsd import tracking
    from fsd.scoring.api.scorer import API
    from fsd.scoring.cache import SQLiteStore
    from fsd.scoring.deviation import evaluate
    from fsd.scoring.job import cut_remarks
    from fsd.scoring.scorers import view_inputs
    from fsd.views import usable
    from pipelines.common import datasets, outcome
    from pipelines.common.cli import check_name
    from pipelines.common.detection import load_detectors
    from pipelines.common.output import check_space, check_table_path, write_table
    from pipelines.common.report import run_name

    out = Path(config.out)
    check_name("domain", config.domain)
    check_table_path(out, [*config.data, *filter(None, (config.unseen, config.model.frequencies))])
    documents, cleaned = datasets.read_cleaned(config.data, config.columns, config.cleaning)
    unseen_texts, blank = datasets.read_own([config.unseen], "", config.cleaning) if config.unseen else ([], [])
    unseen = [document.text for document in unseen_texts]
    texts = [document.text for document in documents]
    check_space(texts)
    tracking.check_store()
    requested = load_detectors(config.detection)
    is_api = config.model.model.startswith(API)
    answers = SQLiteStore(Path(f"{out}.partial"), limit=None, required=True) if is_api else None
    model, scorers = build_scorers(config, answers)
    inputs = view_inputs(config.model, unseen, shots=config.detection.shots, seed=config.seed)
    named = config.detection.detectors != "all"
    detectors, left_out = usable(requested, texts, scorers, inputs, strict=named)
    announce(texts, detectors, scorers["base"], inputs, price=config.api.price)
    table = frame(documents, evaluate(texts, detectors, scorers, inputs, shown=True))
    results, blind, doubts = judge(documents, table, seed=config.seed)
    remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
    if model:
        remarks += cut_remarks(model, texts, detectors, inputs)
    write_table(table, out)
    if answers:
        answers.delete()
    found = outcome.Outcome(
        f"{len(texts)} texts, {len(detectors)} detectors",
        {"results": results},
        [*blind_note(blind), *doubts, *cleaned, *blank, *remarks],
        {"scores": out},
    )
    # The run is opened last, so that paid answers are safe by then and a refused API key leaves no failed run.
    name = run_name(config.model.model, config.data, "score")
    with outcome.tracked_run(config, f"fsd-{config.domain}", name, params=flags(config), tags={"task": "score"}) as run:
        outcome.show(found, run, lambda: show(results, found.notes, found.headline))
        record(run, documents, table, results, blind, config)


def record(
    run: "Run",
    documents: "Sequence[Document]",
    table: "pd.DataFrame",
    results: "pd.DataFrame",
    blind: "Estimate | None",
    config: ScoreConfig,
) -> None:
    """Log the texts, their scores, and the metrics of labelled texts."""
    from fsd.evaluation.metrics import by_key
    from fsd.evaluation.results import tracked

    texts, labels = [document.text for document in documents], [document.member for document in documents]
    run.log_dataset("scored", texts, labels=labels, source=", ".join(config.data), context="score")
    run.log_table("scores.parquet", table)
    run.log_metrics(tracked(results, uncertainty=False) | ({"audit/blind_auc": blind.value} if blind else {}))
    if len(results):
        best = max((row for row in by_key(results).values() if row.metric == "auc"), key=lambda row: row.value)
        line = f"{best.detector} base AUC {best.estimate} · blind AUC {blind or 'none'}"
        run.conclude(f"{best.detector} {str(best.estimate).partition(' ')[0]}", f"{line}\n\n{BASE_ONLY}")


def plan(config: ScoreConfig) -> "Plan":
    """What would be scored, see `main`."""
    from pipelines.common import datasets, dry_run
    from pipelines.common.detection import load_detectors
    from pipelines.common.output import check_table_path

    check_table_path(Path(config.out), config.data)
    documents, cleaned = datasets.read_cleaned(config.data, config.columns, config.cleaning)
    texts = [document.text for document in documents]
    detectors = load_detectors(config.detection)
    return dry_run.Plan(
        {"texts": dry_run.files(config.data, len(texts))},
        config.model,
        texts=texts,
        passes=dry_run.passes(detectors, texts, config.model, states=("base",), unseen=bool(config.unseen)),
        writes=dry_run.tracked(f"fsd-{config.domain}", config.out),
        notes=cleaned,
    )


def build_scorers(
    config: ScoreConfig, answers: "SQLiteStore | None"
) -> "tuple[LanguageModel | None, dict[str, Scorer]]":
    """The local model and its scorers without an adapter, or the scorers of an API whose answers are kept.

    Raises:
        UsageError: if the model cannot be loaded, or an API's settings are invalid.
    """
    from fsd.models import language_model
    from fsd.scoring import scorers
    from fsd.scoring.api.scorer import api_scorers

    if answers is not None:
        return None, api_scorers(config.model, config.api, answers)
    model = language_model.load(config.model)
    built = scorers.build_scorers(model, config.model)
    return model, {name: scorer for name, scorer in built.items() if name != "tuned"}


def announce(
    texts: Sequence[str],
    detectors: "Sequence[Detector]",
    scorer: "Scorer",
    inputs: "ViewInputs",
    *,
    price: float | None,
) -> None:
    """Print to stderr how many requests an API will get, before the first one; nothing for a local model."""
    from fsd.scoring.api import CompletionsScorer
    from fsd.scoring.cache import MemoizedScorer
    from fsd.views import FORMS, VIEWS

    if not (isinstance(scorer, MemoizedScorer) and isinstance(scorer.scorer, CompletionsScorer)):
        return
    views = [VIEWS[view] for detector in detectors for view in detector.views]
    forms = {view.form for view in views if view.reader == "base"}
    prompts = {prompt: None for text in texts for form in sorted(forms) for prompt in FORMS[form](text, inputs)}
    unknown = scorer.unknown(list(prompts))
    kept = len(prompts) - len(unknown)
    before = f"; {kept:,} are kept from before" if kept else ""
    print(f"{len(texts):,} texts: {scorer.scorer.estimate(unknown, price)}{before}", file=sys.stderr)


def frame(documents: "Sequence[Document]", deviation: "Deviation") -> "pd.DataFrame":
    """One row per text: source, text, label, group, and `<detector>.base` for every detector."""
    import pandas as pd

    table = pd.DataFrame({"source": [d.source for d in documents], "text": [d.text for d in documents]})
    labels = [None if d.member is None else int(d.member) for d in documents]
    table["label"] = pd.array(labels, dtype="Int64")
    table["group"] = [d.group for d in documents]
    return table.join(deviation.frame())


def judge(
    documents: "Sequence[Document]", table: "pd.DataFrame", *, seed: int
) -> "tuple[pd.DataFrame, Estimate | None, list[str]]":
    """Metrics on the labelled texts, the AUC of a blind classifier without the model, and what the numbers do not show.

    Empty without two groups of members and two of non-members, since one group has no interval.
    """
    from fsd.data.near_duplicates import families
    from fsd.evaluation.audit import blind
    from fsd.evaluation.results import evaluate
    from fsd.evaluation.sentences import too_few

    labelled = [document for document in documents if document.member is not None]
    member = [bool(document.member) for document in labelled]
    groups = families(labelled)
    if min(len({g for g, m in zip(groups, member, strict=True) if m is side}) for side in (True, False)) < 2:
        return table.iloc[:0, :0], None, []
    results = evaluate(table[table["label"].notna()], member, groups, seed=seed)
    nonmembers = len({group for group, is_member in zip(groups, member, strict=True) if not is_member})
    return results, blind([d.text for d in labelled], member, groups, seed=seed).auc, too_few(nonmembers)


def blind_note(blind: "Estimate | None") -> list[str]:
    """What a classifier without the model reaches, if there are labels."""
    return [f"blind: a classifier of words that never asks the model reaches AUC {blind}"] if blind else []


def show(table: "pd.DataFrame", notes: Sequence[str], title: str) -> None:
    """A table of the metrics if there are labels, and the notes."""
    from fsd.evaluation.metrics import METRICS, by_key
    from fsd.reporting import console

    rows = by_key(table)
    others = [name for name, metric in METRICS.items() if name != "auc" and not metric.needs_threshold]
    lines = [
        [name, str(row.estimate), *(f"{rows[name, 'base', other].value:.2f}" for other in others)]
        for (name, _, metric), row in rows.items()
        if metric == "auc"
    ]
    if not lines:
        print(title)
    headings = ["detector", "base AUC\n[95 % CI]", *(METRICS[name].label for name in others)]
    console.table(headings, lines, notes, title=title)


if __name__ == "__main__":
    command(ScoreConfig, main, __doc__ or "", plan=plan)
