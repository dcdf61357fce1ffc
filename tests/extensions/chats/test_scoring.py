"""Scores of answers alone: by every scorer, in the cache, in training, and what is left out and said."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import detectors
from fsd.config import AdapterConfig, ModelConfig
from fsd.errors import UsageError
from fsd.models import finetuning
from fsd.models.language_model import load
from fsd.scoring.cache import SQLiteStore, prompt_hash
from fsd.scoring.deviation import score_texts
from fsd.scoring.model import open_model, outline
from fsd.token_stats import Chat, Prompt, Turn, of_chat

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] + ': ' }}"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content + '.' }}{% endgeneration %}"
    "{% else %}{{ m.content + '?' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'a: ' }}{% endif %}"
)
TALK = (
    Turn("user", "Who moves"),
    Turn("assistant", "A Member"),
    Turn("user", "the score"),
    Turn("assistant", "of a text moves more"),
)
CHAT = of_chat(Chat(TALK, origin="f:1"))
SHORT = of_chat(Chat(TALK[:2], origin="f:2"))


@pytest.fixture
def config(tiny, tmp_path):
    (tmp_path / "t.jinja").write_text(TEMPLATE)
    return ModelConfig(str(tiny), device="cpu", chat_template=str(tmp_path / "t.jinja"), cache=str(tmp_path / "cache"))


def by_hand(model, prompt):
    """Ids and log-probabilities of the answers' tokens, from the logits of the whole chat."""
    marked = model.chats.marked(prompt.chat)
    ids = torch.tensor([marked.ids])
    with model.state(tuned=False) as network:
        logp = network(input_ids=ids).logits[0, :-1].log_softmax(-1)
    rows = [place for place, scored in enumerate(marked.scored) if scored]
    return ids[0, rows].numpy(), np.array([float(logp[row - 1, ids[0, row]]) for row in rows])


@pytest.mark.parametrize("positions", [48, 512])
def test_the_answers_alone_are_scored_by_all_readers(positions, make_model, config, other):
    folder = make_model("gpt_neox", max_position_embeddings=positions)
    reference = other if positions == 48 else folder
    opened = open_model(
        ModelConfig(
            str(folder),
            **{name: getattr(config, name) for name in ("device", "chat_template", "cache")},
            reference_model=str(reference),
        )
    )
    model = opened.language_model
    for prompt in (CHAT, SHORT):
        if len(model.chats.marked(prompt.chat).ids) > positions:
            continue
        ids, logp = by_hand(model, prompt)
        (stats,) = opened.scorers["base"]([prompt])
        assert stats.text == prompt.text
        np.testing.assert_array_equal(stats.token, ids)
        np.testing.assert_allclose(stats.logp, logp, atol=1e-5)
        (stored,) = opened.scorers["base"]([prompt])
        np.testing.assert_array_equal(stored.logp, stats.logp)
        (theirs,) = opened.scorers["reference"]([prompt])
        np.testing.assert_array_equal(theirs.token, ids)
        (pair,) = opened.scorers["base.difference"]([prompt])
        np.testing.assert_allclose(pair.target.logp, logp, atol=1e-5)
        np.testing.assert_allclose(pair.reference.logp, theirs.logp, atol=1e-5)
        (norms,) = opened.scorers["base.gradient"]([prompt])
        assert norms.l1 > norms.l2 > norms.largest > 0


def test_a_chat_beyond_the_context_is_read_in_parts_and_said_so(config):
    opened = open_model(config)
    long = of_chat(Chat((Turn("user", "the score " * 9), Turn("assistant", "a member moves more " * 9))))
    plan = opened.plan([detectors.load("loss")], [long, SHORT])
    assert np.isfinite(plan.score().frame().to_numpy()).all()
    assert plan.remarks[-2:] == [
        "the answers of 2 chats were scored; the prompts were given, not scored",
        "1 of 2 chats are longer than the context of 48 tokens, and were read in parts, each after the end of what "
        "precedes it",
    ]


def test_detectors_that_are_not_defined_for_chats_are_left_out_by_name(config):
    opened = open_model(config)
    inputs = opened.inputs(["unseen text", "another"])
    names = ("loss", "zlib", "lowercase", "recall", "samia", "camia", "neighbour")
    chosen = [detectors.load(name) for name in names]
    plan = opened.plan(chosen, [CHAT, SHORT], inputs)
    assert [detector.name for detector in plan.detectors] == ["loss", "zlib", "lowercase"]
    assert plan.left_out["recall"] == "it puts other texts before a text, which is not defined for chats"
    assert plan.left_out["samia"] == "it continues the first half of a text, which is not defined for chats"
    assert plan.left_out["camia"] == "it reads a text after copies of itself, which is not defined for chats"
    with pytest.raises(UsageError, match=r"detector recall cannot be .*not defined for chats"):
        score_texts([CHAT], [detectors.load("recall")], opened.scorers, inputs)


def test_copies_change_the_answers_alone():
    (lower,) = CHAT.copies(lambda text: [text.lower()])
    assert lower.chat.turns == (TALK[0], TALK[1]._replace(content="a member"), *TALK[2:])
    assert lower.text == "a member\n\nof a text moves more"


def test_an_answer_with_fewer_copies_than_another_has_them_again():
    # As a masked language model makes them: of "42" it makes none but itself.
    copies = {"A Member": ["a", "b", "c"], "of a text moves more": ["d", "e"]}
    changed = CHAT.copies(copies.__getitem__)
    assert [prompt.text for prompt in changed] == ["a\n\nd", "b\n\ne", "c\n\nd"]


def test_the_whole_of_a_chat_is_scored_on_request(config):
    opened = open_model(replace(config, chats="whole"))
    plan = opened.plan([detectors.load("loss")], [SHORT])
    (stats,) = opened.scorers["base"](plan.prompts)
    assert stats.token.tolist() == list(opened.language_model.chats.marked(SHORT.chat).ids[1:])
    assert stats.text == "Who moves\n\nA Member"
    assert "all turns of 1 chat were scored" in plan.remarks[-1]


def test_the_mask_is_part_of_the_key_of_a_stored_text(config, tmp_path):
    model = load(config)
    answers, whole = model.read([SHORT, of_chat(SHORT.chat._replace(whole=True))])
    hashes = {
        prompt_hash(prompt) for prompt in (answers, whole, whole._replace(text=answers.text), Prompt(answers.text))
    }
    assert len(hashes) == 4
    assert SQLiteStore(tmp_path / "s.sqlite").load("key", [answers]) == {}


def test_what_is_not_scored_is_not_learned(config):
    model = load(config)
    texts = [SHORT, Prompt("more text", "a member"), "the score"]
    pieces, _, _ = finetuning.plan(model, texts, AdapterConfig(epochs=1))
    marked = model.chats.marked(SHORT.chat)
    assert pieces[0] == (list(marked.ids), list(marked.scored))
    context, text, plain = model.tokens(["a member", "more text", "the score"])
    assert pieces[1].labels == [-100] * (1 + len(context)) + text
    assert (pieces[2].ids, pieces[2].masked) == ([model.start, *plain], False)
    finetuning.finetune(model, texts, AdapterConfig(epochs=1, batch_size=2), seed=0, shown=False)
    assert model.adapted


def test_chats_that_cannot_be_read_are_refused_before_the_model_is_loaded(config, tiny):
    with pytest.raises(UsageError, match="must have a chat template to read chats"):
        outline(ModelConfig(str(tiny))).plan([detectors.load("loss")], [SHORT])
    with pytest.raises(UsageError, match="chats must be scored by a model on this machine"):
        outline(ModelConfig("api:name")).plan([detectors.load("loss")], [SHORT])
    assert outline(config).plan([detectors.load("loss")], [SHORT]).passes == {"base": 1, "tuned": 1}
