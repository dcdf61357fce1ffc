import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from fsd.data import embedded
from fsd.data.documents import Document
from fsd.data.splitting import Split
from fsd.evaluation import audit as module
from fsd.evaluation.audit import alone, audit, blind, leaks, most_telling, overlaps

DATA = Path(__file__).parents[4] / "shared" / "data"
VOCABULARY = [f"word{i}" for i in range(400)]


def _texts(rng, count, length=60):
    return [" ".join(rng.choice(VOCABULARY, length)) for _ in range(count)]


def _documents(texts, labels, **more):
    return tuple(
        Document(t, bool(y), group=f"g{i}{t[:9]}", **more) for i, (t, y) in enumerate(zip(texts, labels, strict=True))
    )


def _rows(name):
    file = DATA / f"{name}.jsonl"
    if not file.exists():
        pytest.skip(f"the benchmark text {file.name} is not here")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [row.get("input", row.get("text")) for row in rows], [bool(row["label"]) for row in rows]


def _split(rng, sizes=(20, 30, 40)):
    return [list(_documents(_texts(rng, n), np.arange(n) % 2 * (at > 0))) for at, n in enumerate(sizes)]


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
        planted = Document(text, False, group=origin.group if kind == "group" else "new", source="planted")
        found = leaks(Split(*map(tuple, [*clean[:2], [*clean[2], planted]])))
        assert (found.groups, found.tested, found.calibrated, found.test) == (1, 1, 0, 41)
        (leak,) = found.pairs
        assert (leak.part, leak.other_part, leak.text, leak.other_text) == ("unseen", "test", origin.text, text)
        assert (leak.reason == "group") == (kind == "group")
    found = leaks(Split(*map(tuple, [*clean[:2], [*clean[2], *clean[1][:2]]])))
    assert (found.groups, found.tested, found.calibrated) == (2, 0, 2)


def test_nested_lengths_of_one_article_leak_across_parts():
    (short, labels), (long, more) = _rows("wikimia_32"), _rows("wikimia_64")
    unseen = [Document(t, y) for t, y in zip(short, labels, strict=True) if not y][:100]
    test = [Document(t, y) for t, y in zip(long, more, strict=True)]
    found = leaks(Split(tuple(unseen), (), tuple(test)))
    assert found.tested > 30


def _reached(texts, labels, groups=None, **more):
    found = blind(texts, labels, groups, repeats=1, **more)
    assert found.auc is not None
    assert found.scores is not None
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
    texts, labels = _rows("arxiv_mia_dev")
    rng = np.random.default_rng(5)
    found = [blind(texts, rng.permutation(labels), seed=s).auc for s in range(3)]
    assert 0.46 < np.mean([e.value for e in found if e]) < 0.54
    assert all(e.low <= 0.5 <= e.high for e in found if e)


def test_copies_in_one_group_do_not_help_blind():
    rng = np.random.default_rng(6)
    texts, labels = _texts(rng, 60) * 2, np.tile(rng.random(60) < 0.5, 2)
    assert _reached(texts, labels).value > 0.9
    assert _reached(texts, labels, [str(i % 60) for i in range(120)]).value < 0.65


@pytest.mark.parametrize(("share", "least"), [(0.5, 0.70), pytest.param(0.25, 0.58, marks=pytest.mark.slow)])
def test_one_word_in_some_members_is_found_and_named(share, least):
    documents = list(embedded.corpus())
    rng = np.random.default_rng(7)
    member = rng.permutation([document.member for document in documents])
    texts = [document.text for document in documents]
    for at in rng.permutation(np.flatnonzero(member))[: round(share * member.sum())]:
        texts[at] = texts[at].replace(" ", " quibblesome ", 1)
    found, telling = blind(texts, member), most_telling(texts, member, np.arange(len(texts)), seed=0)
    assert found.auc is not None
    assert telling is not None
    assert found.auc.value >= least
    assert found.auc.low > 0.5
    assert "quibblesome" in telling.phrase
    assert (telling.members, telling.nonmembers) == (pytest.approx(share, abs=0.003), 0)
    assert telling.p < 0.001


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
    found, telling = blind(texts, member, repeats=1), most_telling(texts, member, np.arange(240), seed=0)
    assert found.auc is not None
    assert telling is not None
    assert found.auc.value >= 0.70
    assert found.auc.low > 0.5
    assert telling.phrase == named
    assert abs(telling.members - telling.nonmembers) == pytest.approx(0.5)
    assert telling.p < 0.001


@pytest.mark.slow
def test_the_interval_contains_other_folds():
    documents = list(embedded.corpus())[::2]
    found = [blind([d.text for d in documents], [bool(d.member) for d in documents], seed=seed).auc for seed in (0, 1)]
    (first, second) = (estimate for estimate in found if estimate)
    assert first.low <= second.value <= first.high
    assert second.low <= first.value <= second.high


def test_a_word_of_one_family_is_not_telling():
    rng = np.random.default_rng(8)
    texts = _texts(rng, 60) + ["copied by all of them"] * 20
    member = np.append(np.arange(60) % 2 == 0, np.ones(20, bool))
    alone, together = (
        most_telling(texts, member, np.append(np.arange(60), last), seed=0) for last in (range(60, 80), [60] * 20)
    )
    assert alone is not None
    assert together is not None
    assert alone.phrase.strip("“”") in "copied by all of them"
    assert alone.p < 0.01
    assert together.p > 0.5
    assert most_telling(["a", "b"], np.array([True, False]), np.arange(2), seed=0) is None


def test_unseen_texts_are_on_neither_side():
    parts = Split(*map(tuple, _split(np.random.default_rng(11), (40, 40, 80))))
    marked = parts._replace(
        unseen=tuple(replace(d, text=f"{d.text} foreign foreign", member=False) for d in parts.unseen)
    )
    plain, found = audit(parts, repeats=1), audit(marked, repeats=1)
    assert found.blind == plain.blind
    assert found.telling is not None
    assert "foreign" not in found.telling.phrase
    assert found.overlaps == plain.overlaps
    names = set(found.metrics())
    assert {"audit/blind_auc", "audit/length_auc", "audit/leaked_groups", "audit/length_overlap"} <= names
    assert "audit/date_auc" not in names
    assert found.date.reason == "no text has it"


def test_more_texts_than_are_trained_on_all_get_a_score(monkeypatch):
    monkeypatch.setattr(module, "TRAINED_ON", 60)
    labels = np.arange(250) % 5 == 0
    texts = _texts(np.random.default_rng(12), 250)
    assert _reached([t + " marker" * int(y) for t, y in zip(texts, labels, strict=True)], labels).value > 0.97


@pytest.mark.slow
@pytest.mark.parametrize(("name", "low", "high"), [("wikimia_64", 0.95, 1.0), ("arxiv_mia_dev", 0.52, 0.66)])
def test_blind_on_published_benchmarks(name, low, high):
    texts, labels = _rows(name)
    found = blind(texts, labels)
    assert found.auc is not None
    assert low <= found.auc.value <= high


def test_too_few_groups_give_a_reason_and_no_number():
    found = blind(["a b", "c d", "e f"], [True, False, False])
    assert found.auc is None
    assert "at least 2 groups" in found.reason
    assert blind(["a", "b", "c", "d"], [True, True, False, False]).auc is not None
    mixed = blind(["a", "b", "c", "d"], [True, False, True, False], ["x", "x", "y", "y"])
    assert mixed.auc is not None or mixed.reason


def test_one_number_alone():
    labels = [True, True, False, False]
    turned = alone([1, 2, 3, 4], labels).auc
    assert turned is not None
    assert turned.value == 1.0
    gaps = alone([1, 2, 3, 3, None, None], [True, False, True, False, True, False]).auc
    assert gaps is not None
    assert gaps.value == pytest.approx(0.625)
    assert alone([None] * 4, labels).reason == "no text has it"
    assert "at least 2 groups" in alone([1, 2, None, None], labels).reason


def test_overlap_of_equal_and_different_sides():
    rng = np.random.default_rng(7)
    texts = _texts(rng, 100, 80)
    labels = np.arange(100) % 2 == 0
    equal = [Document(t, bool(y), date(2020, 1, 1 + int(rng.integers(28)))) for t, y in zip(texts, labels, strict=True)]
    shifted = [
        Document(d.text.replace("word1", "sign") + " more" * 40 * d.member, d.member, date(2020 + 2 * d.member, 1, 1))
        if d.member
        else d
        for d in equal
    ]
    fair, unfair = overlaps(equal), overlaps(shifted)
    assert set(fair) == {"length", "vocabulary", "date"}
    assert all(abs(o.value - o.chance) < 0.15 for o in fair.values())
    assert unfair["length"].value == 0
    assert unfair["date"].value == 0
    assert unfair["vocabulary"].value < 0.8 * unfair["vocabulary"].chance
    assert overlaps(equal[:1]) == {}


def test_vocabulary_overlap_by_hand():
    # p = (1, 0), q = (1/2, 1/2): Jensen-Shannon divergence .3113 bits
    found = overlaps([Document("a a", True), Document("a b", False)])
    assert found["vocabulary"].value == pytest.approx(1 - 0.31127812445913283)


def test_audit_of_hardly_anything_does_not_fail():
    for sizes in ((0, 0, 0), (1, 0, 2), (0, 2, 2)):
        assert audit(Split(*map(tuple, _split(np.random.default_rng(9), sizes)))).leaks.groups == 0
