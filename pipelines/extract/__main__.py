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
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from fsd.config import APIConfig, ModelConfig, OptionalInt, OptionalPath, OptionalPaths, flags
from pipelines.common.cli import command

if TYPE_CHECKING:
    from fsd.evidence.extraction import Work
    from fsd.scoring.api.prompt_ids import PromptTokens
    from fsd.scoring.sampling import Sampling
    from fsd.token_stats import Scorer
    from pipelines.common.dry_run import Plan


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


def main(config: ExtractConfig) -> None:
    """Read and cut the works, announce the cost, score every passage, track and print."""
    from fsd import tracking
    from pipelines.common.outcome import tracked_run
    from pipelines.common.output import check_space
    from pipelines.common.report import run_name
    from pipelines.extract import demo, report, works

    if config.demo:
        demo.main()
        return
    samplings = check(config)
    names = [config.book, *config.control]
    texts = [works.read_work(name) for name in names]
    check_space(texts)
    tracking.check_store()
    windows = works.Windows(config.prefix, config.suffix, config.stride)
    tags = {"task": "extract", "model": config.model.model}
    name = run_name(config.model.model, names, "extract")
    if config.model.model.startswith("api:"):
        scorer, tokens = through_api(config)
        cut = works.cut(names, texts, tokens.tokens, windows)
        announce(cut)
        with tracked_run(config, f"fsd-{config.domain}", name, params=flags(config), tags=tags) as run:
            extractions = works.by_api(cut, scorer, tokens)
            report.deliver(run, extractions, config.model.model, tokens.decode, names)
            report.show(run, extractions, config.model.model)
    else:
        from fsd.models import language_model

        model = language_model.load(config.model)
        cut = works.cut(names, texts, model.tokens, windows)
        announce(cut)
        with tracked_run(config, f"fsd-{config.domain}", name, params=flags(config), tags=tags) as run:
            extractions = works.by_model(cut, model, samplings)
            report.deliver(run, extractions, config.model.model, model.tokenizer.decode, names)
            report.show(run, extractions, config.model.model)


def plan(config: ExtractConfig) -> "Plan":
    """What would be scored: every passage of every work once."""
    from fsd.errors import UsageError
    from fsd.models.language_model import load_tokenizer
    from pipelines.common import dry_run
    from pipelines.extract import works

    if config.demo:
        raise UsageError("dry-run must be without --demo, which always does the same; got both")
    check(config)
    names = [config.book, *config.control]
    texts = [works.read_work(name) for name in names]
    reads = {"works": dry_run.files(names, len(names))}
    writes = dry_run.tracked(f"fsd-{config.domain}")
    tokenizer = config.api.tokenizer or config.model.model
    if not dry_run.on_this_machine(tokenizer):
        return dry_run.Plan(reads, config.model, texts=None, writes=writes)
    load, _ = load_tokenizer(tokenizer)
    ids = load(texts, add_special_tokens=False, verbose=False)["input_ids"]
    length = config.prefix + config.suffix
    passages = [
        load.decode(one[at : at + length]) for one in ids for at in range(0, len(one) - length + 1, config.stride)
    ]
    return dry_run.Plan(reads, config.model, texts=passages, passes={"base": len(passages)}, writes=writes)


def check(config: ExtractConfig) -> "list[Sampling]":
    """The ways of sampling, after a check of all settings that need no file.

    Raises:
        UsageError: for no book, a book that is its own control, or impossible settings.
    """
    from pathlib import Path

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
    if config.model.model.startswith("api:") and chosen != PLAIN:
        raise UsageError(
            f"temperature and top-k must be left out with an API, which gives no other tokens' probabilities; got "
            f"{chosen}"
        )
    return list(dict.fromkeys([PLAIN, chosen, GREEDY]))


def through_api(config: ExtractConfig) -> "tuple[Scorer, PromptTokens]":
    """The scorer of an API, whose answers are kept in a file, and the tokenizer that cuts the passages.

    Raises:
        UsageError: without a tokenizer, or if the API's settings are invalid.
    """
    from pathlib import Path

    from fsd.errors import UsageError
    from fsd.models.language_model import load_tokenizer
    from fsd.scoring.api.prompt_ids import PromptTokens
    from fsd.scoring.api.scorer import api_scorers
    from fsd.scoring.cache import SQLiteStore

    if config.api.tokenizer is None:
        raise UsageError("tokenizer must be given with an API, to cut the passages by tokens; got none")
    path = Path(config.answers or f"{config.book}.answers")
    scorers = api_scorers(config.model, config.api, SQLiteStore(path, limit=None, required=True))
    tokenizer, _ = load_tokenizer(config.api.tokenizer, revision=config.model.revision)
    return scorers["base"], PromptTokens(tokenizer, config.api.tokenizer)


def announce(works: "Sequence[Work]") -> None:
    """Print to stderr what will be computed."""
    passages = sum(work.starts.size for work in works)
    length = works[0].prefix + works[0].suffix
    print(f"{passages:,} passages of {length} tokens: {passages * length:,} tokens to read", file=sys.stderr)


if __name__ == "__main__":
    command(ExtractConfig, main, __doc__ or "", plan=plan)
