"""Can passages of a work be extracted from a model? The probability of each continuation, and that of a control.

`fsd extract BOOK.txt --model MODEL --control OTHER.txt` gives 50 tokens of the book at every tenth
position and computes how probable its next 50 are. `--demo` shows it on an embedded model, offline in about a minute.

With `--prompts` or `--questions` the model is asked as anybody would ask it, by title or opening, and the words of the
work that it returns in a row are counted, beside those of control works. It may be a chat model, here or behind an API.

Examples:
    fsd extract book.txt --model ./my-model --control other.txt
    fsd extract book.txt --prompts opening --model api:NAME --base-url URL --control others.jsonl
    fsd extract --demo
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from fsd.api import Domain, ExaminedConfig, OptionalInt, OptionalName, OptionalPath, OptionalPaths, again

Prompts = Annotated[tuple[Literal["title", "opening"], ...], arg(metavar="{title,opening} ...", help_behavior_hint="")]


@dataclass(frozen=True)
class ExtractConfig(ExaminedConfig):
    """Work, controls, model and passages."""

    book: Annotated[Positional[str], arg(metavar="BOOK", help_behavior_hint="")] = ""
    """Text file in UTF-8: the work in question; with prompts also a table of works with text, title and author."""
    control: OptionalPaths = ()
    """Text files that the model cannot have seen: by the same author unpublished, or of the same kind and period."""
    prefix: int = 50
    """Tokens of the work that are given; words, in a prompt by opening."""
    suffix: int = 50
    """Tokens of the work that are to follow."""
    stride: int = 10
    """Tokens from the beginning of a passage to that of the next one."""
    temperature: float = 1.0
    """Temperature of a third way of sampling, beside plain sampling and greedy decoding."""
    top_k: OptionalInt = None
    """Number of most probable tokens that the third way of sampling draws from. Default: all."""
    prompts: Prompts = ()
    """Ask for the work as a chat is asked, by its title or some of its words, and look for it in the replies."""
    places: int = 10
    """Places of a work from which words are given to continue, evenly spread, the beginning first; as many as fit."""
    questions: OptionalPath = None
    """File of your own prompts, one a line, with {title}, {author} and {opening} in place of what differs."""
    title: OptionalName = None
    """Title of a book that is a text file, for prompts."""
    author: OptionalName = None
    """Its author, for prompts."""
    span: int = 8
    """Words in a row, of reply and work, that count as returned with prompts; shorter runs are common phrases."""
    max_tokens: int = 400
    """Most tokens of a reply to a prompt."""
    replies: int = 1
    """Replies to a prompt: the likeliest one, and further ones that are drawn with --temperature and --top-k."""
    plain: bool = False
    """Ask by plain text, as a base model is asked: without the chat template; an API for a completion."""
    seed: int = 42
    """Random seed of the replies that are drawn."""
    domain: Domain = "extraction"
    demo: bool = False
    """Train the embedded model on a text in front of you, and extract it; the other flags have no effect."""

    @property
    def asks(self) -> bool:
        """Whether the model is asked by prompts."""
        return bool(self.prompts or self.questions)

    @property
    def names(self) -> list[str]:
        """The work in question and its controls."""
        return [self.book, *self.control]

    def again_with(self, flags: str) -> str:
        """The same command with further flags."""
        # Other prompts or another address would be another comparison.
        return f"{again('extract', [self.book], self, ExtractConfig(self.book))} {flags}"
