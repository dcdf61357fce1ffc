"""What was read of files, in words, where it is not the plain case: one text a row, in a column `text`."""

import re
from collections import Counter

from fsd.data.documents import Documents
from fsd.errors import counted

MARKS = re.compile(
    r"<\|im_start\|>|\[INST\]|<start_of_turn>|<\|start_header_id\|>|<\|(?:user|assistant|system|turn)\|?>"
    r"|<｜(?:User|Assistant)｜>|^### (?:Instruction|Response|Human|Assistant):",
    re.MULTILINE,
)
"""What chat templates write before a turn."""


def read_otherwise(documents: Documents) -> str:
    """What was read of which columns, what is scored after a context, what stands twice; "" for the plain case."""
    columns = Counter[str]()
    places: dict[object, str] = {}
    contexts = 0
    copies: list[str] = []
    marks: list[str] = []
    for document in documents:
        chat = document.chat
        columns[chat.layout if chat else document.column] += 1
        contexts += bool(document.context)
        identity = (document.text, document.context, str(chat and chat.identity))
        place = places.setdefault(identity, document.origin)
        if place != document.origin:
            copies.append(f"{document.origin} repeats {place}")
        marks += MARKS.findall(document.text)[:1]
    total = len(documents)
    words = []
    for layout, count in columns.items():
        if layout:
            words.append(layout if count == total else f"{counted(count, 'text')}: {layout}")
    if contexts:
        words.append(f"{contexts:,} texts scored after their context (--columns context=- leaves it out)")
    if copies:
        words.append(f"{len(copies):,} of {total:,} rows repeat another one, as {copies[0]}")
    if marks:
        words.append(
            f"{len(marks):,} of {total:,} texts hold marks of a chat template, as {marks[0]}: their prompts are scored "
            "as well; give the turns in a column messages, and the answers alone are"
        )
    return "; ".join(words)
