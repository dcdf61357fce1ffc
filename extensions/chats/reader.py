"""Chats as a model reads them: the tokens of their turns in the model's template, and which of these are answers.

Tokens and mask are those that TRL trains by: for prompt and completion, the completion; for messages, what the template
marks as generated, or TRL's own version of a template without marks; else what each answer adds to the turns before it.
A template is somebody else's code, which runs in transformers' sandbox.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from fsd.api import Chat, Marked, Turn, UsageError, quoted, refusing


class Unwritable(Exception):  # noqa: N818 - it is the chat that cannot be written
    """A template cannot write a chat; the message says why."""


class ChatReader:
    """Writes chats by a template, and reads them by a tokenizer.

    `name` is what the model is called in messages; without a `template`, the tokenizer must have one.
    """

    def __init__(self, tokenizer: Any, name: str, template: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.name = name
        self._given = template

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

    def asked(self, prompt: str) -> tuple[str, list[int]]:
        """What a user asks and the opening of an answer, as a text and its token ids.

        A UsageError, which names --plain, if the template cannot write it, or writes nothing.
        """
        must = "the model's chat template must take a message of the user's"
        try:
            text, _ = self._written(Chat((Turn("user", prompt),)), prompting=True)
        except Unwritable as error:
            raise UsageError(f"{must}; it says: {error}; --plain asks without it") from error
        ids = self._ids(text)
        if not ids:
            raise UsageError(f"{must}; it writes nothing; --plain asks without it")
        return text, ids

    def marked(self, chat: Chat) -> Marked:
        """The tokens of a chat, and which of them are scored; a UsageError names a chat that cannot be written."""
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

    def _read(self, chat: Chat) -> tuple[list[int], list[bool]]:
        """Token ids, and which of them are scored."""
        if not chat.templated:
            prompt_ids, ids = self._joined(chat)
            if chat.whole:
                prompt_ids = []
            return ids, self._after_prompt(prompt_ids, ids)
        # A template with marks is chosen by TRL for messages alone, of which the answers are learned.
        if chat.given is None and not chat.whole and self.training_template:
            return self._within(*self._written(chat, template=self.training_template, marks=True))
        text, _ = self._written(chat)
        # Where all is scored, no answer must be told from what precedes it.
        if chat.whole:
            ids = self._ids(text)
            return ids, self._after_prompt([], ids)
        # TRL compares the tokens of a prompt with those of the whole, since its last token may join the completion.
        if chat.given is not None:
            prompt, _ = self._written(chat.until(chat.given), prompting=True)
            ids = self._ids(text)
            return ids, self._after_prompt(self._ids(prompt), ids)
        # TRL refuses such messages; characters tell what an answer adds.
        return self._within(text, list(self._added(chat, text)))

    def _joined(self, chat: Chat) -> tuple[list[int], list[int]]:
        """Ids of a prompt, and of prompt, completion and the end of the text, as TRL reads strings."""
        prompt, completion = (turn.content for turn in chat.turns)
        end = self.tokenizer.eos_token or ""
        if not completion.endswith(end):
            completion += end
        # With the special tokens of the tokenizer's own, such as that of the beginning.
        rows = self.tokenizer([prompt, prompt + completion], verbose=False)["input_ids"]
        return rows[0], rows[1]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        return ids

    @staticmethod
    def _after_prompt(prompt: list[int], ids: list[int]) -> list[bool]:
        """Which ids are scored: those that come after what they have in common with the prompt."""
        length = 0
        while length < min(len(prompt), len(ids)) and prompt[length] == ids[length]:
            length += 1
        return [False] * length + [True] * (len(ids) - length)

    def _within(self, text: str, spans: Sequence[Sequence[int]]) -> tuple[list[int], list[bool]]:
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

    def _added(self, chat: Chat, text: str) -> Iterator[tuple[int, int]]:
        """What each answer adds to the turns before it, as a span of characters of the whole chat."""
        for number in chat.answers:
            answered, _ = self._written(chat.until(number + 1))
            if number:
                prompt, _ = self._written(chat.until(number), prompting=True)
            else:
                prompt = self._before_first(chat, answered)
            if not (text.startswith(prompt) and text.startswith(answered)):
                raise Unwritable(
                    "the template writes turns otherwise when others follow, so that answers cannot be told from "
                    "prompts: mark them by {% generation %} and {% endgeneration %}"
                )
            if len(prompt) >= len(answered):
                raise Unwritable(f"the template must write every answer; of turn {number + 1} it writes nothing")
            yield len(prompt), len(answered)

    def _before_first(self, chat: Chat, answered: str) -> str:
        """What is written before an answer with which a chat begins, up to the opening of an answer."""
        # Many templates cannot write a chat without turns: the opening is what they add after this one.
        opened, _ = self._written(chat.until(1), prompting=True)
        opening = opened.removeprefix(answered)
        if not opening or opening not in answered:
            return ""
        return answered[: answered.index(opening) + len(opening)]

    def _written(
        self, chat: Chat, *, prompting: bool = False, template: str | None = None, marks: bool = False
    ) -> tuple[str, list[Sequence[int]]]:
        """What the template writes for a chat, and the spans that it marks; `prompting` opens an answer at the end."""
        from transformers.utils.chat_template_utils import render_jinja_template

        messages = [turn.message for turn in chat.turns]
        names = self.tokenizer.special_tokens_map | chat.given_to_template
        names["chat_template"] = template or self.template
        names["add_generation_prompt"] = prompting
        names["return_assistant_tokens_mask"] = marks
        try:
            (text,), spans = render_jinja_template([messages], **names)
        # A template may raise anything.
        except Exception as error:
            raise Unwritable(" ".join(str(error).split()) or type(error).__name__) from error
        _check_calls(chat, text)
        # Without marks there is no list for the chat.
        return text, (spans or [[]])[0]


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
