"""Works (books, articles) as passages, scored by a model or through a completions API."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fsd.config import ModelConfig, Recipe
from fsd.errors import UsageError, at_least
from fsd.evidence.extraction import Work, passages
from fsd.files import read_text
from fsd.progress import note
from fsd.reporting.report import For, Report, Section
from fsd.token_stats import FloatArray, Prompt
from pipelines.common import job
from pipelines.common.job import Job
from pipelines.extract import ExtractConfig, report
from pipelines.extract.report import Extractions

if TYPE_CHECKING:
    from fsd.models.language_model import LanguageModel
    from fsd.scoring.model import Model
    from fsd.scoring.sampling import Sampling

ABSTRACTS, CONTROLS, COPIES = 5, 40, 100
"""Of the demonstration: texts that the model is trained on, texts that it is not, and how often it sees the former."""


def prepare(config: ExtractConfig) -> Job:
    """Check the settings, and read and cut the works."""
    if config.demo:
        return Job(demo, {"works": f"{ABSTRACTS} embedded abstracts, and {CONTROLS} as control"})
    names, api = [config.book, *config.control], config.model.model.startswith("api:")
    if not config.book:
        raise UsageError("a book must be given, a text file in UTF-8 (or --demo); got none")
    if Path(config.book).resolve() in {Path(name).resolve() for name in config.control}:
        raise UsageError(f"control must hold other works than the book; got {config.book}")
    at_least(1, " token", prefix=config.prefix, suffix=config.suffix, stride=config.stride)
    if api and config.api.tokenizer is None:
        raise UsageError("tokenizer must be given with an API, to cut the passages by tokens; got none")
    texts = [_read(name) for name in names]
    from fsd.models.language_model import context_of, load_tokenizer, token_ids
    from fsd.scoring.sampling import Sampling, check_length

    chosen = Sampling(config.temperature, config.top_k)
    chosen.check()
    if api and chosen != Sampling():
        raise UsageError(
            f"temperature and top-k must be left out with an API, which gives no other tokens' probabilities; got "
            f"{chosen}"
        )
    tokenizer, cut_texts = config.api.tokenizer or config.model.model, None
    if job.on_this_machine(tokenizer):
        load, _ = load_tokenizer(tokenizer)
        works = cut(names, token_ids(load, texts), config.prefix, config.suffix, config.stride)
        length = config.prefix + config.suffix
        if not api:
            check_length(length, context_of(config.model.model))
        cut_texts = [load.decode(work.tokens[at : at + length].tolist()) for work in works for at in work.starts]
    return Job(
        partial(run, config, texts, list(dict.fromkeys([Sampling(), chosen, Sampling(temperature=0.0)]))),
        {"works": job.files(names, len(names))},
        config.model,
        texts=cut_texts,
        passes={"base": len(cut_texts or ())},
        experiment=f"fsd-{config.domain}",
    )


def _read(path: str) -> str:
    text = read_text(path)
    if not text.strip():
        raise UsageError(f"{path} must hold a text that is not blank; it has none")
    return text


def run(config: ExtractConfig, texts: Sequence[str], samplings: "Sequence[Sampling]") -> None:
    """Open the model, announce the cost, score every passage, track and print."""
    name, names = config.model.model, [config.book, *config.control]
    with job.stage("model"):
        from fsd.scoring.model import open_model

        model = open_model(config.model, config.api, config.answers or f"{config.book}.answers")
        assert model.tokens is not None  # `prepare` wants a tokenizer for an API
        works = cut(names, model.tokens(texts), config.prefix, config.suffix, config.stride)
        count = sum(work.starts.size for work in works)
        length = config.prefix + config.suffix
        note(f"{count:,} passages of {length} tokens: {count * length:,} tokens to score")
    title, tags = job.run_name(name, names, "extract"), {"task": "extract", "model": name}
    with job.tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        with job.stage("scoring"):
            found = score(works, model, samplings)
        job.deliver(partial(report.report, found, model), tracked)


def demo() -> None:
    """Train the embedded model on five abstracts, and extract them; forty that it never saw are the control."""
    with job.stage("model"):
        from fsd.data.embedded import corpus
        from fsd.models import language_model
        from fsd.models.pretraining import continue_pretraining

        texts = [document.text for document in corpus() if not document.member][: ABSTRACTS + CONTROLS]
        model = language_model.load(ModelConfig(cache="none"))
    with job.stage("scoring"):
        before = seen_and_unseen(model, texts, ABSTRACTS, COPIES)
        continue_pretraining(model, texts[:ABSTRACTS] * COPIES, Recipe(batch_size=ABSTRACTS, learning_rate=3e-3))
        after = seen_and_unseen(model, texts, ABSTRACTS, COPIES)
    title = "extraction from the embedded model"
    table = report.results({"after": after, "before": before}, "training", title=title, kept=(1, 0, 3))
    notes = report.conclusions(after, "the embedded model")
    notes += [For("before the training, neither text could be extracted: the model had seen neither")]
    use = ["fsd extract BOOK.txt --model MODEL --control OTHER.txt"]
    job.show(Report(findings=notes, sections=[Section("", tables=[table])], next=use))


def seen_and_unseen(model: "LanguageModel", texts: Sequence[str], seen: int, copies: int) -> list[Work]:
    """The first texts, which the model is trained on, and the others, as works scored by plain sampling."""
    from fsd.scoring.sampling import Sampling

    works = cut((f"seen {copies} times", "never seen"), model.tokens([" ".join(texts[:seen]), " ".join(texts[seen:])]))
    (scored,) = by_model(works, model, [Sampling()]).values()
    return list(scored)


def cut(
    names: Sequence[str], ids: Sequence[Sequence[int]], prefix: int = 50, suffix: int = 50, stride: int = 10
) -> list[Work]:
    """The works, given by their token ids, as passages, not yet scored."""
    works = []
    for name, tokens in zip(names, map(np.array, ids), strict=True):
        try:
            starts, _ = passages(tokens, prefix, suffix, stride)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        works.append(Work(name, tokens, starts, np.empty(0), prefix, suffix))
    return works


def score(works: Sequence[Work], model: "Model", samplings: "Sequence[Sampling]") -> Extractions:
    """Score the passages of all works, by an API with plain sampling alone; it gets token ids where it takes them."""
    if model.local:
        return by_model(works, model.local, samplings)
    assert model.decode is not None
    prompts = []
    for work in works:
        for start in work.starts.tolist():
            middle, end = start + work.prefix, start + work.prefix + work.suffix
            context, suffix = (model.decode(work.tokens[a:b].tolist()) for a, b in ((start, middle), (middle, end)))
            prompts.append(Prompt(suffix, context))
    log_p = np.array([float(stats.logp.sum()) for stats in model.scorers["base"](prompts)])
    return {str(samplings[0]): _scored(works, log_p)}


def by_model(
    works: Sequence[Work], model: "LanguageModel", samplings: "Sequence[Sampling]", *, shown: bool = True
) -> Extractions:
    """The same by a model on this machine; one forward pass per passage."""
    from fsd.scoring.sampling import suffix_log_probabilities

    length = works[0].prefix + works[0].suffix
    rows = [np.lib.stride_tricks.sliding_window_view(work.tokens, length)[work.starts] for work in works]
    log_p = suffix_log_probabilities(model, np.concatenate(rows), works[0].prefix, samplings, shown=shown)
    return {str(sampling): _scored(works, values) for sampling, values in zip(samplings, log_p, strict=True)}


def _scored(works: Sequence[Work], log_p: FloatArray) -> list[Work]:
    parts = np.split(log_p, np.cumsum([work.starts.size for work in works])[:-1])
    return [replace(work, log_p=values) for work, values in zip(works, parts, strict=True)]
