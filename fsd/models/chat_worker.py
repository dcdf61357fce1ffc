"""A process that writes chats by a template, which is somebody else's code; `fsd.models.chats` starts it as a script.

It reads a number and a request a line, as JSON, and writes with the same number that it begins, and then the answer.
Its memory is limited here, its time by the process that asks: a single operation on long numbers or strings may take
hours, in which nothing inside the process could stop it.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

MEMORY = 2**30
"""Bytes beyond those that the process has at its start."""
START = 0
"""The number of what it says before the first request."""
READY = {"ready": True}
BEGUN = {"begun": True}
LONGEST_CHAT = 10**7
"""Characters that a template may write for a chat."""
LONGEST_REASON = 1000
"""Characters of what a template says when it refuses a chat."""


def limit_memory() -> None:
    """Let the process have no more than `MEMORY` further bytes."""
    pages = Path("/proc/self/statm")
    # Other systems than Linux have no such file, and limit time alone.
    if not pages.is_file():
        return
    import resource  # which not every system has

    size = int(pages.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, hard))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """What a template writes, and the begin and end of each span of characters that it marks as generated."""
    from transformers.utils.chat_template_utils import render_jinja_template

    try:
        (text,), spans = render_jinja_template(conversations=[request.pop("messages")], **request)
    # The template may raise anything.
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return {"error": reason[:LONGEST_REASON]}
    # Before it is sent: the process that reads it has no limit of memory.
    if len(text) > LONGEST_CHAT:
        return {"error": f"the template writes {len(text):,} characters, more than {LONGEST_CHAT:,}"}
    # Without marks there is no list for the chat.
    marked = spans or [[]]
    return {"text": text, "spans": marked[0]}


def main() -> None:
    """Answer until there are no more requests."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a library prints, already as it is imported, would be taken for an answer.
    os.dup2(2, 1)
    # Before the memory is limited, and before the first request is timed.
    import_module("transformers.utils.chat_template_utils")
    limit_memory()

    def say(number: int, said: dict[str, Any]) -> None:
        print(json.dumps([number, said]), file=replies, flush=True)

    say(START, READY)
    for line in sys.stdin:
        number, request = json.loads(line)
        say(number, BEGUN)
        say(number, answer(request))


if __name__ == "__main__":
    main()
