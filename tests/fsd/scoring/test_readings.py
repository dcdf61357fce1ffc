import numpy as np
import pytest

import detectors
from fsd.scoring.deviation import evaluate
from fsd.scoring.readings import Readings, Remembered
from fsd.token_stats import Prompt, TokenStats
from fsd.views import Material

TEXTS = ["One two three four", "Five six", "Seven eight nine", "Ten"]


class Counting:
    """A scorer of made-up statistics that counts what it is asked."""

    def __init__(self, shift: float) -> None:
        self.shift, self.asked = shift, 0

    def __call__(self, prompts):
        for prompt in prompts:
            self.asked += 1
            rng = np.random.default_rng(len(prompt.text) + 7 * len(prompt.context))
            size = len(prompt.text.split()) + 3
            logp = -rng.gamma(1, 2, size) - self.shift
            yield TokenStats(prompt.text, np.arange(size), logp, -rng.gamma(2, 2, size), np.ones(size))


@pytest.fixture
def scorers():
    return {"target": Counting(0.0), "tuned": Counting(0.3), "unigram": Counting(4.0), "reference": Counting(1.0)}


def test_scores_are_those_of_the_engine_for_every_detector(scorers):
    material = Material(prefix="Before it", neighbours=lambda text: [text + " too", text + " so"])
    chosen = [detectors.load(name) for name in detectors.names()]
    readings = Readings.make(TEXTS, chosen, scorers, material)
    expected = evaluate(TEXTS, chosen, scorers, material)
    for detector in chosen:
        assert np.array_equal(readings.scores(detector, "fsd"), expected.fsd[detector.name])
        if not detector.paired:
            assert np.array_equal(readings.scores(detector, "base"), expected.base[detector.name])
            assert np.array_equal(readings.scores(detector, "tuned"), expected.tuned[detector.name])


def test_no_setting_needs_another_reading(scorers):
    detector = detectors.load("dc_pdd")
    readings = Readings.make(TEXTS, [detector], scorers, Material())
    before = {name: scorer.asked for name, scorer in scorers.items()}
    for cap in (0.001, 0.01, 0.1):
        readings.scores(detector.having(cap=cap), "fsd")
    assert {name: scorer.asked for name, scorer in scorers.items()} == before
    assert before == {"target": 4, "tuned": 4, "unigram": 4, "reference": 0}


def test_what_is_known_is_not_read_again(scorers):
    chosen = [detectors.load("reference")]
    base = Readings.make(TEXTS, chosen, scorers, Material(), states=("base",))
    assert scorers["tuned"].asked == 0
    both = Readings.make(TEXTS, chosen, scorers, Material(), known=base)
    assert [scorers[name].asked for name in ("target", "reference", "tuned")] == [4, 4, 4]
    assert np.isfinite(both.scores(chosen[0], "fsd")).all()


def test_a_prompt_is_read_once():
    scorer = Counting(0.0)
    remembered = Remembered(scorer)
    first = list(remembered([Prompt("a b"), Prompt("c"), Prompt("a b")]))
    again = list(remembered([Prompt("c"), Prompt("d")]))
    assert scorer.asked == 3
    assert first[0] is first[2]
    assert first[1] is again[0]
    assert [stats.text for stats in again] == ["c", "d"]
