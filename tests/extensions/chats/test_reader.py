"""Chats: the tokens and the mask of TRL, and what is refused of templates and turns."""

import pytest

from extensions.chats.reader import ChatReader
from extensions.chats.rows import chat_in
from fsd.errors import UsageError
from fsd.models.language_model import load, load_tokenizer
from fsd.token_stats import Chat, Turn

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '<|im_end|>\n' }}{% endgeneration %}"
    "{% else %}{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{{ '[' + m.role + ']\n\n' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content | trim + '[end]' }}{% endgeneration %}"
    "{% else %}{{ m.content | trim + '[end]' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '[assistant]\n\n' }}{% endif %}"
)
ZEPHYR = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<|user|>\n' + m.content + eos_token }}"
    "{% elif m.role == 'system' %}{{ '<|system|>\n' + m.content + eos_token }}"
    "{% else %}{{ '<|assistant|>\n' }}{% generation %}{{ m.content + eos_token }}{% endgeneration %}{% endif %}"
    "{{ '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "zephyr": ZEPHYR}
PLAIN = {"bf16": False, "report_to": "none", "activation_checkpointing": False}
TALK = [
    {"role": "user", "content": "Who moves more?"},
    {"role": "assistant", "content": "A member moves more."},
    {"role": "user", "content": " and the score? "},
    {"role": "assistant", "content": "It moves less, é and 漢字."},
]


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Says whether it is wet.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
CALL = {"id": "a1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
AGENT = [
    {"role": "user", "content": "Is it wet in Ulm?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "name": "weather", "tool_call_id": "a1", "content": "rain, é"},
    {"role": "assistant", "content": "Yes, it rains."},
]


def unmarked(template):
    return template.replace("{% generation %}", "").replace("{% endgeneration %}", "")


@pytest.fixture(scope="module")
def tokenizer(tiny):
    tokenizer, _ = load_tokenizer(str(tiny))
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return tokenizer


@pytest.fixture(scope="module")
def trained(tiny, tokenizer, tmp_path_factory):
    """The rows that TRL's trainer makes of a dataset, as ids and labels."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM
    from trl import SFTConfig, SFTTrainer

    network = AutoModelForCausalLM.from_pretrained(tiny)
    network.resize_token_embeddings(len(tokenizer))
    folder = str(tmp_path_factory.mktemp("trl"))

    def rows(dataset, template=None, **options):
        tokenizer.chat_template = template
        arguments = SFTConfig(folder, use_cpu=True, max_length=None, **PLAIN, **options)
        trainer = SFTTrainer(network, arguments, train_dataset=Dataset.from_list(dataset), processing_class=tokenizer)
        made = trainer.train_dataset
        batch = trainer.data_collator([made[0]])
        assert batch["labels"][0].tolist() == made[0]["labels"]
        return [(row["input_ids"], row["labels"]) for row in made]

    return rows


def read(rows, tokenizer, template=None):
    """The same by our reader; the first token, which nothing predicts, has no label that would matter."""
    reader = ChatReader(tokenizer, "tiny", template)
    made = []
    for row in rows:
        chat = chat_in(row, row.get, "file:1", {})
        ids, scored = reader.marked(chat)
        made.append((list(ids), [token if mark else -100 for token, mark in zip(ids, scored, strict=True)]))
    return made


def predicted(rows):
    return [(ids, labels[1:]) for ids, labels in rows]


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_tokens_and_mask_are_those_that_trl_trains_by(template, tokenizer, trained):
    messages = [{"messages": TALK}, {"messages": TALK[:2]}]
    expected = trained(messages, template, assistant_only_loss=True)
    made = read(messages, tokenizer, template)
    assert made == expected
    divided = [{"prompt": TALK[:3], "completion": TALK[3:]}, {"prompt": TALK[:1], "completion": TALK[1:2]}]
    plain = unmarked(template)
    assert read(divided, tokenizer, plain) == trained(divided, plain)
    # without marks TRL refuses messages; answers are then what they add to the turns before them
    by_prefix = read(messages, tokenizer, plain)
    assert [ids for ids, _ in by_prefix] == [ids for ids, _ in made]
    for (_, more), (_, fewer) in zip(by_prefix, made, strict=True):
        # beyond the marks there is at most what the template writes after an answer
        extra = [a for a, b in zip(more, fewer, strict=True) if a != b]
        assert tokenizer.decode(extra).strip() == ""


def test_plain_prompts_and_completions_are_those_that_trl_trains_by(tokenizer, trained):
    rows = [
        {"prompt": "the score of", "completion": " a member"},
        {"prompt": "the sco", "completion": "re of a member"},  # tokens merge across the border
        {"prompt": "more ", "completion": f"text{tokenizer.eos_token}"},
        {"prompt": "", "completion": "a member moves"},
    ]
    assert predicted(read(rows, tokenizer)) == predicted(trained(rows))


def test_trl_marks_templates_that_it_knows(tokenizer, trained):
    from trl import chat_template_utils as known

    template = known.qwen2_5_chat_template
    reader = ChatReader(tokenizer, "tiny", template)
    assert reader.training_template == known.qwen2_5_training_chat_template
    rows = [{"messages": TALK}]
    assert read(rows, tokenizer, template) == trained(rows, template, assistant_only_loss=True)
    whole = reader.marked(Chat(tuple(Turn(**message) for message in TALK), whole=True))
    assert list(whole.ids) == trained(rows, template)[0][0]


def answer_of(marked, tokenizer):
    return tokenizer.decode([token for token, mark in zip(*marked, strict=True) if mark])


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "qwen3_instruct_2507", "glm4moe"])
def test_calls_of_tools_are_answers_as_trl_trains_on_them(name, tokenizer, trained):
    from trl import chat_template_utils as known

    template = getattr(known, f"{name}_chat_template")
    settings = {"chat_template_kwargs": {"enable_thinking": False}}
    rows = [{"messages": AGENT, "tools": TOOLS, **settings}]
    assert read(rows, tokenizer, template) == trained(rows, template, assistant_only_loss=True)
    chat = chat_in(rows[0], rows[0].get, "file:1", {})
    marked = ChatReader(tokenizer, "tiny", template).marked(chat)
    answer = answer_of(marked, tokenizer)
    assert "weather" in answer
    assert "Ulm" in answer
    assert "Yes, it rains." in answer
    assert "rain, é" not in answer
    assert "Says whether it is wet" in tokenizer.decode(marked.ids)
    # The template of a model may close an opened thought otherwise than that of the training.
    divided = [{"prompt": AGENT[:1], "completion": AGENT[1:2]}, {"prompt": AGENT[:3], "completion": AGENT[3:]}]
    divided = [{**row, "tools": TOOLS, **settings} for row in divided]
    assert read(divided, tokenizer, template) == trained(divided, template)


def test_calls_of_tools_are_scored_where_no_template_marks_them(tokenizer):
    template = (
        "{% for m in messages %}{{ '<' + m.role + '>' }}{{ m.content or '' }}{% for call in m.tool_calls %}"
        "{{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}{{ '|' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
    )
    row = {"messages": AGENT}
    reader = ChatReader(tokenizer, "tiny", template)
    answer = answer_of(reader.marked(chat_in(row, row.get, "file:1", {})), tokenizer)
    assert answer == 'weather {"city": "Ulm"}|Yes, it rains.|'
    row = {"messages": [AGENT[0], {**AGENT[1], "content": "I look."}, *AGENT[2:]]}
    with pytest.raises(UsageError, match="write what is called; of turn 2 it leaves out 'weather'"):
        ChatReader(tokenizer, "tiny", CHATML).marked(chat_in(row, row.get, "file:1", {}))


def test_the_whole_of_a_chat_is_every_token_but_the_first(tokenizer):
    turns = tuple(Turn(**message) for message in TALK)
    # No beginning of a chat is written for it, which many templates could not write.
    template = "{% if messages | length < 4 %}{{ raise_exception('too few') }}{% endif %}" + unmarked(CHATML)
    for written_by in (CHATML, template):
        marked = ChatReader(tokenizer, "tiny", written_by).marked(Chat(turns, whole=True))
        assert marked.scored == (False, *[True] * (len(marked.ids) - 1))


def test_a_chat_that_an_answer_begins_is_read_without_a_chat_of_no_turns(tokenizer):
    template = "{{ messages[0].role[:0] }}" + unmarked(CHATML)
    chat = Chat((Turn("assistant", "I begin."), Turn("user", "You?")))
    ids, scored = ChatReader(tokenizer, "tiny", template).marked(chat)
    answer = [token for token, mark in zip(ids, scored, strict=True) if mark]
    assert tokenizer.decode(answer) == "I begin.<|im_end|>\n"
    # Without an opening of answers, all that is written for one is its own.
    template = "{{ messages[0].role[:0] }}{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
    ids, scored = ChatReader(tokenizer, "tiny", template).marked(chat)
    answer = [token for token, mark in zip(ids, scored, strict=True) if mark]
    assert tokenizer.decode(ids).startswith("assistant: I begin.\n")
    assert "assistant: I begin.\n".endswith(tokenizer.decode(answer))


def test_an_answer_ends_at_its_last_token_where_white_space_has_none():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pieces = Tokenizer(models.WordLevel({"[UNK]": 0, "user": 1, "assistant": 2, ":": 3, "yes": 4}, "[UNK]"))
    pieces.pre_tokenizer = pre_tokenizers.Whitespace()
    words = PreTrainedTokenizerFast(tokenizer_object=pieces, unk_token="[UNK]")
    turns = (Turn("user", "a"), Turn("assistant", "yes"), Turn("user", "b"), Turn("assistant", "yes"))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    marks = (
        "{% for m in messages %}{{ m.role }}:"
        "{% if m.role == 'assistant' %}{% generation %} {{ m.content }}\n{% endgeneration %}"
        "{% else %} {{ m.content }}\n{% endif %}{% endfor %}"
    )
    scored = ChatReader(words, "words", template).marked(Chat(turns)).scored
    assert scored == (False, False, False, True, True, True, False, False, False, True, True, True)
    scored = ChatReader(words, "words", marks).marked(Chat(turns)).scored
    assert scored == (False, False, False, False, False, True, False, False, False, False, False, True)
    blank = marks.replace("{{ m.content }}", "")
    with pytest.raises(UsageError, match=r"must have at least one token; ' \\n' has none"):
        ChatReader(words, "words", blank).marked(Chat(turns))


REFUSED = [
    ("{{ messages.nothing.at_all }}", "file:7: a chat must suit .* has no attribute 'nothing'"),
    ("{% for m in messages %}", "file:7: a chat must suit .* Unexpected end of template"),
    ("{{ ''.__class__.__mro__ }}", "file:7: a chat must suit .* unsafe"),
    (None, "'tiny' must have a chat template to read chats; it has none: give one by --chat-template FILE"),
    ("{{ messages | length }}{{ messages[0].content }}", "mark them by {% generation %}"),
    ("{{ messages[0].content }}", "file:7: a chat must suit .* must write every answer; of turn 2 it writes nothing"),
    (
        "{{ messages[0].content }}{% generation %}{% endgeneration %}",
        "file:7: an answer must have at least one token in the chat template",
    ),
    (5, "the chat template of 'tiny' must be a string; it is 5"),
    ("{{ raise_exception('a' * 10 ** 7) }}", "file:7: a chat must suit .*aaaa"),
]


@pytest.mark.parametrize(("template", "message"), REFUSED)
def test_a_template_that_cannot_write_a_chat_is_refused_in_one_line(template, message, tokenizer):
    tokenizer.chat_template = None
    chat = Chat((Turn("user", "You?"), Turn("assistant", "Yes.")), origin="file:7")
    with pytest.raises(UsageError, match=message) as caught:
        ChatReader(tokenizer, "tiny", template).marked(chat)
    assert "\n" not in str(caught.value)


def test_a_model_reads_chats_by_a_given_template(tiny, tmp_path):
    file = tmp_path / "template.jinja"
    file.write_text(CHATML)
    model = load(str(tiny), device="cpu", chat_template=str(file))
    assert model.chats.template == CHATML
