from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fsd.data import embedded
from fsd.data.corpus import Split
from fsd.data.documents import Document
from fsd.data.splitting import split
from fsd.text_audit import audit as module
from fsd.text_audit.audit import audit, blind, leaks, most_telling, single_number_auc

VOCABULARY = [f"word{i}" for i in range(400)]


def _texts(rng, count, length=60):
    return [" ".join(rng.choice(VOCABULARY, length)) for _ in range(count)]


def _split(rng, sizes=(20, 30, 40)):
    return [
        [Document(t, bool(i % 2 and at), group=f"g{i}{t[:9]}") for i, t in enumerate(_texts(rng, n))]
        for at, n in enumerate(sizes)
    ]


def test_planted_leaks_are_found_with_both_texts():
    clean = _split(np.random.default_rng(1))
    found = leaks(Split(*map(tuple, clean)))
    assert (found.pairs, found.groups, found.tested, found.calibrated, found.test) == ((), 0, 0, 0, 40)
    origin = clean[0][7]
    tokens = origin.text.split()
    changed = [token if at % 12 != 5 else "other" for at, token in enumerate(tokens)]
    for kind, text in {
        "copy": origin.text,
        "prefix": " ".join(tokens[:32]),
        "paraphrase": " ".join(["new", "start", *changed]),
        "group": "quite different words here",
    }.items():
        planted = Document(text, False, group=origin.group if kind == "group" else "new", origin_url="planted")
        found = leaks(Split(*map(tuple, [*clean[:2], [*clean[2], planted]])))
        assert (found.groups, found.tested, found.calibrated, found.test) == (1, 1, 0, 41)
        (leak,) = found.pairs
        assert (leak.part, leak.other_part, leak.text, leak.other_text) == ("unseen", "test", origin.text, text)
        assert (leak.reason == "group") == (kind == "group")
    found = leaks(Split(*map(tuple, [*clean[:2], [*clean[2], *clean[1][:2]]])))
    assert (found.groups, found.tested, found.calibrated) == (2, 0, 2)


def test_two_questions_with_one_short_answer_are_no_leak():
    rng = np.random.default_rng(2)
    answers = ["yes it is the case in all of the years that were asked about", *_texts(rng, 1)]
    questions = [Document(answers[0], i % 2 == 0, context=text) for i, text in enumerate(_texts(rng, 60))]
    parts = split(questions, seed=3)
    assert (leaks(parts).pairs, leaks(parts).groups) == ((), 0)
    # One question with two answers is one.
    answered = [replace(document, text=text) for document, text in zip(parts.unseen[:2], answers * 2, strict=False)]
    answered = [replace(document, context=parts.test[0].context, member=False) for document in answered]
    (leak,) = leaks(Split(answered[:1], parts.validation, parts.test)).pairs
    assert leak.text.startswith(leak.other_text[:300])


def test_a_passage_of_many_texts_links_none_of_those_that_a_part_keeps():
    rng = np.random.default_rng(2)
    template = " ".join(_texts(rng, 1, 30))
    documents = [Document(f"{text} {template}", i % 2 == 0) for i, text in enumerate(_texts(rng, 40))]
    parts = split(documents, seed=3)
    fewer = parts.replace(**{name: texts.take(np.arange(3)) for name, texts in parts._asdict().items()})
    assert (leaks(fewer).pairs, leaks(fewer).groups) == ((), 0)


def test_what_tells_the_contexts_apart_is_seen():
    rng = np.random.default_rng(4)
    members = np.arange(80) % 2 == 0
    contexts = [
        f"{text} {'Question' if member else 'Query'}" for text, member in zip(_texts(rng, 80), members, strict=True)
    ]
    lengths = [60 if member else 30 for member in members]
    documents = [
        Document(text, bool(member), context=context)
        for text, member, context in zip(_texts(rng, 80, 20), members, contexts, strict=True)
    ]
    for changed in (documents, [replace(d, context="", text=d.whole) for d in documents]):
        found = audit(Split([], [], changed), repeats=1)
        assert found.blind.auc.low > 0.9
        assert found.telling.phrase in ("“question”", "“query”")
    # Of equal texts, the length of the contexts tells the sides.
    longer = [replace(d, context=" ".join(d.context.split()[:n])) for d, n in zip(documents, lengths, strict=True)]
    found = audit(Split([], [], longer), repeats=1)
    assert found.length.auc.value == 1


def _reached(texts, labels, groups=None, **more):
    found = blind(texts, labels, groups, repeats=1, **more)
    assert np.isfinite(found.scores).all()
    assert found.scores.shape == (len(texts),)
    return found.auc


def test_blind_sees_words_signs_years_and_the_end_of_a_long_text():
    rng = np.random.default_rng(3)
    labels = np.arange(120) % 2 == 0
    texts, signs = _texts(rng, 120, 30), [chr(0x4E00 + i) for i in range(200)]
    long = [f"Stop. Go! {text}" for text in _texts(rng, 60, 900)]
    assert min(map(len, long)) > module.CHARACTERS
    for members, others in (
        ([f"{text}{' marker' * 5}" for text in texts], [f"{text}{' other' * 5}" for text in texts]),
        (*(["".join(rng.choice(signs, 40)) + sign * 3 for _ in texts] for sign in "龙虎"),),
        ([text.replace(" ", ", ", 6) for text in texts], [text.replace(" ", ", ", 2) for text in texts]),
        ([f"{text}!" for text in long], [f"{text}." for text in long]),
    ):
        side = labels[: len(members)]
        chosen = [a if y else b for a, b, y in zip(members, others, side, strict=True)]
        assert _reached(chosen, side, [str(at // 2) for at in range(len(chosen))]).value > 0.95
    dated = [
        f"{t} {rng.integers(2010, 2016) if y else rng.integers(2014, 2024)}" for t, y in zip(texts, labels, strict=True)
    ]
    assert _reached(dated, labels).value > 0.75


@pytest.mark.slow
def test_blind_is_at_chance_on_shuffled_labels():
    texts, rng = [document.text for document in embedded.corpus()], np.random.default_rng(5)
    found = [blind(texts, rng.random(len(texts)) < 0.5, seed=seed).auc for seed in range(3)]
    assert 0.45 < np.mean([estimate.value for estimate in found]) < 0.55
    assert all(estimate.low <= 0.5 <= estimate.high for estimate in found)


def test_copies_in_one_group_do_not_help_blind():
    rng = np.random.default_rng(6)
    texts, labels = _texts(rng, 60) * 2, np.tile(rng.random(60) < 0.5, 2)
    assert _reached(texts, labels).value > 0.9
    assert _reached(texts, labels, [str(i % 60) for i in range(120)]).value < 0.65


def _found_and_named(texts, member, least, named, **more):
    """The blind AUC and the sign that are found, for a change that some members alone have."""
    found, telling = blind(texts, member, **more).auc, most_telling(texts, member, np.arange(len(texts)), seed=0)
    assert found.value >= least
    assert found.low > 0.5
    assert named in telling.phrase
    assert telling.p < 0.001
    return telling


@pytest.mark.parametrize(("share", "least"), [(0.5, 0.70), pytest.param(0.25, 0.58, marks=pytest.mark.slow)])
def test_one_word_in_some_members_is_found_and_named(share, least):
    documents, rng = list(embedded.corpus()), np.random.default_rng(7)
    member = rng.permutation([document.member for document in documents])
    texts = [document.text for document in documents]
    for at in rng.permutation(np.flatnonzero(member))[: round(share * member.sum())]:
        texts[at] = texts[at].replace(" ", " quibblesome ", 1)
    telling = _found_and_named(texts, member, least, "quibblesome", repeats=1)
    assert (telling.members, telling.nonmembers) == (pytest.approx(share, abs=0.003), 0)


CHANGES = {
    "“.” at the end": lambda text: text[:-1],
    "“!” at the end": lambda text: f"{text[:-1]}!",
    "a capital letter at the beginning": lambda text: text[0].lower() + text[1:],
    "blank at the end": lambda text: f"{text} ",
    "line break at the end": lambda text: f"{text}\n",
    "blank + blank": lambda text: text.replace(" ", "  ", 1),
    "no-break space (U+00A0)": lambda text: text.replace(" ", "\xa0", 1),
    "zero width space (U+200B)": lambda text: f"{text[:99]}\u200b{text[99:]}",
    "cyrillic small letter a (U+0430)": lambda text: text.replace("a", "\u0430", 1),
}
FIRST, *OTHERS = CHANGES


@pytest.mark.parametrize("named", [FIRST, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
def test_one_character_in_half_of_the_members_is_found_and_named(named):
    texts = [document.text for document in embedded.corpus()][:240]
    rng = np.random.default_rng(7)
    member = rng.permutation(240) < 120
    for at in np.flatnonzero(member)[::2]:
        texts[at] = CHANGES[named](texts[at])
    telling = _found_and_named(texts, member, 0.70, named, repeats=1)
    assert telling.phrase == named
    assert abs(telling.members - telling.nonmembers) == pytest.approx(0.5)


@pytest.mark.slow
def test_the_interval_contains_other_folds():
    documents = list(embedded.corpus())[::2]
    found = [blind([d.text for d in documents], [bool(d.member) for d in documents], seed=seed).auc for seed in (0, 1)]
    first, second = found
    assert first.low <= second.value <= first.high
    assert second.low <= first.value <= second.high


def test_a_word_of_one_family_is_not_telling():
    rng = np.random.default_rng(8)
    texts = _texts(rng, 60) + ["copied by all of them"] * 20
    member = np.append(np.arange(60) % 2 == 0, np.ones(20, bool))
    alone, together = (
        most_telling(texts, member, np.append(np.arange(60), last), seed=0) for last in (range(60, 80), [60] * 20)
    )
    assert alone.phrase.strip("“”") in "copied by all of them"
    assert alone.p < 0.01
    assert together.p > 0.5
    assert most_telling(["a", "b"], np.array([True, False]), np.arange(2), seed=0) is None


def test_a_word_must_be_in_five_families():
    member = np.arange(20) < 10
    for count, group in ((4, range(20)), (5, range(20)), (5, [0, 0, *range(2, 20)])):
        texts = [f"the{' !' * (at < count)} same" for at in range(20)]
        found = most_telling(texts, member, np.array(group), seed=0)
        families = len(set(np.array(group)[:count].tolist()))
        assert (found is not None) == (families == 5)
    # of ten and ten families the word is in five and none; all its signs are in the same ones
    found = most_telling([f"the{' !' * (at < 5)} same" for at in range(20)], member, np.arange(20), seed=0)
    assert (found.members, found.nonmembers) == (0.5, 0)
    assert found.p == pytest.approx(min(1, stats.fisher_exact([[5, 0], [5, 10]]).pvalue * found.looked_at))


def test_unseen_texts_are_on_neither_side():
    parts = Split(*map(tuple, _split(np.random.default_rng(11), (40, 40, 80))))
    marked = parts.replace(
        unseen=tuple(replace(d, text=f"{d.text} foreign foreign", member=False) for d in parts.unseen)
    )
    plain, found = audit(parts, repeats=1), audit(marked, repeats=1)
    assert found.blind == plain.blind
    assert found.telling is not None
    assert "foreign" not in found.telling.phrase
    names = set(found.metrics())
    assert {"audit/blind_auc", "audit/length_auc", "audit/leaked_groups"} <= names
    assert "audit/date_auc" not in names
    assert found.date.reason == "no text has it"


def test_more_texts_than_are_trained_on_all_get_a_score(monkeypatch):
    monkeypatch.setattr(module, "TRAINED_ON", 60)
    labels = np.arange(250) % 5 == 0
    texts = _texts(np.random.default_rng(12), 250)
    assert _reached([t + " marker" * int(y) for t, y in zip(texts, labels, strict=True)], labels).value > 0.97


def test_too_few_groups_give_a_reason_and_no_number():
    found = blind(["a b", "c d", "e f"], [True, False, False])
    assert found.auc is None
    assert "at least 2 groups" in found.reason
    assert blind(["a", "b", "c", "d"], [True, True, False, False]).auc is not None
    mixed = blind(["a", "b", "c", "d"], [True, False, True, False], ["x", "x", "y", "y"])
    assert mixed.auc is not None or mixed.reason


def test_one_number_alone():
    labels = [True, True, False, False]
    assert single_number_auc([1, 2, 3, 4], labels).auc.value == 1.0
    gaps = single_number_auc([1, 2, 3, 3, None, None], [True, False, True, False, True, False])
    assert gaps.auc.value == pytest.approx(0.625)
    assert single_number_auc([None] * 4, labels).reason == "no text has it"
    assert "at least 2 groups" in single_number_auc([1, 2, None, None], labels).reason


def test_audit_of_hardly_anything_does_not_fail():
    for sizes in ((0, 0, 0), (1, 0, 2), (0, 2, 2)):
        assert audit(Split(*map(tuple, _split(np.random.default_rng(9), sizes)))).leaks.groups == 0
