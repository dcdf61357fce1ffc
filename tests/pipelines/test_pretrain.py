"""A target built from scratch: loads like any model, says how it was made, and knows its members."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fsd.config import Recipe
from fsd.errors import UsageError
from fsd.models.language_model import load
from fsd.net.hub import fingerprint
from fsd.scoring.model_scorer import ModelScorer
from fsd.scoring.token_frequencies import FrequencyTable
from fsd.token_stats import Prompt
from pipelines.pretrain import PretrainConfig, main

WORDS = "river stone lamp paper quiet seven market glass winter copper orange valley thread signal".split()  # noqa: SIM905


def sentences(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 12)) for _ in range(count)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PretrainConfig:
    folder = tmp_path_factory.mktemp("lab")
    rows = [{"text": text, "label": i % 2} for i, text in enumerate(sentences(40, seed=1))]
    (folder / "members.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = (json.dumps({"text": text}) + "\n" for text in sentences(100, seed=2))
    (folder / "background.jsonl").write_text("".join(lines))
    made = PretrainConfig(
        out=str(folder / "target"),
        members=(str(folder / "members.jsonl"),),
        background=(str(folder / "background.jsonl"),),
        device="cpu",
        recipe=Recipe(
            hidden_size=64, layers=2, heads=2, vocabulary=300, context=64, exposures=150, passes=1, learning_rate=5e-3
        ),
    )
    main(made)
    return made


def test_the_target_scores_its_members_higher(config: PretrainConfig) -> None:
    rows = [json.loads(line) for line in Path(config.members[0]).read_text().splitlines()]
    model = load(config.out, device="cpu")

    scores = np.array([stats.logp.mean() for stats in ModelScorer(model)([Prompt(row["text"]) for row in rows])])

    label = np.array([row["label"] for row in rows], dtype=bool)
    assert scores[label].min() > scores[~label].max()


def test_the_card_says_how_it_was_made(config: PretrainConfig) -> None:
    card = json.loads((Path(config.out) / "card.json").read_text())

    assert card["members"]["texts"] == 20  # the rows labelled 1
    assert card["background"]["texts"] == 100
    assert card["recipe"]["exposures"] == 150
    assert card["steps"] == 194  # (20 · 150 + 100) texts in batches of 16
    assert card["fingerprint"] == fingerprint(Path(config.out))


def test_the_tokens_of_its_background_are_counted(config: PretrainConfig) -> None:
    model = load(config.out, device="cpu")
    texts = [json.loads(line)["text"] for line in Path(config.background[0]).read_text().splitlines()]

    table = FrequencyTable.load(Path(config.out) / "frequencies.npz")

    assert table.tokens == sum(map(len, model.tokens(texts)))


def test_a_folder_that_holds_something_is_not_overwritten(config: PretrainConfig) -> None:
    with pytest.raises(UsageError, match="out must be a folder that does not exist or is empty"):
        main(config)


def test_a_twin_takes_over_the_tokenizer(config: PretrainConfig, tmp_path: Path) -> None:
    main(replace(config, out=str(tmp_path / "twin"), tokenizer=config.out, recipe=replace(config.recipe, exposures=0)))

    twin, target = load(str(tmp_path / "twin"), device="cpu"), load(config.out, device="cpu")
    assert twin.tokens([WORDS[0]]) == target.tokens([WORDS[0]])
    assert twin.identity.fingerprint != target.identity.fingerprint
