"""A scoring job: texts, detectors and scorers, checked before anything is trained or written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsd import distributed
from fsd.config import AdapterConfig, ModelConfig
from fsd.models.finetuning import plan
from fsd.models.language_model import LanguageModel, load_tokenizer, token_ids
from fsd.scoring.deviation import Deviation, evaluate
from fsd.scoring.scorers import build_scorers, reference_name, view_inputs
from fsd.token_stats import Scorer
from fsd.views import Detector, ViewInputs, usable


@dataclass(frozen=True)
class ScoringJob:
    """Everything that scoring needs; made by `prepare`."""

    texts: list[str]
    detectors: Sequence[Detector]
    left_out: dict[str, str]
    scorers: Mapping[str, Scorer]
    inputs: ViewInputs
    remarks: list[str]

    def score(self) -> Deviation:
        """Base, tuned and FSD scores of the texts, in every process of the job."""
        shown = distributed.is_main_process()
        return evaluate(self.texts, self.detectors, self.scorers, self.inputs, shown=shown)


def prepare(  # noqa: PLR0913 - each argument is a choice of its own, most of them with a default
    model: LanguageModel,
    texts: Sequence[str],
    unseen: Sequence[str],
    detectors: Sequence[Detector],
    config: ModelConfig,
    *,
    training: AdapterConfig | None = None,
    scorers: Mapping[str, Scorer] | None = None,
    strict: bool = True,
    shots: int = 2,
    seed: int = 42,
) -> ScoringJob:
    """Check which detectors can be computed on the texts, and that the training is possible.

    The unseen texts give the prefix of `recall` and the words of `neighbour`. `training` is None for base scores
    alone, or for a model with an adapter; `scorers`, e.g. memoized ones, take the place of the model's own. Unless
    `strict`, a detector that cannot be computed is left out.
    """
    scorers = dict(scorers or build_scorers(model, config))
    if not model.adapted:
        if training is None:
            scorers.pop("tuned", None)
        else:
            plan(model, unseen, training)
    inputs = view_inputs(config, unseen, shots=shots, seed=seed)
    aligned = [d.name for d in detectors if "reference" in d.views and "token" in d.needs and "reference" in scorers]
    excluded = {}
    if aligned and not _same_tokens(model, reference_name(config), texts):
        excluded = dict.fromkeys(aligned, "the reference model has another tokenizer")
    computable, left_out = usable(detectors, texts, scorers, inputs, excluded=excluded, strict=strict)
    remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
    remarks += cut_remarks(model, texts, computable, inputs)
    return ScoringJob(list(texts), computable, left_out, scorers, inputs, remarks)


def _same_tokens(model: LanguageModel, reference: str | None, texts: Sequence[str]) -> bool:
    """Whether the reference model, None for one in memory, divides the texts into the same tokens as the model."""
    if reference is None:
        return True
    tokenizer, _ = load_tokenizer(reference)
    return token_ids(tokenizer, texts) == model.tokens(texts)


def cut_remarks(
    model: LanguageModel, texts: Sequence[str], detectors: Sequence[Detector], inputs: ViewInputs
) -> list[str]:
    """The line on texts that exceed the context together with the prefix of `recall`; none without any."""
    if not any("primed" in detector.views for detector in detectors):
        return []
    size = len(model.tokens([inputs.prefix])[0])
    cut = sum(size + len(ids) > model.context for ids in model.tokens(texts))
    if not cut:
        return []
    return [
        f"recall: {cut:,} of {len(texts):,} texts exceed the model's context with the prefix, so that tokens are "
        "scored without its beginning and the start token (fewer --shots make it shorter)"
    ]
