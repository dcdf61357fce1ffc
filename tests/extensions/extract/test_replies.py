"""Replies of a model on this machine: by its chat template or plain text, against a loop of single passes."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from extensions.chats.reader import ChatReader
from extensions.extract.replies import LocalReplies, Request, sent, utc
from fsd.errors import UsageError
from fsd.models.language_model import LanguageModel, load

CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}model:{% endif %}"
)
REQUEST = Request("the score of a text", 6)


@pytest.fixture(scope="module")
def model(tiny: Path) -> LanguageModel:
    return load(str(tiny), device="cpu")


@pytest.fixture
def chat(model: LanguageModel) -> LanguageModel:
    """The model with a chat template."""
    tokenizer = copy.deepcopy(model.tokenizer)
    tokenizer.chat_template = CHAT
    return replace(model, tokenizer=tokenizer)


def ask(model: LanguageModel, *requests: Request, plain: bool = False) -> list:
    return list(LocalReplies(model, plain, clock=lambda: 0.0, description="")(requests))


def likeliest(model: LanguageModel, head: list[int], size: int) -> str:
    ids = list(head)
    with model.state(tuned=False) as network:
        for _ in range(size):
            ids.append(int(network(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
            if ids[-1] == model.tokenizer.eos_token_id:
                break
    return model.tokenizer.decode(ids[len(head) :], skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_a_chat_model_gets_its_template_and_continues_with_the_likeliest_tokens(chat: LanguageModel) -> None:
    message = [{"role": "user", "content": REQUEST.prompt}]
    head = chat.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    assert sent(chat.chats, 48, REQUEST, plain=False).ids == head
    (reply,) = ask(chat, REQUEST)
    assert reply.sent == f"{chat.tokenizer.bos_token}user: {REQUEST.prompt}\nmodel:"
    assert reply.text == likeliest(chat, head, 6)
    assert (reply.form, reply.time) == ("chat template", "1970-01-01T00:00:00Z")
    assert reply.fingerprint == chat.identity.fingerprint != ""


def test_a_base_model_gets_plain_text_after_its_start_token(model: LanguageModel, chat: LanguageModel) -> None:
    (reply,) = ask(model, REQUEST)
    assert (reply.sent, reply.form) == (f"{REQUEST.prompt}\n\n", "plain text")
    assert reply.text == likeliest(model, [model.start, *model.tokens([reply.sent])[0]], 6)
    (continued,) = ask(model, replace(REQUEST, continues=True))
    assert continued.sent == REQUEST.prompt
    assert ask(chat, REQUEST, plain=True) == [reply]


def test_a_given_template_is_used_and_a_start_token_that_is_not_wanted_is_left_out(model: LanguageModel) -> None:
    (reply,) = ask(replace(model, template="{{ messages[0].content }} so:"), REQUEST)
    assert (reply.sent, reply.form) == (f"{REQUEST.prompt} so:", "chat template")
    (plain,) = ask(replace(model, starts=False), REQUEST)
    assert plain.text == likeliest(model, model.tokens([plain.sent])[0], 6)


def test_drawn_replies_depend_on_prompt_and_seed_alone(model: LanguageModel) -> None:
    drawn = replace(REQUEST, temperature=2.0, seed=7, max_tokens=12)
    (alone,) = ask(model, drawn)
    first, again, other = ask(model, REQUEST, drawn, replace(drawn, seed=8))
    assert alone.text == again.text
    assert len({first.text, again.text, other.text}) == 3


def test_a_template_that_raises_and_prompts_that_are_too_long_are_refused(chat: LanguageModel) -> None:
    sent(chat.chats, 48, REQUEST, plain=False)
    with pytest.raises(UsageError, match=r"fit the model's context of 20 tokens together; got \d+ and 6 .* for 'the"):
        sent(chat.chats, 20, REQUEST, plain=False)
    refused = {
        "{{ raise_exception('no messages') }}": "take a message of the user's; it says: no messages; --plain asks",
        "{{ messages.__class__.__mro__ }}": "unsafe",
        "{{ '' }}": "it writes nothing; --plain asks",
    }
    for template, message in refused.items():
        with pytest.raises(UsageError, match=message):
            sent(ChatReader(chat.tokenizer, "tiny", template), 48, REQUEST, plain=False)


def test_times_are_written_in_utc() -> None:
    assert utc(1_790_000_000.9) == "2026-09-21T14:13:20Z"
