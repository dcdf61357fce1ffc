"""What was read of files, in words, where it is not the plain case: one text a row, in a column `text`."""

import re
from collections import Counter

from fsd.data.documents import Documents
from fsd.errors import counted

MARKS = re.compile(
    r"<\|im_start\|>|\[INST\]|<start_of_turn>|<\|start_header_id\|>|<\|(?:user|assistant|system|end|eot_id)\|>"
    r"|<\|turn>|<｜(?:User|Assistant)｜>|\[\|(?:user|assistant)\|\]|^### (?:Instruction|Response|Human|Assistant):",
    re.MULTILINE,
)
"""What chat templates write before a turn."""


def read_otherwise(documents: Documents) -> str:
    """What was read of which columns, what is scored after a context, what stands twice; "" for the plain case."""
    return "; ".join([*_columns(documents), *_contexts(documents), *_copies(documents), *_marks(documents)])


def _columns(documents: Documents) -> list[str]:
    columns = Counter[str]()
    for document in documents:
        layout = document.chat.layout if document.chat else document.column
        columns[layout] += 1
    plain = columns.pop("", 0)
    if not plain and len(columns) == 1:
        return list(columns)
    return [f"{counted(count, 'text')}: {layout}" for layout, count in columns.items()]


def _contexts(documents: Documents) -> list[str]:
    count = sum(bool(document.context) for document in documents)
    if not count:
        return []
    of_all = "" if count == len(documents) else f"{count:,} of "
    return [f"{of_all}{len(documents):,} texts scored after their context (--columns context=- leaves it out)"]


def _copies(documents: Documents) -> list[str]:
    """How many rows repeat another one, whichever file each is of."""
    places: dict[object, str] = {}
    copies = []
    for document in documents:
        # Of a chat, all that is said by whom.
        identity = (document.text, document.context, str(document.chat and document.chat.identity))
        if identity in places:
            copies.append((places[identity], document.origin))
        places.setdefault(identity, document.origin)
    if not copies:
        return []
    one, other = copies[0]
    return [f"{len(copies):,} of {len(documents):,} rows repeat another one, as {other} repeats {one}"]


def _marks(documents: Documents) -> list[str]:
    """How many texts hold the marks of a chat template, which a model was not trained on as characters."""
    found = [match[0] for document in documents if (match := MARKS.search(document.text))]
    if not found:
        return []
    return [
        f"{len(found):,} of {len(documents):,} texts hold marks of a chat template, as {found[0]}: their prompts are "
        "scored as well; give the turns in a column messages, and the answers alone are"
    ]
