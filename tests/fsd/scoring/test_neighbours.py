"""Neighbours by word swaps and by a masked model: deterministic, in case, raw text kept."""

import re
import unicodedata

import pytest
import torch

from fsd.errors import UsageError
from fsd.scoring import neighbours
from fsd.scoring.neighbours import (
    WORD,
    MaskedModel,
    Proposal,
    build_vocabulary,
    masked_neighbours,
    swapped_words,
    word_class,
    word_swaps,
)

UNSEEN = [
    "The old river runs slowly past a mill, and nobody knows why the mill was built there.",
    "A young doctor walks quickly to the town; Nobody meets her. NASA and ESA agree, however.",
    "Every winter the people gather wood, bread and stories around long tables in Berlin or Madrid.",
]
VOCABULARY = build_vocabulary(UNSEEN)
TEXT = "  The cat,\tsat  on\n\n(a) mat — Paris 2024!  It wasn't a very  long story; NATO knew.\r\n"


def layout(text):
    return WORD.sub("#", text)


def test_a_share_of_the_words_is_swapped_in_case_and_all_else_stays_in_place():
    first = word_swaps(TEXT, VOCABULARY, seed=1)
    assert first == word_swaps(TEXT, VOCABULARY, seed=1)
    assert first != word_swaps(TEXT, VOCABULARY, seed=2)
    assert len(set(first)) == 25
    words = WORD.findall(TEXT)
    for share, swapped in ((0.15, 2), (0.01, 1), (0.5, 8), (1.0, 15)):
        for neighbour in word_swaps(TEXT, VOCABULARY, share=share, seed=3):
            changed = [(a, b) for a, b in zip(words, WORD.findall(neighbour), strict=True) if a != b]
            assert len(changed) == swapped
            assert all(word_class(a)[0] == word_class(b)[0] for a, b in changed)
            assert layout(neighbour) == layout(TEXT)


def test_words_change_places_and_spaces_stay():
    copies = swapped_words(TEXT, seed=1)
    assert copies == swapped_words(TEXT, seed=1) != swapped_words(TEXT, seed=2)
    assert len(set(copies)) == 5
    for copy in copies:
        assert sorted(copy.split()) == sorted(TEXT.split())
        assert re.split(r"\S+", copy) == re.split(r"\S+", TEXT)
        assert sum(a != b for a, b in zip(copy.split(), TEXT.split(), strict=True)) <= 2 * int(0.3 * len(TEXT.split()))
    assert swapped_words("one two") == ["two one"] * 5
    assert swapped_words(" one\n", count=2) == [" one\n"] * 2
    assert sorted(swapped_words("文本检测", count=1)[0]) == sorted("文本检测")  # scripts without spaces: characters


def test_words_come_from_the_nearest_ranks_of_their_class():
    texts = [" ".join(f"w{chr(97 + i // 26)}{chr(97 + i % 26)} " * (100 - i) for i in range(100))]
    vocabulary = build_vocabulary(texts)
    words = vocabulary.classes["lower", 1]
    assert (words[0], words[-1], vocabulary.ranks["wcu"]) == ("waa", "wdv", 72)
    for word, drawn in (("wcu", set(words[62:83]) - {"wcu"}), ("zzz", set(words[-21:]))):
        assert {word_swaps(word, vocabulary, count=1, seed=seed)[0] for seed in range(300)} == drawn


def test_little_to_choose_from():
    for text in ("", "2024 — 17!", "\n"):
        assert word_swaps(text, VOCABULARY, count=3, seed=0) == [text] * 3
    assert word_swaps("cat", build_vocabulary(["cat"]), count=2, seed=0) == ["cat", "cat"]
    assert word_swaps("cat", build_vocabulary(["cat dog"]), count=3, seed=0) == ["dog"] * 3
    assert word_swaps("Incomprehensibly", build_vocabulary(["Cat Mice"]), count=1, seed=0)[0] in {"Cat", "Mice"}
    with pytest.raises(UsageError, match="must hold words"):
        build_vocabulary(["1984", ""])


def test_scripts_without_spaces_swap_characters():
    text = "今天天气很好，我们去公园。"
    vocabulary = build_vocabulary(["昨天下雨他在家里看书", "明年春天花会开"])
    for neighbour in word_swaps(text, vocabulary, count=5, seed=0):
        assert sum(a != b for a, b in zip(text, neighbour, strict=True)) == 2


# Sentences of words with marks: vowel signs, vowels, accents that stand apart, joiners and soft hyphens.
MARKED = {
    "Hindi": "आधुनिक मानक हिन्दी में लिखी किताबें और पत्रिकाएँ दिल्ली के पुस्तकालयों में मिलती हैं",
    "Hindi with joiners": "क्\u200dषत्रिय और श्री\u200cमान की विद्\u200dयालय में भेंट हुई",
    "Tamil": "தமிழ் மொழியில் எழுதப்பட்ட புத்தகங்கள் சென்னை நூலகங்களில் கிடைக்கின்றன",
    "Telugu": "ప్రధానమంత్రిని కలుసుకున్నారు తెలుగు పుస్తకాలు",
    "Bengali": "বাংলা ভাষায় লেখা বইগুলি কলকাতার গ্রন্থাগারে পাওয়া যায়",
    "Arabic": "كَتَبَ الطَّالِبُ الدَّرْسَ فِي الْمَدْرَسَةِ الْكَبِيرَةِ",
    "Persian": "می\u200cخواهم کتاب\u200cهای تازه بخوانم",
    "Hebrew": "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ",
    "Vietnamese": unicodedata.normalize("NFD", "Tiếng Việt được viết bằng chữ Quốc ngữ ở các trường học"),
    "French": unicodedata.normalize("NFD", "Les élèves étaient très gênés à l’école"),
    "Thai": "ภาษาไทย เป็นภาษา ที่มีวรรณยุกต์ และสระ หลายรูป",
    "Burmese": "မြန်မာဘာသာ စကားကို ပြောသည်",
    "Amharic": "አማርኛ የኢትዮጵያ ቋንቋ ነው",
    "soft hyphens": "The in\u00adfor\u00adma\u00adtion was dis\u00adtrib\u00aduted among all",
}


@pytest.mark.parametrize("text", MARKED.values(), ids=MARKED)
def test_every_word_of_a_neighbour_is_a_word(text):
    unseen = text.split()
    assert WORD.findall(text) == unseen
    # Another order of the words, so that there is something to draw.
    vocabulary = build_vocabulary([text, *UNSEEN])
    known = {*unseen, *WORD.findall(" ".join(UNSEEN))}
    neighbours = word_swaps(text, vocabulary, share=0.5, seed=1)
    assert any(neighbour != text for neighbour in neighbours)
    for neighbour in neighbours:
        assert known.issuperset(neighbour.split())
        assert len(neighbour.split()) == len(unseen)


def test_marks_of_decomposed_japanese_stay_on_their_character():
    text = unicodedata.normalize("NFD", "がぎぐげござじずぜぞ・")
    assert WORD.findall(text) == [text[start : start + 2] for start in range(0, 20, 2)]


def test_classes_by_hand():
    words = ["a", "I", "the", "NATO", "Paris", "wasn't", "McDonald", "comprehends"]
    cases = ["lower", "title", "lower", "upper", "title", "lower", "other", "lower"]
    assert [word_class(word) for word in words] == list(zip(cases, [0, 0, 1, 2, 2, 2, 3, 4], strict=True))


def test_masked_neighbours_by_hand():
    proposals = [
        Proposal(4, 7, "dog", 0.3),
        Proposal(4, 7, "cat", 0.9),  # the original
        Proposal(9, 12, "ran", 0.5),
        Proposal(0, 3, "One", 0.3),
        Proposal(4, 7, "ox", 0.1),
    ]
    best = masked_neighbours("The cat, sat.\n", proposals, count=3)
    assert best == ["The cat, ran.\n", "One cat, sat.\n", "The dog, sat.\n"]
    assert len(masked_neighbours("The cat, sat.\n", proposals)) == 4
    assert masked_neighbours("The cat", []) == ["The cat"]


RAW = "The  cat,\tsat on a mat!\n\nParis DOG cats  ran. " * 3


@pytest.fixture(scope="module")
def masked(masked_lm):
    return MaskedModel(str(masked_lm), device="cpu")


def test_proposals_are_whole_words_of_every_window_in_their_case(masked, monkeypatch):
    proposals = masked.proposals(RAW)
    assert {RAW[p.begin : p.end] for p in proposals} == {"The", "cat", "sat", "on", "a", "mat", "Paris", "DOG", "ran"}
    assert any(p.begin > 2 * len(RAW) // 3 for p in proposals)
    assert all(p.word.casefold() != RAW[p.begin : p.end].casefold() and p.word.isalpha() for p in proposals)
    assert all(p.word.isupper() for p in proposals if RAW[p.begin : p.end] == "DOG")
    assert masked.proposals(RAW) == proposals
    monkeypatch.setattr(masked, "seed", 2)
    assert masked.proposals(RAW) != proposals


def test_without_dropout_the_weight_is_the_models_probability_without_the_original(masked, monkeypatch):
    monkeypatch.setattr(neighbours, "DROPOUT", 0.0)
    x = torch.tensor([masked.tokenizer("a cat sat")["input_ids"]])
    cat, dog = masked.tokenizer.convert_tokens_to_ids(["cat", "dog"])
    with torch.inference_mode():
        p = masked.network(x).logits[0, 2].softmax(-1)
    weights = {proposal.word: proposal.weight for proposal in masked.proposals("a cat sat") if proposal.begin == 2}
    assert weights["dog"] == pytest.approx(float(p[dog] / (1 - p[cat])), abs=1e-6)


def test_masked_neighbours_differ_in_one_word(masked):
    found = masked(RAW)
    assert len(set(found)) == 25
    for neighbour in found:
        assert sum(a != b for a, b in zip(neighbour.split(), RAW.split(), strict=True)) == 1
    assert masked("12") == ["12"]
    assert masked("") == [""]


def test_a_masked_model_replaces_no_part_of_a_word(masked):
    """Its tokenizer takes the apostrophe apart, and the accent away: what is left of the words must stay with them."""
    text = "The cat's mat, a\u0301 dog"
    assert {text[p.begin : p.end] for p in masked.proposals(text)} == {"The", "mat", "dog"}
