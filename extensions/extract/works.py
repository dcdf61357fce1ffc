"""Works (books, articles) as passages, scored by a model or through a completions API."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from extensions.extract import prompts, report
from extensions.extract.extraction import Work, passages
from extensions.extract.questions import read_book
from extensions.extract.report import Extractions
from extensions.extract.settings import ExtractConfig
from fsd.api import FOR, Finding, ModelConfig, Prompt, Recipe, UsageError, at_least, note
from pipelines.api import Job, Stated, examine, files, on_this_machine, open_examined, show_demonstration, stage

if TYPE_CHECKING:
    from fsd.api import LanguageModel, Model, Sampling

ABSTRACTS = 5
"""Texts that the model of the demonstration is trained on."""
CONTROLS = 40
"""Texts that it is not trained on."""
COPIES = 100
"""How often it sees the former."""
OF_PROMPTS = ("title", "author", "places", "span", "max_tokens", "replies", "plain", "seed")
"""Settings of prompts, which have no effect on passages."""


def prepare(config: ExtractConfig) -> Job:
    """Check the settings, and read and cut the works."""
    if config.demo:
        words = f"{ABSTRACTS} embedded abstracts, and {CONTROLS} as control"
        return Job(demo, {"works": Stated(words, {"texts": ABSTRACTS, "controls": CONTROLS})})
    if not config.book:
        raise UsageError("a book must be given, a text file in UTF-8 (or --demo); got none")
    # It would look as if it had been guessed.
    if Path(config.book).resolve() in [Path(name).resolve() for name in config.control]:
        raise UsageError(f"control must hold other works than the book; got {config.book}")
    if config.asks:
        return prompts.prepare(config)
    _check(config)
    texts = list(map(read_book, config.names))
    samplings = _samplings(config)
    scored = None
    tokenizer_name = config.api.tokenizer or config.model.model
    # Without the tokenizer the passages cannot be counted; a dry run downloads nothing.
    if on_this_machine(tokenizer_name):
        # Imported here, so that the refusals above take no time.
        from extensions.extract.sampling import check_length
        from fsd.api import context_of, load_tokenizer, token_ids

        tokenizer, _ = load_tokenizer(tokenizer_name)
        works = cut(config.names, token_ids(tokenizer, texts), config.prefix, config.suffix, config.stride)
        if not config.model.by_api:
            check_length(config.prefix + config.suffix, context_of(config.model.model))
        scored = [tokenizer.decode(ids) for work in works for ids in work.passages.tolist()]
    work = partial(run, config, texts, samplings)
    reads = {"works": files(config.names, len(texts))}
    experiment = f"fsd-{config.domain}"
    return Job(
        work,
        reads,
        config.model,
        texts=scored,
        passes={"base": len(scored or ())},
        experiment=experiment,
        api=config.api,
        adapter=config.adapter,
    )


def _check(config: ExtractConfig) -> None:
    """Refuse settings of prompts without any, and those by which a work cannot be cut."""
    for name in OF_PROMPTS:
        if getattr(config, name) != getattr(ExtractConfig, name):
            raise UsageError(f"{name.replace('_', '-')} must come with --prompts or --questions; there are none")
    at_least(1, " token", prefix=config.prefix, suffix=config.suffix, stride=config.stride)
    if config.model.by_api and config.api.tokenizer is None:
        raise UsageError(
            "tokenizer must be given with an API, to cut the passages by tokens; got none; a chat is asked by "
            "--prompts opening"
        )


def _samplings(config: ExtractConfig) -> "list[Sampling]":
    """Plain sampling, the user's way, and greedy decoding."""
    from fsd.api import Sampling

    chosen = Sampling(config.temperature, config.top_k)
    chosen.check()
    if config.model.by_api and chosen != Sampling():
        raise UsageError(
            f"temperature and top-k must be left out with an API, which gives no other tokens' probabilities; got "
            f"{chosen}"
        )
    # As keys, since the user's way may be one of the other two.
    return list(dict.fromkeys([Sampling(), chosen, Sampling(temperature=0.0)]))


def run(config: ExtractConfig, texts: Sequence[str], samplings: "Sequence[Sampling]") -> None:
    """Open the model, announce the cost, score every passage, track and print."""
    with stage("model"):
        model = open_examined(config, config.book, adapter=config.adapter)
        assert model.tokens is not None  # `prepare` wants a tokenizer for an API
        works = cut(config.names, model.tokens(texts), config.prefix, config.suffix, config.stride)
        count = sum(work.starts.size for work in works)
        length = config.prefix + config.suffix
        note(f"{count:,} passages of {length} tokens: {count * length:,} tokens to score")
    examine(
        config,
        "extract",
        config.names,
        lambda: score(works, model, samplings),
        lambda extractions, _: report.report(extractions, model, config),
    )


def demo() -> None:
    """Train the embedded model on five abstracts, and extract them; forty that it never saw are the control."""
    with stage("model"):
        from fsd.api import continue_pretraining, language_model, unread

        texts = unread()[: ABSTRACTS + CONTROLS]
        model = language_model.load(ModelConfig(cache="none"))
    with stage("scoring"):
        # Measured before the training, which changes the weights in place.
        untrained = seen_and_unseen(model, texts, ABSTRACTS, COPIES)
        continue_pretraining(model, texts[:ABSTRACTS] * COPIES, Recipe(batch_size=ABSTRACTS, learning_rate=3e-3))
        trained = seen_and_unseen(model, texts, ABSTRACTS, COPIES)
    extractions = {"after": trained, "before": untrained}
    table = report.results(extractions, "training", title="extraction from the embedded model", kept=(1, 0, 3))
    findings = report.conclusions(trained, "the embedded model")
    findings.append(Finding("before the training, neither text could be extracted: the model had seen neither", FOR))
    show_demonstration(findings, table, "fsd extract BOOK.txt --model MODEL --control OTHER.txt")


def seen_and_unseen(model: "LanguageModel", texts: Sequence[str], seen: int, copies: int) -> list[Work]:
    """The first texts, which the model is trained on, and the others, as works scored by plain sampling."""
    from fsd.api import Sampling

    names = (f"seen {copies} times", "never seen")
    works = cut(names, model.tokens([" ".join(texts[:seen]), " ".join(texts[seen:])]))
    (scored,) = by_model(works, model, [Sampling()]).values()
    return list(scored)


def cut(
    names: Sequence[str], ids: Sequence[Sequence[int]], prefix: int = 50, suffix: int = 50, stride: int = 10
) -> list[Work]:
    """The works, given by their token ids, as passages, not yet scored."""
    works = []
    for name, tokens in zip(names, map(np.array, ids), strict=True):
        try:
            starts = passages(tokens, prefix, suffix, stride)
        except UsageError as error:
            # The message of `passages` does not know whose tokens are too few.
            raise UsageError(f"{name}: {error}") from error
        works.append(Work(name, tokens, starts, np.empty(0), prefix, suffix))
    return works


def score(works: Sequence[Work], model: "Model", samplings: "Sequence[Sampling]") -> Extractions:
    """Score the passages of all works, by an API with plain sampling alone; it gets token ids where it takes them."""
    if model.local:
        return by_model(works, model.local, samplings)
    assert model.decode is not None  # as for `model.tokens`
    prompts = []
    for work in works:
        for ids in work.passages.tolist():
            context = model.decode(ids[: work.prefix])
            prompts.append(Prompt(model.decode(ids[work.prefix :]), context))
    log_p = [stats.logp.sum() for stats in model.scorers["base"](prompts)]
    return _scored(works, samplings[:1], [log_p])


def by_model(works: Sequence[Work], model: "LanguageModel", samplings: "Sequence[Sampling]") -> Extractions:
    """The same by a model on this machine; one forward pass per passage."""
    from extensions.extract.sampling import suffix_log_probabilities

    # The passages of all works together, so that there is one bar.
    ids = np.concatenate([work.passages for work in works])
    log_p = suffix_log_probabilities(model, ids, works[0].prefix, samplings)
    return _scored(works, samplings, log_p.tolist())


def _scored(works: Sequence[Work], samplings: "Sequence[Sampling]", log_p: Sequence[Sequence[float]]) -> Extractions:
    """The works with the values of their passages, which come one work after the other, by way of sampling."""
    ends = np.cumsum([work.starts.size for work in works])[:-1]
    extractions = {}
    for sampling, values in zip(samplings, log_p, strict=True):
        parts = np.split(np.array(values), ends)
        extractions[str(sampling)] = [replace(work, log_p=part) for work, part in zip(works, parts, strict=True)]
    return extractions
