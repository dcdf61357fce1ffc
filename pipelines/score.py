"""Base scores of texts, without fine-tuning, by a local model or through a completions API.

`python -m pipelines.score --model api:NAME --base-url http://localhost:8000/v1 --data FILE --out scores.parquet`. An
API returns log-probabilities of the text's own tokens only; detectors that need more are left out, with a remark.
Without `api:`, --model is a local model or a hub id. AUCs are computed if there are labels.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fsd.config import ScoreConfig
from pipelines.common.cli import command

if TYPE_CHECKING:
    import pandas as pd

    from fsd.data.documents import Document
    from fsd.evaluation.audit import Control
    from fsd.scoring.cache import SQLiteStore
    from fsd.scoring.deviation import Detector
    from fsd.token_stats import Scorer, Scores
    from fsd.views import ViewInputs

API = "api:"


def main(config: ScoreConfig) -> None:
    """Read the texts, announce the requests to an API, score, write, evaluate labelled texts, track and print."""
    from fsd import tracking
    from fsd.data.readers import parse_columns, read_files
    from fsd.errors import UsageError
    from fsd.scoring.cache import SQLiteStore
    from fsd.scoring.deviation import evaluate, usable
    from fsd.scoring.scorers import view_inputs
    from pipelines.common.detection import load_detectors
    from pipelines.common.output import check_table_path, write_table

    out = Path(config.out)
    check_table_path(out)
    documents = read_files(config.data, parse_columns(config.columns))
    unseen = [document.text for document in read_files([config.unseen])] if config.unseen else []
    texts = [document.text for document in documents]
    requested = load_detectors(config.detection)
    is_api = config.model.model.startswith(API)
    answers = SQLiteStore(Path(f"{out}.partial"), limit=None, required=True) if is_api else None
    scorers = build_scorers(config, answers)
    inputs = view_inputs(config.model, unseen, shots=config.detection.shots, seed=config.seed)
    detectors, left_out = usable(requested, texts, scorers, inputs)
    left_out |= without_ids([d.name for d in requested if "token" in d.needs and d.name in left_out], config)
    if left_out and (config.detection.detectors != "all" or not detectors):
        name, reason = next(iter(left_out.items()))
        raise UsageError(f"detector {name} cannot be computed here: {reason}")
    announce(texts, detectors, scorers["base"], inputs, price=config.api.price)
    scores = evaluate(texts, detectors, scorers, inputs, shown=True).base
    table = frame(documents, scores)
    write_table(table, out)
    if answers:
        answers.delete()
    results, blind = judge(documents, scores, seed=config.seed)
    # The run is opened last, so that paid answers are safe by then and a refused API key leaves no failed run.
    with tracking.run(f"fsd-{config.domain}", "score", params=params(config), tags={"task": "score"}) as run:
        run.log_dataset("scored", texts, source=", ".join(config.data), context="score")
        run.log_table("scores.parquet", table)
        run.log_metrics(numbers(results, blind))
    show(results, blind, [f"{name} left out: {reason}" for name, reason in left_out.items()])
    print(f"wrote {out}: {len(texts)} texts, {len(detectors)} detectors")


def build_scorers(config: ScoreConfig, answers: "SQLiteStore | None") -> "dict[str, Scorer]":
    """Scorers of the local model without its adapter, or of an API whose answers are kept in `answers`.

    Raises:
        UsageError: if the model cannot be loaded, or an API's settings are invalid.
    """
    from fsd.scoring import scorers

    if answers is None:
        from fsd.models import language_model

        built = scorers.build_scorers(language_model.load(config.model), config.model)
        return {name: scorer for name, scorer in built.items() if name != "tuned"}
    built = api_scorers(config.model.model.removeprefix(API), config, answers)
    if config.model.reference_model:
        built["reference"] = scorers.reference_scorer(config.model.reference_model, config.model, None)
    return built


def api_scorers(name: str, config: ScoreConfig, answers: "SQLiteStore") -> "dict[str, Scorer]":
    """The scorer of an API, and one of token frequencies if its tokenizer and a table are given.

    Raises:
        UsageError: if there is no address, a setting is invalid, or the tokenizer or its table cannot be loaded.
    """
    from fsd.errors import UsageError
    from fsd.scoring.api import Client, CompletionsScorer, PromptTokens, key_for
    from fsd.scoring.cache import MemoizedScorer
    from fsd.scoring.scorers import frequency_file

    api, model = config.api, config.model
    if api.base_url is None:
        raise UsageError(f"model {model.model} must come with --base-url, e.g. http://localhost:8000/v1; there is none")
    client = Client(api.base_url, key=key_for(api.base_url), per_minute=api.requests_per_minute)
    scorers: dict[str, Scorer] = {}
    tokens = None
    if api.tokenizer is not None:
        from fsd.models.language_model import load_tokenizer
        from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

        tokenizer, vocabulary = load_tokenizer(api.tokenizer, revision=model.revision)
        tokens = PromptTokens(tokenizer, api.tokenizer)
        table = frequency_file(replace(model, model=api.tokenizer))
        if table:
            frequencies = FrequencyTable.load(table).matching(tokenizer, vocabulary, api.tokenizer)
            scorers["unigram"] = unigram_scorer(frequencies, tokens.tokens)
    scorer = CompletionsScorer(
        client, name, start=api.start_token, tokens=tokens, concurrency=api.concurrency, description="API"
    )
    return scorers | {"base": MemoizedScorer(scorer, answers, scorer.key)}


def without_ids(names: Sequence[str], config: ScoreConfig) -> dict[str, str]:
    """The reason for detectors that read token ids, which an API does not return but its tokenizer gives."""
    if not config.model.model.startswith(API) or config.api.tokenizer is not None:
        return {}
    return dict.fromkeys(names, "it reads token ids, which --tokenizer MODEL gives")


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


def frame(documents: "Sequence[Document]", scores: "Scores") -> "pd.DataFrame":
    """One row per text: source, text, label, group, and `<detector>.base` for every detector."""
    import pandas as pd

    table = pd.DataFrame({"source": [d.source for d in documents], "text": [d.text for d in documents]})
    labels = [None if d.member is None else int(d.member) for d in documents]
    table["label"] = pd.array(labels, dtype="Int64")
    table["group"] = [d.group for d in documents]
    return table.assign(**{f"{name}.base": column for name, column in scores.items()})


def judge(
    documents: "Sequence[Document]", scores: "Scores", *, seed: int
) -> "tuple[pd.DataFrame | None, Control | None]":
    """Metrics on the labelled texts, and the AUC of a bag-of-words classifier without the model.

    None without two groups of members and two of non-members, since one group has no interval.
    """
    import numpy as np

    from fsd.data.near_duplicates import families
    from fsd.evaluation.audit import blind
    from fsd.evaluation.results import evaluate

    labelled = np.array([document.member is not None for document in documents])
    known = [document for document in documents if document.member is not None]
    member = [bool(document.member) for document in known]
    texts = [document.text for document in known]
    groups = families(known)
    if min(len({g for g, m in zip(groups, member, strict=True) if m is side}) for side in (True, False)) < 2:
        return None, None
    table = evaluate(frame(documents, scores)[labelled], member, groups, seed=seed)
    return table, blind(texts, member, groups, seed=seed)


def numbers(table: "pd.DataFrame | None", blind: "Control | None") -> dict[str, float]:
    """The metrics under the names that all runs share."""
    from fsd.evaluation.results import tracked

    metrics = {} if table is None else tracked(table)
    return metrics | ({"audit/blind_auc": blind.auc.value} if blind and blind.auc else {})


def params(config: ScoreConfig) -> dict[str, object]:
    """Every setting under the name of its flag."""
    values = asdict(config)
    groups = [values.pop(group) for group in ("model", "api", "detection")]
    return {key: value for group in (*groups, values) for key, value in group.items()}


def show(table: "pd.DataFrame | None", blind: "Control | None", remarks: Sequence[str]) -> None:
    """A table of the metrics if there are labels, and the remarks."""
    from fsd.evaluation.metrics import METRICS, by_key
    from fsd.reporting import console

    rows = {} if table is None else by_key(table)
    others = [name for name, metric in METRICS.items() if name != "auc" and not metric.needs_threshold]
    lines = [
        [name, str(row.estimate), *(f"{rows[name, 'base', other].value:.2f}" for other in others)]
        for (name, _, metric), row in rows.items()
        if metric == "auc"
    ]
    if blind and blind.auc:
        remarks = [f"blind: a classifier of words that never asks the model reaches AUC {blind.auc}", *remarks]
    console.table(["detector", "base AUC [95 % CI]", *(METRICS[name].label for name in others)], lines, remarks)


if __name__ == "__main__":
    command(ScoreConfig, main, __doc__ or "")
