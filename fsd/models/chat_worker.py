"""A process that writes chats by a template, which is somebody else's code; `fsd.models.chats` starts it as a script.

It reads one JSON object a line and answers with one. Its memory is limited here, its time by the process that asks: a
single operation on long numbers or strings may take hours, in which nothing inside the process could stop it.
"""

import json
import os
import resource
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

MEMORY = 2**30
"""Bytes beyond those that the process has at its start."""
READY = "ready"


def limit_memory() -> None:
    """Let the process have no more than `MEMORY` further bytes."""
    pages = Path("/proc/self/statm")
    # Other systems than Linux have no such file, and limit time alone.
    if not pages.is_file():
        return
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
        return {"error": " ".join(str(error).split()) or type(error).__name__}
    # Without marks there is no list for the chat.
    marked = spans or [[]]
    return {"text": text, "spans": marked[0]}


def main() -> None:
    """Answer until there are no more requests."""
    # Before the memory is limited, and before the first request is timed.
    import_module("transformers.utils.chat_template_utils")
    limit_memory()
    replies = sys.stdout
    # What a library prints would be taken for an answer.
    sys.stdout = sys.stderr
    print(json.dumps(READY), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=replies, flush=True)


if __name__ == "__main__":
    main()
