"""A target built from scratch: loads like any model, says how it was made, and knows its members."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extensions.study.pretrain import PretrainConfig, prepare
from fsd.config import Recipe
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.net.hub import fingerprint
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.token_frequencies import FrequencyTable
from fsd.token_stats import FloatArray, Prompt

WORDS = "river stone lamp paper quiet seven market glass winter copper orange valley thread signal".split()  # noqa: SIM905


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 12)) for _ in range(count)]


def rows_of(file: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(file).read_text().splitlines()]


def scores(folder: str | Path, rows: list[dict[str, Any]]) -> FloatArray:
    scorer = ModelScorer(load(str(folder), device="cpu"))
    return np.array([stats.logp.mean() for stats in scorer([Prompt(row["text"]) for row in rows])])


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PretrainConfig:
    folder = tmp_path_factory.mktemp("lab")
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(sentences(40, seed=1))]
    (folder / "members.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = (json.dumps({"text": text}) + "\n" for text in sentences(100, seed=2))
    (folder / "background.jsonl").write_text("".join(lines))
    shape = {"hidden_size": 64, "layers": 2, "heads": 2, "vocabulary": 300, "context": 64}
    made = PretrainConfig(
        out=str(folder / "target"),
        members=(str(folder / "members.jsonl"),),
        background=(str(folder / "background.jsonl"),),
        device="cpu",
        recipe=Recipe(**shape, exposures=150, passes=1, learning_rate=5e-3),  # type: ignore[arg-type]
    )
    prepare(made).run()
    return made


def test_the_target_scores_its_members_higher_and_its_card_says_how_it_was_made(config: PretrainConfig) -> None:
    rows = rows_of(config.members[0])
    label = np.array([row["label"] for row in rows], dtype=bool)
    score = scores(config.out, rows)
    assert score[label].min() > score[~label].max()
    card = json.loads((Path(config.out) / "card.json").read_text())
    assert card["members"]["texts"] == 20  # the rows labelled 1
    assert card["background"]["texts"] == 100
    assert card["recipe"]["exposures"] == 150
    assert card["steps"] == 194  # (20 · 150 + 100) texts in batches of 16
    assert card["fingerprint"] == fingerprint(Path(config.out))
    texts = [row["text"] for row in rows_of(config.background[0])]
    counted = FrequencyTable.load(Path(config.out) / "frequencies.npz").tokens
    assert counted == sum(map(len, load(config.out, device="cpu").tokens(texts)))


def test_a_twin_takes_over_the_tokenizer(config: PretrainConfig, tmp_path: Path) -> None:
    recipe = replace(config.recipe, exposures=0)
    prepare(replace(config, out=str(tmp_path / "twin"), tokenizer=config.out, recipe=recipe)).run()
    twin, target = load(str(tmp_path / "twin"), device="cpu"), load(config.out, device="cpu")
    assert twin.tokens([WORDS[0]]) == target.tokens([WORDS[0]])
    assert twin.identity.fingerprint != target.identity.fingerprint


@pytest.mark.slow
def test_contemporaries_are_held_out_and_read_by_the_twin(
    config: PretrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    lab = tmp_path / "lab"
    prepare(replace(config, out=str(lab), hold_out=0.5)).run()
    # The folder itself is no model.
    assert (
        f"model  {lab}/target\nnext   fsd run --model {lab}/target --data {lab}/texts.jsonl" in capsys.readouterr().out
    )
    rows = rows_of(tmp_path / "lab" / "texts.jsonl")
    older = [row for row in rows if row["period"] == "older"]
    label = np.array([row["label"] for row in older], dtype=bool)
    assert (len(older), label.sum(), len(rows)) == (20, 10, 40)
    for folder, trained in (("target", label), ("contemporary-twin", ~label)):
        score = scores(tmp_path / "lab" / folder, older)
        assert score[trained].min() > score[~trained].max()


def test_a_training_that_diverges_is_refused_and_leaves_nothing(config: PretrainConfig, tmp_path: Path) -> None:
    diverging = replace(config.recipe, learning_rate=1e9, exposures=2)
    with pytest.raises(UsageError, match=r"converge; .*: lower the learning_rate, which is 1000000000\.0"):
        prepare(replace(config, out=str(tmp_path / "out" / "new"), recipe=diverging)).run()
    assert not list(tmp_path.glob("out/*"))
