"""Preference data: pairs of answers to a prompt, of which one was chosen and the other rejected.

Formats: https://huggingface.co/docs/trl/dataset_formats, columns `prompt`, `chosen` and `rejected`. Scores: the
log-ratio log π(y | x) − log π_ref(y | x) of each answer y after its prompt x, and the difference of both ratios, which
training by preferences raises (PREMIA, "Exposing Privacy Gaps: Membership Inference Attack on Preference Data for LLM
Alignment", arXiv 2407.06443).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fsd.data.cells import Row, is_missing
from fsd.data.corpus import Corpus
from fsd.data.documents import Document
from fsd.data.layouts import COMPLETION, MESSAGES, PROMPT, unpacked
from fsd.data.readers import CONTEXT, document
from fsd.errors import UsageError, quoted
from fsd.scores import BASE, IN_AUDIT, Score
from fsd.scoring.deviation import ScoreTable
from fsd.scoring.model import Model
from fsd.token_stats import BETWEEN, Prompt, TokenStats
from fsd.views import Detector

CHOSEN = "chosen"
REJECTED = "rejected"
PREFERENCE = "preference"
"""Scores of a pair: the ratio of either answer, and the difference of the ratios."""
UNNAMED = ("text", CONTEXT, MESSAGES, COMPLETION)
"""Fields that a pair does not have."""

NOTHING = Prompt("")


@dataclass(frozen=True, slots=True, repr=False)
class Pair(Document):
    """A prompt with two answers; `text` has the words of all of it, and `chat` is that of the chosen answer.

    Attributes:
        rejected: the prompt with the other answer.
    """

    rejected: Prompt = NOTHING


def are_pairs(rows: Iterable[tuple[str, Row]]) -> bool:
    """Whether rows are of preference data: the first has both columns."""
    for _, row in rows:
        return CHOSEN in row and REJECTED in row
    return False


def read_pairs(rows: Iterable[tuple[str, Row]], columns: Mapping[str, str]) -> Iterator[Pair]:
    """Rows, each after its origin, as pairs; the errors are those of `fsd.data.readers.document`."""
    for field in UNNAMED:
        if field in columns:
            raise UsageError(
                f"columns must not name {field} for preference data, whose answers are in columns chosen and rejected; "
                f"got {field}={columns[field]}"
            )
    further = dict(columns)
    # The prompt is found here, so that it can be what both answers begin with.
    further |= {PROMPT: PROMPT, COMPLETION: COMPLETION}
    for origin_url, row in rows:
        prompt, answers = _parts(row, columns.get(PROMPT), origin_url)
        chosen, rejected = (
            document({**row, MESSAGES: None, PROMPT: prompt, COMPLETION: answer}, further, origin_url, answers=True)
            for answer in answers
        )
        words = BETWEEN.join([chosen.text, rejected.prompt.text])
        fields = {name: getattr(chosen, name) for name in Document.__dataclass_fields__}
        yield Pair(**{**fields, "text": words}, rejected=rejected.prompt)


def _parts(row: Row, named: str | None, origin_url: str) -> tuple[Any, list[Any]]:
    """The prompt of a pair, and its two answers; without a column for it, it is what both chats begin with.

    `named` is the column that the user names for the prompt.
    """
    answers = [unpacked(row.get(CHOSEN)), unpacked(row.get(REJECTED))]
    if any(map(is_missing, answers)):
        raise UsageError(
            f"{origin_url}: chosen and rejected must be two answers; got {quoted(answers[0])} and {quoted(answers[1])}"
        )
    if answers[0] == answers[1]:
        raise UsageError(f"{origin_url}: chosen and rejected must be two answers; they are the same")
    if named is not None and named not in row:
        raise UsageError(
            f"{origin_url}: prompt must be in column {named!r}; columns are {', '.join(map(str, row)) or 'none'}"
        )
    prompt = row.get(named or PROMPT)
    if is_missing(prompt):
        return _common(answers, origin_url)
    return prompt, answers


def _common(answers: Sequence[Any], origin_url: str) -> tuple[Any, list[Any]]:
    """The turns that two chats begin with, and what follows them in each."""
    if not all(isinstance(answer, list | tuple) for answer in answers):
        raise UsageError(
            f"{origin_url}: chosen and rejected must come with a column prompt, or be two lists of messages; got "
            f"{quoted(answers[0])}"
        )
    common = 0
    for turns in zip(*answers, strict=False):
        if turns[0] != turns[1]:
            break
        common += 1
    if common == 0:
        raise UsageError(
            f"{origin_url}: chosen and rejected must begin with the same turns, which are the prompt, or come with a "
            "column prompt; their first turns differ"
        )
    for name, answer in zip((CHOSEN, REJECTED), answers, strict=True):
        if len(answer) == common:
            raise UsageError(
                f"{origin_url}: chosen and rejected must each have an answer after the turns that both begin with; "
                f"{name} has none"
            )
    return list(answers[0][:common]), [list(answer[common:]) for answer in answers]


def _log_probability(text: TokenStats) -> float:
    """Log-probability of an answer after its prompt, in nats."""
    return float(text.logp.sum())


def _detector(name: str) -> Detector:
    return Detector(name, _log_probability, ("text",))


DETECTORS = list(map(_detector, (PREFERENCE, CHOSEN, REJECTED)))
"""The scores of a pair, under the names of detectors."""


def prompts_of(documents: Sequence[Document]) -> list[Prompt]:
    """What is scored of texts or pairs; of pairs the chosen answers, and then the rejected ones."""
    rejected = [document.rejected for document in documents if isinstance(document, Pair)]
    return Corpus(documents).prompts + rejected


def score_pairs(model: Model, pairs: Sequence[Document]) -> tuple[ScoreTable, list[str]]:
    """Scores of N pairs by an audited model, and remarks: those of the fine-tuned model alone, and beside its base."""
    plan = model.plan([_detector("answer")], prompts_of(pairs))
    # Of the chosen answers, and then of the rejected ones: the order of `prompts_of`.
    scored = plan.score()
    columns = {}
    of_answers = scored.columns
    for state in (BASE, *IN_AUDIT):
        # In the calibrated state, a score is a log-ratio already: fine-tuned minus base.
        column = of_answers[Score("answer", state)]
        chosen = column[: len(pairs)]
        rejected = column[len(pairs) :]
        columns[Score(PREFERENCE, state)] = chosen - rejected
        columns[Score(CHOSEN, state)] = chosen
        columns[Score(REJECTED, state)] = rejected
    remark = (
        f"{len(pairs):,} pairs: chosen and rejected are the log-ratios of either answer after its prompt, preference "
        "is their difference"
    )
    return replace(scored, columns=columns), [remark, *plan.remarks]
