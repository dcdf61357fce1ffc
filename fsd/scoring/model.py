"""Models to score with, wherever they are, and what can be computed with them, checked before anything else is done."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fsd import distributed
from fsd.config import NEIGHBOURS, AdapterConfig, APIConfig, ModelConfig
from fsd.errors import UsageError, at_least
from fsd.net.hub import EMBEDDED, EMBEDDED_TWIN, default_folder, locate
from fsd.scoring.deviation import Deviation, evaluate
from fsd.token_stats import Known, Labelled, Prompt, Scorer
from fsd.views import DRAWS, FORMS, PRIMED, Detector, Draws, ViewInputs, repetitions, usable

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore

TABLE = "frequencies.npz"
"""Name of the token-frequency table in a model's folder."""
WORD_SWAPS = 5
"""Neighbours of a text by word swaps, or copies with words in another order; each of them costs a forward pass."""
KNOWN = 150
"""Most known texts of a label that the signals of a text are compared with or fitted to, as in OLMo-Detect."""
API = "api:"
"""Prefix of the name of a model behind an API."""


def draws(config: ModelConfig) -> dict[str, Draws]:
    """How texts are continued, by form."""
    at_least(1, samples=config.samples)
    return {form: way._replace(samples=config.samples or way.samples) for form, way in DRAWS.items()}


def reader_names(config: ModelConfig) -> list[str]:
    """The names of the scorers that `build_scorers` makes for a model, without loading it."""
    optional = {"reference": reference_name(config), "unigram": frequency_file(config)}
    gradients = ["base.gradient", "tuned.gradient"] if _has_gradients(config) else []
    return ["base", "tuned", *gradients, *(name for name, value in optional.items() if value)]


def build_scorers(language_model: "LanguageModel", config: ModelConfig, *, seed: int = 42) -> dict[str, Scorer]:
    """Scorers by reader name: the model with its adapter off and on, the reference model, and token frequencies.

    The seed is that of samples.
    """
    from fsd.scoring.cache import FILE, SQLiteStore
    from fsd.scoring.gradients import GradientScorer

    folder = cache_folder(config)
    store = SQLiteStore(folder / FILE) if folder and distributed.is_main_process() else None
    scorers = {name: _scorer(name, language_model, config, store) for name in ("base", "tuned")}
    if _has_gradients(config):
        label = "gradient" if distributed.is_main_process() else ""
        scorers |= {
            f"{name}.gradient": GradientScorer(language_model, tuned=name == "tuned", description=label)
            for name in ("base", "tuned")
        }
    scorers |= {
        f"{name}.{form}": _sampler(name, language_model, config, store, way, seed)
        for form, way in draws(config).items()
        for name in ("base", "tuned")
    }
    if reference := reference_name(config):
        scorers["reference"] = reference_scorer(reference, config, store)
    vocabulary = language_model.base.config.get_text_config().vocab_size
    return scorers | _unigram(config, language_model.tokenizer, vocabulary, language_model.tokens)


def _has_gradients(config: ModelConfig) -> bool:
    return config.bits is None and config.device != "spread" and not config.model.startswith(API)


def _scorer(name: str, model: "LanguageModel", config: ModelConfig, store: "SQLiteStore | None") -> Scorer:
    """The scorer of one model state, which computes in all processes of the job what is not in the store."""
    from fsd.scoring.cache import MemoizedScorer, model_key
    from fsd.scoring.model_scorer import DistributedScorer, ModelScorer, collective

    tuned = name == "tuned"
    model_scorer = (DistributedScorer if distributed.num_processes() > 1 else ModelScorer)(
        model,
        tuned=tuned,
        max_batch_tokens=config.max_batch_tokens,
        description=name if distributed.is_main_process() else "",
    )
    scorer: Scorer = model_scorer
    if store is not None and model.identity.fingerprint:
        # The base weights never change; the adapter may be trained between two calls.
        key = partial(model_key, model, tuned=tuned)
        scorer = MemoizedScorer(scorer, store, key if tuned else cache(key))
    return collective(scorer, model_scorer) if isinstance(model_scorer, DistributedScorer) else scorer


def _sampler(
    name: str, model: "LanguageModel", config: ModelConfig, store: "SQLiteStore | None", way: Draws, seed: int
) -> Scorer:
    """The continuations by one model state, which the main process draws."""
    from fsd.scoring.cache import MemoizedScorer, model_key
    from fsd.scoring.sampling import ContinuationScorer

    tuned, label = name == "tuned", f"{name} samples" if distributed.is_main_process() else ""
    sampler: Scorer = ContinuationScorer(
        model, way, tuned=tuned, seed=seed, batch_tokens=config.max_batch_tokens, description=label
    )
    if store is not None and model.identity.fingerprint:
        sampler = MemoizedScorer(sampler, store, lambda: f"{model_key(model, tuned=tuned)} {way} {seed}")
    return lambda prompts: distributed.from_main(lambda: list(sampler(prompts)))


def reference_scorer(name: str, config: ModelConfig, store: "SQLiteStore | None") -> Scorer:
    """The scorer of the reference model, which is located at once and loaded at the first call."""
    from fsd.models.language_model import load

    locate(name)
    scorer = cache(lambda: _scorer("reference", load(config, model=name, revision=None), config, store))
    return lambda prompts: scorer()(prompts)


def _unigram(
    config: ModelConfig, tokenizer: Any, vocabulary: int, tokens: Callable[[Sequence[str]], list[list[int]]]
) -> dict[str, Scorer]:
    from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

    file = frequency_file(config)
    if file is None:
        return {}
    return {"unigram": unigram_scorer(FrequencyTable.load(file).matching(tokenizer, vocabulary, config.model), tokens)}


def reference_name(config: ModelConfig) -> str | None:
    """The reference model: the one given, else the twin of an embedded target."""
    return config.reference_model or (EMBEDDED_TWIN if _embedded_target(config) else None)


def _embedded_target(config: ModelConfig) -> bool:
    return config.model in EMBEDDED and not config.model.endswith("twin")


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table of the configuration, or else of the model's folder; None if there is none."""
    if config.frequencies:
        return Path(config.frequencies)
    beside = EMBEDDED.get(config.model, Path(config.model)) / TABLE
    return beside if beside.is_file() else None


def cache_folder(config: ModelConfig) -> Path | None:
    """The folder of the cache; None if it is switched off."""
    return None if config.cache == "none" else default_folder(config.cache)


def view_inputs(
    config: ModelConfig, texts: Sequence[str], *, shots: int, seed: int, labelled: Labelled = MappingProxyType({})
) -> ViewInputs:
    """What detectors need besides the text, as far as unseen and labelled texts and the configuration give it."""
    at_least(1, shots=shots)
    prefix = "".join(f"{text}\n\n" for text in random.Random(seed).sample(texts, min(shots, len(texts))))
    kind, count = config.neighbour_model or ("words" if _embedded_target(config) else None), config.neighbours
    from fsd.scoring.neighbours import MaskedModel, build_vocabulary, swapped_words, word_swaps

    inputs = ViewInputs(
        prefix,
        swapped=partial(swapped_words, count=WORD_SWAPS, seed=seed),
        member_prefix=member_prefix(labelled, shots, seed),
        known=Known(_repeated(texts, seed)) if texts else None,
        labelled=both_sides(labelled, seed),
    )
    if kind is None or (kind == "words" and not texts):
        return inputs
    at_least(1, neighbours=count)
    if kind == "words":
        swaps = partial(word_swaps, vocabulary=build_vocabulary(texts), count=count or WORD_SWAPS, seed=seed)
        return replace(inputs, neighbours=swaps)
    if not distributed.is_main_process():
        return replace(inputs, neighbours=lambda text: distributed.from_main(list))
    device = "auto" if config.device == "spread" else config.device
    masked = MaskedModel(kind, count=count or NEIGHBOURS, device=device, seed=seed)
    return replace(inputs, neighbours=lambda text: distributed.from_main(lambda: masked(text)))


def _repeated(texts: Sequence[str], seed: int) -> list[list[Prompt]]:
    sample = map(Prompt, random.Random(seed).sample(texts, min(KNOWN, len(texts))))
    return [[prompt, *repetitions(prompt)] for prompt in sample]


def both_sides(labelled: Labelled, seed: int) -> Known | None:
    """Known members and non-members, of both if any family is left out; None if there are none."""
    known: list[list[Prompt]] = []
    for member in (True, False):
        side = _repeated(sorted(text for text, (_, is_member) in labelled.items() if is_member is member), seed)
        if len({labelled[prompts[0].text][0] for prompts in side}) < 2:
            return None
        known += side
    return Known(known, labelled)


def member_prefix(labelled: Labelled, shots: int, seed: int) -> Callable[[str], str] | None:
    """Text → the first known members in a random order that are of another family than the text."""
    members = {text: family for text, (family, member) in labelled.items() if member}
    if len({*members.values()}) < 2:
        return None
    order = random.Random(seed).sample(sorted(members), len(members))

    def prefix(text: str) -> str:
        family, _ = labelled.get(text, (None, False))
        others = (member for member in order if members[member] != family)
        return "".join(f"{member}\n\n" for member in islice(others, shots))

    return prefix


@dataclass(frozen=True)
class Model:
    """A model with its scorers, opened by `open_model`.

    `tokens` (without special tokens), `decode` and `tokenizer`, its hash, are unknown for an API without `--tokenizer`.
    `local` is the model on this machine; `answers` keeps those of an API; `reference` names the reference model.
    """

    name: str
    scorers: Mapping[str, Scorer]
    tokens: Callable[[Sequence[str]], list[list[int]]] | None = None
    decode: Callable[[list[int]], str] | None = None
    tokenizer: str = ""
    local: "LanguageModel | None" = None
    answers: "SQLiteStore | None" = None
    reference: str | None = None

    def job(
        self,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        inputs: ViewInputs | None = None,
        *,
        contexts: Sequence[str] = (),
        **how: Any,
    ) -> "ScoringJob":
        """The scoring of texts, after their contexts, by the detectors that can do it; see `usable` for `how`."""
        excluded = {**self._unaligned(detectors, texts), **how.pop("excluded", {})}
        if any(contexts):
            primed = [detector.name for detector in detectors if PRIMED.intersection(detector.views)]
            excluded |= dict.fromkeys(primed, "its prefix would take the place of the texts' own contexts")
        found, left_out = usable(detectors, texts, self.scorers, inputs, excluded=excluded, **how)
        remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
        inputs = inputs or ViewInputs()
        for detector in found:
            prefixed = PRIMED.intersection(detector.views)
            if (local := self.local) and (forms := prefixed | {"repeated"}.intersection(detector.views)):
                size, context = cache(lambda prefix: len(local.tokens([prefix])[0])), local.context
                before = [max(size(FORMS[form](Prompt(text), inputs)[-1].context) for form in forms) for text in texts]
                cut = sum(of + len(ids) > context for of, ids in zip(before, local.tokens(texts), strict=True))
                many = f"all {len(texts):,}" if cut == len(texts) else f"{cut:,} of {len(texts):,}"
                if cut:
                    remarks.append(
                        f"{detector.name}: {'the prefix is' if prefixed else 'text and copies are'} too long for the "
                        f"{context}-token context in {many} texts and "
                        f"{'was cut; try --shots 1' if prefixed else 'were cut; try shorter texts'}"
                    )
        return ScoringJob(list(texts), found, left_out, self.scorers, inputs, remarks, contexts)

    def _unaligned(self, detectors: Sequence[Detector], texts: Sequence[str]) -> dict[str, str]:
        """The detectors that compare tokens with a reference model which divides the texts into others."""
        from fsd.models.language_model import load_tokenizer, token_ids

        aligned = [d.name for d in detectors if "reference" in d.views and "token" in d.needs]
        if not aligned or self.reference is None or self.tokens is None:
            return {}
        same = token_ids(load_tokenizer(self.reference)[0], texts) == self.tokens(texts)
        return {} if same else dict.fromkeys(aligned, "the reference model has another tokenizer")


@dataclass(frozen=True)
class ScoringJob:
    """Texts, the detectors that can be computed on them and why not the others, and what they are computed with."""

    texts: list[str]
    detectors: Sequence[Detector]
    left_out: dict[str, str]
    scorers: Mapping[str, Scorer]
    inputs: ViewInputs
    remarks: list[str]
    contexts: Sequence[str] = ()

    def score(self) -> Deviation:
        """Base, tuned and FSD scores of the texts, in every process of the job."""
        shown = distributed.is_main_process()
        return evaluate(self.texts, self.detectors, self.scorers, self.inputs, contexts=self.contexts, shown=shown)


def prepare(  # noqa: PLR0913 - each argument is a choice of its own, most of them with a default
    model: "LanguageModel",
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
    labelled: Labelled = MappingProxyType({}),
) -> ScoringJob:
    """Check which detectors can be computed on the texts, and that the training is possible.

    The unseen texts give the prefix of `recall` and the words of `neighbour`, and `labelled` ones the second prefix of
    `con_recall` and what `camia_lr` is fitted to. `training` is None for base scores alone, or for a model with an
    adapter; `scorers`, e.g. memoized ones, take the place of the model's own. Unless `strict`, a detector that cannot
    be computed is left out.
    """
    from fsd.models.finetuning import plan

    scorers = dict(scorers or build_scorers(model, config, seed=seed))
    if not model.adapted:
        if training is None:
            scorers.pop("tuned", None)
        else:
            plan(model, unseen, training)
    reference = reference_name(config) if "reference" in scorers else None
    opened = Model(config.model, scorers, model.tokens, local=model, reference=reference)
    inputs = view_inputs(config, unseen, shots=shots, seed=seed, labelled=labelled)
    return opened.job(detectors, texts, inputs, strict=strict)


def open_model(
    config: ModelConfig, api: APIConfig, answers: str | Path, *, chat: bool = False, seed: int = 42
) -> Model:
    """Load a model, or connect to its API, whose answers are kept in a file, so that an interrupted command goes on."""
    from fsd.models import language_model
    from fsd.scoring.api import Client, CompletionsScorer, ContinuationsAPI, PromptTokens, key_for
    from fsd.scoring.cache import MemoizedScorer, SQLiteStore
    from fsd.scoring.token_frequencies import fingerprint

    if not config.model.startswith(API):
        model = language_model.load(config)
        scorers = build_scorers(model, config, seed=seed)
        del scorers["tuned"]
        own, reference = fingerprint(model.tokenizer), reference_name(config)
        return Model(config.model, scorers, model.tokens, model.tokenizer.decode, own, model, reference=reference)
    if api.base_url is None:
        raise UsageError(
            f"model {config.model} must come with --base-url, e.g. http://localhost:8000/v1; there is none"
        )
    if api.price is not None and not api.price >= 0:
        raise UsageError(f"price must be at least 0; got {api.price}")
    client = Client(api.base_url, key=key_for(api.base_url), per_minute=api.requests_per_minute)
    scorers, known = {}, None
    if api.tokenizer is not None:
        tokenizer, vocabulary = language_model.load_tokenizer(api.tokenizer, revision=config.revision)
        known = PromptTokens(tokenizer, api.tokenizer)
        scorers = _unigram(replace(config, model=api.tokenizer), tokenizer, vocabulary, known.tokens)
    store = SQLiteStore(Path(answers), limit=None, required=True)
    how: dict[str, Any] = {"start": api.start_token, "tokens": known, "concurrency": api.concurrency}
    how |= {"description": "API"}
    makers: dict[str, Callable[..., CompletionsScorer]] = {} if chat else {"base": CompletionsScorer}
    makers |= {f"base.{form}": partial(ContinuationsAPI, draws=way, chat=chat) for form, way in draws(config).items()}
    for name, make in makers.items():
        scorer = make(client, config.model.removeprefix(API), **how)
        scorers[name] = MemoizedScorer(scorer, store, scorer.key)
    if config.reference_model:
        scorers["reference"] = reference_scorer(config.reference_model, config, None)
    opened = Model(config.model, scorers, answers=store, reference=config.reference_model)
    return replace(opened, tokens=known.tokens, decode=known.decode, tokenizer=known.fingerprint) if known else opened
