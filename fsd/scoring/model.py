"""Models to score with, wherever they are, and what can be computed with them, checked before anything else is done."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from fsd.scoring.deviation import ScoreTable, score_texts
from fsd.token_stats import Known, Labelled, Prompt, Scorer, Tokenize
from fsd.views import (
    DRAWS,
    FORMS,
    PAIRS,
    PRIMED,
    Detector,
    Draws,
    ViewInputs,
    repetitions,
    usable,
)

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.cache import SQLiteStore

STATES = ("base", "tuned")
# Name of the token-frequency table in a model's folder.
TABLE = "frequencies.npz"
# Neighbours of a text by word swaps, or copies with words in another order; each of them costs a forward pass.
WORD_SWAPS = 5
# Most known texts of a label that the signals of a text are compared with or fitted to, as in OLMo-Detect.
KNOWN = 150
# Prefix of the name of a model behind an API.
API = "api:"


def draws(config: ModelConfig) -> dict[str, Draws]:
    """How texts are continued, by form."""
    at_least(1, samples=config.samples)
    if config.samples is None:
        return DRAWS
    return {form: way._replace(samples=config.samples) for form, way in DRAWS.items()}


def reader_names(config: ModelConfig) -> list[str]:
    """The names of the scorers that `build_scorers` makes for a model, without loading it."""
    names = list(STATES)
    if _has_gradients(config):
        names += [f"{state}.gradient" for state in STATES]
    if not config.model.startswith(API):
        names += [f"{state}.change" for state in STATES]
    if reference_name(config):
        names.append("reference")
        if not config.model.startswith(API):
            names += [f"{state}.difference" for state in STATES]
    if frequency_file(config):
        names.append("unigram")
    return names


def build_scorers(
    language_model: "LanguageModel",
    config: ModelConfig,
    *,
    seed: int = 42,
) -> dict[str, Scorer]:
    """Scorers by reader name: the model with its adapter off and on, the reference model, and token frequencies.

    The seed is that of samples.
    """
    from fsd.scoring.gradients import GradientScorer

    store = _store(config)
    scorers: dict[str, Scorer] = {}
    for state in STATES:
        tuned = state == "tuned"
        scorers[state] = _scorer(state, language_model, config, store)
        if _has_gradients(config):
            title = _title("gradient")
            scorers[f"{state}.gradient"] = GradientScorer(language_model, tuned=tuned, description=title)
        for form, way in draws(config).items():
            scorers[f"{state}.{form}"] = _sampler(
                state,
                language_model,
                config,
                store,
                way,
                seed,
            )
    loaders = {"base": lambda: language_model, "tuned": lambda: language_model}
    if reference := reference_name(config):
        loaders["reference"] = reference_loader(reference, config)
        scorers["reference"] = reference_scorer(loaders["reference"], config, store)
    scorers |= _pairs(loaders, config, store)
    vocabulary = language_model.base.config.get_text_config().vocab_size
    return scorers | _unigram(config, language_model.tokenizer, vocabulary, language_model.tokens)


def _has_gradients(config: ModelConfig) -> bool:
    # Quantized weights have no gradient, and those spread over several devices none in one place.
    return config.bits is None and config.device != "spread" and not config.model.startswith(API)


def _title(label: str) -> str:
    """The title of a progress bar, which the main process alone shows."""
    return label if distributed.is_main_process() else ""


def _scorer(
    name: str,
    model: "LanguageModel",
    config: ModelConfig,
    store: "SQLiteStore | None",
) -> Scorer:
    """The scorer of one model state, which computes in all processes of the job what is not in the store."""
    from fsd.scoring.cache import MemoizedScorer, model_key
    from fsd.scoring.model_scorer import (
        DistributedScorer,
        ModelScorer,
        collective,
    )

    tuned = name == "tuned"
    kind = DistributedScorer if distributed.num_processes() > 1 else ModelScorer
    batch_tokens = config.max_batch_tokens
    model_scorer = kind(
        model,
        tuned=tuned,
        max_batch_tokens=batch_tokens,
        description=_title(name),
    )
    scorer: Scorer = model_scorer
    if store is not None and model.identity.fingerprint:
        # The base weights never change; the adapter may be trained between two calls.
        key = partial(model_key, model, tuned=tuned)
        scorer = MemoizedScorer(scorer, store, key if tuned else cache(key))
    return collective(scorer, model_scorer) if isinstance(model_scorer, DistributedScorer) else scorer


def _sampler(
    name: str,
    model: "LanguageModel",
    config: ModelConfig,
    store: "SQLiteStore | None",
    way: Draws,
    seed: int,
) -> Scorer:
    """The continuations by one model state, which the main process draws."""
    from fsd.scoring.cache import MemoizedScorer, model_key
    from fsd.scoring.sampling import ContinuationScorer

    tuned = name == "tuned"
    title = _title(f"{name} samples")
    batch_tokens = config.max_batch_tokens
    sampler: Scorer = ContinuationScorer(
        model,
        way,
        tuned=tuned,
        seed=seed,
        batch_tokens=batch_tokens,
        description=title,
    )
    if store is not None and model.identity.fingerprint:
        sampler = MemoizedScorer(
            sampler,
            store,
            lambda: f"{model_key(model, tuned=tuned)} {way} {seed}",
        )
    return lambda prompts: distributed.from_main(lambda: list(sampler(prompts)))


def reference_loader(name: str, config: ModelConfig) -> "Callable[[], LanguageModel]":
    """What loads the reference model, which is located at once, at the first call."""
    from fsd.models.language_model import load

    # A wrong name is refused before anything is computed; a model that no detector reads takes no memory.
    locate(name)
    return cache(partial(load, config, model=name, revision=None))


def reference_scorer(
    loader: "Callable[[], LanguageModel]",
    config: ModelConfig,
    store: "SQLiteStore | None",
) -> Scorer:
    """The scorer of the reference model, which is loaded at the first call."""
    scorer = cache(lambda: _scorer("reference", loader(), config, store))
    return lambda prompts: scorer()(prompts)


def _pairs(
    loaders: "Mapping[str, Callable[[], LanguageModel]]",
    config: ModelConfig,
    store: "SQLiteStore | None",
) -> dict[str, Scorer]:
    """The scorers that compare two of the models by reader name over the whole vocabulary."""
    from fsd.scoring.pair_scorer import PairMember, pair_scorer

    members = {reader: PairMember(load, tuned=reader == "tuned") for reader, load in loaders.items()}
    scorers = {}
    for form, compared in PAIRS.items():
        for reader, reference in compared.items():
            if reference not in members:
                continue
            title = _title(f"{reader} beside {reference}")
            scorer = pair_scorer(members[reader], members[reference], config, store, title)
            scorers[f"{reader}.{form}"] = scorer
    return scorers


def whole_model_scorers(
    base: "LanguageModel",
    tuned: "LanguageModel",
    config: ModelConfig,
) -> dict[str, Scorer]:
    """The scorers of a fine-tuned model that is no adapter of its base: its own, and beside the base."""
    from fsd.scoring.pair_scorer import PairMember, pair_scorer

    members = (PairMember(lambda: tuned), PairMember(lambda: base))
    change = pair_scorer(*members, config, _store(config), _title("tuned beside base"))
    return {"tuned": build_scorers(tuned, config)["base"], "tuned.change": change}


def _store(config: ModelConfig) -> "SQLiteStore | None":
    from fsd.scoring.cache import FILE, SQLiteStore

    folder = cache_folder(config)
    # One process writes; the others get what it knows.
    return SQLiteStore(folder / FILE) if folder and distributed.is_main_process() else None


def _unigram(
    config: ModelConfig,
    tokenizer: Any,
    vocabulary: int,
    tokens: Tokenize,
) -> dict[str, Scorer]:
    from fsd.scoring.token_frequencies import FrequencyTable, unigram_scorer

    file = frequency_file(config)
    if file is None:
        return {}
    table = FrequencyTable.load(file).matching(tokenizer, vocabulary, config.model)
    return {"unigram": unigram_scorer(table, tokens)}


def reference_name(config: ModelConfig) -> str | None:
    """The reference model: the one given, else the twin of an embedded target."""
    return config.reference_model or (EMBEDDED_TWIN if _embedded_target(config) else None)


def _embedded_target(config: ModelConfig) -> bool:
    return config.model in EMBEDDED and not config.model.endswith("twin")


def frequency_file(config: ModelConfig) -> Path | None:
    """The token-frequency table of the configuration, or else of the model's folder; None if there is none."""
    if config.frequencies:
        return Path(config.frequencies)
    file = EMBEDDED.get(config.model, Path(config.model)) / TABLE
    return file if file.is_file() else None


def cache_folder(config: ModelConfig) -> Path | None:
    """The folder of the cache; None if it is switched off."""
    return None if config.cache == "none" else default_folder(config.cache)


def view_inputs(
    config: ModelConfig,
    texts: Sequence[str],
    *,
    shots: int,
    seed: int,
    labelled: Labelled = MappingProxyType({}),
) -> ViewInputs:
    """What detectors need besides the text, as far as unseen and labelled texts and the configuration give it."""
    at_least(1, shots=shots)
    from fsd.scoring.neighbours import swapped_words

    chosen = random.Random(seed).sample(texts, min(shots, len(texts)))
    prefix = "".join(f"{text}\n\n" for text in chosen)
    return ViewInputs(
        prefix,
        _neighbours(config, texts, seed),
        partial(swapped_words, count=WORD_SWAPS, seed=seed),
        member_prefix(labelled, shots, seed),
        Known(_repeated(texts, seed)) if texts else None,
        both_sides(labelled, seed),
    )


def _neighbours(
    config: ModelConfig,
    texts: Sequence[str],
    seed: int,
) -> Callable[[str], Sequence[str]] | None:
    """What makes the neighbours of a text: a masked language model, swaps of the texts' words, or nothing."""
    from fsd.scoring.neighbours import (
        MaskedModel,
        build_vocabulary,
        word_swaps,
    )

    kind = config.neighbour_model or ("words" if _embedded_target(config) else None)
    if kind is None or (kind == "words" and not texts):
        return None
    at_least(1, neighbours=config.neighbours)
    if kind == "words":
        vocabulary = build_vocabulary(texts)
        return partial(
            word_swaps,
            vocabulary=vocabulary,
            count=config.neighbours or WORD_SWAPS,
            seed=seed,
        )
    # Dropout makes the neighbours random, so one process draws them for all.
    if not distributed.is_main_process():
        return lambda text: distributed.from_main(list)
    device = "auto" if config.device == "spread" else config.device
    masked = MaskedModel(
        kind,
        count=config.neighbours or NEIGHBOURS,
        device=device,
        seed=seed,
    )
    return lambda text: distributed.from_main(lambda: masked(text))


def _repeated(texts: Sequence[str], seed: int) -> list[list[Prompt]]:
    sample = map(Prompt, random.Random(seed).sample(texts, min(KNOWN, len(texts))))
    return [[prompt, *repetitions(prompt)] for prompt in sample]


def both_sides(labelled: Labelled, seed: int) -> Known | None:
    """Known members and non-members, of both if any family is left out; None if there are none."""
    sides: list[list[Prompt]] = []
    for side in (True, False):
        # Sorted, so that the sample does not depend on the order of the texts.
        texts = sorted(text for text, (_, member) in labelled.items() if member is side)
        repeated = _repeated(texts, seed)
        # A fit leaves out the family of the text that it is for, and needs texts of both labels all the same.
        if len({labelled[prompts[0].text][0] for prompts in repeated}) < 2:
            return None
        sides += repeated
    return Known(sides, labelled)


def member_prefix(
    labelled: Labelled,
    shots: int,
    seed: int,
) -> Callable[[str], str] | None:
    """Text → the first known members in a random order that are of another family than the text."""
    members = {text: family for text, (family, member) in labelled.items() if member}
    if len(set(members.values())) < 2:
        return None
    order = random.Random(seed).sample(sorted(members), len(members))

    def prefix(text: str) -> str:
        family, _ = labelled.get(text, (None, False))
        # After a relative of its own, every text is likely, member or not.
        unrelated = (member for member in order if members[member] != family)
        return "".join(f"{member}\n\n" for member in islice(unrelated, shots))

    return prefix


@dataclass(frozen=True)
class Model:
    """A model with its scorers, opened by `open_model`.

    `tokens` (without special tokens), `decode` and `tokenizer`, its hash, are unknown for an API without `--tokenizer`.
    `local` is the model on this machine; `answers` keeps those of an API; `reference` names the reference model.
    """

    name: str
    scorers: Mapping[str, Scorer]
    tokens: Tokenize | None = None
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
        **options: Any,
    ) -> "ScoringJob":
        """The scoring of texts, after their contexts, by the detectors that can do it; see `usable` for `options`."""
        excluded = {
            **self._unaligned(detectors, texts),
            **options.pop("excluded", {}),
        }
        if any(contexts):
            primed = [detector.name for detector in detectors if PRIMED.intersection(detector.views)]
            excluded |= dict.fromkeys(
                primed,
                "its prefix would take the place of the texts' own contexts",
            )
        computable, left_out = usable(
            detectors,
            texts,
            self.scorers,
            inputs,
            excluded=excluded,
            **options,
        )
        inputs = inputs or ViewInputs()
        remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
        remarks += self._cut_texts(computable, texts, inputs)
        return ScoringJob(
            list(texts),
            computable,
            left_out,
            self.scorers,
            inputs,
            remarks,
            contexts,
        )

    def _cut_texts(
        self,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        inputs: ViewInputs,
    ) -> Iterator[str]:
        """A remark for each detector that reads more before a text than the model's context holds."""
        model = self.local
        if model is None:
            return
        size = cache(lambda text: len(model.tokens([text])[0]))

        @cache  # several detectors read the same form
        def too_long(form: str) -> set[int]:
            rows = set()
            for row, ids in enumerate(model.tokens(texts)):
                context = FORMS[form](Prompt(texts[row]), inputs)[-1].context
                if size(context) + len(ids) > model.context:
                    rows.add(row)
            return rows

        for detector in detectors:
            prefixed = PRIMED.intersection(detector.views)
            forms = prefixed.union({"repeated"}.intersection(detector.views))
            cut = len(set().union(*map(too_long, forms)))
            if cut == 0:
                continue
            many = f"all {len(texts):,}" if cut == len(texts) else f"{cut:,} of {len(texts):,}"
            where = f"too long for the {model.context}-token context in {many} texts"
            if prefixed:
                yield f"{detector.name}: the prefix is {where} and was cut; try --shots 1"
            else:
                yield f"{detector.name}: text and copies are {where} and were cut; try shorter texts"

    def _unaligned(
        self,
        detectors: Sequence[Detector],
        texts: Sequence[str],
    ) -> dict[str, str]:
        """The detectors that compare tokens with a reference model which divides the texts into others."""
        from fsd.models.language_model import load_tokenizer, token_ids

        aligned = [d.name for d in detectors if "reference" in d.views and "token" in d.needs]
        # Whole distributions can be compared where every id stands for the same token.
        alike = [detector.name for detector in detectors if "difference" in detector.views]
        if not aligned + alike or self.reference is None or self.tokens is None:
            return {}
        tokenizer, _ = load_tokenizer(self.reference)
        unfit = []
        # Two tokenizers with other names may agree on these texts, and that is all that is needed for single tokens.
        if token_ids(tokenizer, texts) != self.tokens(texts):
            unfit = aligned + alike
        elif alike and self.local and tokenizer.get_vocab() != self.local.tokenizer.get_vocab():
            unfit = alike
        return dict.fromkeys(unfit, "the reference model has another tokenizer")


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

    def score(self) -> ScoreTable:
        """Base, tuned and FSD scores of the texts, in every process of the job."""
        return score_texts(
            self.texts,
            self.detectors,
            self.scorers,
            self.inputs,
            contexts=self.contexts,
            shown=distributed.is_main_process(),
        )


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
    opened = Model(
        config.model,
        scorers,
        model.tokens,
        local=model,
        reference=reference,
    )
    inputs = view_inputs(
        config,
        unseen,
        shots=shots,
        seed=seed,
        labelled=labelled,
    )
    return opened.job(detectors, texts, inputs, strict=strict)


def open_model(
    config: ModelConfig,
    api: APIConfig,
    answers: str | Path,
    *,
    chat: bool = False,
    seed: int = 42,
) -> Model:
    """Load a model, or connect to its API, whose answers are kept in a file, so that an interrupted command goes on."""
    from fsd.models import language_model
    from fsd.scoring.token_frequencies import fingerprint

    if config.model.startswith(API):
        return _open_api(config, api, Path(answers), chat=chat)
    model = language_model.load(config)
    scorers = build_scorers(model, config, seed=seed)
    del scorers["tuned"]  # there is no adapter
    return Model(
        config.model,
        scorers,
        model.tokens,
        model.tokenizer.decode,
        fingerprint(model.tokenizer),
        model,
        reference=reference_name(config),
    )


def _open_api(
    config: ModelConfig,
    api: APIConfig,
    answers: Path,
    *,
    chat: bool,
) -> Model:
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.api import (
        Client,
        CompletionsScorer,
        ContinuationsAPI,
        PromptTokens,
        key_for,
    )
    from fsd.scoring.cache import MemoizedScorer, SQLiteStore

    if api.base_url is None:
        raise UsageError(
            f"model {config.model} must come with --base-url, e.g. http://localhost:8000/v1; there is none"
        )
    if api.price is not None and not api.price >= 0:
        raise UsageError(f"price must be at least 0; got {api.price}")
    client = Client(
        api.base_url,
        key=key_for(api.base_url),
        per_minute=api.requests_per_minute,
    )
    scorers: dict[str, Scorer] = {}
    prompt_tokens = None
    if api.tokenizer is not None:
        tokenizer, vocabulary = load_tokenizer(api.tokenizer, revision=config.revision)
        prompt_tokens = PromptTokens(tokenizer, api.tokenizer)
        scorers = _unigram(
            replace(config, model=api.tokenizer),
            tokenizer,
            vocabulary,
            prompt_tokens.tokens,
        )
    # Answers cost money: they are never thrown away for space, and a file that cannot keep them is refused.
    store = SQLiteStore(answers, limit=None, required=True)
    makers: dict[str, Callable[..., CompletionsScorer]] = {} if chat else {"base": CompletionsScorer}
    for form, way in draws(config).items():
        makers[f"base.{form}"] = partial(ContinuationsAPI, draws=way, chat=chat)
    for name, make in makers.items():
        scorer = make(
            client,
            config.model.removeprefix(API),
            start=api.start_token,
            tokens=prompt_tokens,
            concurrency=api.concurrency,
            description="API",
        )
        scorers[name] = MemoizedScorer(scorer, store, scorer.key)
    if config.reference_model:
        scorers["reference"] = reference_scorer(reference_loader(config.reference_model, config), config, None)
    opened = Model(
        config.model,
        scorers,
        answers=store,
        reference=config.reference_model,
    )
    if prompt_tokens is None:
        return opened
    return replace(
        opened,
        tokens=prompt_tokens.tokens,
        decode=prompt_tokens.decode,
        tokenizer=prompt_tokens.fingerprint,
    )
