"""Chats as a model reads them: the tokens of their turns in the model's template, and which of these are answers.

Tokens and mask are those that TRL trains by: for prompt and completion, the completion; for messages, what the template
marks as generated, or TRL's own version of a template without marks; else what each answer adds to the turns before it.
A template is somebody else's code. It is written in transformers' sandbox, in a process of its own, within limits.
"""

import contextlib
import copy
import json
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import IO, Any

from fsd.errors import UsageError, first_line, quoted, refusing
from fsd.files import JSON, read_text
from fsd.models import chat_worker
from fsd.token_stats import Chat, Marked, Prompt, TokenIds, Turn

LARGEST_TEMPLATE = 2**18
"""Characters of a template; the longest in use have a tenth of it."""
START_SECONDS = 300.0
"""Time until the process that writes is ready, on a machine that does much else."""
SECONDS = 20.0
"""Time in which a template must have written a chat and all of its beginnings, which takes milliseconds."""
KEPT = 4096
"""Chats whose tokens are kept, since each model state reads them anew."""
SECRET = re.compile("key|token|secret|passw|credential", re.IGNORECASE)
"""What is in the names of variables that the process which writes has no use for."""


Answer = JSON
"""Text and spans of a chat, or the error that a template raises."""


class Unwritable(Exception):  # noqa: N818 - it is the chat that cannot be written
    """A template cannot write a chat; the message says why."""


class Budget:
    """The seconds that a template has for a chat, however often it is called for it."""

    def __init__(self) -> None:
        self.seconds = SECONDS
        self.left = SECONDS

    @contextlib.contextmanager
    def spent(self) -> Iterator[float]:
        """Take off the time that passes; gives what was left before."""
        begun = time.monotonic()
        try:
            yield self.left
        finally:
            self.left = max(0, self.left - (time.monotonic() - begun))


class TemplateProcess:
    """The process that writes chats, started with the first one and again after one that it could not finish.

    Requests and answers have numbers, so that each answer belongs to its request.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()
        self._number = 0

    def write(self, request: JSON, budget: Budget) -> Answer:
        """Text and spans of a chat; `Unwritable` if the template raises, or takes too much time or memory."""
        with self._lock:
            answer = self._answer(request, budget)
            # A process that ended before it had begun with this chat did so for another reason.
            if answer is None:
                answer = self._answer(request, budget)
        if not answer:
            raise Unwritable(f"the template does not end within {budget.seconds:g} seconds, or takes too much memory")
        if "error" in answer:
            raise Unwritable(str(answer["error"]))
        return answer

    def _answer(self, request: JSON, budget: Budget) -> Answer | None:
        """The answer to a request, as `_exchange` gives it, by a process that may have to be started."""
        process = self._running() or self._start()
        self._number += 1
        line = json.dumps([self._number, request], default=str)
        with budget.spent() as seconds:
            return self._exchange(process, self._number, line, seconds)

    def _running(self) -> "subprocess.Popen[str] | None":
        """The process; None if it was not started, or has ended since, of which the next chat is not guilty."""
        process = self._process
        if process is None or process.poll() is None:
            return process
        _stop(process)
        self._process = None
        return None

    def _start(self) -> "subprocess.Popen[str]":
        # -P: the folder of the script has modules with the names of libraries.
        command = [sys.executable, "-P", chat_worker.__file__]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env=_environment(),
        )
        self._process = process
        weakref.finalize(self, _stop, process)
        if self._exchange(process, chat_worker.START, "", START_SECONDS) != chat_worker.READY:
            raise UsageError("chats must be written by a process of their own; it could not be started")
        return process

    def _exchange(self, process: "subprocess.Popen[str]", number: int, line: str, seconds: float) -> Answer | None:
        """The answer to the line of a number, empty if the process ended over it; None if it ended before."""
        assert process.stdin is not None  # both are pipes
        assert process.stdout is not None
        late = threading.Event()

        def stop() -> None:
            late.set()
            process.kill()

        answer: Answer = {}
        begun = False
        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            if line:
                process.stdin.write(f"{line}\n")
                process.stdin.flush()
            for of_line, reply in _replies(process.stdout):
                # Nobody waited for an answer to an earlier line.
                if of_line != number:
                    continue
                if reply != chat_worker.BEGUN:
                    answer = reply
                    break
                begun = True
        # A pipe that is closed, or a line that is no JSON.
        except (OSError, ValueError):
            pass
        except BaseException:
            self._end(process)
            raise
        finally:
            timer.cancel()
            # A process that is killed as it answers must not be asked again.
            timer.join()
        if not answer or late.is_set():
            self._end(process)
        if answer or begun or late.is_set():
            return answer
        return None

    def _end(self, process: "subprocess.Popen[str]") -> None:
        self._process = None
        _stop(process)


def _environment() -> dict[str, str]:
    """The environment without credentials, which no template needs."""
    environment = dict(os.environ)
    for name in filter(SECRET.search, os.environ):
        del environment[name]
    return environment


def _replies(lines: IO[str]) -> Iterator[tuple[int, Answer]]:
    """What a process answers, and to the line of which number, until it ends."""
    for line in iter(lines.readline, ""):
        # What a killed process has written of a line is no answer.
        if line.endswith("\n"):
            number, answer = json.loads(line)
            yield number, answer


def _stop(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        # What was not yet sent cannot be sent any more.
        with contextlib.suppress(OSError):
            if pipe:
                pipe.close()


@lru_cache(1)
def _process() -> TemplateProcess:
    """One process for all templates of a command."""
    return TemplateProcess()


FILE = "chat_template.jinja"
"""Name of a template beside a tokenizer, or beside an adapter that was trained by it."""


def template_beside(folder: Path | None) -> str | None:
    """The chat template that an adapter brings along; None without one."""
    if folder is None:
        return None
    file = folder / FILE
    if not file.is_file():
        return None
    return template_in(str(file))


def template_in(file: str) -> str:
    """The chat template in a file."""
    return read_text(Path(file), largest=LARGEST_TEMPLATE)


class ChatReader:
    """Writes chats by a template, and reads them by a tokenizer.

    `name` is what the model is called in messages; without a `template`, the tokenizer must have one.
    """

    def __init__(self, tokenizer: Any, name: str, template: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self._given = template
        self._marked: dict[Chat, Marked] = {}

    @property
    def has_template(self) -> bool:
        """Whether a template was given, or the tokenizer has one."""
        return bool(self._given or self.tokenizer.chat_template)

    @cached_property
    def template(self) -> str:
        """The template by which chats are written."""
        template = self._given or self.tokenizer.chat_template
        if isinstance(template, dict):  # named variants
            template = template.get("default")
        if not template:
            raise UsageError(
                f"model {self.name!r} must have a chat template to read chats; it has none: give one by "
                "--chat-template FILE, or the texts as prompt and completion in two columns of strings"
            )
        if not isinstance(template, str):
            raise UsageError(f"the chat template of {self.name!r} must be a string; it is {quoted(template)}")
        if len(template) > LARGEST_TEMPLATE:
            raise UsageError(
                f"the chat template of {self.name!r} must have at most {LARGEST_TEMPLATE:,} characters; it has "
                f"{len(template):,}"
            )
        return template

    @cached_property
    def training_template(self) -> str | None:
        """The template that marks what is generated: the model's, or TRL's version of it; None where neither does."""
        from trl import chat_template_utils as known

        if known.has_generation_markers(self.template):
            return self.template
        shipped = [text for name, text in vars(known).items() if name.endswith("_chat_template")]
        # TRL tries templates out in this process, so that it is asked about its own alone.
        if self.template not in shipped:
            return None
        tokenizer = copy.copy(self.tokenizer)
        tokenizer.chat_template = self.template
        return str(known.get_training_chat_template(tokenizer))

    def asked(self, prompt: str) -> tuple[str, TokenIds]:
        """What a user asks and the opening of an answer, as a text and its token ids.

        A UsageError, which names --plain, if the template cannot write it, or writes nothing.
        """
        must = "the model's chat template must take a message of the user's"
        try:
            text, _ = self._written(Chat((Turn("user", prompt),)), Budget(), prompting=True)
        except Unwritable as error:
            raise UsageError(f"{must}; it says: {first_line(error)}; --plain asks without it") from error
        ids = self._ids(text)
        if not ids:
            raise UsageError(f"{must}; it writes nothing; --plain asks without it")
        return text, ids

    def marked_prompt(self, prompt: Prompt) -> Prompt:
        """The prompt of a chat with its tokens in place of its turns."""
        assert prompt.chat is not None
        return prompt._replace(chat=None, marked=self.marked(prompt.chat))

    def marked(self, chat: Chat) -> Marked:
        """The tokens of a chat, and which of them are scored; a UsageError names a chat that cannot be written."""
        if chat not in self._marked:
            if len(self._marked) >= KEPT:
                self._marked.clear()
            self._marked[chat] = self._tokens(chat)
        return self._marked[chat]

    def _tokens(self, chat: Chat) -> Marked:
        place = chat.origin or repr(chat.words[:40])
        with refusing(f"{place}: a chat must suit the chat template of {self.name!r}; ", Unwritable):
            ids, scored = self._read(chat)
        # Nothing predicts the first token.
        scored = [False, *scored[1:]]
        if not any(scored):
            raise UsageError(
                f"{place}: an answer must have at least one token in the chat template of {self.name!r}; it has none"
            )
        return Marked(tuple(ids), tuple(scored))

    def _read(self, chat: Chat) -> tuple[TokenIds, list[bool]]:
        """Token ids, and which of them are scored."""
        budget = Budget()
        if not chat.templated:
            prompt_ids, ids = self._joined(chat)
            if chat.whole:
                prompt_ids = []
            return ids, self._after_prompt(prompt_ids, ids)
        # A template with marks is chosen by TRL for messages alone, of which the answers are learned.
        if chat.given is None and not chat.whole and self.training_template:
            return self._within(*self._written(chat, budget, template=self.training_template, marks=True))
        text, _ = self._written(chat, budget)
        # Where all is scored, no answer must be told from what precedes it.
        if chat.whole:
            ids = self._ids(text)
            return ids, self._after_prompt([], ids)
        # TRL compares the tokens of a prompt with those of the whole, since its last token may join the completion.
        if chat.given is not None:
            prompt, _ = self._written(chat.until(chat.given), budget, prompting=True)
            ids = self._ids(text)
            return ids, self._after_prompt(self._ids(prompt), ids)
        # TRL refuses such messages; characters tell what an answer adds.
        return self._within(text, list(self._added(chat, text, budget)))

    def _joined(self, chat: Chat) -> tuple[TokenIds, TokenIds]:
        """Ids of a prompt, and of prompt, completion and the end of the text, as TRL reads strings."""
        prompt, completion = (turn.content for turn in chat.turns)
        end = self.tokenizer.eos_token or ""
        if not completion.endswith(end):
            completion += end
        # With the special tokens of the tokenizer's own, such as that of the beginning.
        rows = self.tokenizer([prompt, prompt + completion], verbose=False)["input_ids"]
        return rows[0], rows[1]

    def _ids(self, text: str) -> TokenIds:
        ids: TokenIds = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    @staticmethod
    def _after_prompt(prompt: TokenIds, ids: TokenIds) -> list[bool]:
        """Which ids are scored: those that come after what they have in common with the prompt."""
        length = 0
        while length < min(len(prompt), len(ids)) and prompt[length] == ids[length]:
            length += 1
        return [False] * length + [True] * (len(ids) - length)

    def _within(self, text: str, spans: Sequence[Sequence[int]]) -> tuple[TokenIds, list[bool]]:
        """Ids of a text, of which those are scored that are in one of the spans of characters."""
        read = self.tokenizer(text, add_special_tokens=False, verbose=False)
        ids = read["input_ids"]
        scored = [False] * len(ids)
        for begin, end in spans:
            # A template may mark what is empty in this chat.
            if begin == end:
                continue
            # Some tokenizers have no tokens for white space, at either end of an answer.
            start = _token_of(read, range(begin, end))
            end_token = _token_of(read, range(end - 1, begin - 1, -1))
            if start is None or end_token is None:
                raise Unwritable(f"an answer must have at least one token; {quoted(text[begin:end])} has none")
            stop = end_token + 1
            scored[start:stop] = [True] * (stop - start)
        return ids, scored

    def _added(self, chat: Chat, text: str, budget: Budget) -> Iterator[tuple[int, int]]:
        """What each answer adds to the turns before it, as a span of characters of the whole chat."""
        for number in chat.answers:
            answered, _ = self._written(chat.until(number + 1), budget)
            if number:
                prompt, _ = self._written(chat.until(number), budget, prompting=True)
            else:
                prompt = self._before_first(chat, answered, budget)
            if not (text.startswith(prompt) and text.startswith(answered)):
                raise Unwritable(
                    "the template writes turns otherwise when others follow, so that answers cannot be told from "
                    "prompts: mark them by {% generation %} and {% endgeneration %}"
                )
            if len(prompt) >= len(answered):
                raise Unwritable(f"the template must write every answer; of turn {number + 1} it writes nothing")
            yield len(prompt), len(answered)

    def _before_first(self, chat: Chat, answered: str, budget: Budget) -> str:
        """What is written before an answer with which a chat begins, up to the opening of an answer."""
        # Many templates cannot write a chat without turns: the opening is what they add after this one.
        opened, _ = self._written(chat.until(1), budget, prompting=True)
        opening = opened.removeprefix(answered)
        if not opening or opening not in answered:
            return ""
        return answered[: answered.index(opening) + len(opening)]

    def _written(
        self, chat: Chat, budget: Budget, *, prompting: bool = False, template: str | None = None, marks: bool = False
    ) -> tuple[str, list[Sequence[int]]]:
        """What the template writes for a chat, and the spans that it marks; `prompting` opens an answer at the end."""
        request = {
            "messages": [turn.message for turn in chat.turns],
            "chat_template": template or self.template,
            "add_generation_prompt": prompting,
            "return_assistant_tokens_mask": marks,
        }
        request |= self.tokenizer.special_tokens_map
        request |= chat.given_to_template
        reply = _process().write(request, budget)
        _check_calls(chat, reply["text"])
        return reply["text"], reply["spans"]


def _check_calls(chat: Chat, text: str) -> None:
    """Refuse what a template that knows no tools has written: answers without what they call."""
    for number, turn in enumerate(chat.turns, 1):
        for call in turn.calls:
            name = call["name"]
            # A template that writes JSON writes quotation marks of a name in its way.
            escaped = json.dumps(name, ensure_ascii=False)[1:-1]
            if name not in text and escaped not in text:
                raise Unwritable(
                    f"the template must write what is called; of turn {number} it leaves out {quoted(name)}"
                )


def _token_of(read: Any, characters: Sequence[int]) -> int | None:
    """The token of the first of these characters that has one."""
    for character in characters:
        token: int | None = read.char_to_token(character)
        if token is not None:
            return token
    return None
