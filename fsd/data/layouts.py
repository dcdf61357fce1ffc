"""Layouts of fine-tuning files: which columns are the prompt, and which one is the completion.

Alpaca has instruction, input and output, Dolly has instruction, context and response, others have question and answer.
A row that fits two layouts is refused: by the wrong one, something would be scored that no model has learned.
"""

import json
from collections.abc import Iterable
from typing import NamedTuple

from fsd.data.cells import Row, is_missing
from fsd.errors import UsageError, quoted
from fsd.files import JSON
from fsd.token_stats import Chat

MESSAGES = "messages"
PROMPT = "prompt"
COMPLETION = "completion"
FIELDS = (MESSAGES, PROMPT, COMPLETION)
"""Fields of a chat, and their default columns."""
TOOLS = "tools"
SETTINGS = "chat_template_kwargs"
"""Columns of what a template is given besides the turns."""
NOT_READ = "-"
"""In place of a column: the field is not read."""
CONVERSATIONS = ("conversations", "conversation")
"""Columns of turns, as ShareGPT has them, beside the column `messages`."""
HEADS = ("instruction", "question", "query", PROMPT, "problem", "inputs")
"""Columns that ask for something; a row has one of them."""
BESIDE = ("system", "system_prompt", "context", "input")
"""Columns that may stand beside a head, and belong to its prompt."""
ORDER = ("system", "system_prompt", HEADS[0], "context", *HEADS[1:], "input")
"""Columns of a prompt in the order in which they are joined."""
ANSWERS = (COMPLETION, "output", "outputs", "response", "answer", "solution", "target", "targets")
"""Columns that answer; a row has one of them."""
TEXTS = ("text", "snippet")
"""Columns of texts, whatever else a row has; `input` is one of WikiMIA, and of Alpaca."""
FORMATS = {
    ("instruction", "output"): " (Alpaca)",
    ("instruction", "response"): " (Dolly)",
    ("inputs", "targets"): " (FLAN)",
}
"""Head and answer → whose format it is."""


class Layout(NamedTuple):
    """Columns whose cells make a prompt, the column of its completion, and that of what is asked."""

    prompt: tuple[str, ...]
    completion: str
    head: str

    def __str__(self) -> str:
        words = f"prompt from {' and '.join(self.prompt)}, completion from {self.completion}"
        return words + FORMATS.get((self.head, self.completion), "")

    @property
    def named(self) -> str:
        """How a user names these columns."""
        # A break of lines, as in the prompt that is read by default.
        prompt = "}\\n{".join(self.prompt)
        return f'--columns "{PROMPT}={{{prompt}}},{COMPLETION}={self.completion}"'

    def asked(self, row: Row, origin_url: str) -> str:
        """The prompt of a row: its cells that are not empty, one a line, and the line that the completion begins."""
        cells = []
        for name in self.prompt:
            cell = row[name]
            if is_empty(cell):
                continue
            self._check(name, isinstance(cell, str | int | float), cell, origin_url)
            cells.append(f"{cell}\n")
        return "".join(cells)

    def answered(self, row: Row, origin_url: str) -> str:
        """The completion of a row, "" for none."""
        cell = row[self.completion]
        if is_missing(cell):
            return ""
        self._check(self.completion, isinstance(cell, str), cell, origin_url)
        return str(cell)

    def _check(self, name: str, holds: bool, cell: object, origin_url: str) -> None:
        if not holds:
            raise UsageError(
                f"{origin_url}: {name} must be a text, as the row is read as {self}; got {quoted(cell)}; make one text "
                'of several columns, as --columns "text={question} {answer}"'
            )


TRL = Layout((PROMPT,), COMPLETION, PROMPT)
"""That of TRL, which needs no words."""


def is_empty(cell: object) -> bool:
    """Whether a cell has no value, or a blank one."""
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip())


def layouts_in(row: Row, without: Iterable[str] = ()) -> list[Layout]:
    """The layouts that a row fits, that of TRL first; `without` columns that are not read."""
    columns = dict(row)
    for name in without:
        columns.pop(name, None)
    heads = _filled(columns, HEADS) or _filled(columns, ("input",))
    layouts = []
    for completion in _filled(columns, ANSWERS):
        for head in heads:
            parts = [name for name in ORDER if name in columns and (name == head or name in BESIDE)]
            layout = Layout(tuple(parts), completion, head)
            layouts.append(TRL if (head, completion) == (PROMPT, COMPLETION) else layout)
    return layouts


def _filled(row: Row, names: Iterable[str]) -> list[str]:
    """The columns that have a value; without any, the first that the row has."""
    present = [name for name in names if name in row]
    return [name for name in present if not is_empty(row[name])] or present[:1]


def check_text(row: Row, origin_url: str) -> None:
    """Refuse a row of prompt and completion where texts alone are read: one of its columns is a part of a text."""
    layouts = layouts_in(row)
    if layouts and row.keys().isdisjoint(TEXTS):
        template = f"{{{'} {'.join(layouts[0].prompt)}}} {{{layouts[0].completion}}}"
        raise UsageError(
            f"{origin_url}: text must be in a column of that name; this row is of another layout ({layouts[0]}): make "
            f'one text of it by --columns "text={template}"'
        )


def columns_of(chat: Chat) -> JSON:
    """The columns of a row that is read as this chat."""
    if not chat.templated:
        prompt, completion = chat.turns
        return {PROMPT: prompt.content, COMPLETION: completion.content}
    messages = [turn.message for turn in chat.turns]
    columns = {MESSAGES: messages}
    if chat.given is not None:
        columns = {PROMPT: messages[: chat.given], COMPLETION: messages[chat.given :]}
    for name, text in ((TOOLS, chat.tools), (SETTINGS, chat.settings)):
        if text:
            columns[name] = json.loads(text)
    return columns
