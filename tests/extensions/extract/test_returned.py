"""What a reply has of a work: by hand, against difflib and slow loops, and what the prompt gave."""

import time
from dataclasses import replace
from difflib import SequenceMatcher

import numpy as np
import pytest

from extensions.extract.returned import (
    Exchange,
    Returned,
    Span,
    Words,
    common_spans,
    excerpts,
    longest_run,
    p_values,
    returned,
    words_of,
)

NOTHING = Words([])
WORK = "It was a bright cold day in April, and the clocks were striking thirteen."


def run_of(reply: Words, work: Words, prompt: Words, n: int) -> int:
    return longest_run(common_spans(reply, work, n), reply, work, prompt, n)


def slow_spans(reply: list[str], work: list[str], n: int) -> list[tuple[int, int]]:
    """(begin, length) of the longest common run from each word of the reply, without those within an earlier one."""
    runs = [work[begin:end] for begin in range(len(work)) for end in range(begin + 1, len(work) + 1)]
    spans, covered = [], 0
    for begin in range(len(reply)):
        length = max((size for size in range(len(reply) - begin + 1) if reply[begin : begin + size] in runs), default=0)
        if length >= n and begin + length > covered:
            spans.append((begin, length))
            covered = begin + length
    return spans


def test_common_spans_by_hand() -> None:
    reply = words_of("He said: it was a BRIGHT cold day; and the clocks were, striking. In April!")
    assert common_spans(reply, words_of(WORK), 3) == [Span(2, 0, 6), Span(8, 8, 5)]
    assert common_spans(reply, words_of(WORK), 6) == [Span(2, 0, 6)]
    assert common_spans(reply, words_of(WORK), 7) == []
    assert run_of(reply, words_of(WORK), NOTHING, 3) == 6
    assert run_of(reply, words_of(WORK), NOTHING, 7) == 6  # found by the lengths below n
    assert run_of(words_of("nothing of this"), words_of(WORK), NOTHING, 5) == 0


def test_spans_and_runs_against_slow_loops_and_difflib() -> None:
    rng = np.random.default_rng(0)
    for trial in range(60):
        letters = list("abcd"[: 1 + trial % 4])
        reply = rng.choice(letters, rng.integers(1, 25)).tolist()
        work = rng.choice([*letters, ""], rng.integers(1, 30)).tolist()
        n = 1 + trial % 5
        spans = common_spans(Words(reply), Words(work), n)
        assert [(span.reply, span.length) for span in spans] == slow_spans(reply, work, n)
        for span in spans:
            places = [at for at in range(len(work)) if work[at : at + span.length] == reply[span.reply : span.end]]
            assert span.work == places[0]
        match = SequenceMatcher(None, reply, work, autojunk=False).find_longest_match()
        assert run_of(Words(reply), Words(work), NOTHING, n) == match.size


def test_spans_of_a_control_are_common_wherever_they_stand_in_it() -> None:
    work, controls = words_of("a b c d e f g"), [words_of("x a b c y"), words_of("d e f z"), words_of("c d e f")]
    spans = returned("w", work, [Exchange("t", "?", "a b c; b c d; x c d e f")], 3, controls).spans
    assert {span.quotation: span.common for span in spans} == {"a b c;": True, "b c d;": False, "c d e f": True}


def test_a_long_reply_is_compared_in_little_time() -> None:
    work = words_of(" ".join(map(str, range(40_000))) + " la" * 300)
    begun = time.process_time()
    long = Words(work.words[20_000:24_000])
    assert common_spans(long, work, 8) == [Span(0, 20_000, 4_000)]
    # By writing each run anew this took minutes.
    refrain = common_spans(Words(["la"] * 4_000), work, 8)
    assert len(refrain) == 4_000 - 300 + 1
    assert time.process_time() - begun < 5


def test_a_gap_parts_a_span_and_no_word_fills_it() -> None:
    work = Words(["a", "b", "", "c", "d"])
    assert common_spans(Words(["a", "b", "c", "d"]), work, 2) == [Span(0, 0, 2), Span(2, 3, 2)]


def test_what_the_prompt_gave_is_not_counted() -> None:
    work = words_of(WORK)
    opening = Exchange("opening", f"Continue this text: {excerpts(WORK, 6, 1, 99)[0]}", WORK)
    # The opening is repeated, and then continued: its six words are the prompt's.
    assert returned("w", work, [opening], 5).longest == len(work.words) - 6
    title = Exchange("title", "Who wrote 'In April, and the clocks'?", "The poem 'In April, and the clocks' is lost.")
    assert returned("w", work, [title], 8).longest == 0
    assert returned("w", work, [title], 5).longest == 0
    short = Exchange("title", "Who wrote The Clocks?", "I do not know The Clocks.")
    assert returned("w", work, [short], 8).longest == 0


def test_spans_are_told_as_they_are_written_with_the_words_around_them() -> None:
    reply = "Well — here you are:\n“It was a <b>bright</b> cold day in April, and the… I forgot."
    result = returned(
        "w", words_of(WORK), [Exchange("title", "?", reply)], 3, [words_of("a bright cold day in April and")]
    )
    assert [span.quotation for span in result.spans] == ["cold day in April, and the…", "“It was a"]
    first = result.spans[0]
    assert (first.length, first.place) == (6, pytest.approx(4 / 14))
    assert first.leading.endswith("a <b>bright</b>")
    assert first.following == "I forgot."
    assert [span.common for span in result.spans] == [False, False]
    assert result.chance == 5
    assert result.words == 9


def test_scripts_without_spaces_are_compared_by_characters() -> None:
    work = "春眠不觉晓，处处闻啼鸟。"
    result = returned("w", words_of(work), [Exchange("title", "?", "诗云：春眠不觉晓, 处处…")], 5)
    assert (result.longest, result.spans[0].quotation) == (7, "春眠不觉晓, 处处")


@pytest.mark.parametrize(
    ("text", "count", "places", "given"),
    [
        (WORK, 7, 1, ["It was a bright cold day in"]),
        (" — One,\n two", 2, 9, [" — One,\n two"]),
        ("春眠不觉晓", 2, 1, ["春眠"]),
        ("a b c", 5, 9, ["a b c"]),
        (" a, b c. d e f g", 2, 3, [" a, b", "c. d", "e f"]),
        (" a, b c. d e f g", 2, 9, [" a, b", "c. d", "e f"]),  # seven words have room for three places
        (" a, b c. d e f g", 2, 2, [" a, b", "d e"]),
    ],
)
def test_words_are_given_from_evenly_spread_places(text: str, count: int, places: int, given: list[str]) -> None:
    assert excerpts(text, count, places, 2) == given


def test_empty_replies_are_counted_and_have_nothing() -> None:
    result = returned("w", words_of(WORK), [Exchange("t", "?", ""), Exchange("t", "?", " … ")], 5, [words_of(WORK)])
    assert (result.empty, result.replies, result.longest, result.chance) == (2, 2, 0, 0)


def test_replies_with_a_whole_span_are_counted() -> None:
    replies = [Exchange("opening", "?", reply) for reply in (WORK, "It was a bright cold day", "It was a dog")]
    result = returned("w", words_of(WORK), replies, 5)
    assert (result.hits, result.replies, result.longest) == (2, 3, len(words_of(WORK).words))


def of(name: str, longest: int, *, control: bool = False) -> Returned:
    return Returned(name, control, 100, 1, 0, 0, longest, 0, None)


def test_p_values_are_ranks_corrected_for_the_number_of_works() -> None:
    controls = [of(f"c{number}", number % 4, control=True) for number in range(19)]
    assert p_values([of("w", 9), *controls]) == {"w": 1 / 20}
    assert p_values([of("w", 3), *controls]) == {"w": 5 / 20}  # four controls have as many words
    assert p_values([of("w", 9), of("v", 3), *controls]) == {"w": 2 / 20, "v": 5 / 20}
    assert p_values([of("w", 9)]) == {}


def test_a_work_longer_than_the_controls_has_more_places_for_chance() -> None:
    """Of unread works of twenty times the length .27 were found at .05; controls as long are ranked as they are."""
    controls = [replace(of(f"c{number}", number % 4, control=True), size=100) for number in range(19)]
    for size, p in ((50, 1 / 20), (100, 1 / 20), (125, 1 / 20), (250, 2 / 20), (2500, 1.0)):
        assert p_values([replace(of("w", 9), size=size), *controls]) == {"w": pytest.approx(p)}
    # Ten replies about the work have ten times the chances of one about each control.
    assert p_values([replace(of("w", 9), replies=10), *controls]) == {"w": pytest.approx(10 / 20)}
    # A short control leaves the others as they are, and long ones count by themselves.
    assert p_values([of("w", 9), *controls, replace(controls[0], size=5)]) == {"w": 1 / 20}
    books = [replace(control, size=2000) for control in controls]
    assert p_values([replace(of("w", 9), size=2000), *controls, *books]) == {"w": 1 / 20}

    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        runs = rng.geometric(0.4, size=(19, 100)).max(axis=1)
        others = [replace(of(f"c{n}", int(run), control=True), size=100) for n, run in enumerate(runs)]
        long = replace(of("w", int(rng.geometric(0.4, size=300).max())), size=300)
        found.append(p_values([long, *others])["w"] <= 0.15)
    assert np.mean(found) <= 0.15


def test_a_span_that_stands_in_a_control_does_not_count() -> None:
    """A reply that gives the same prayer as both works says nothing of the one."""
    prayer = "our father which art in heaven hallowed be thy name"
    work = words_of(f"He said {prayer} and went home through the dark wet fields of the north.")
    reply = Exchange("p", "Go on.", f"{prayer} and they sang")
    alone = returned("w", work, [reply], 4)
    beside = returned("w", work, [reply], 4, [words_of(f"She prayed {prayer} too.")])
    assert (alone.longest, alone.words) == (11, 11)
    assert (beside.longest, beside.chance) == (11, 10)
    within = returned("w", work, [Exchange("p", "Go on.", prayer)], 4, [words_of(f"She prayed {prayer} too.")])
    assert (within.longest, within.words) == (3, 0)
    assert within.spans[0].common
