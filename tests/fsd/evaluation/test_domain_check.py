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


def test_the_level_on_held_out_texts_of_the_same_kind():
    alarms = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(ABSTRACTS))
        texts = [ABSTRACTS[i] for i in order]
        check = DomainCheck(texts[:150], background=texts[150:200])
        alarms += [bool(reason) for reason in check.outside(texts[200:])]
    assert np.mean(alarms) <= 0.05
    assert np.mean(alarms) == pytest.approx(check.rank / (check.groups + 1), abs=0.02)


@pytest.fixture(scope="module")
def abstracts():
    return DomainCheck(ABSTRACTS[:100], background=ABSTRACTS[100:150])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FRENCH * 2, "language"),
        ("Мы показали, что предложенные методы лучше известных. " * 12, "Cyrillic"),
        ("我们证明了所提出的方法比文献中的方法更有效" * 5, "Chinese characters"),
        ("We show a method.", "length 4 words"),
        ("We show a method for the problem. " * 200, "length 1400 words"),
        (NOVEL, "vocabulary"),
    ],
)
def test_the_reason_is_named(abstracts, text, reason):
    assert reason in abstracts.outside([text])[0]


def test_p_values_by_hand_from_the_length():
    """Same words, so that the length alone differs: deviations from the mean of calibration texts and new text."""
    texts = [" ".join(["word"] * count) for count in (10, 11, 12, 13)]
    check = DomainCheck(texts)
    lengths = np.log([10, 11, 12, 13, 30])
    deviation = np.abs(lengths - lengths.mean())
    assert deviation.argmax() == 4
    assert check.p_values([" ".join(["word"] * 30)])[0] == pytest.approx(1 / 5)
    assert check.p_values(["word " * 11 + "word"])[0] > 1 / 5


def test_a_text_is_judged_alone(abstracts):
    together = abstracts.p_values([*ABSTRACTS[200:204], FRENCH])
    np.testing.assert_allclose(together[:4], [abstracts.p_values([text])[0] for text in ABSTRACTS[200:204]])


def test_a_group_has_one_vote():
    counts, groups = [10, 40, 12, 13, 14], [0, 0, 1, 2, 3]
    check = DomainCheck([" ".join(["word"] * count) for count in counts], groups)
    lengths = np.log([*counts, 30])
    deviation = np.abs(lengths - lengths.mean())
    votes = np.array([0.5, 0.5, 1, 1, 1]) @ (deviation[:-1] >= deviation[-1])
    assert votes == 0.5
    assert check.p_values([" ".join(["word"] * 30)])[0] == pytest.approx((1 + votes) / 5)


def test_one_calibration_text_is_enough():
    check = DomainCheck(["only this text is known here"])
    assert check.outside(["only this text is known here"]) == [""] or check.groups == 1
