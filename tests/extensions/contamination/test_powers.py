"""What a command says that it would have found, against what it finds in new data of known truth."""

import numpy as np
import pytest

from benchmarks.power import Measured, canaries, data_sets, sets
from extensions.canary.powers import READ_CANARY
from extensions.contamination import powers as module
from extensions.contamination.dataset import Examined, Outcome, corrected
from extensions.contamination.powers import READ_KERNEL, planted_number, planted_sets, rank_power
from fsd.statistics.intervals import Estimate
from fsd.statistics.power import READ
from pipelines.experiment.power_sentences import measured_power, simulated_power


def agrees(measured: Measured) -> bool:
    """Whether the mean of what is stated is within the interval of what is found, or within .06 of it."""
    stated, found = measured
    mean = float(np.mean([one.value for one in stated]))
    return found.low - 0.06 <= mean <= found.high + 0.06


@pytest.mark.parametrize("shift", [0.0, READ_CANARY[5]])
def test_the_exact_test_finds_what_is_stated(shift: float) -> None:
    assert agrees(canaries(shift, 3, 100, np.random.default_rng(1)))


@pytest.mark.parametrize("shift", [0.0, READ[5]])
def test_dataset_inference_finds_what_is_stated(shift: float) -> None:
    assert agrees(data_sets(shift, 3, 100, np.random.default_rng(1)))


@pytest.mark.parametrize("shift", [0.0, READ_KERNEL[5], 3.0])
def test_a_rank_among_sets_finds_what_is_stated(shift: float) -> None:
    assert agrees(sets(shift, 20, 500, np.random.default_rng(1)))


def test_a_number_that_is_the_same_for_all_sets_finds_nothing() -> None:
    """CoDeC of our models: ties count against the data set."""
    assert rank_power(np.ones(19), 0.0, 0.05, 0).value == 0
    assert rank_power(np.ones(1), 9.0, 0.5, 0).value == 0


def test_a_rank_cannot_pass_a_level_below_its_finest() -> None:
    numbers = np.arange(19.0)
    assert rank_power(numbers, 9.0, 0.05, 0).value == 1
    assert rank_power(numbers, 9.0, 0.05 / 4, 0).value == 0


def test_the_shifts_are_those_of_models_whose_data_is_known() -> None:
    """Sets of 23 texts beside 46 that were read once and twice were found in .67 [.28, .93] and .93 [.68, 1.00]."""
    for times, found in ((1, Estimate(0.67, 0.28, 0.93)), (2, Estimate(0.93, 0.68, 1.0))):
        (stated,), _ = data_sets(READ[times], 1, 1, np.random.default_rng(2))
        assert found.low <= stated.value <= found.high
    # Kernel divergence of sets of 11 that were read once to four times: 3 of 54 found at p <= .05, in docs/evidence.
    for times in (1, 2):
        (stated,), _ = sets(READ_KERNEL[times], 1, 1, np.random.default_rng(2))
        assert 0.01 <= stated.value <= 0.35


def test_sentences_and_the_strongest_test() -> None:
    powers = {
        "weak": dict.fromkeys((1, 2, 5), Estimate(0.1, 0.05, 0.2)),
        "rising": {1: Estimate(0, 0, 0.04), 2: Estimate(0.5, 0.4, 0.6), 5: Estimate(1, 0.96, 1)},
    }
    examined = Examined(corrected([Outcome("rising"), Outcome("weak")], 0.05, powers), powers=powers)
    assert examined.strongest == "rising"
    assert examined.metrics == {
        f"contamination_power/read_{times}": share for times, share in ((1, 0), (2, 0.5), (5, 1))
    }
    assert simulated_power("data sets", powers["rising"], "rising").text.startswith(
        "power: of data sets seen in training, rising finds about this share, by how often they were seen: "
        "once 0 % [0, 4], twice 50 % [40, 60], five times 100 % [96, 100]; simulated, "
    )
    line = measured_power(Estimate(0.14, 0.05, 0.28), "the 43 members", 0.1).text
    assert line.startswith("power: of the 43 members about 14 % [5, 28] are found at a false-positive rate of 10.0%: ")


def test_sets_are_drawn_from_unread_texts_and_one_is_raised(monkeypatch) -> None:
    scores = np.array([[0.0, 10.0], [2.0, 30.0], [4.0, 50.0]])
    monkeypatch.setattr(module, "SMOOTHED", 0.0)
    read, unread = planted_sets(scores, (40, 70), 0.5, np.random.default_rng(0))
    assert (read.shape, unread.shape) == ((40, 2), (70, 2))
    rows = set(map(tuple, scores.tolist()))
    assert set(map(tuple, unread.tolist())) == rows
    lowered = read - 0.5 * scores.std(axis=0)
    assert set(map(tuple, lowered.round(9).tolist())) == rows
    monkeypatch.setattr(module, "MOST", 8)
    assert [len(side) for side in planted_sets(scores, (5, 70), 0.5, np.random.default_rng(0))] == [5, 8]


def test_smoothed_sets_have_no_copies_and_the_moments_of_the_scores() -> None:
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((30, 1)) + 0.3 * rng.standard_normal((30, 3)) + [0.0, 5.0, -5.0]
    read, unread = planted_sets(scores, (2000, 2000), 0.5, rng)
    assert len(set(map(tuple, unread.tolist()))) == 2000
    assert unread.mean(axis=0) == pytest.approx(scores.mean(axis=0), abs=0.1)
    assert np.cov(unread.T) == pytest.approx(np.cov(scores.T, bias=True), abs=0.1)
    assert read.mean(axis=0) - unread.mean(axis=0) == pytest.approx(0.5 * scores.std(axis=0), abs=0.1)
    # Detectors may be copies of one another, and one alone is a column.
    assert np.isfinite(planted_sets(scores[:, [0, 0]], (5, 5), 0.5, rng)[0]).all()
    assert planted_sets(scores[:, :1], (5, 5), 0.5, rng)[0].shape == (5, 1)


def test_numbers_of_sets_are_like_those_of_unread_sets() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(400) * 3 + 7
    value, others = planted_number(numbers, 2.0, rng)
    assert others.shape == (400,)
    assert others.mean() == pytest.approx(7, abs=0.6)
    assert others.std() == pytest.approx(3, abs=0.4)
    values = [planted_number(numbers[:20], 2.0, rng)[0] for _ in range(400)]
    assert np.mean(values) == pytest.approx(numbers[:20].mean() + 2 * numbers[:20].std(ddof=1), abs=0.6)
    assert value != others[0]
