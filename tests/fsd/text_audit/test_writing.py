"""Shares of short texts counted by hand, and every edit of a text of a few words."""

import unicodedata

import numpy as np
import pytest

from fsd.text_audit.writing import EDITS, ERRORS, LICENCE, MEASURES, edited, spread_out, writing

SHORT, OTHER = "One two. three!", "Four, fIVE"
CHINESE = "他在家。她也在家。"


def shares(text):
    """Measure → share of the text."""
    return dict(zip(MEASURES, writing([text])[0].tolist(), strict=True))


def above_zero(text):
    return {name: share for name, share in shares(text).items() if share}


def test_every_share_of_a_text_by_hand():
    """Ten visible signs in fifteen, three letters of six in capitals, two words of four, and four gaps."""
    assert shares("Ab cD, 12\n\nE f.") == pytest.approx(
        {
            "capital letters": 3 / 6,
            "words with a capital": 2 / 4,
            "digits": 2 / 10,
            "punctuation": 2 / 10,
            "white space": 5 / 15,
            "line breaks": 1 / 4,
            "wide gaps": 1 / 4,
            "repeated phrases": 0,
            "open ends": 0,
            "open beginnings": 0,
        }
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (" \n", {"white space": 1}),
        ("a", {"open ends": 1, "open beginnings": 1}),
        ("A", {"capital letters": 1, "words with a capital": 1, "open ends": 1}),
        ("?", {"punctuation": 1}),
        ("1234", {"digits": 1, "open ends": 1}),
        ("12 34", {"digits": 1, "white space": 1 / 5, "open ends": 1}),
        ("他在家。", {"punctuation": 1 / 4}),
        ("他在家", {"open ends": 1}),
        ("一二，三四，五六。", {"punctuation": 3 / 9}),
    ],
)
def test_a_share_of_nothing_is_zero(text, expected):
    assert above_zero(text) == pytest.approx(expected)


def test_marks_belong_to_their_words():
    """Five words twice: of the seven phrases of four words, two are repeated, as with letters alone."""
    hindi = "हिन्दी में लिखी किताबें मिलती हिन्दी में लिखी किताबें मिलती"
    letters = "abc de fgh ijk lmn abc de fgh ijk lmn"
    measured = above_zero(hindi)
    assert measured["repeated phrases"] == above_zero(letters)["repeated phrases"] == pytest.approx(2 / 7)
    assert measured["open ends"] == 1
    assert "open beginnings" not in measured
    decomposed = unicodedata.normalize("NFD", "Été Ça va")
    assert shares(decomposed)["words with a capital"] == 2 / 3


def test_white_space_around_a_text_is_no_gap():
    assert above_zero(" \n\n A b.\n") == pytest.approx(
        {"capital letters": 1 / 2, "words with a capital": 1 / 2, "punctuation": 1 / 3, "white space": 6 / 9}
    )


@pytest.mark.parametrize(
    ("measure", "text", "expected"),
    [
        # Words of a script without case are neither with nor without a capital.
        ("words with a capital", "Ab 他 cd", 1 / 2),
        ("capital letters", "Ab 他 cd", 1 / 4),
        ("punctuation", "a+b = c", 2 / 5),
        ("wide gaps", "A  b c.", 1 / 2),
        ("line breaks", "A  b c.", 0),
        *(("line breaks", f"A{line_break}b c.", 1 / 2) for line_break in ("\n", "\r", "\r\n")),
        ("repeated phrases", "a b c d a b c d", 1 / 5),
        ("repeated phrases", "a b c a b c", 0),
        *(("open ends", text, 0) for text in ("It was.", "It was.\n", '"It was."', "(it was.)", "It, ")),
        *(("open ends", text, 1) for text in ("It was", "It was\n", "a" * 20_000)),
        # Of a long text, the end of what is measured is not its end.
        ("open ends", "a" * 20_001, 0),
        ("digits", "a" * 20_000 + "1" * 20_000, 0),
    ],
)
def test_one_share_by_hand(measure, text, expected):
    assert shares(text)[measure] == expected


def test_each_text_has_a_row():
    texts = [SHORT, "", CHINESE]
    np.testing.assert_array_equal(writing(texts), [writing([text])[0] for text in texts])
    assert writing([]).shape == (0, len(MEASURES))


def test_shares_are_spread_from_zero_to_half_of_pi():
    np.testing.assert_allclose(spread_out(np.array([0, 0.25, 0.5, 1])), np.pi * np.array([0, 1 / 6, 1 / 4, 1 / 2]))


EDITED = {
    "capitals": ["ONE TWO. THREE!", "FOUR, FIVE"],
    "half in capitals": ["ONE TWO. three!", "FOUR, fIVE"],
    "title case": ["One Two. Three!", "Four, Five"],
    "no punctuation": ["One two three", "Four fIVE"],
    "first half": ["One two.", "Four,"],
    "doubled": [f"{SHORT}\n\n{SHORT}", f"{OTHER}\n\n{OTHER}"],
    "two texts joined": [f"{SHORT}\n\n{OTHER}", f"{OTHER}\n\n{SHORT}"],
    "a licence in front": [f"{LICENCE}\n\n{SHORT}", f"{LICENCE}\n\n{OTHER}"],
}


def test_every_edit_by_hand():
    found = edited([SHORT, OTHER])
    assert {name: texts for name, texts in found.items() if name != "typing errors"} == EDITED
    assert set(EDITED) | {"other line breaks", "typing errors"} == set(EDITS)


def test_each_text_is_joined_with_the_next_and_the_last_with_the_first():
    assert edited(["a", "b", "c"])["two texts joined"] == ["a\n\nb", "b\n\nc", "c\n\na"]


def test_lines_are_broken_where_there_were_none_and_joined_where_there_were():
    line = " ".join(["seven12"] * 5)
    broken = " ".join(["seven12"] * 20)
    assert edited([broken])["other line breaks"] == ["\n".join([line] * 4)]
    assert edited(["a b\nc\n\n  d"])["other line breaks"] == ["a b c d"]


def test_typing_errors_exchange_a_few_letters_for_others_of_the_text():
    text = "The quick, brown fox! " * 200
    (typed,) = edited([text])["typing errors"]
    changed = [(before, after) for before, after in zip(text, typed, strict=True) if before != after]
    letters = sum(map(str.isalpha, text))
    assert 0.03 < len(changed) / letters < ERRORS + 0.01
    assert all(before.isalpha() and after in set(text) for before, after in changed)
    assert edited([text])["typing errors"] == [typed]


def test_an_edit_that_changes_no_text_is_left_out():
    found = edited([CHINESE, CHINESE[::-1]])
    without_effect = {"capitals", "half in capitals", "title case", "other line breaks"}
    assert set(found) | {"typing errors"} == set(EDITS) - without_effect


def test_texts_of_one_character_and_of_none_can_be_edited():
    assert EDITS["first half"]("a", "") == "a"
    assert EDITS["half in capitals"]("a", "") == "A"
    kept_empty = {name for name, edit in EDITS.items() if edit("", "") == ""}
    assert kept_empty == set(EDITS) - {"doubled", "two texts joined", "a licence in front"}
