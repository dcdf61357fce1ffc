import json

import numpy as np
import pytest

from fsd.data import embedded
from fsd.evaluation.domain_check import DomainCheck, script

FRENCH = (
    "Nous avons montré que les méthodes proposées sont plus efficaces que celles qui existent dans la littérature "
    "et que les résultats obtenus sur plusieurs jeux de données confirment notre hypothèse de départ. "
)

NOVEL = (
    "The magistrate folded his newspaper, sighed, and beckoned the trembling bailiff nearer. Somebody had stolen "
    "Lady Ashcombe's emerald brooch during the masquerade; footmen whispered, the butler perspired, and the dowager "
    "fainted twice upon the ottoman. Outside, hansoms clattered past the gaslit embankment while constables "
    "interrogated beggars. Inspector Wren, chewing an unlit cheroot, inspected muddy boots beside the conservatory "
    "and grinned. Burglars, he announced, seldom wear dancing slippers. Every guest glared toward the violinist, "
    "whose patent pumps, alas, glistened with dew and crushed gardenia petals."
)
ABSTRACTS = [document.text for document in embedded.corpus()]


def test_script_of_most_letters():
    assert [script(t) for t in ("abc", "Привет abc", "他在家", "123")] == [
        "Latin",
        "Cyrillic",
        "Chinese characters",
        "no known",
    ]


def test_few_false_alarms_on_held_out_texts_of_the_same_kind():
    texts = ABSTRACTS
    alarms = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(texts))
        check = DomainCheck.fit([texts[i] for i in order[:200]])
        alarms += [check.out_of_domain(texts[i]) is not None for i in order[200:]]
    assert np.mean(alarms) <= 0.05


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FRENCH * 2, "language"),
        ("Мы показали, что предложенные методы лучше известных. " * 12, "Cyrillic"),
        ("我们证明了所提出的方法比文献中的方法更有效" * 12, "Chinese characters"),
        ("We show a method.", "length 4 words"),
        ("We show a method for the problem. " * 200, "length 1400 words"),
        (NOVEL, "vocabulary"),
    ],
)
def test_the_reason_is_named(text, reason):
    assert reason in (DomainCheck.fit(ABSTRACTS).out_of_domain(text) or "")


def test_json_round_trip():
    check = DomainCheck.fit(["one two three four", "two three four five", "three four five six"])
    assert DomainCheck.from_dict(json.loads(json.dumps(check.to_dict()))) == check


def test_words_of_a_single_group_are_not_widespread():
    texts = ["alpha beta gamma delta"] * 6 + ["kappa lambda mu nu"] * 2
    together = DomainCheck.fit(texts, ["a"] * 6 + ["b", "c"])
    apart = DomainCheck.fit(texts)
    assert "alpha" in apart.words
    assert "alpha" not in together.words


def test_one_calibration_text_is_enough():
    check = DomainCheck.fit(["only this text is known here"])
    assert check.out_of_domain("only this text is known here") is None
    assert check.out_of_domain("") is not None
