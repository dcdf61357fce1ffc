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

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias

from fsd.config import ALL, AUTO, AdapterConfig, ModelConfig
from fsd.errors import UsageError, at_least

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from peft import PeftModel
    from transformers import PreTrainedModel

    from detectors import Detector
    from fsd.evaluation.results import Evaluation
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.model import Model as OpenedModel
    from fsd.scoring.plan import ScoringPlan

    Model: TypeAlias = str | PathLike[str] | ModelConfig | LanguageModel | PreTrainedModel | PeftModel


def score(
    model: "Model",
    texts: Sequence[str],
    detectors: "str | Sequence[str | Detector]" = "auto",
    *,
    unseen: Sequence[str] = (),
    shots: int = 2,
    seed: int = 42,
) -> "pd.DataFrame":
    """Score texts with the base model, without fine-tuning.

    Args:
        model: "embedded", a folder, a hub id, a `fsd.config.ModelConfig`, or a loaded model of transformers, peft or
            `fsd.models`.
        texts: N ≥ 1 texts.
        detectors: "auto" for the default set, "all" for every detector, as far as they can be computed here, or names
            and `detectors.load(...)` objects.
        unseen: texts that the model cannot have seen; `recall` and `neighbour` need some.
        shots: unseen texts in the prefix of `recall`.
        seed: random seed for the prefix and the neighbours.

    Returns:
        N rows in the order of the texts, a column `<detector>.base` per detector; higher = more likely a member.

    Raises:
        UsageError: if the model cannot be loaded, or a detector given by name cannot be computed.
    """
    plan, _ = _prepare(model, texts, unseen, detectors, shots=shots, seed=seed)
    return plan.score().frame()


def deviation(
    model: "Model",
    texts: Sequence[str],
    unseen: Sequence[str],
    detectors: "str | Sequence[str | Detector]" = "auto",
    *,
    training: AdapterConfig | None = None,
    shots: int = 2,
    seed: int = 42,
) -> "pd.DataFrame":
    """Score texts before and after fine-tuning the model on unseen texts: Fine-tuned Score Deviation.

    FSD(x) = S(x; base) − S(x; tuned), arXiv 2410.10880, eq. 5. A loaded model that has an adapter already is not
    trained again; one without is fine-tuned, and returned to its base afterwards.

    Args:
        model: "embedded", a folder, a hub id, a `fsd.config.ModelConfig`, or a loaded model of transformers, peft or
            `fsd.models`.
        texts: N ≥ 1 texts to score, none of them among the unseen ones.
        unseen: texts that the model cannot have seen, e.g. published after its cutoff; it is fine-tuned on them.
        detectors: "auto" for the default set, "all" for every detector, as far as they can be computed here, or names
            and `detectors.load(...)` objects.
        training: how the adapter is trained; by default as in the paper.
        shots: unseen texts in the prefix of `recall`.
        seed: random seed for the adapter, the order of training, the prefix and the neighbours.

    Returns:
        N rows in the order of the texts, columns `<detector>.base`, `<detector>.tuned` and `<detector>.fsd`; a detector
        that compares both states itself has `<detector>.fsd` alone. Higher = more likely a member.

    Raises:
        UsageError: if the model cannot be loaded or trained, a text is among the unseen ones, or a detector given by
            name cannot be computed.
    """
    from fsd.models.adapters import detach
    from fsd.models.finetuning import finetune
    from fsd.scoring.scorers import STATES

    texts = listed("texts", texts)
    unseen = listed("unseen", unseen)
    # A text that the model was trained on scores like a member.
    shared = set(texts).intersection(unseen)
    if shared:
        raise UsageError(f"texts must not be among the unseen texts; got {len(shared)} that are")
    training = training or AdapterConfig()
    plan, language_model = _prepare(
        model,
        texts,
        unseen,
        detectors,
        shots=shots,
        states=STATES,
        seed=seed,
    )
    # An adapter that came with the model is the caller's, and stays.
    if language_model.adapted:
        return plan.score().frame()
    finetune(language_model, unseen, training, seed=seed)
    try:
        return plan.score().frame()
    finally:
        detach(language_model)


def evaluate(
    scores: "pd.DataFrame",
    labels: Sequence[bool],
    groups: Sequence[object] | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> "Evaluation":
    """Evaluate scores of members and non-members: AUC, TPR at fixed FPR, and the gain of FSD over the base score.

    Args:
        scores: N rows with columns `<detector>.base` and `<detector>.fsd`, as `score` and `deviation` return them.
        labels: N labels; True for a member.
        groups: N groups (article, paper, book) that intervals resample as one; None or "" for a text by itself.
        resamples: bootstrap resamples.
        seed: random seed of the bootstrap.

    Returns:
        A long data frame, one row per number: detector, state, metric, value, low, high (95 % interval), p, p_holm. It
        prints as its `wide` form, one row per detector: base, FSD and gain, each with its interval.

    Raises:
        UsageError: with fewer than two groups of members or of non-members, a label that is missing or another,
            scores without such a column, or resamples below 1.
    """
    from fsd.evaluation.results import Evaluation, evaluate

    at_least(1, resamples=resamples)
    members = _members(scores, labels)
    return Evaluation(evaluate(scores, members, groups, resamples=resamples, seed=seed))


def plot(scores: "pd.DataFrame", labels: Sequence[bool]) -> "tuple[Figure, Figure]":
    """Draw ROC curves, and the distributions of the scores of members and non-members, of every detector.

    Args:
        scores: N rows with columns `<detector>.base` and `<detector>.fsd`, as `score` and `deviation` return them.
        labels: N labels; True for a member.

    Returns:
        Two matplotlib figures: ROC curves with a panel per detector, and distributions with one per detector and state.
    """
    from fsd.reporting import figures
    from fsd.scores import BASE, FSD, columns_of, of_state

    members = _members(scores, labels)
    columns = columns_of(scores)
    base = of_state(columns, BASE)
    deviations = of_state(columns, FSD)
    return figures.roc(members, base, deviations), figures.score_distributions(members, base, deviations)


def _members(scores: "pd.DataFrame", labels: Sequence[bool]) -> list[bool]:
    """The labels, as files may have them; any other would count as one of the two, also a missing one."""
    from fsd.data.readers import LABELS

    columns = [str(name) for name in getattr(scores, "columns", ())]
    if not any(name.endswith((".base", ".fsd")) for name in columns):
        came = f"the columns {', '.join(columns)}" if columns else type(scores).__name__
        raise UsageError(f"scores must be a data frame with columns <detector>.base or <detector>.fsd; got {came}")
    members = []
    for label in labels:
        member = LABELS.get(str(label).lower())
        if member is None:
            raise UsageError(f"labels must be True or 1 (member), False or 0 (non-member); got {label!r}")
        members.append(member)
    return members


def listed(name: str, texts: Sequence[str]) -> list[str]:
    """The texts; UsageError for a single string or a table, whose characters or names would be taken for texts."""
    if isinstance(texts, str):
        raise UsageError(f"{name} must be a list of strings; got one string, {texts[:40]!r}")
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise UsageError(f"{name} must be a list of strings; got a {type(texts).__name__}: take one column of it")
    # An iterator could be read only once.
    strings = list(texts)
    for text in strings:
        if not isinstance(text, str):
            raise UsageError(f"{name} must be a list of strings; got {text!r} in it")
    return strings


def _prepare(
    model: "Model",
    texts: Sequence[str],
    unseen: Sequence[str],
    detectors: "str | Sequence[str | Detector]",
    *,
    shots: int,
    **opening: Any,
) -> "tuple[ScoringPlan, LanguageModel]":
    texts = listed("texts", texts)
    unseen = listed("unseen", unseen)
    # What was named must be computable; of a set, what can be computed.
    strict = not isinstance(detectors, str) or detectors not in (AUTO, ALL)
    requested = chosen(detectors)
    to_score = opened(model, **opening)
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


def opened(model: "Model", **opening: Any) -> "OpenedModel":
    """The model, loaded if it is not yet, with its scorers; for `opening` see `fsd.scoring.model.open_model`."""
    from fsd.models.language_model import LanguageModel, wrap
    from fsd.scoring.model import open_model

    if isinstance(model, str | PathLike):
        model = ModelConfig(model=fspath(model))
    if isinstance(model, ModelConfig):
        return open_model(model, **opening)
    local = model if isinstance(model, LanguageModel) else wrap(model)
    # A loaded model has neither a reference model nor token frequencies.
    return open_model(ModelConfig(model=local.identity.id), local=local, **opening)
