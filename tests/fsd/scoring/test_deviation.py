"""ViewStatistics are made once, scores land in the right column, and FSD is base minus tuned."""

import itertools
import sys
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Annotated

import numpy as np
import pytest

import detectors
from detectors.surp import FALLBACK
from fsd.errors import UsageError
from fsd.evaluation.results import fallback_remarks
from fsd.scores import Score, of_state
from fsd.scoring import deviation as engine
from fsd.scoring.deviation import ViewStatistics
from fsd.scoring.neighbours import swapped_words
from fsd.search_space import Range, Setting
from fsd.token_stats import Continuations, Exemplars, GradientNorms, PairStats, Prompt, TokenStats
from fsd.views import DRAWS, FORMS, NO_INPUTS, Form, View, ViewInputs, repetitions, usable


class FakeScorer:
    """A scorer whose every token has the log-probability −(length of the text + length of the context) × factor."""

    def __init__(self, factor):
        self.factor = factor
        self.prompts: list[Prompt] = []

    def __call__(self, prompts):
        self.prompts += prompts
        for prompt in prompts:
            size = len(prompt.text.split())
            logp = np.full(size, -(len(prompt.text) + len(prompt.context)) * self.factor)
            logp -= np.arange(size) * self.factor
            yield TokenStats(prompt.text, np.arange(size), logp, np.full(size, -1.0), np.ones(size), np.zeros(size))


class FakePairScorer:
    """The statistics of two fake scorers, which are not asked themselves."""

    def __init__(self, target, reference, *, alone=True):
        self.scorers = [FakeScorer(one.factor) for one in (target, reference)]
        self.alone = alone
        self.prompts: list[Prompt] = []

    def __call__(self, prompts):
        self.prompts += prompts
        for target, reference in zip(*(scorer(prompts) for scorer in self.scorers), strict=True):
            sizes = np.arange(1.0, 1 + target.token.size)
            yield PairStats(target, reference, -sizes, sizes, -sizes, alone=self.alone)


STATES = ("base", "tuned")
POWER = Setting(Range(0.5, 2.0), "above 0", lambda power: power > 0)
LATE = """
from __future__ import annotations
from typing import TYPE_CHECKING
from fsd.search_space import Share
if TYPE_CHECKING:
    from fsd.token_stats import TokenStats

def late(text: TokenStats, *, k: Share = 0.2) -> float:
    return float(text.logp.mean())
"""
TEXTS = ["One two three", "Four five", "Six seven eight nine"]
KNOWN = [Prompt("Ten eleven"), Prompt("Twelve")]
UNREAD = [Prompt("Sixteen seventeen eighteen"), Prompt("Nineteen twenty")]
LABELLED = {"Thirteen": (0, True), "Fourteen fifteen": (1, False)}
HALVES = {
    TEXTS[0]: Prompt(" two three", "One"),
    TEXTS[1]: Prompt(" five", "Four"),
    TEXTS[2]: Prompt(" eight nine", "Six seven"),
}


def fake_scorers(*, alone=True):
    factors = {"base": 0.5, "tuned": 0.25, "reference": 1.0, "adapted_reference": 1.5, "unigram": 2.0}
    scorers = {name: FakeScorer(factor) for name, factor in factors.items()}
    for form, record in FORMS.items():
        for name, reference in record.compared.items():
            scorers[f"{name}.{form}"] = FakePairScorer(scorers[name], scorers[reference], alone=alone)
    for name in STATES:
        norms = GradientNorms(*[factors[name]] * 3)
        scorers[f"{name}.gradient"] = lambda prompts, norms=norms: [norms for _ in prompts]
        say = "two" if name == "base" else "three"
        for form in DRAWS:
            scorers[f"{name}.{form}"] = lambda prompts, say=say: [
                Continuations(prompt.text, (say, prompt.context), say) for prompt in prompts
            ]
    return scorers


def view_inputs():
    return ViewInputs(
        "Before. ",
        lambda text: [text + " a", text + " bc"],
        lambda text: [text + " def"],
        lambda text: text[:3],
        Exemplars([[prompt, *repetitions(prompt)] for prompt in KNOWN]),
        Exemplars([[prompt, *repetitions(prompt)] for prompt in map(Prompt, LABELLED)], LABELLED),
        Exemplars([[prompt] for prompt in UNREAD]),
        Exemplars([[prompt] for prompt in UNREAD[:1]]),
        UNREAD[1:],
    )


def all_detectors():
    return [detectors.load(name) for name in detectors.names()]


@dataclass
class Rounding:
    """A scorer of which no two readings of a text agree to the last digit, as in batches of other lengths."""

    readings: int = 0

    def __call__(self, prompts):
        read = []
        for prompt in prompts:
            self.readings += 1
            logp = -np.arange(1.0, 2 + len(prompt.text)) * (1 + 1e-15 * (self.readings % 7))
            read.append(TokenStats(prompt.text, np.arange(logp.size), logp, logp - 1, np.ones(logp.size)))
        return read


def test_copies_that_cannot_differ_from_their_text_rank_nothing():
    """One word, the same word again, small letters: nothing to swap, nothing to replace, nothing to lower."""
    texts = ["one", "ha ha ha ha", "..", "two two", "a", "la la la la la la"]
    chosen = [detectors.load(name) for name in ("pac", "neighbour", "lowercase")]
    inputs = replace(
        NO_INPUTS, swapped=partial(swapped_words, count=5), neighbours=lambda text: [text] * 5, primed="Before. "
    )
    answer = engine.score_texts(texts, chosen, {"base": Rounding(), "tuned": Rounding()}, inputs)
    for name, expected in (("pac", 0), ("neighbour", 0), ("lowercase", 1)):
        assert answer.columns[Score(name, "base")].tolist() == [expected] * len(texts)
        assert answer.columns[Score(name, "fsd")].tolist() == [0] * len(texts)
    remarks = fallback_remarks(answer)
    assert "pac: no two words of the text can change places in 6 of 6 texts; its score is 0" in remarks
    assert "neighbour: no word of the text can be replaced in 6 of 6 texts; its score is 0" in remarks
    # A text with something to swap keeps its score.
    mixed = engine.score_texts([*texts, "one two three"], chosen[:1], {"base": Rounding()}, inputs)
    assert mixed.columns[Score("pac", "base")][-1] != 0
    assert sum(mixed.fallbacks.values()) == len(texts)


def test_fsd_is_base_minus_tuned():
    answer = engine.score_texts(TEXTS, [detectors.load("loss")], fake_scorers())
    middle = np.array([13, 9, 20]) + (np.array([3, 2, 4]) - 1) / 2
    np.testing.assert_allclose(answer.columns[Score("loss", "base")], -0.5 * middle)
    np.testing.assert_allclose(answer.columns[Score("loss", "tuned")], -0.25 * middle)
    np.testing.assert_allclose(answer.columns[Score("loss", "fsd")], -0.25 * middle)


def test_each_view_is_computed_once_and_scores_equal_the_detectors_called_by_hand():
    scorers = fake_scorers()
    answer = engine.score_texts(TEXTS, all_detectors(), scorers, view_inputs())
    for name in ("base", "tuned"):
        prompts = scorers[name].prompts
        known = 3 * (len(KNOWN) + len(LABELLED)) if name == "base" else 0  # these are scored by the base alone
        assert len(prompts) == len(set(prompts)) == len(TEXTS) * (1 + 1 + 1 + 2 + 1 + 2) + known  # 2: neighbours
        assert not set(prompts) & {Prompt(text) for text in TEXTS}  # which are scored beside the reference
    for name in ("tuned.difference", "tuned.adapted_difference", "unigram"):
        assert scorers[name].prompts == [Prompt(text) for text in TEXTS]
    assert sorted(scorers["base.difference"].prompts) == sorted([*map(Prompt, TEXTS), *UNREAD])
    assert sorted(scorers["base.adapted_difference"].prompts) == sorted([*map(Prompt, TEXTS), *UNREAD[:1]])
    for name in ("base.change", "tuned.change", "reference", "adapted_reference"):
        assert scorers[name].prompts == []
    paired = {"combined", "min_k_deviation"}  # they have only their own score
    assert set(of_state(answer.columns, "fsd")) == set(detectors.names())
    for state in STATES:
        assert set(of_state(answer.columns, state)) == set(detectors.names()) - paired
    for detector in all_detectors():
        for (i, text), state in itertools.product(enumerate(TEXTS), ("base", "tuned")):
            views = {}
            for name in detector.views:
                view = View.named(name)
                reader, form = view
                prompts = {
                    "plain": [Prompt(text)],
                    "gradient": [Prompt(text)],
                    "difference": [Prompt(text)],
                    "adapted_difference": [Prompt(text)],
                    "lower": [Prompt(text.lower())],
                    "primed": [Prompt(text, "Before. ")],
                    "member_primed": [Prompt(text, text[:3])],
                    "neighbours": [Prompt(text + " a"), Prompt(text + " bc")],
                    "swapped": [Prompt(text + " def")],
                    "repeated": [Prompt(text, f"{text} "), Prompt(text, f"{text} {text} ")],
                    "nonmembers": [],
                    "labelled": [],
                    "unread": [],
                    "adapted_unread": [],
                    **{way: [HALVES[text]] for way in DRAWS},
                }[form]
                scorer = state if reader == "base" else reader
                if view.record.common:
                    views[name] = getattr(view_inputs(), form).score_with(scorers[view.scorer])
                    continue
                stats = list(scorers[view.in_state(scorer).scorer](prompts))
                views[name] = stats if view.record.several else stats[0]
            if not detector.paired:
                assert answer.columns[Score(detector.name, state)][i] == detector(views)


def test_statistics_of_a_model_alone_come_with_those_of_two_if_they_are_the_same():
    chosen = [detectors.load(name) for name in ("loss", "reference", "standardised_ratio")]
    scores = []
    for alone in (True, False):
        scorers = fake_scorers(alone=alone)
        scores.append(engine.score_texts(TEXTS, chosen, scorers).columns)
        for name in ("base", "tuned", "reference"):
            assert scorers[name].prompts == ([] if alone else [Prompt(text) for text in TEXTS])
    scorers = fake_scorers()
    for name in ("base.difference", "tuned.difference"):
        del scorers[name]
    scores.append(engine.score_texts(TEXTS, chosen[:2], scorers).columns)
    for other in scores[1:]:
        for score, column in other.items():
            np.testing.assert_array_equal(column, scores[0][score])


def test_neither_chunks_nor_statistics_in_memory_change_the_scores(monkeypatch):
    whole = engine.score_texts(TEXTS, all_detectors(), fake_scorers(), view_inputs())
    statistics = ViewStatistics.compute(TEXTS, all_detectors(), fake_scorers(), view_inputs())
    monkeypatch.setattr(engine, "CHUNK", 2)
    parts = engine.score_texts(TEXTS, all_detectors(), fake_scorers(), view_inputs())
    for detector in all_detectors():
        for state in ("fsd",) if detector.paired else ("base", "tuned", "fsd"):
            score = Score(detector.name, state)
            expected = whole.columns[score]
            np.testing.assert_array_equal(parts.columns[score], expected)
            np.testing.assert_array_equal(statistics.scores(detector, state), expected)


def test_without_a_tuned_model_there_are_base_scores_only_and_fallbacks_are_counted_by_state():
    surp, scorers = detectors.load("surp", entropy=0.5), fake_scorers()
    answer = engine.score_texts(TEXTS, [surp], scorers)
    assert answer.fallbacks == {(Score("surp", state), FALLBACK): 3 for state in STATES}
    del scorers["tuned"]
    answer = engine.score_texts(TEXTS, [surp], scorers)
    assert set(answer.columns) == {Score("surp", "base")}
    numbers = np.full(2, -np.inf), np.full(2, -1.0), np.ones(2)
    infinite = lambda prompts: (TokenStats(prompt.text, np.arange(2), *numbers) for prompt in prompts)  # noqa: E731
    with pytest.raises(ValueError, match="detector loss must give a finite score, got -inf"):
        engine.score_texts(TEXTS, [detectors.load("loss")], {"base": infinite})


def test_the_base_score_may_have_settings_of_its_own():
    def scored(detector):
        return engine.score_texts(TEXTS, [detectors.load("loss"), detector], fake_scorers())

    plain, other = scored(detectors.load("min_k")), scored(detectors.load("min_k", k=1.0))
    base = Score("min_k", "base")
    both = scored(detectors.load("min_k").with_base_settings(k=1.0))
    np.testing.assert_array_equal(both.columns[base], other.columns[base])
    for state in ("tuned", "fsd"):
        score = Score("min_k", state)
        np.testing.assert_array_equal(both.columns[score], plain.columns[score])
    assert (both.columns[base] != plain.columns[base]).any()
    assert list(both.frame()) == list(plain.frame())
    assert detectors.load("min_k").with_base_settings(k=1.0).with_settings(k=0.5).for_base.settings == {"k": 0.5}
    with pytest.raises(UsageError, match="settings of a base score must be of a detector that has one"):
        detectors.load("min_k_deviation").with_base_settings(k=0.5)


def test_known_statistics_are_taken_over():
    scorers, chosen = fake_scorers(), [detectors.load("reference"), detectors.load("min_k_deviation")]
    base = ViewStatistics.compute(TEXTS, chosen, scorers, ViewInputs(), states=("base",))
    assert scorers["tuned"].prompts == []  # the adapter is not trained yet
    both = ViewStatistics.compute(TEXTS, chosen, scorers, ViewInputs(), reused=base)
    assert [len(scorers[name].prompts) for name in ("base", "reference", "tuned")] == [3, 3, 3]
    for log in (True, False):  # no setting needs other statistics
        assert np.isfinite(both.scores(chosen[0].with_settings(log=log), "fsd")).all()
    assert [len(scorers[name].prompts) for name in ("base", "reference", "tuned")] == [3, 3, 3]


def backwards(text: TokenStats, reversed_words: TokenStats, *, power: Annotated[float, POWER] = 1.0) -> float:
    return float((text.logp.mean() - reversed_words.logp.mean()) ** power)


def test_a_new_view_and_a_new_setting_are_one_record_each(monkeypatch):
    module = SimpleNamespace(backwards=backwards)
    monkeypatch.setitem(sys.modules, "detectors.backwards", module)
    monkeypatch.setattr(detectors, "names", lambda: ("backwards",))
    with pytest.raises(KeyError, match=r"a view must be one of .*; got reversed_words"):
        detectors.load("backwards")

    def reverse(text):
        return [" ".join(reversed(text.split()))]

    record = Form(lambda prompt, _: prompt.copies(reverse), copies=True, not_of_chats="it turns words around")
    monkeypatch.setitem(FORMS, "reversed_words", record)
    detector = detectors.load("backwards", power=2.0)
    assert detector.search == {"power": POWER.search}
    assert detector.not_of_chats == "it turns words around, which is not defined for chats"
    with pytest.raises(UsageError, match=r"^backwards\.power must be above 0; got 0"):
        detector.with_settings(power=0)
    scorers = fake_scorers()
    answer = engine.score_texts(["one two", "a"], [detector], scorers)
    assert scorers["base"].prompts == [*map(Prompt, ("one two", "a", "two one", "a"))]
    assert answer.columns[Score("backwards", "fsd")].tolist() == [0, 0]


def test_a_detector_of_somebody_s_own_loses_nothing_without_a_word(monkeypatch):
    """With annotations as strings, and with the search space of release 0.2.0."""
    monkeypatch.setattr(detectors, "names", lambda: ("late", "early"))
    late = ModuleType("detectors.late")
    exec(LATE, late.__dict__)
    monkeypatch.setitem(sys.modules, "detectors.late", late)
    assert set(detectors.load("late").search) == {"k"}
    with pytest.raises(UsageError, match=r"^late\.k must be in \(0, 1\]; got 5"):
        detectors.load("late", k=5)
    early = SimpleNamespace(early=late.late, SEARCH={"k": Range(0.1, 1.0)})
    monkeypatch.setitem(sys.modules, "detectors.early", early)
    with pytest.raises(UsageError, match=r"^detector early must say what is searched by a Setting of fsd"):
        detectors.load("early")


def test_what_cannot_be_computed_is_named_with_its_reason():
    scorers = {name: scorer for name, scorer in fake_scorers().items() if name in ("base", "tuned")}
    kept, left_out = usable(all_detectors(), TEXTS, scorers, ViewInputs())
    assert left_out == {
        "camia": "no known non-members are given, as unseen texts are",
        "camia_lr": "no known members and non-members of two groups or more are given, as validation texts of "
        "`fsd run` are",
        "combined": "no reference model is given",
        "con_recall": "no prefix of non-member texts is given",
        "min_k_reference": "no reference model is given",
        "dc_pdd": "no unigram table is given (--frequencies)",
        "gradient_norm": "no gradient can be computed: the model must be local, on one device and not quantized",
        "neighbour": "no neighbour model is given",
        "pac": "no copies with swapped words are given",
        "recall": "no prefix of non-member texts is given",
        "reference": "no reference model is given",
        "wbc": "no reference model is given",
        **dict.fromkeys(("ez", "ht", "info_rmia", "standardised_ratio", "unread_z"), "no reference model is given"),
        "summed_unread_z": "no reference model is given",
    }
    assert {detector.name for detector in kept} == set(detectors.names()) - set(left_out)
    texts = ["一种用于检测预训练数据的方法", "本发明涉及 LED 照明装置及其控制方法"]
    _, left_out = usable([detectors.load("lowercase")], texts, fake_scorers(), ViewInputs())
    assert left_out == {"lowercase": "the texts' script has no upper and lower case"}


def test_a_reference_is_adapted_where_texts_are_given_for_it():
    adapted = [detectors.load(f"adapted_{name}") for name in ("wbc", "reference", "ez", "info_rmia", "unread_z")]
    assert [detector.views for detector in adapted] == [
        ("text", "adapted_reference"),
        ("text", "adapted_reference"),
        ("text", "adapted_reference"),
        ("adapted_difference",),
        ("adapted_difference", "adapted_unread"),
    ]
    _, left_out = usable(adapted, TEXTS, fake_scorers(), replace(view_inputs(), adapting=()))
    reason = "its reference is fine-tuned by fsd run, on half of at least 40 unseen texts"
    assert left_out == dict.fromkeys((detector.name for detector in adapted), reason)
    assert usable(adapted, TEXTS, fake_scorers(), view_inputs()) == (adapted, {})
    with pytest.raises(UsageError, match="must be of a detector that reads a reference model; loss does not"):
        detectors.load("adapted_loss")


def test_two_models_are_compared_where_both_are_local():
    chosen = [detectors.load("info_rmia"), detectors.load("wbc")]
    _, left_out = usable(chosen, TEXTS, {name: fake_scorers()[name] for name in ("base", "reference")})
    assert left_out == {"info_rmia": "it compares whole distributions: both models must be local"}


def test_a_detector_must_be_usable_as_the_caller_says():
    chosen = [detectors.load(name) for name in ("loss", "neighbour", "zlib")]
    excluded = {"zlib": "of another reason"}
    for scorers in (fake_scorers(), ["base"]):  # names are enough
        kept, left_out = usable(chosen, TEXTS, scorers, excluded=excluded, strict=False)
        assert [detector.name for detector in kept] == ["loss"]
        assert left_out == {"neighbour": "no neighbour model is given", **excluded}
    with pytest.raises(UsageError, match="detector neighbour cannot be used here: no neighbour model is given"):
        usable(chosen, TEXTS, ["base"], strict=True, use="used here")
    with pytest.raises(UsageError, match="detector zlib cannot be computed here: of another reason"):
        usable(chosen[2:], TEXTS, ["base"], excluded=excluded, strict=False)
    assert usable(chosen[2:], TEXTS, ["base"], excluded=excluded) == ([], excluded)
    with pytest.raises(UsageError, match="detector neighbour cannot be computed here: no neighbour model is given"):
        engine.score_texts(["a"], chosen, fake_scorers())
    with pytest.raises(UsageError, match="scoring must have at least one text; got none"):
        engine.score_texts([], chosen, fake_scorers())
