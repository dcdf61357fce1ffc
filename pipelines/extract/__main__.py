"""Can passages of a work be extracted from a model? The probability of each continuation, and that of a control.

`python -m pipelines.extract BOOK.txt --model MODEL --control OTHER.txt` gives 50 tokens of the book at every tenth
position and computes how probable its next 50 are. `--demo` shows it on an embedded model, offline in about a minute.

Examples:
    fsd extract book.txt --model ./my-model --control other.txt
    fsd extract --demo
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import APIConfig, ModelConfig, OptionalInt, OptionalPath, OptionalPaths
from pipelines.common.cli import command
from pipelines.common.job import Job

if TYPE_CHECKING:
    from fsd.scoring.sampling import Sampling
    from pipelines.extract.works import Windows


@dataclass(frozen=True)
class ExtractConfig:
    """Work, controls, model and passages."""

    book: Annotated[Positional[str], arg(metavar="BOOK", help_behavior_hint="")] = ""
    """Text file in UTF-8: the work in question."""
    control: OptionalPaths = ()
    """Text files that the model cannot have read: by the same author unpublished, or of the same kind and period."""
    model: ModelConfig = field(default_factory=ModelConfig)
    api: APIConfig = field(default_factory=APIConfig)
    prefix: int = 50
    """Tokens of the work that are given."""
    suffix: int = 50
    """Tokens of the work that are to follow."""
    stride: int = 10
    """Tokens from the beginning of a passage to that of the next one."""
    temperature: float = 1.0
    """Temperature of a third way of sampling, beside plain sampling and greedy decoding."""
    top_k: OptionalInt = None
    """Number of most probable tokens that the third way of sampling draws from. Default: all."""
    answers: OptionalPath = None
    """File that keeps the answers of an API, so that an interrupted job goes on. Default: BOOK.answers."""
    domain: str = "extraction"
    """Part of the experiment's name, fsd-<domain>."""
    demo: bool = False
    """Train the embedded model on a text in front of you, and extract it; the other flags have no effect."""


def prepare(config: ExtractConfig) -> Job:
    """Check the settings, and read and cut the works."""
    from fsd.models.language_model import load_tokenizer
    from pipelines.common import job
    from pipelines.extract import demo, works

    if config.demo:
        return demo.prepare()
    samplings = check(config)
    names = [config.book, *config.control]
    texts = [works.read_work(name) for name in names]
    windows = works.Windows(config.prefix, config.suffix, config.stride)
    tokenizer = config.api.tokenizer or config.model.model
    passages = None
    if job.on_this_machine(tokenizer):
        load, _ = load_tokenizer(tokenizer)
        ids = load(texts, add_special_tokens=False, verbose=False)["input_ids"]
        length = config.prefix + config.suffix
        passages = [
            load.decode(one[at : at + length]) for one in ids for at in range(0, len(one) - length + 1, config.stride)
        ]
    return Job(
        partial(run, config, names, texts, windows, samplings),
        {"works": job.files(names, len(names))},
        config.model,
        texts=passages,
        passes={"base": len(passages or ())},
        experiment=f"fsd-{config.domain}",
    )


def run(
    config: ExtractConfig,
    names: Sequence[str],
    texts: Sequence[str],
    windows: "Windows",
    samplings: "Sequence[Sampling]",
) -> None:
    """Open the model, announce the cost, score every passage, track and print."""
    from fsd.scoring.model import open_model
    from pipelines.common import outcome
    from pipelines.extract import report, works

    name = config.model.model
    model = open_model(config.model, config.api, config.answers or f"{config.book}.answers")
    assert model.tokens is not None  # `check` wants a tokenizer for an API
    cut = works.cut(names, texts, model.tokens, windows)
    passages = sum(work.starts.size for work in cut)
    length = config.prefix + config.suffix
    print(f"{passages:,} passages of {length} tokens: {passages * length:,} tokens to score", file=sys.stderr)
    title, tags = outcome.run_name(name, names, "extract"), {"task": "extract", "model": name}
    with outcome.tracked_run(config, f"fsd-{config.domain}", title, tags=tags) as tracked:
        extractions = works.score(cut, model, samplings)
        outcome.deliver(report.report(extractions, model, names), tracked)


def check(config: ExtractConfig) -> "list[Sampling]":
    """The ways of sampling, after a check of all settings that need no file."""
    from fsd.errors import UsageError
    from fsd.scoring.sampling import Sampling
    from pipelines.extract.works import GREEDY, PLAIN

    if not config.book:
        raise UsageError("a book must be given, a text file in UTF-8 (or --demo); got none")
    if Path(config.book).resolve() in {Path(name).resolve() for name in config.control}:
        raise UsageError(f"control must hold other works than the book; got {config.book}")
    for name in ("prefix", "suffix", "stride"):
        if getattr(config, name) < 1:
            raise UsageError(f"{name} must be at least 1 token; got {getattr(config, name)}")
    chosen = Sampling(config.temperature, config.top_k)
    chosen.check()
    if config.model.model.startswith("api:") and config.api.tokenizer is None:
        raise UsageError("tokenizer must be given with an API, to cut the passages by tokens; got none")
    if config.model.model.startswith("api:") and chosen != PLAIN:
        raise UsageError(
            f"temperature and top-k must be left out with an API, which gives no other tokens' probabilities; got "
            f"{chosen}"
        )
    return list(dict.fromkeys([PLAIN, chosen, GREEDY]))


if __name__ == "__main__":
    command(ExtractConfig, prepare, __doc__ or "")
