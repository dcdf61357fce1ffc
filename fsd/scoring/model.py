"""Models to score with, wherever they are: opened, or outlined before that, and what can be computed with them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fsd.config import APIConfig, ModelConfig
from fsd.errors import UsageError, at_least
from fsd.scores import IN_AUDIT, IN_RUN, StatePair
from fsd.scoring.cache import MemoizedScorer, SQLiteStore
from fsd.scoring.model_checks import check_chats
from fsd.scoring.plan import ScoringPlan
from fsd.scoring.scorers import (
    STATES,
    ScorerMaker,
    draws,
    frequency_file,
    frequency_scorer,
    reference_loader,
    reference_name,
    reference_scorer,
    whole_model_scorers,
)
from fsd.scoring.services import PromptTokens, service_scorers
from fsd.scoring.view_inputs import view_inputs
from fsd.token_stats import (
    UNLABELLED,
    AnyTexts,
    Chat,
    FloatArray,
    Labelled,
    Prompt,
    Prompts,
    Scored,
    Scorers,
    TokenIds,
    Tokenize,
    chats_of,
    lowest_mean,
    scored_prompts,
    texts_of,
)
from fsd.views import FORMS, NO_INPUTS, Detectors, View, ViewInputs, not_of_chats, reading, usable

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel, ReadsChats


@dataclass(frozen=True)
class Model:
    """A model with its scorers, opened by `open_model`.

    `tokens` (without special tokens), `decode` and `tokenizer` are unknown for an API without `--tokenizer`. `local` is
    the model on this machine, and `whole` the fine-tuned one that is compared with it, unless that is its adapter;
    `load_reference` gives the reference model; `answers` keeps those of an API; `seed` is that of samples, prefixes and
    copies.
    """

    config: ModelConfig
    scorers: Scorers
    tokens: Tokenize | None = None
    decode: Callable[[TokenIds], str] | None = None
    tokenizer: Any = None
    local: "LanguageModel | None" = None
    load_reference: Any = None
    answers: "SQLiteStore | None" = None
    whole: "LanguageModel | None" = None
    seed: int = 42
    states: StatePair = IN_RUN
    opened: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """What the model is called by its user."""
        return self.config.model

    @property
    def reference(self) -> str | None:
        """Name of the reference model; None without one."""
        if "reference" in self.scorers:
            return reference_name(self.config)
        return None

    @property
    def language_model(self) -> "LanguageModel":
        """The model on this machine, where there must be one."""
        if self.local is None:
            raise ValueError(f"{self.name} must be on this machine; it is behind an API, or not opened")
        return self.local

    @property
    def fine_tuned(self) -> "LanguageModel":
        """The fine-tuned model: one of its own, or this one, with its adapter."""
        return self.whole or self.language_model

    def audited(self) -> "Model":
        """The same model, whose scores ask which texts it was fine-tuned on.

        Such texts are the members of an audit, and the fine-tuned model knows them better than its base does. So the
        two change places: the first of the two states that are compared is that of the fine-tuned model, and the
        difference is fine-tuned minus base score.
        """
        names = {"base": "tuned", "tuned": "base", "base.change": "tuned.change"}
        scorers = dict(self.scorers)
        for name, taken in names.items():
            if taken in self.scorers:
                scorers[name] = self.scorers[taken]
        return replace(self, scorers=scorers, states=IN_AUDIT)

    @property
    def earlier(self) -> str:
        """Name of the scorer that learned least of what is asked for: an audit's base, a reference, or the model."""
        if self.states == IN_AUDIT:
            return "tuned"
        if "reference" in self.scorers:
            return "reference"
        return "base"

    def typicality(self, texts: Sequence[str]) -> FloatArray:
        """(N, 3) how probable texts are for what `earlier` names.

        `TokenStats.typicality`, the mean log-probability of the tokens, and that of the least likely fifth of them.
        """
        scored = self.scorers[self.earlier](list(map(Prompt, texts)))
        return np.array([(stats.typicality, stats.logp.mean(), lowest_mean(stats.logp, 0.2)) for stats in scored])

    def inputs(
        self, unseen: AnyTexts = (), *, shots: int = 2, labelled: Labelled = UNLABELLED, adapting: AnyTexts = ()
    ) -> ViewInputs:
        """What detectors need besides the texts: made of unseen texts (`shots` of them) and of labelled ones.

        The unseen texts `adapting` are those that the reference is fine-tuned on.
        """
        return view_inputs(
            self.config,
            # Read as the texts are that they are compared with.
            self.prompts(unseen),
            shots=shots,
            seed=self.seed,
            labelled=labelled,
            adapting=self.prompts(adapting),
            counted=not self.opened,
        )

    def plan(
        self, detectors: Detectors, texts: AnyTexts, inputs: ViewInputs = NO_INPUTS, **options: Any
    ) -> ScoringPlan:
        """The scoring of texts, after their contexts, by the detectors that can do it; see `usable` for `options`."""
        prompts = self.prompts(texts)
        strings = texts_of(prompts)
        if self.whole:
            check_alike(self.language_model, self.whole, prompts)
        excluded = {
            **self._unaligned(detectors, prompts),
            **self._without_table(detectors),
            **options.pop("excluded", {}),
        }
        if any(prompt.context for prompt in prompts):
            for detector in detectors:
                if any(form.primed for form in detector.forms):
                    excluded[detector.name] = "its prefix would take the place of the texts' own contexts"
        chats = chats_of(prompts)
        if chats:
            excluded |= not_of_chats(detectors)
        computable, left_out = usable(detectors, strings, self.scorers, inputs, excluded=excluded, **options)
        remarks = [f"{name} left out: {reason}" for name, reason in left_out.items()]
        remarks += self._cut_texts(computable, prompts, inputs)
        remarks += self._chat_remarks(chats, prompts)
        return ScoringPlan(
            prompts, computable, left_out, self.scorers, inputs, remarks, draws(self.config), self.states
        )

    def prompts(self, texts: AnyTexts) -> list[Prompt]:
        """What is scored of texts; of a chat, what the configuration says."""
        return scored_prompts(texts, whole=self.config.chats == "whole")

    def _chat_remarks(self, chats: Sequence[Chat], prompts: Prompts) -> list[str]:
        """What was scored of the chats among prompts."""
        if not chats:
            return []
        long, context = self.check_chats(prompts)
        remarks = [chats_sentence(chats)]
        if long:
            remarks.append(
                f"{long:,} of {len(chats):,} chats are longer than the context of {context:,} tokens, and were read in "
                "parts, each after the end of what precedes it"
            )
        return remarks

    def check_chats(self, prompts: Prompts) -> tuple[int, int]:
        """Refuse chats that the template cannot write; the number of those beyond the context, and the context."""
        chats = chats_of(prompts)
        if not chats:
            return 0, 0
        check_chats(self.config)
        reader, context = self._chat_reader()
        long = 0
        for chat in chats:
            if len(reader.marked(chat).ids) > context:
                long += 1
        return long, context

    def _chat_reader(self) -> "tuple[ReadsChats, int]":
        """What reads chats as the model does, and the context of the model in tokens."""
        model = self.language_model
        return model.chats, model.context

    def _cut_texts(self, detectors: Detectors, prompts: Prompts, inputs: ViewInputs) -> Iterator[str]:
        """A remark for each detector that reads more before a text than the model's context holds."""
        model = self.local
        if model is None:
            return
        size = cache(lambda text: len(model.tokens([text])[0]))

        @cache  # several detectors read the same form
        def too_long(form: str) -> set[int]:
            rows = set()
            for row, ids in enumerate(model.tokens(texts_of(prompts))):
                context = FORMS[form].prompts(prompts[row], inputs)[-1].context
                if size(context) + len(ids) > model.context:
                    rows.add(row)
            return rows

        for detector in detectors:
            prefixed = [name for name in detector.views if View.named(name).record.primed]
            forms = prefixed + [name for name in detector.views if name == "repeated"]
            cut = len(set().union(*map(too_long, forms)))
            if cut == 0:
                continue
            many = f"all {len(prompts):,}" if cut == len(prompts) else f"{cut:,} of {len(prompts):,}"
            where = f"too long for the {model.context}-token context in {many} texts"
            if prefixed:
                remedy = "try --shots 1" if inputs.shots > 1 else "shorter texts would fit"
                yield f"{detector.name}: the prefix is {where} and was cut; {remedy}"
            else:
                yield f"{detector.name}: text and copies are {where} and were cut; try shorter texts"

    def _without_table(self, detectors: Detectors) -> dict[str, str]:
        """The detectors that read a table of token frequencies, if that of the model is of another tokenizer."""
        readers = reading({"unigram"}, detectors)
        if not readers or not self.opened or "unigram" not in self.scorers:
            return {}
        try:
            list(self.scorers["unigram"]([]))
        except UsageError as error:
            # What a user names must fit; what lies in the folder of a model may be left of another one.
            if self.config.frequencies:
                raise
            return dict.fromkeys(readers, str(error))
        return {}

    def _unaligned(self, detectors: Detectors, prompts: Prompts) -> dict[str, str]:
        """The detectors that compare tokens with a reference model which divides the texts into others."""
        aligned = reading({"reference", "adapted_reference"}, [d for d in detectors if "token" in d.needs])
        # Whole distributions can be compared where every id stands for the same token.
        alike = reading({"difference", "adapted_difference"}, detectors)
        if not aligned + alike or self.reference is None or self.tokens is None:
            return {}
        from fsd.models.language_model import load_tokenizer, same_vocabulary, token_ids

        tokenizer, _ = load_tokenizer(self.reference)
        unfit = []
        texts = texts_of(prompts)
        # Two tokenizers with other names may agree on these texts, and that is all that is needed for single tokens.
        if token_ids(tokenizer, texts) != self.tokens(texts):
            unfit = aligned + alike
        elif self.local and not same_vocabulary(tokenizer, self.local.tokenizer):
            # The template of a chat may write tokens of its own.
            unfit = aligned + alike if chats_of(prompts) else alike
        return dict.fromkeys(unfit, "the reference model has another tokenizer")


def chats_sentence(chats: Sequence[Chat]) -> str:
    """What was scored of chats."""
    many = f"{len(chats):,} chat" if len(chats) == 1 else f"{len(chats):,} chats"
    if chats[0].whole:
        return f"all turns of {many} were scored, as of texts that a template has written"
    return f"the answers of {many} were scored; the prompts were given, not scored"


class Outline(Model):
    """A model that is not opened, made by `outline`: it has the names of its scorers, and can be planned with."""

    opened: ClassVar[bool] = False

    def _chat_reader(self) -> "tuple[ReadsChats, int]":
        """The same, without loading the model: chats that cannot be read are refused before that."""
        from fsd.models.language_model import load_chats

        return load_chats(self.config)

    def plan(self, *scored: Any, **options: Any) -> ScoringPlan:
        """The same plan; what a completions API gives is known when it is asked, so that nothing is refused before."""
        if self.config.by_api and "base" in self.scorers:
            options["strict"] = None
        return super().plan(*scored, **options)


def outline(config: ModelConfig, states: Sequence[str] = STATES, *, chat: bool = False, seed: int = 42) -> Outline:
    """What can be computed with a model, and at what cost, without loading it.

    `states` are those in which texts will be scored; a `chat` API gives no token statistics.
    """
    # As a mapping, since the flag has a hyphen.
    at_least(1, **{"max-batch-tokens": config.max_batch_tokens})
    scorers = dict.fromkeys(ScorerMaker(config).makers(states), _not_opened)
    if chat:
        del scorers["base"]
    return Outline(config, scorers, seed=seed)


def _not_opened(prompts: Prompts) -> Scored:
    raise ValueError(f"a model must be opened to score texts; it is an outline, with {len(prompts)} prompts")


def open_model(  # noqa: PLR0913 - each is a choice of its own, most of them with a default
    config: ModelConfig,
    *,
    states: Sequence[str] | None = None,
    adapter: Path | None = None,
    tuned: str | None = None,
    local: "LanguageModel | None" = None,
    whole: "LanguageModel | None" = None,
    reference_adapter: Path | None = None,
    api: APIConfig | None = None,
    answers: str | Path = "",
    chat: bool = False,
    seed: int = 42,
) -> Model:
    """Load a model, or connect to its API, and make its scorers.

    Args:
        config: which model, and how it is loaded and scored.
        states: "base" and "tuned", the model with its adapter; by default "tuned" only if it has one. An adapter may
            be trained later. In the base state alone, an adapter is part of the model.
        adapter: folder of an adapter.
        tuned: a whole fine-tuned model, as a folder or hub id, in place of an adapter.
        local: the model, if it is loaded already.
        whole: the fine-tuned model, if it is loaded already, and not by an adapter that `local` switches.
        reference_adapter: folder of an adapter of the reference model.
        api: how to reach a model whose name begins with `api:`.
        answers: file that keeps the answers of an API, so that an interrupted command goes on.
        chat: the API gives texts alone.
        seed: random seed of samples, prefixes and copies of texts.

    Raises:
        UsageError: if the model cannot be loaded, the adapter is not its own, or the fine-tuned model has another
            tokenizer.
    """
    if api and config.by_api:
        return _open_service(config, api, Path(answers), chat=chat, seed=seed)
    from fsd.models.adapters import check_adapter
    from fsd.models.language_model import load

    if adapter:
        check_adapter(adapter)  # before the base, which takes long
    base = local or load(config)
    if adapter:
        base, whole = _with_adapter(base, adapter, config, states)
    if states is None:
        states = STATES if base.adapted or whole else ("base",)
    load_reference = reference_loader(config, reference_adapter)
    maker = ScorerMaker(config, base, load_reference, seed)
    # Before the scorers of the base, which read chats as the fine-tuned model does.
    further = {}
    if tuned:
        whole = _whole_model(tuned, base, config)
    elif whole:
        states = ("base",)
    if whole:
        further = whole_model_scorers(maker, whole)
    scorers = maker.scorers(states) | further
    tokenizer = base.tokenizer
    return Model(
        config, scorers, base.tokens, tokenizer.decode, tokenizer, base, load_reference, whole=whole, seed=seed
    )


def _with_adapter(
    base: "LanguageModel", adapter: Path, config: ModelConfig, states: Sequence[str] | None
) -> "tuple[LanguageModel, LanguageModel | None]":
    """A base that switches its adapter, or the fine-tuned model alone, or both apart."""
    from fsd.models.adapters import adapted
    from fsd.models.language_model import load, template_beside

    whole = adapted(base, adapter)
    apart = not base.adapted
    if not base.intact:
        base = load(config)
    # Chats are read as the adapter was trained on them.
    for model in (base, whole):
        model.template = model.template or template_beside(adapter)
    if states is not None and "tuned" not in states:
        return whole, None
    return base, whole if apart else None


def check_alike(base: "LanguageModel", tuned: "LanguageModel", prompts: Prompts) -> None:
    """Refuse prompts that a fine-tuned model divides into other tokens than its base; further tokens do no harm."""
    pairs = zip(base.read(prompts), tuned.read(prompts), strict=True)
    differing = [ours.text for ours, theirs in pairs if ours.marked != theirs.marked]
    strings: list[str] = []
    for prompt in prompts:
        if not prompt.chat:
            strings += filter(None, prompt[:2])
    tokens = zip(strings, base.tokens(strings), tuned.tokens(strings), strict=True)
    differing += [text for text, ours, theirs in tokens if ours != theirs]
    if differing:
        raise UsageError(
            f"tuned must have the tokenizer of its base {base.identity.id}, and make the same tokens of each text; "
            f"{tuned.identity.id} makes others of {differing[0][:40]!r}"
        )


def _whole_model(name: str, base: "LanguageModel", config: ModelConfig) -> "LanguageModel":
    """A fine-tuned model, whose scores are compared with those of its base token by token."""
    from fsd.models.language_model import PROBE, load

    # What comes before a text is the same for both: a fine-tuning may give a model another end token.
    tuned = load(config, model=name, revision=None, start=base.start)
    check_alike(base, tuned, list(map(Prompt, PROBE)))
    # Both read chats as the fine-tuned model was trained on them.
    template = tuned.template or tuned.tokenizer.chat_template or base.template or base.tokenizer.chat_template
    for model in (base, tuned):
        model.template = template
    return tuned


def _open_service(config: ModelConfig, api: APIConfig, answers: Path, *, chat: bool, seed: int) -> Model:
    from fsd.models.language_model import load_tokenizer

    # Refused before a tokenizer is downloaded.
    service_scorers(config, api)
    scorers = {}
    prompt_tokens = None
    if api.tokenizer is not None:
        tokenizer, vocabulary = load_tokenizer(api.tokenizer, revision=config.revision)
        prompt_tokens = PromptTokens(tokenizer, api.tokenizer)
        file = frequency_file(replace(config, model=api.tokenizer))
        if file:
            scorers["unigram"] = frequency_scorer(file, api.tokenizer, tokenizer, vocabulary, prompt_tokens.tokens)
    # Answers cost money: they are never thrown away for space, and a file that cannot keep them is refused.
    store = SQLiteStore(answers, limit=None, required=True)
    for name, scorer in service_scorers(config, api, prompt_tokens, chat=chat).items():
        scorers[name] = MemoizedScorer(scorer, store, scorer.key)
    if config.reference_model:
        scorers["reference"] = reference_scorer(config.reference_model, config, None, reference_loader(config))
    opened = Model(config, scorers, answers=store, seed=seed)
    if prompt_tokens is None:
        return opened
    return replace(opened, tokens=prompt_tokens.tokens, decode=prompt_tokens.decode, tokenizer=tokenizer)
