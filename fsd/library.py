"""The library in three functions; the pipelines are built from the same parts.

Scores of any texts, before and after fine-tuning on texts that the model cannot have seen, and how well they tell
members from non-members:

>>> import fsd
>>> from fsd.data.embedded import corpus
>>> nonmembers = [d for d in corpus() if not d.member]
>>> unseen, test = nonmembers[:40], nonmembers[40:80] + [d for d in corpus() if d.member][:40]
>>> scores = fsd.deviation("embedded", [d.text for d in test], [d.text for d in unseen], detectors=["loss", "min_k"])
>>> list(scores.columns)
['loss.base', 'loss.tuned', 'loss.fsd', 'min_k.base', 'min_k.tuned', 'min_k.fsd']
>>> results = fsd.evaluate(scores, [d.member for d in test], [d.group for d in test])
>>> bool(results.query("detector == 'min_k' and state == 'base' and metric == 'auc'").value.item() > 0.6)
True
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fsd.config import ALL, AUTO, AdapterConfig, ModelConfig
from fsd.data.cells import check_characters, is_missing
from fsd.data.layouts import CONVERSATIONS, layouts_in
from fsd.errors import UsageError, at_least
from fsd.progress import note
from fsd.token_stats import as_prompt

if TYPE_CHECKING:
    import pandas as pd
    from datasets import Dataset
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from detectors import Detector
    from fsd.evaluation.rows import Evaluation
    from fsd.models.language_model import LanguageModel
    from fsd.reporting.figures import Figures
    from fsd.scoring.model import Model as OpenedModel
    from fsd.scoring.plan import ScoringPlan
    from fsd.token_stats import Prompt

    Loaded: TypeAlias = PreTrainedModel | PeftModel
    Model: TypeAlias = (
        str | PathLike[str] | ModelConfig | LanguageModel | Loaded | tuple[Loaded, PreTrainedTokenizerFast]
    )
    Table: TypeAlias = pd.DataFrame | Dataset
    Texts: TypeAlias = Sequence[str] | Table

TEXT = "text"
LABEL = "label"
GROUP = "group"
NUMBERED = "rows of a list"
"""Mark in the `attrs` of scores whose index is the numbers of texts that had none."""
TRIED = 100
"""Texts on which an adapter that has an effect has one."""
UNREAD = (LABEL, GROUP, "date", "period", "source")
"""Columns that have no use where texts are scored."""
ANSWERS = frozenset({"messages", *CONVERSATIONS, "completion", "context"})
"""Columns of a table of texts; all but the first may be missing, and that one where a row is a chat."""


def score(
    model: "Model",
    texts: "Texts",
    detectors: "str | Sequence[str | Detector]" = "auto",
    *,
    unseen: "Texts" = (),
    adapter: str | PathLike[str] | None = None,
    shots: int = 2,
    seed: int = 42,
) -> "pd.DataFrame":
    """Score texts with the model as it is, without fine-tuning; an adapter that it has is part of it.

    Args:
        model: "embedded", a folder, a hub id, a `fsd.config.ModelConfig`, a loaded model of transformers, peft or
            `fsd.models`, or a pair of a loaded model and its tokenizer.
        texts: N ≥ 1 texts, or a `pandas.DataFrame` or `datasets.Dataset` with a column `text`; or with chats in
            columns `messages`, or `prompt` and `completion`, of which the answers are scored.
        detectors: "auto" for the default set, "all" for every detector, as far as they can be computed here, or names
            and `detectors.load(...)` objects.
        unseen: other texts, which the model cannot have seen; `recall` and `neighbour` need some.
        adapter: folder of a saved adapter that is part of the model, which is named and not loaded.
        shots: unseen texts in the prefix of `recall`.
        seed: random seed for the prefix and the neighbours.

    Returns:
        N rows in the order of the texts, a column `<detector>.base` per detector; higher = more likely a member. Rows
        have the index of a DataFrame.

    Raises:
        UsageError: if the model cannot be loaded, a text is among the unseen ones, or a detector given by name cannot
            be computed.
    """
    strings = listed("texts", texts)
    to_read = unseen_texts(unseen)
    with _given_back(model):
        plan, _ = prepare(model, strings, to_read, detectors, ("base",), adapter=adapter, shots=shots, seed=seed)
        return _with_index(plan.score().frame(), texts)


def deviation(
    model: "Model",
    texts: "Texts",
    unseen: "Texts" = (),
    detectors: "str | Sequence[str | Detector]" = "auto",
    *,
    training: AdapterConfig | None = None,
    adapter: str | PathLike[str] | None = None,
    shots: int = 2,
    seed: int = 42,
) -> "pd.DataFrame":
    """Score texts before and after fine-tuning the model on unseen texts: Fine-tuned Score Deviation.

    FSD(x) = S(x; base) − S(x; tuned), arXiv 2410.10880, eq. 5. A model without an adapter is fine-tuned, and returned
    to its base afterwards. The adapter of a loaded model, or a saved one, counts as the fine-tuning: nothing is
    trained, and the adapter of a loaded model stays.

    Args:
        model: "embedded", a folder, a hub id, a `fsd.config.ModelConfig`, a loaded model of transformers, peft or
            `fsd.models`, or a pair of a loaded model and its tokenizer.
        texts: N ≥ 1 texts to score, none of them among the unseen ones, or a `pandas.DataFrame` or `datasets.Dataset`
            with a column `text`.
        unseen: texts that the model cannot have seen, e.g. published after its cutoff; it is fine-tuned on them. In a
            table, none may have the label 1. A model that has an adapter needs none.
        detectors: "auto" for the default set, "all" for every detector, as far as they can be computed here, or names
            and `detectors.load(...)` objects.
        training: how the adapter is trained; by default as in the paper. None for a model that has an adapter.
        adapter: folder of a saved adapter of the model, which is named and not loaded.
        shots: unseen texts in the prefix of `recall`.
        seed: random seed for the adapter, the order of training, the prefix and the neighbours.

    Returns:
        N rows in the order of the texts, columns `<detector>.base`, `<detector>.tuned` and `<detector>.fsd`; a detector
        that compares both states itself has `<detector>.fsd` alone. Higher = more likely a member. Rows have the index
        of a DataFrame.

    Raises:
        UsageError: if the model cannot be loaded or trained, has neither an adapter nor unseen texts, its own adapter
            has no effect or changes the base, a text is among the unseen ones, or a detector given by name cannot be
            computed.
    """
    from fsd.models.adapters import detach
    from fsd.models.finetuning import finetune
    from fsd.scoring.scorers import STATES

    strings = listed("texts", texts)
    to_train = unseen_texts(unseen)
    with _given_back(model):
        is_tuned = adapter is not None or has_adapter(model)
        if is_tuned and training is not None:
            raise UsageError(
                "training must be None for a model that has an adapter, which counts as the fine-tuning; to train "
                "another one, give its base, model.unload(), or model.merge_and_unload() where the adapter is part of "
                "the model"
            )
        if not is_tuned and not to_train:
            raise UsageError("unseen must have texts to fine-tune on, as the model has no adapter; got none")
        plan, language_model = prepare(
            model, strings, to_train, detectors, STATES, adapter=adapter, shots=shots, seed=seed
        )
        # An adapter that came with the model is the caller's, and stays.
        if is_tuned:
            if language_model.adapted:
                _check_own_adapter(language_model, strings)
            note("the model's own adapter counts as the fine-tuning: nothing is trained")
            return _with_index(plan.score().frame(), texts)
        finetune(language_model, to_train, training or AdapterConfig(), seed=seed)
        try:
            return _with_index(plan.score().frame(), texts)
        finally:
            detach(language_model)


@contextlib.contextmanager
def _given_back(model: "Model") -> Iterator[None]:
    """Leave a loaded network in training or evaluation, and its weights with gradients or without, as they came."""
    network = network_of(model)
    modes: dict[Any, bool] = {}
    gradients: dict[Any, bool] = {}
    if hasattr(network, "get_input_embeddings"):
        modes = {module: module.training for module in network.modules()}
        gradients = {weight: weight.requires_grad for weight in network.parameters()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for weight, needed in gradients.items():
            weight.requires_grad_(needed)


def check_apart(texts: "Sequence[str | Prompt]", unseen: "Sequence[str | Prompt]") -> None:
    """Refuse texts that the model is fine-tuned on, or by which others are scored: they would score like members."""
    shared = set(map(_placeless, texts)).intersection(map(_placeless, unseen))
    if shared:
        raise UsageError(
            f"texts must not be among the unseen texts; got {len(shared)} that are: leave them out of one side"
        )


def _placeless(text: "str | Prompt") -> "Prompt":
    """A text as a prompt, of a chat without the row that it is from."""
    prompt = as_prompt(text)
    if prompt.chat is None:
        return prompt
    return prompt._replace(chat=prompt.chat._replace(origin="", layout=""))


def has_adapter(model: "Model") -> bool:
    """Whether a model is loaded, and with an adapter."""
    network = network_of(model)
    return bool(getattr(network, "adapted", hasattr(network, "get_base_model")))


def network_of(model: "Model") -> Any:
    """A model, of a pair with its tokenizer the first."""
    if isinstance(model, tuple | list) and model:
        return model[0]
    return model


def _check_own_adapter(language_model: "LanguageModel", texts: "Sequence[str | Prompt]") -> None:
    """Refuse an adapter that would make every deviation zero."""
    from fsd.models.adapters import has_effect

    # Some adapters change a few tokens alone, which the first texts may not have.
    if texts and not any(has_effect(language_model, as_prompt(text).text) for text in texts[:TRIED]):
        raise UsageError(
            "the model's adapter must have been trained, as it counts as the fine-tuning; it changes nothing, so that "
            "every deviation would be zero: give the model without it, and it is fine-tuned on the unseen texts"
        )


def evaluate(
    scores: "pd.DataFrame",
    labels: "Sequence[bool] | Table",
    groups: Sequence[object] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> "Evaluation":
    """Evaluate scores of members and non-members: AUC, TPR at fixed FPR, and the gain of FSD over the base score.

    Args:
        scores: N rows with columns `<detector>.base` and `<detector>.fsd`, as `score` and `deviation` return them.
        labels: N labels; True for a member. Or a `pandas.DataFrame` or `datasets.Dataset` with a column `label`, whose
            column `group`, if there is one, has the groups. What has an index of pandas is joined to the scores by it,
            anything else by position.
        groups: N groups (article, paper, book) that intervals resample as one; None or "" for a text by itself. They
            are joined as labels are.
        resamples: bootstrap resamples.
        seed: random seed of the bootstrap.

    Returns:
        A long data frame, one row per number: detector, state, metric, value, low, high (95 % interval), p, p_holm. It
        prints as its `wide` form, one row per detector: base, FSD and gain, each with its interval.

    Raises:
        UsageError: with fewer than two groups of members or of non-members, a label that is missing or another,
            another number of labels or groups than of rows, an index with other rows than that of the scores, scores
            without such a column, or resamples below 1.
    """
    from fsd.evaluation.rows import Evaluation, evaluate

    at_least(1, resamples=resamples)
    members = _members(scores, labels)
    if groups is None and GROUP in columns_of(labels):
        groups = _column(joined("labels", labels, "scores", scores), GROUP)
    if groups is not None:
        groups = list(joined("groups", groups, "scores", scores))
        check_length("groups", groups, "rows of scores", scores)
    return Evaluation(evaluate(scores, members, groups, resamples=resamples, seed=seed))


def plot(scores: "pd.DataFrame", labels: "Sequence[bool] | Table") -> "Figures":
    """Draw ROC curves, and the distributions of the scores of members and non-members, of every detector.

    Args:
        scores: N rows with columns `<detector>.base` and `<detector>.fsd`, as `score` and `deviation` return them.
        labels: N labels; True for a member. Or a table with a column `label`. They are joined as by `evaluate`.

    Returns:
        Two matplotlib figures, `roc` with a panel per detector, and `distributions` with one per detector and state. A
        notebook shows both.
    """
    from fsd.reporting import figures
    from fsd.scores import BASE, FSD, columns_of, of_state

    members = _members(scores, labels)
    columns = columns_of(scores)
    base = of_state(columns, BASE)
    deviations = of_state(columns, FSD)
    distributions = figures.score_distributions(members, base, deviations)
    return figures.Figures(figures.roc(members, base, deviations), distributions)


def _members(scores: "pd.DataFrame", labels: "Sequence[bool] | Table") -> list[bool]:
    """The labels of the rows of a table of scores."""
    columns = columns_of(scores)
    if not any(name.endswith((".base", ".fsd")) for name in columns):
        came = f"the columns {', '.join(columns)}" if columns else type(scores).__name__
        raise UsageError(f"scores must be a data frame with columns <detector>.base or <detector>.fsd; got {came}")
    members = members_by(joined("labels", labels, "scores", scores))
    check_length("labels", members, "rows of scores", scores)
    return members


def joined(name: str, values: Any, what: str, rows: Any) -> Any:
    """The values in the order of the rows, by the index that pandas gave both; by position where one has none.

    A join by position would give a sorted or filtered table the labels of other rows.

    Raises:
        UsageError: for an index that has other labels than that of the rows, or the same ones twice in another order.
    """
    # A list has a method of that name.
    if not (hasattr(values, "iloc") and hasattr(rows, "iloc")) or values.index.equals(rows.index):
        return values
    check_length(name, values, f"rows of {what}", rows)
    both_unique = values.index.is_unique and rows.index.is_unique
    # The rows of a list are known by their numbers alone: a shuffled table has the same numbers for others.
    numbered = NUMBERED not in rows.attrs or list(values.index) == list(range(len(values)))
    if both_unique and numbered and values.index.isin(rows.index).all():
        return values.loc[rows.index]
    raise UsageError(
        f"{name} must have the index of {what}, or none, so that each row meets its own; the two have other labels, "
        f"the same ones twice, or {what} come from a list without an index: give list({name}) in the order of {what}"
    )


def members_by(labels: "Iterable[object] | Table") -> list[bool]:
    """Labels as files may have them; any other would count as one of the two, also a missing one."""
    from fsd.data.fields import LABELS

    members = []
    for label in _labels(labels):
        member = LABELS.get(str(label).lower())
        if member is None:
            way = ": drop the rows without a label, of scores and labels alike" if is_missing(label) else ""
            raise UsageError(f"labels must be True or 1 (member), False or 0 (non-member); got {label!r}{way}")
        members.append(member)
    return members


def _labels(labels: "Iterable[object] | Table") -> list[object]:
    """Labels as they come, of a table those of its column."""
    labels = as_pandas(labels)
    columns = columns_of(labels)
    if not columns:
        return list(labels)
    if LABEL not in columns:
        raise UsageError(
            f"labels must be a list, or a table with a column {LABEL}; got the columns {', '.join(columns)}"
        )
    return _column(labels, LABEL)


def check_length(name: str, values: Sequence[object], what: str, expected: "Sequence[object] | pd.DataFrame") -> None:
    """Refuse a list that has not one value for each of something."""
    if len(values) != len(expected):
        raise UsageError(f"{name} must be as many as {what}, {len(expected):,}; got {len(values):,}")


def as_pandas(table: Any) -> Any:
    """A table of pyarrow or polars as a `pandas.DataFrame`, a column of theirs as a list; anything else as it is."""
    # What polars has not computed yet.
    if hasattr(table, "collect"):
        table = table.collect()
    if type(table).__module__.partition(".")[0] not in ("pyarrow", "polars"):
        return table
    return table.to_pandas() if hasattr(table, "columns") else table.to_pandas().tolist()


def columns_of(table: object) -> list[str]:
    """Names of the columns of a `pandas.DataFrame` or `datasets.Dataset`; none of what is no table."""
    # Of `datasets`, else of pandas.
    names: Any = getattr(table, "column_names", None) or getattr(table, "columns", ())
    columns = list(map(str, names))
    # Of two columns of one name, pandas gives a table with both.
    if len(set(columns)) < len(columns):
        raise UsageError(f"columns of a table must have different names; got {', '.join(columns)}")
    return columns


def _column(table: Any, name: str) -> list[Any]:
    return list(table[name])


def listed(name: str, texts: "Texts") -> "list[str | Prompt]":
    """The texts, of a table those of its column; UsageError for what could be taken for a list of texts, and is none.

    Of a table of chats, or of texts after contexts, what is scored of each row.

    A single string would be read as its characters, and a mapping as its names.
    """
    if isinstance(texts, str):
        raise UsageError(f"{name} must be a list of strings; got one string, {texts[:40]!r}")
    texts = as_pandas(texts)
    if isinstance(texts, Mapping):
        kind = type(texts).__name__
        raise UsageError(f"{name} must be a list of strings; got a {kind}: take one split or column of it")
    columns = columns_of(texts)
    if not ANSWERS.isdisjoint(columns) or (TEXT not in columns and layouts_in(dict.fromkeys(columns))):
        from fsd.data.fields import table_documents

        return [document.prompt for document in table_documents(name, texts, unread=UNREAD)]
    if columns:
        if TEXT not in columns:
            raise UsageError(
                f"{name} must be a list of strings, or a table with a column {TEXT}; got the columns "
                f"{', '.join(columns)}: rename one of them, or give that column alone"
            )
        texts = _column(texts, TEXT)
    # An iterator could be read only once.
    strings = list(texts)
    for row, text in enumerate(strings):
        if not isinstance(text, str):
            raise UsageError(f"{name} must be a list of strings; got {text!r} in it")
        check_characters(text, f"{name}, row {row}", TEXT)
    return strings


def unseen_texts(unseen: "Texts") -> "list[str | Prompt]":
    """The unseen texts; UsageError for a table in which some are labelled members, which the model has seen."""
    texts = listed("unseen", unseen)
    if LABEL in columns_of(as_pandas(unseen)):
        # A row without a label says nothing.
        members = sum(members_by([label for label in _labels(unseen) if not is_missing(label)]))
        if members:
            raise UsageError(f"unseen must be texts that the model has not seen; got {members:,} with the label 1")
    return texts


def _with_index(scores: "pd.DataFrame", texts: "Texts") -> "pd.DataFrame":
    """The scores with the index of the texts' own DataFrame or Series, so that they can be joined to it."""
    if hasattr(texts, "iloc"):
        return scores.set_index(texts.index)
    scores.attrs[NUMBERED] = True
    return scores


def prepare(  # noqa: PLR0913 - each is a choice of its own, most of them with a default
    model: "Model",
    texts: "Sequence[str | Prompt]",
    unseen: "Sequence[str | Prompt]",
    detectors: "str | Sequence[str | Detector]",
    states: Sequence[str],
    *,
    config: ModelConfig | None = None,
    adapter: str | PathLike[str] | None = None,
    shots: int = 2,
    seed: int,
) -> "tuple[ScoringPlan, LanguageModel]":
    """The scoring of texts by a model in some states; of the base state alone, its adapter is part of the model.

    The configuration is the one by which a loaded model was loaded.
    """
    check_apart(texts, unseen)
    # What was named must be computable; of a set, what can be computed.
    strict = not isinstance(detectors, str) or detectors not in (AUTO, ALL)
    requested = chosen(detectors)
    to_score = opened(model, states=states, config=config, adapter=adapter, seed=seed)
    inputs = to_score.inputs(unseen, shots=shots)
    return to_score.plan(requested, texts, inputs, strict=strict), to_score.language_model


def chosen(detectors: "str | Sequence[str | Detector]") -> "list[Detector]":
    """The detectors, loaded; UsageError for an unknown name, or one that stands twice."""
    from detectors import Detector, load, names

    if isinstance(detectors, str):
        detectors = names(detectors) if detectors in (AUTO, ALL) else [detectors]
    loaded = [detector if isinstance(detector, Detector) else load(detector) for detector in detectors]
    requested = [detector.name for detector in loaded]
    # Each has a column of its name.
    if not requested or len(set(requested)) < len(requested):
        raise UsageError(f"detectors must be at least one, and each once; got {', '.join(requested) or 'none'}")
    return loaded


def opened(
    model: "Model",
    *,
    states: Sequence[str],
    config: ModelConfig | None = None,
    adapter: str | PathLike[str] | None = None,
    seed: int = 42,
) -> "OpenedModel":
    """The model, loaded if it is not yet, with its scorers; for `states` see `fsd.scoring.model.open_model`.

    Of a model that is opened in the base state alone, an adapter is part.
    """
    from fsd.models.adapters import as_it_is, check_restorable, check_unloaded
    from fsd.scoring.model import open_model

    if isinstance(model, str | PathLike):
        model = ModelConfig(model=fspath(model))
    if isinstance(model, ModelConfig):
        folder = None
        if adapter is not None:
            folder = Path(adapter)
            check_unloaded(folder, model.model, model.revision)
        return open_model(model, states=states, adapter=folder, seed=seed)
    if adapter is not None:
        raise UsageError("adapter must be left out for a loaded model; name the model, so that it is loaded with it")
    local = loaded(model)
    whole = None
    if local.adapted:
        part = as_it_is(local)
        if "tuned" not in states:
            local = part
        else:
            check_restorable(local)
        # Learned prompts are no part of the base.
        if local.adapted and part.model is not local.base:
            whole = part
            local = replace(local, model=local.base)
    # Without a configuration a loaded model has neither a reference model nor token frequencies.
    config = config or ModelConfig(model=local.identity.id, chats="whole" if local.whole_chats else "answers")
    return open_model(config, local=local, whole=whole, states=states, seed=seed)


def loaded(model: "LanguageModel | Loaded | tuple[Loaded, PreTrainedTokenizerFast]") -> "LanguageModel":
    """A loaded model, alone or in a pair with its tokenizer, as a `LanguageModel`."""
    from fsd.models.language_model import LanguageModel, wrap

    if isinstance(model, LanguageModel):
        return model
    if not isinstance(model, tuple | list):
        return wrap(model)
    if len(model) != 2:
        raise UsageError(f"model must be one, or a pair (model, tokenizer); got {len(model)} objects")
    network, tokenizer = model
    return wrap(network, tokenizer)
