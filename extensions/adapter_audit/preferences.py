"""Preference data: pairs of answers to a prompt, of which one was chosen and the other rejected.

Formats: https://huggingface.co/docs/trl/dataset_formats, columns `prompt`, `chosen` and `rejected`. Scores: the
log-ratio log π(y | x) − log π_ref(y | x) of each answer y after its prompt x, and the difference of both ratios, which
training by preferences raises (PREMIA, "Exposing Privacy Gaps: Membership Inference Attack on Preference Data for LLM
Alignment", arXiv 2407.06443).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

import numpy as np

from fsd.api import (
    BETWEEN,
    COMPLETION,
    MESSAGES,
    PROMPT,
    Detector,
    Document,
    Prompt,
    Row,
    Score,
    ScoreTable,
    TokenStats,
    UsageError,
    document,
    is_missing,
    quoted,
    unpacked,
)

CHOSEN = "chosen"
REJECTED = "rejected"
PREFERENCE = "preference"
"""Scores of a pair: the ratio of either answer, and the difference of the ratios."""
UNNAMED = ("text", "context", MESSAGES, COMPLETION)
"""Fields that a pair does not have."""
Pairs = tuple[list[Document], dict[str, Prompt]]
"""Prompts with the chosen answers, whose texts are the words of all of a pair, and text → prompt with the other one."""


def are_pairs(rows: Iterable[tuple[str, Row]]) -> bool:
    """Whether rows are of preference data: the first has both columns."""
    for _, row in rows:
        return CHOSEN in row and REJECTED in row
    return False


def read_pairs(rows: Iterable[tuple[str, Row]], columns: Mapping[str, str]) -> Pairs:
    """Rows, each after its origin, as pairs; the errors are those of `fsd.data.fields.document`."""
    for field in UNNAMED:
        if field in columns:
            raise UsageError(
                f"columns must not name {field} for preference data, whose answers are in columns chosen and rejected; "
                f"got {field}={columns[field]}"
            )
    documents = []
    rejections = {}
    # The prompt is found here, so that it can be what both answers begin with.
    parts = dict(columns) | {PROMPT: PROMPT, COMPLETION: COMPLETION}
    for origin_url, row in rows:
        prompt, answers = _parts(row, columns.get(PROMPT), origin_url)
        pair = []
        for answer in answers:
            fields = dict(row) | {MESSAGES: None, PROMPT: prompt, COMPLETION: answer}
            pair.append(document(fields, parts, origin_url, answers=True))
        chosen, rejected = pair
        text = BETWEEN.join([chosen.text, rejected.prompt.text])
        documents.append(replace(chosen, text=text))
        rejections[text] = rejected.prompt
    return documents, rejections


def _parts(row: Row, named: str | None, origin_url: str) -> tuple[Any, Sequence[Any]]:
    """The prompt of a pair, and its two answers; without a column for it, it is what both chats begin with.

    `named` is the column that the user names for the prompt.
    """
    answers = [unpacked(row.get(CHOSEN)), unpacked(row.get(REJECTED))]
    got = f"got {quoted(answers[0])} and {quoted(answers[1])}"
    if any(map(is_missing, answers)) or answers[0] == answers[1]:
        raise UsageError(f"{origin_url}: chosen and rejected must be two different answers; {got}")
    if named is not None and named not in row:
        raise UsageError(
            f"{origin_url}: prompt must be in column {named!r}; columns are {', '.join(map(str, row)) or 'none'}"
        )
    prompt = row.get(named or PROMPT)
    if not is_missing(prompt):
        return prompt, answers
    common = 0
    if all(isinstance(answer, list | tuple) for answer in answers):
        common = sum(1 for _ in takewhile(_are_equal, zip(*answers, strict=False)))
    if not 0 < common < min(map(len, answers)):
        raise UsageError(
            f"{origin_url}: chosen and rejected must come with a column prompt, or be two lists of messages that begin "
            f"with the same turns, which are the prompt, and go on with an answer; {got}"
        )
    return list(answers[0][:common]), [list(answer[common:]) for answer in answers]


def _are_equal(turns: Sequence[Any]) -> bool:
    return bool(turns[0] == turns[1])


def _log_probability(text: TokenStats) -> float:
    """Log-probability of an answer after its prompt, in nats."""
    return float(text.logp.sum())


ANSWER = Detector("answer", _log_probability, ("text",))
"""What is computed of each answer."""
DETECTORS = [replace(ANSWER, name=name) for name in (PREFERENCE, CHOSEN, REJECTED)]
"""The scores of a pair, under the names of detectors."""
REMARK = (
    "pairs: chosen and rejected are the log-ratios of either answer after its prompt, preference is their difference"
)
"""What these scores are, after the number of pairs."""


def of_pairs(answers: ScoreTable) -> ScoreTable:
    """The scores of N pairs by an audited model from the (2N,) scores of their answers, the chosen ones first.

    They are those of either model alone, and beside its base: in the calibrated state, a score is a log-ratio already.
    """
    columns: dict[Score, Any] = {}
    for score, column in answers.columns.items():
        chosen, rejected = np.split(column, 2)
        of_state = {PREFERENCE: chosen - rejected, CHOSEN: chosen, REJECTED: rejected}
        columns |= {score._replace(detector=name): values for name, values in of_state.items()}
    return replace(answers, columns=columns)
