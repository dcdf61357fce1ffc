import json
from pathlib import Path

import numpy as np
import pytest

from fsd.evaluation.domain_check import Likeness, script

DATA = Path(__file__).parents[4] / "shared" / "data"

FRENCH = (
    "Nous avons montré que les méthodes proposées sont plus efficaces que celles qui existent dans la littérature "
    "et que les résultats obtenus sur plusieurs jeux de données confirment notre hypothèse de départ. "
)


def _abstracts():
    file = DATA / "arxiv_mia_dev.jsonl"
    if not file.exists():
        pytest.skip(f"the benchmark text {file.name} is not here")
    return [json.loads(line)["text"] for line in file.read_text(encoding="utf-8").splitlines()]


def test_script_of_most_letters():
    assert [script(t) for t in ("abc", "Привет abc", "他在家", "123")] == [
        "Latin",
        "Cyrillic",
        "Chinese characters",
        "no known",
    ]


def test_few_false_alarms_on_held_out_texts_of_the_same_kind():
    texts = _abstracts()
    alarms = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(texts))
        likeness = Likeness.learn([texts[i] for i in order[:200]])
        alarms += [likeness.outside(texts[i]) is not None for i in order[200:]]
    assert np.mean(alarms) <= 0.05


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FRENCH * 2, "language"),
        ("Мы показали, что предложенные методы лучше известных. " * 12, "Cyrillic"),
        ("我们证明了所提出的方法比文献中的方法更有效" * 12, "Chinese characters"),
        ("We show a method.", "length 4 words"),
        ("We show a method for the problem. " * 200, "length 1400 words"),
        ("He took her hand and kissed it; the horse stood by the old barn door in the snow. " * 8, "vocab"),
    ],
)
def test_texts_of_another_kind_are_named_so(text, reason):
    assert reason in (Likeness.learn(_abstracts()).outside(text) or "")


def test_other_texts_of_the_same_length_and_language_are_noticed():
    file = DATA / "wikimia_128.jsonl"
    likeness = Likeness.learn(_abstracts())
    articles = [json.loads(line)["input"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert np.mean([likeness.outside(text) is not None for text in articles]) > 0.9


def test_survives_json():
    likeness = Likeness.learn(["one two three four", "two three four five", "three four five six"])
    assert Likeness.from_dict(json.loads(json.dumps(likeness.to_dict()))) == likeness


def test_a_group_is_no_example_of_itself():
    texts = ["alpha beta gamma delta"] * 6 + ["kappa lambda mu nu"] * 2
    together = Likeness.learn(texts, ["a"] * 6 + ["b", "c"])
    apart = Likeness.learn(texts)
    assert "alpha" in apart.words
    assert "alpha" not in together.words


def test_one_text_is_enough_to_start():
    likeness = Likeness.learn(["only this text is known here"])
    assert likeness.outside("only this text is known here") is None
    assert likeness.outside("") is not None
