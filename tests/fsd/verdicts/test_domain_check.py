import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.covariance import LedoitWolf
from sklearn.feature_extraction.text import CountVectorizer

from fsd.data import embedded
from fsd.data.near_duplicates import words
from fsd.statistics.groups import group_index
from fsd.verdicts import domain_check, domain_measures
from fsd.verdicts.domain_check import LATER, OWN, DomainCheck, Earlier, OwnText, Reference, other_kinds, trial
from fsd.verdicts.domain_measures import Similarity, Words, Writing, by_fold, log_lengths, mahalanobis, script

FRENCH = (
    "Nous avons montré que les méthodes proposées sont plus efficaces que celles qui existent dans la littérature "
    "et que les résultats obtenus sur plusieurs jeux de données confirment notre hypothèse de départ. "
)
MORE_FRENCH = (
    "La seconde partie décrit une expérience menée pendant trois hivers dans des fermes de montagne : les bergers y "
    "notaient chaque soir la température du lait, le vent et l'humeur du troupeau, puis comparaient leurs carnets."
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


def read_as(texts, values):
    """What reads these values of the texts."""
    by_text = dict(zip(texts, values, strict=False))
    return lambda asked: np.array([by_text[text] for text in asked])


def p_values_of(check, texts, groups=None):
    return check.p_values(check.novelties(texts), group_index(groups, len(texts)))


def repeated(*counts):
    return [" ".join(["word"] * count) for count in counts]


@pytest.fixture(scope="module")
def abstracts():
    return DomainCheck(ABSTRACTS[:100])


def test_script_of_most_letters():
    texts = {"abc": "Latin", "Привет abc": "Cyrillic", "他在家": "Chinese", "カナかな家族": "Kana", "123": "no known"}
    assert {text: script(text) for text in texts} == texts


def test_the_level_on_held_out_texts_of_the_same_kind():
    alarms = []
    for seed in range(2):
        order = np.random.default_rng(seed).permutation(len(ABSTRACTS))
        texts = [ABSTRACTS[i] for i in order]
        check = DomainCheck(texts[:200], other_texts=[text for found in other_kinds(texts).values() for text in found])
        alarms += [bool(reason) for reason in check.outside(texts[200:])]
    assert np.mean(alarms) <= 0.08 + 0.02


def test_the_share_that_may_be_outside_is_used_up_but_not_exceeded():
    """Three measures with a rank each: 1 of 38 groups is as many as .08 allows, 2 of 75, and no rank is below 1."""
    for groups, ranks in ((37, 1), (73, 1), (74, 2), (149, 4), (10, 1)):
        check = DomainCheck(repeated(*range(40, 40 + groups)))
        assert check.share == pytest.approx(3 * ranks / (groups + 1))


def test_power_by_source_leaves_out_the_source_itself():
    articles = [document.text for document in embedded.corpus("wikipedia")][:40]
    names = ("abstracts",) * 60 + ("articles",) * 40
    found = tried(Reference((*ABSTRACTS[:60], *articles), tuple(range(100)), names, {})).power
    assert set(found) == {"source 'abstracts'", "source 'articles'", "Python's manual"}
    assert all(share > 0.5 for share in found.values())


def test_of_many_texts_a_sample_of_most_families_is_compared_and_some_new_ones_at_a_time(monkeypatch):
    families = [*range(6), *[6] * 20, *[7] * 14]
    reference = Reference(tuple(ABSTRACTS[:40]), tuple(families), ("",) * 40, {})
    whole = p_values_of(DomainCheck(ABSTRACTS[:40], families), ABSTRACTS[40:60])
    monkeypatch.setattr("fsd.verdicts.domain_check.BLOCK", 7)
    for name, p_values in p_values_of(DomainCheck(ABSTRACTS[:40], families), ABSTRACTS[40:60]).items():
        np.testing.assert_allclose(p_values, whole[name])
    monkeypatch.setattr("fsd.verdicts.domain_check.MOST", 12)
    check = reference.check("")
    assert (len(check.texts), check.groups, np.bincount(check.group).tolist()) == (12, 8, [1] * 6 + [3] * 2)


def test_one_short_text_of_the_benchmark_does_not_hide_novelty():
    """The measures have ranks of their own: an odd length does not make other texts look ordinary in their words."""
    assert DomainCheck([*ABSTRACTS[:60], "Three short words."]).outside([FRENCH * 2])[0]


def test_a_group_is_found_by_what_its_texts_have_in_common():
    """Each text is inside by its length, all of them together are not."""
    check = DomainCheck(repeated(*np.random.default_rng(0).integers(40, 160, 150)))
    asked = repeated(*[52] * 12)
    assert check.outside(asked) == [""] * 12
    assert all(check.outside(asked, [1] * 12))


def test_copies_of_a_text_are_no_more_outside_than_the_text():
    """Where the texts of a family are all alike, many of them tell as much as one."""
    lengths = np.random.default_rng(0).integers(40, 160, 60)
    known = DomainCheck(repeated(*np.repeat(lengths, 3)), np.repeat(np.arange(60), 3).tolist())
    for length in (45, 60, 150):
        alone = p_values_of(known, repeated(length))["length"][0]
        assert alone < 0.5
        np.testing.assert_allclose(p_values_of(known, repeated(*[length] * 5), [1] * 5)["length"], alone)


def test_the_likeness_within_families_is_that_of_an_analysis_of_variance():
    """The example of Shrout and Fleiss (1979, https://doi.org/10.1037/0033-2909.86.2.420): .17 for six of four each."""
    ratings = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
    values, family = np.ravel(ratings).astype(float), np.repeat(np.arange(6), 4)
    assert domain_check._intraclass(values, family) == pytest.approx(0.1657, abs=5e-5)


def test_distances_equal_the_plain_formula():
    rng = np.random.default_rng(1)
    known, new = rng.normal(size=(40, 6)) * [1, 2, 3, 1, 1, 1], rng.normal(size=(7, 6))
    np.testing.assert_allclose(mahalanobis(known, new), LedoitWolf().fit(known).mahalanobis(new), rtol=1e-6)


def test_the_reason_is_named(abstracts):
    for text, reason in (
        (FRENCH + MORE_FRENCH, "language"),
        (FRENCH * 3, "repeated phrases 66% (typically 0%)"),
        (ABSTRACTS[200].upper(), "capital letters 100%"),
        (ABSTRACTS[200].lower(), "words with a capital 0%"),
        ("Мы показали, что предложенные методы лучше известных. " * 12, "Cyrillic"),
        ("我们证明了所提出的方法比文献中的方法更有效" * 5, "Chinese"),
        ("We show a method.", "length 4 words"),
        (" ".join(ABSTRACTS[200:214]), "the calibrated texts have"),
        (NOVEL, "vocabulary"),
    ):
        assert reason in abstracts.outside([text])[0]
    # unusual measures alone: the third of three is often an ordinary one
    loud = abstracts.outside([ABSTRACTS[200].upper()])[0]
    assert loud.count("typically") == 2
    assert loud.endswith("words with a capital 100% (typically 6%)")


def test_p_values_by_hand_from_the_length():
    """Distances from the median 11.5 on a log scale: each group of the benchmark at least as far has a vote."""
    p_values = p_values_of(DomainCheck(repeated(10, 11, 12, 13)), repeated(30, 13, 12))
    np.testing.assert_allclose(p_values["length"], [1 / 5, 3 / 5, 5 / 5])
    grouped = DomainCheck(repeated(10, 40, 12, 13, 14), [0, 0, 1, 2, 3])
    # 40 alone is farther from 13.
    assert p_values_of(grouped, repeated(30))["length"][0] == pytest.approx((1 + 0.5) / 5)


def test_a_text_is_judged_alone(abstracts):
    together = p_values_of(abstracts, [*ABSTRACTS[200:204], FRENCH])
    for name, values in together.items():
        alone = [p_values_of(abstracts, [text])[name][0] for text in ABSTRACTS[200:204]]
        np.testing.assert_allclose(values[:4], alone)


def test_very_few_texts_are_enough():
    for known in (1, 2, 3):
        states = read_as(ABSTRACTS, np.random.default_rng(0).normal(size=(known + 1, 4)))
        check = DomainCheck(ABSTRACTS[:known], states=states)
        assert np.isfinite(p_values_of(check, [ABSTRACTS[known]])["states"]).all()


NONMEMBERS = [document.text for document in embedded.corpus() if not document.member]
CHINESE = "方法模型数据结果证明函数空间算法估计问题理论条件实验误差结构性质系统参数分布样本"
CHINESE_WORDS = [CHINESE[start : start + 2] for start in range(0, len(CHINESE), 2)]


def tried(reference, **how):
    return trial(reference, **how).added_to(reference)


def reference_of(texts, source="", **changes):
    count = len(texts)
    return Reference(tuple(texts), tuple(range(count)), (source,) * count, **{"power": {}, **changes})


def chinese(count, seed=0):
    """Sentences of random words, without spaces, as Chinese is written."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        sentences = ["".join(rng.choice(CHINESE_WORDS, rng.integers(8, 16))) for _ in range(4)]
        texts.append("。".join(sentences) + "。")
    return texts


def test_the_check_of_a_small_benchmark_keeps_its_promise():
    """Of 40 non-members no text may be judged by a curve, weights or a mean that it had a part in."""
    shares, promised = [], []
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(NONMEMBERS))
        texts = [NONMEMBERS[place] for place in order]
        check = reference_of(texts[:40]).check("")
        shares.append(check.share_outside(texts[40:]))
        promised.append(check.share)
    assert np.mean(shares) <= np.mean(promised) + 0.04


def test_requests_of_digits_only_are_outside(abstracts):
    digits = ["".join(str(digit) for digit in np.random.default_rng(seed).integers(0, 10, 300)) for seed in range(3)]
    in_words = [" ".join(text[place : place + 4] for place in range(0, 300, 4)) for text in digits]
    for text in (*digits, *in_words, "7"):
        assert abstracts.outside([text]) == ["written in no known letters; calibrated on Latin"]


def test_the_power_of_a_check_is_of_kinds_in_the_script_of_the_benchmark():
    """English texts differ from Chinese ones in the script alone, which shows nothing of other Chinese texts."""
    patents = chinese(40)
    alone = tried(reference_of(patents))
    assert alone.power == {}
    assert "first half" in alone.edits
    assert not {"capitals", "half in capitals", "title case"} & set(alone.edits)
    assert not alone.powerful
    novels = ["".join(chr(ord(sign) + 100) if sign != "。" else sign for sign in text) for text in patents]
    names = ("patents",) * 40 + ("novels",) * 40
    several = tried(Reference((*patents, *novels), tuple(range(80)), names, {}))
    assert several.power == {"source 'patents'": 1, "source 'novels'": 1}
    assert several.powerful


def test_a_check_is_powerful_from_four_fifths_of_other_kinds_on_average():
    for power, powerful in (
        ({"novels": 0.8}, True),
        ({"novels": 0.79}, False),
        ({"novels": 0.6, "manuals": 1.0}, True),
        ({"novels": 0.8, LATER: 0.0}, True),
        ({LATER: 1.0}, False),
        ({}, False),
    ):
        assert reference_of(ABSTRACTS[:2], power=power).powerful is powerful


def test_kinds_and_edits_that_are_found_in_less_than_half_of_the_cases_are_not_recognised():
    power = {"novels": 0.5, "manuals": 0.49, LATER: 0.1}
    reference = reference_of(ABSTRACTS[:2], power=power, edits={"capitals": 1.0, "first half": 0.4})
    assert reference.unrecognised == {"manuals": 0.49, "first half": 0.4}


def test_a_quarter_of_the_families_are_edited_and_no_more_than_twenty():
    for count, edited in ((3, 0), (4, 1), (40, 10), (80, 20), (100, 20)):
        held_out = domain_check._held_out(reference_of(ABSTRACTS[:count]), "")
        assert len(held_out) == edited
        assert held_out == {family: ABSTRACTS[family] for family in held_out}


def test_one_half_of_the_families_is_learned_from_and_the_other_one_tried():
    families = (7, 7, 2, 5, 2, 9)
    reference = Reference(("a", "b", "c", "d", "e", "f"), families, ("s",) * 6, {})
    assert reference.half_of("s") == ["a", "b", "d"]
    assert reference.half_of("s", held_out=True) == ["c", "e", "f"]
    assert reference.half_of("other") == []


def test_edited_texts_are_judged_without_the_texts_themselves(monkeypatch):
    monkeypatch.setattr(domain_check, "edited", lambda texts: {"no edit": list(texts)})
    judged = []

    def share_outside(check, texts):
        judged.append(set(texts) & set(check.texts))
        return 0.0

    monkeypatch.setattr(DomainCheck, "share_outside", share_outside)
    edits = tried(reference_of(ABSTRACTS[:40])).edits
    assert edits == {"no edit": 0.0}
    assert judged[-1] == set()


def test_hidden_states_are_the_reason_only_where_nothing_else_is():
    asked = [ABSTRACTS[100], ABSTRACTS[101].upper()]
    near = np.random.default_rng(0).normal(size=(80, 3))
    check = DomainCheck(ABSTRACTS[:80], states=read_as(ABSTRACTS[:80] + asked, [*near, *np.full((2, 3), 30.0)]))
    assert p_values_of(check, asked[:1])["writing"][0] > 0.2
    ordinary, capitals = check.outside(asked)
    assert "hidden states" in ordinary
    assert "capital letters 100%" in capitals


def numbered(values):
    """What reads the typicality of abstracts, by their place among these values."""
    return read_as(ABSTRACTS, [(value, 0.0, 0.0) for value in values])


@pytest.mark.parametrize("both_ways", [False, True])
def test_a_text_that_is_too_probable_everywhere_is_outside_and_in_audits_one_that_is_too_little_so(both_ways):
    values = [*np.random.default_rng(0).normal(size=100), 9.0, -9.0, 0.0]
    check = DomainCheck(ABSTRACTS[:100], typicality=numbered(values), both_ways=both_ways)
    much, little, usual = check.outside(ABSTRACTS[100:103])
    assert much == "too probable for the model, as texts are that it wrote itself or that it knows otherwise"
    assert (little == "less probable for the base model than the calibrated texts") == both_ways
    assert usual == ""


def test_texts_that_the_model_wrote_are_tried_by_the_check_and_count_apart():
    """The check does not know the texts whose openings were continued; later only the scores of those inside remain."""
    values = dict.fromkeys(ABSTRACTS, 0.0) | {f"{text} again": 5.0 * (n % 2) for n, text in enumerate(ABSTRACTS)}
    before = Earlier("reference", tuple((at, 0.0, 0.0) for at in np.linspace(-1, 1, 60)))
    reference = replace(reference_of(ABSTRACTS[:60]), earlier=before)
    asked = []

    def write(texts):
        asked.extend(texts)
        return {"plain": [f"{text} again" for text in texts]}

    def read(texts):
        return np.array([(values[text], 0.0, 0.0) for text in texts])

    found = tried(reference, typicality=read, write=write)
    assert len(found.written) == len(asked) == 15
    inside = {text.text.removesuffix(" again") for text in found.written if text.inside}
    assert inside <= {text for n, text in enumerate(ABSTRACTS) if n % 2 == 0}
    assert found.power[OWN] == pytest.approx(1 - len(inside) / 15)
    assert not replace(found, power={OWN: 1.0}).powerful
    scored = found.with_own_scores(lambda texts: np.arange(float(len(texts))))
    assert [text.score for text in scored.written if text.inside] == list(range(len(inside)))
    assert not any(text.text for text in scored.written)


def test_p_values_among_the_texts_that_the_model_wrote_by_hand():
    """The share of a way of sampling, where it is larger; beyond all of them nothing but the non-members counts."""
    own = [OwnText("s", "plain", inside=False)] * 8 + [OwnText("s", "plain", True, score=at) for at in (1.0, 2.0)]
    own += [OwnText("s", "greedy", True, score=2.5), OwnText("s", "greedy", inside=False)]
    own += [OwnText("t", "plain", True, score=9.0)]
    reference = replace(reference_of(ABSTRACTS[:5]), written=tuple(own))
    assert reference.beyond_own("s", np.array([0.5, 2.2, 3.0])) == pytest.approx([1 / 2, 1 / 2, 0.0])
    plain = replace(reference, written=tuple(own[:10]))
    assert plain.beyond_own("s", np.array([0.5, 1.5, 2.0, 2.2])) == pytest.approx([3 / 11, 2 / 11, 2 / 11, 0.0])
    assert reference_of(ABSTRACTS[:5]).beyond_own("", np.array([1.0])) == pytest.approx([0.0])


def test_scores_are_compared_beside_what_the_base_knows():
    """Scores fall by 2 for each unit that the base knows more: a text that it knows less is no member for that."""
    known = np.linspace(0, 1, 39)
    noise = np.tile([-0.1, 0.0, 0.1], 13)
    numbers = tuple((at, at**2, 0.0) for at in known)
    before = Earlier("tuned", numbers, tuple(-2 * known + noise))
    reference = replace(reference_of(ABSTRACTS[:39]), earlier=before)
    asked = np.array([(-1.0, 1.0, 0.0), (0.5, 0.25, 0.0), (0.5, 0.25, 0.0)])
    high, usual, member = reference.beside_known("", np.array([2.0, -1.0, 1.0]), asked)
    assert high > 0.3
    assert usual > 0.3
    assert member == pytest.approx(1 / 40)
    without = replace(reference, earlier=Earlier("reference", numbers))
    assert without.beside_known("", np.array([9.0]), asked[:1]) == pytest.approx([0.0])


def test_families_of_the_same_kind_are_outside_no_more_often_than_single_texts():
    """Lengths of independent texts: by the smaller of two p-values, families of four would be outside more often."""
    rng = np.random.default_rng(3)
    outside = {1: [], 4: []}
    for _ in range(20):
        check = DomainCheck(repeated(*rng.lognormal(4, 0.5, 99).astype(int) + 1))
        for size, shares in outside.items():
            p = p_values_of(
                check, repeated(*rng.lognormal(4, 0.5, 80).astype(int) + 1), (np.arange(80) // size).tolist()
            )
            shares.append((p["length"] <= 0.1).mean())
    assert np.mean(outside[1]) == pytest.approx(0.1, abs=0.03)
    assert np.mean(outside[4]) <= 0.12


def _counts(texts):
    """For words and for character n-grams: the counts in each text."""
    ngrams = CountVectorizer(analyzer="char_wb", ngram_range=(2, 4), lowercase=False).build_analyzer()
    return [[Counter(analyse(text)) for text in texts] for analyse in (words, ngrams)]


def _unit(count, texts_having, texts):
    """Token → weight (tf-idf with a logarithm of the counts), of a vector of length one."""
    weights = {}
    for token, number in count.items():
        rarity = math.log((1 + texts) / (1 + texts_having[token])) + 1
        weights[token] = (1 + math.log(number)) * rarity
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {token: weight / length for token, weight in weights.items()}


def _similarity(known, text):
    """Similarity of a new text with known ones, token by token; the new one counts as a text that has every token."""
    similar = np.zeros(len(known))
    for counts, (count,) in zip(_counts(known), _counts([text]), strict=True):
        having = Counter(token for of_text in counts for token in of_text)
        one_more = Counter({token: having[token] + 1 for token in count})
        new = _unit(count, one_more, len(known) + 1)
        for place, of_text in enumerate(counts):
            weights = _unit(of_text, having, len(known))
            similar[place] += sum(weight * weights.get(token, 0.0) for token, weight in new.items()) / 2
    return similar


def test_the_similarity_with_a_new_text_equals_the_sum_over_tokens():
    known = ["The cat sat.", "The dog sat down", "A cat and a cat"]
    for text in ("the cat ran", "A cat and a cat", "Nothing else"):
        np.testing.assert_allclose(Similarity(known)([text])[0], _similarity(known, text))


def test_a_column_gains_the_weight_that_it_has_without_the_text_by_hand():
    having = sparse.csr_matrix([[1.0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0]])
    without = [math.log(3 / 1) + 1, math.log(3 / 2) + 1, 1, math.log(3 / 1) + 1]
    with_it = [math.log(4 / 2) + 1, math.log(4 / 3) + 1, 1, math.log(4 / 2) + 1]
    np.testing.assert_allclose(domain_measures._without_one(having), np.divide(without, with_it))


def test_the_expected_similarity_of_a_text_is_that_of_a_curve_through_the_others():
    texts = [" ".join(text.split()[: 30 + 5 * place]) for place, text in enumerate(ABSTRACTS[:15])]
    similar = Similarity(texts).among()
    np.fill_diagonal(similar, -np.inf)
    nearest = domain_measures._mean_of_nearest(similar)
    lengths = log_lengths(texts)
    expected = []
    for place in range(15):
        curve = np.polyfit(np.delete(lengths, place), np.delete(nearest, place), 2)
        expected.append(np.polyval(curve, lengths[place]) - nearest[place])
    np.testing.assert_allclose(Words(texts, np.arange(15)).novelties, expected, atol=1e-9)


def test_a_measure_of_writing_that_never_varies_has_a_least_spread():
    """Texts all alike but for one digit in eight signs; the smallest standard deviation is .05."""
    measure = Writing(["aaaa bbbb"] * 12, np.arange(12))
    expected = (math.asin(math.sqrt(1 / 8)) / 0.05) ** 2
    np.testing.assert_allclose(measure.novelty(["aaaa bbbb", "aaaa bbb1"]), [0, expected], atol=1e-9)
    np.testing.assert_allclose(measure.novelties, 0, atol=1e-9)


def test_the_distance_of_a_text_of_the_benchmark_is_that_from_the_other_folds():
    vectors = np.array([[0.0], [1.0], [5.0], [6.0]])

    def from_mean(known, new):
        return np.abs(new - known.mean(axis=0))[:, 0]

    np.testing.assert_allclose(by_fold(from_mean, vectors, np.arange(4)), [4, 8 / 3, 8 / 3, 4])
    np.testing.assert_allclose(by_fold(from_mean, vectors, np.array([0, 0, 1, 1])), [5.5, 4.5, 4.5, 5.5])
    np.testing.assert_allclose(by_fold(from_mean, vectors, np.zeros(4, dtype=int)), 0)
