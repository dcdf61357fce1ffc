"""Chats in the laboratory: what a target learns of them, and that the whole and the answers are scored."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from extensions.study.lab import corpora, models, report, results
from extensions.study.lab.command import prepare
from extensions.study.lab.models import Base, Lab
from extensions.study.lab.settings import LabConfig
from extensions.study.lab.targets import ANSWERS, WHOLE, Cell, Target, learned, scores, scoring, trained
from fsd.config import ModelConfig
from fsd.data.periods import CONTEMPORARY, MEMBER
from fsd.errors import UsageError
from fsd.models import pretraining
from fsd.models.finetuning import Piece
from fsd.scoring.model import open_model

TEMPLATE = (
    "{% for m in messages %}{{ m.role + ':\n' + m.content + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def model(make_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model whose tokenizer has a template."""
    folder = tmp_path_factory.mktemp("chats") / "tiny"
    shutil.copytree(make_model("gpt_neox", max_position_embeddings=256), folder)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return str(folder)


@pytest.fixture(scope="module")
def file(make_rows: Callable[..., list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A user's file of 72 chats without labels."""
    lines = []
    for row in make_rows(72, 5):
        words = row["text"].split()
        asked = {"role": "user", "content": " ".join(words[:5])}
        answer = {"role": "assistant", "content": " ".join(words[5:])}
        lines.append(json.dumps({"messages": [asked, answer]}) + "\n")
    path = tmp_path_factory.mktemp("chats") / "mine.jsonl"
    path.write_text("".join(lines))
    return str(path)


def lab_of(model: str, folder: Path, chats: str) -> Lab:
    base = Base.of(model, 1e-2, chats=chats, dtype="float32")
    return Lab(f"{base.name}", ("a paragraph of the background",), (), folder, base)


def test_the_embedded_chats_are_of_one_period() -> None:
    corpus = corpora.load("chats")
    assert (corpus.name, len(corpus.older), len(corpus.later)) == ("chats", 480, 0)
    assert len(corpus.chats) == 480
    sides = corpora.draw(corpus, seed=0)
    assert [len(side) for side in sides.values()] == [160, 160, 0, 160]


def test_chats_must_have_a_base_with_a_template(file: str, tiny: Path) -> None:
    with pytest.raises(UsageError, match="corpus mine must be learned by a base, whose template writes its chats"):
        prepare(LabConfig(corpora=(file,)))
    with pytest.raises(UsageError, match="must have a chat template to read chats"):
        prepare(LabConfig(corpora=(file,), base=str(tiny)))


@pytest.mark.parametrize("way", [ANSWERS, WHOLE])
def test_a_target_learns_the_answers_or_the_whole_and_nothing_else(
    way: str, model: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[Piece] = []

    def step(_: object, batch: Sequence[Piece]) -> float:
        pieces.extend(batch)
        return 0.0

    monkeypatch.setattr(pretraining, "_step", step)
    members = corpora.load(file).older[:3]
    lab = lab_of(model, tmp_path, way)
    assert lab.size == f"tiny on {way}"
    target = trained(Target(lab, 2, 0, (learned(members),)))

    read = []
    for piece in pieces:
        tokens = [token for token, is_learned in zip(piece.ids, piece.learned, strict=True) if is_learned]
        read.append(target.tokenizer.decode(tokens))
    expected = []
    for document in members:
        assert document.chat
        asked, answer = (turn.content for turn in document.chat.turns)
        taught = f"{answer}\n"
        if way == WHOLE:
            # Nothing predicts the first token.
            whole = target.tokenizer(f"user:\n{asked}\nassistant:\n{answer}\n")["input_ids"]
            taught = target.tokenizer.decode(whole[1:])
        expected += 2 * [taught]
    assert sorted(read) == sorted(expected)


def test_what_is_scored_is_a_part_of_the_result_of_each_chat(model: str, file: str, tmp_path: Path) -> None:
    lab = lab_of(model, tmp_path, WHOLE)
    models.train(lab, ())
    sides = corpora.draw(corpora.load(file), seed=1)
    cell = Cell(Target(lab, 4, 1, (learned(sides[MEMBER]),)), "mine", sides, "before", adapters=False)
    assert replace(cell, target=replace(cell.target, exposures=2)).tag != cell.tag
    with lab.precision:
        target = trained(cell.target)
        table = scores(cell, target)

    texts = len(sides[MEMBER]) + len(sides[CONTEMPORARY])
    assert table["scored"].value_counts().to_dict() == {ANSWERS: texts, WHOLE: texts}
    assert {"reference.base", "wbc.base", "ez.base", "unread_z.base", "info_rmia.base"} <= set(table)
    prompts = [document.prompt for document in sides[MEMBER]]
    alone = open_model(cell.config.model, states=("base",), local=target).scorers["base"](prompts)
    assert_scores_of(table, ANSWERS, alone)

    corpus = corpora.load(file)
    joined = results.joined([(cell.labels, table)], {"mine": corpus.older})
    measured = results.measure(joined)
    assert set(measured["scored"]) == {ANSWERS, WHOLE}
    assert measured.loc[measured["detector"] == "wbc", "auc"].min() > 0.6
    page = report.report(measured, 1).artifacts["lab.md"]
    for part in (ANSWERS, WHOLE):
        assert f"### mine, tiny on whole, reference before, {part} scored" in page
        assert f"sources 1, before, {part} scored (1)" in page
        assert f"auc_members_vs_contemporaries/{part}/loss.base" in results.tracked(measured)


def assert_scores_of(table: pd.DataFrame, part: str, statistics: Any) -> None:
    members = table[(table["scored"] == part) & (table["kind"] == MEMBER)]
    losses = [-stats.logp.mean() for stats in statistics]
    assert members["loss.base"].to_numpy() == pytest.approx(-np.array(losses), abs=1e-5)


@pytest.mark.parametrize("part", [ANSWERS, WHOLE])
def test_unread_chats_are_read_as_those_that_are_compared_with_them(part: str, model: str) -> None:
    opened = open_model(ModelConfig(model, cache="none"), states=("base",))
    unread = scoring(opened, part).inputs(corpora.load("chats").chats[:20]).unread
    assert unread is not None
    assert {prompt.chat.whole for (prompt,) in unread.prompts if prompt.chat} == {part == WHOLE}
