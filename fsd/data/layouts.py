"""Layouts of fine-tuning files: which columns are the prompt, and which one is the completion.

Alpaca has instruction, input and output, Dolly has instruction, context and response, others have question and answer.
A row that fits two layouts is refused: by the wrong one, something would be scored that no model has learned.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fsd.data.cells import Row, is_missing
from fsd.errors import UsageError, quoted

PROMPT = "prompt"
COMPLETION = "completion"
CONVERSATIONS = ("conversations", "conversation")
"""Columns of turns, as ShareGPT has them, beside the column `messages`."""
HEADS = ("instruction", "question", "query", PROMPT, "problem", "inputs", "user", "human")
"""Columns that ask for something; a row has one of them."""
BESIDE = ("system", "system_prompt", "context", "input")
"""Columns that may stand beside a head, and belong to its prompt."""
ORDER = ("system", "system_prompt", "instruction", "context", *HEADS[1:], "input")
"""Columns of a prompt in the order in which they are joined."""
ANSWERS = (COMPLETION, "output", "outputs", "response", "answer", "solution", "target", "targets", "assistant")
"""Columns that answer; a row has one of them."""
TEXTS = ("text", "snippet")
"""Columns of texts, whatever else a row has; `input` is one of WikiMIA, and of Alpaca."""
FORMATS = {("instruction", "output"): "Alpaca", ("instruction", "response"): "Dolly", ("inputs", "targets"): "FLAN"}
"""Head and answer → whose format it is."""


class Layout(NamedTuple):
    """Columns whose cells make a prompt, and the column of its completion."""

    prompt: tuple[str, ...]
    completion: str

    def __str__(self) -> str:
        words = f"prompt from {' and '.join(self.prompt)}, completion from {self.completion}"
        for (head, answer), name in FORMATS.items():
            if head in self.prompt and answer == self.completion:
                words += f" ({name})"
        return words

    @property
    def named(self) -> str:
        """How a user names these columns."""
        prompt = self.prompt[0]
        if len(self.prompt) > 1:
            # A break of lines, as in the prompt that is read by default.
            prompt = "\\n".join(f"{{{name}}}" for name in self.prompt)
        return f'--columns "{PROMPT}={prompt},{COMPLETION}={self.completion}"'

    def asked(self, row: Row, origin_url: str) -> str:
        """The prompt of a row: its cells that are not empty, one a line, and the line that the completion begins."""
        cells = []
        for name in self.prompt:
            cell = row[name]
            if is_empty(cell):
                continue
            if not isinstance(cell, str | int | float):
                raise UsageError(
                    f"{origin_url}: {name} must be a text, as a part of a prompt; got {quoted(cell)}; name the columns "
                    f"of the prompt, as {self.named}"
                )
            cells.append(f"{cell}\n")
        return "".join(cells)

    def answered(self, row: Row, origin_url: str) -> str:
        """The completion of a row, "" for none."""
        cell = row[self.completion]
        if is_missing(cell):
            return ""
        if not isinstance(cell, str):
            raise UsageError(
                f"{origin_url}: {self.completion} must be a text, as it is read as a completion; got {quoted(cell)}; "
                'make one text of several columns, as --columns "text={question} {answer}"'
            )
        return cell


OWN = Layout((PROMPT,), COMPLETION)
"""That of TRL, which needs no words."""


def is_empty(cell: object) -> bool:
    """Whether a cell has no value, or a blank one."""
    return is_missing(cell) or (isinstance(cell, str) and not cell.strip())


def layouts_in(row: Row, without: Iterable[str] = ()) -> list[Layout]:
    """The layouts that a row fits, that of TRL first; `without` columns that are not read."""
    columns = {name: cell for name, cell in row.items() if name not in without}
    heads = _filled(columns, HEADS) or _filled(columns, ("input",))
    layouts = []
    for completion in _filled(columns, ANSWERS):
        for head in heads:
            own = head == PROMPT and completion == COMPLETION
            parts = [name for name in ORDER if name == head or (name in BESIDE and name in columns)]
            layouts.append(OWN if own else Layout(tuple(parts), completion))
    return layouts


def _filled(row: Row, names: Iterable[str]) -> list[str]:
    """The columns that have a value; without any, the first that the row has."""
    present = [name for name in names if name in row]
    return [name for name in present if not is_empty(row[name])] or present[:1]


def check_one(fitting: Iterable[object], origin_url: str) -> None:
    """Refuse a row that fits several layouts."""
    listed = list(fitting)
    if len(listed) > 1:
        ways = [layout.named for layout in listed if isinstance(layout, Layout)]
        raise UsageError(
            f"{origin_url}: a row must fit one layout; its columns fit {len(listed)}: {'; '.join(map(str, listed))}. "
            f"Name one, as {ways[0] if ways else f'--columns messages={listed[0]}'}"
        )


def check_text(row: Row, origin_url: str) -> None:
    """Refuse a row of prompt and completion where texts alone are read: one of its columns is a part of a text."""
    layouts = layouts_in(row)
    if layouts and not any(name in row for name in TEXTS):
        template = " ".join(f"{{{name}}}" for name in (*layouts[0].prompt, layouts[0].completion))
        raise UsageError(
            f"{origin_url}: text must be in a column of that name; this row is of another layout ({layouts[0]}): make "
            f'one text of it by --columns "text={template}"'
        )
