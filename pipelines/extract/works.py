"""Works (books, articles) as passages, scored by a model or through a completions API."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fsd.errors import UsageError
from fsd.evidence.extraction import Work, passages
from fsd.scoring.sampling import Sampling, suffix_log_probabilities
from fsd.token_stats import FloatArray, Prompt

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsd.models.language_model import LanguageModel
    from fsd.scoring.model import Model

PLAIN, GREEDY = Sampling(), Sampling(temperature=0.0)


@dataclass(frozen=True)
class Windows:
    """How works are cut: tokens given, tokens to be generated, and the distance of neighbouring passages."""

    prefix: int = 50
    suffix: int = 50
    stride: int = 10


@dataclass(frozen=True)
class Extraction:
    """The result for one way of sampling.

    Attributes:
        sampling: its name.
        work: the work in question.
        controls: the control works; none if there are no files.
    """

    sampling: str
    work: Work
    controls: Sequence[Work]


def read_work(path: str) -> str:
    """The text of a work."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not" if isinstance(error, UnicodeDecodeError) else (error.strerror or "").lower()
        raise UsageError(f"{path} must be a readable text file in UTF-8; {reason}") from error
    if not text.strip():
        raise UsageError(f"{path} must hold a text that is not blank; it has none")
    return text


def cut(
    names: Sequence[str], texts: Sequence[str], tokens: "Callable[[Sequence[str]], list[list[int]]]", windows: Windows
) -> list[Work]:
    """The works as passages, not yet scored."""
    works = []
    for name, ids in zip(names, tokens(texts), strict=True):
        array = np.array(ids, dtype=np.int64)
        try:
            starts, _ = passages(array, windows.prefix, windows.suffix, windows.stride)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        works.append(Work(name, array, starts, np.empty(0), windows.prefix, windows.suffix))
    return works


def score(works: Sequence[Work], model: "Model", samplings: Sequence[Sampling]) -> list[Extraction]:
    """Score the passages of all works, the first of which is the one in question.

    An API gives the probabilities of the text's own tokens alone, and so of plain sampling. It is sent the token ids of
    prefix and suffix where it takes them, else their strings, which it tokenizes again.
    """
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
    return [_extraction(str(PLAIN), works, log_p)]


def by_model(
    works: Sequence[Work], model: "LanguageModel", samplings: Sequence[Sampling], *, shown: bool = True
) -> list[Extraction]:
    """The same by a model on this machine; one forward pass per passage."""
    length = works[0].prefix + works[0].suffix
    rows = [np.lib.stride_tricks.sliding_window_view(work.tokens, length)[work.starts] for work in works]
    log_p = suffix_log_probabilities(model, np.concatenate(rows), works[0].prefix, samplings, shown=shown)
    return [_extraction(str(sampling), works, values) for sampling, values in zip(samplings, log_p, strict=True)]


def _extraction(sampling: str, works: Sequence[Work], log_p: FloatArray) -> Extraction:
    ends = np.cumsum([work.starts.size for work in works])[:-1]
    scored = [
        Work(work.name, work.tokens, work.starts, values, work.prefix, work.suffix)
        for work, values in zip(works, np.split(log_p, ends), strict=True)
    ]
    return Extraction(sampling, scored[0], scored[1:])
