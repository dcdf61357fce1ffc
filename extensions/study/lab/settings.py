"""The laboratory: targets whose every training text is known, and what the scores see of it."""

from dataclasses import dataclass
from typing import Literal

from fsd.api import Columns, OptionalFloat, OptionalInt, OptionalModel, OptionalPath

Reference = Literal["before", "earlier", "smaller", "ordinary"]


@dataclass(frozen=True)
class LabConfig:
    """Compare every score on targets whose training texts are all known.

    Small targets are trained on half of the older texts of a corpus a given number of times, and an adapter is
    fine-tuned on later texts. Three kinds of text are then compared: members, contemporaries, which are as old and were
    never trained on, and later texts. A target may learn several corpora, and is compared with each of the references.
    Finished cells are kept, so that an interrupted laboratory goes on. With --base a real model is trained further in
    place of small ones; unchanged, it is the control and the reference.

    Examples:
        fsd study lab --small
        fsd study lab --base smollm2 --corpora wikipedia arxiv own-code --exposures 0 1 --seeds 3
        fsd study lab --base smollm2 --corpora chats --method lora --chats whole --exposures 0 2 --no-adapters
        fsd study lab --sources 1 3 --references before earlier smaller ordinary --exposures 0 2
        fsd study lab --corpora wikipedia code --seeds 3 --dry-run
    """

    corpora: tuple[str, ...] = ("wikipedia", "arxiv", "code")
    """`wikipedia`, `arxiv` and, with a base, `chats` (embedded), `code` (functions of installed packages), `own-code`
    (those of this one), or files of texts, labelled 0 where they are later."""
    columns: Columns = ""
    exposures: tuple[int, ...] = (0, 1, 2, 4, 8)
    """How often a target is trained on its members; 0, the control, must be among them."""
    sources: tuple[int, ...] = (1,)
    """How many corpora a target learns: each corpus alone, or with those that follow it in the list."""
    references: tuple[Reference, ...] = ()
    """Reference models: the weights `before`, an `earlier` checkpoint with training on other texts in between, a
    `smaller` model, or an `ordinary` one of the same size; with a base one of the first two. Default: smaller, with a
    base before."""
    adapters: bool = True
    """Whether adapters are trained, for FSDs; without them a cell takes half of the time."""
    adapted: bool = False
    """Whether references are fine-tuned too, on up to 64 unseen texts, for adapted_wbc, summed_unread_z and more."""
    seeds: int = 5
    """Number of targets for each corpus and exposure, each with a draw of members of its own."""
    size: Literal["tiny", "1M", "8M"] = "1M"
    """Parameters of the targets."""
    base: OptionalModel = None
    """Model whose pretraining is continued, e.g. smollm2, in place of targets of `size`."""
    method: Literal["full", "lora"] = "full"
    """What of the base is trained: all weights, or an adapter that is merged into them."""
    chats: Literal["answers", "whole"] = "answers"
    """What a base learns of chats: the `answers`, the prompt masked, or the `whole`. Both are scored."""
    dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of the matrix products with a base; the weights are kept in float32."""
    learning_rate: OptionalFloat = None
    """Peak learning rate of the base. Default: 5e-5, with lora 5e-4."""
    texts: OptionalInt = None
    """Most older texts of a corpus, and most later ones. Default: all, with --small 120."""
    small: bool = False
    """A laboratory of a few minutes: tiny targets, two seeds, exposures 0 and 4, fewer texts."""
    paragraphs: int = 4000
    """Paragraphs of background, from the docstrings of installed packages."""
    workers: OptionalInt = None
    """Processes that compute cells side by side. Default: one a core, and with --base one."""
    cache: OptionalPath = None
    """Folder that keeps the models that targets share; cells are kept as runs. Default: $FSD_CACHE, else
    ~/.cache/fsd."""
    out: OptionalPath = None
    """File for the raw results: .parquet, .csv or .jsonl."""
