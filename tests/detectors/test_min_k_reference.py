from detectors.min_k_deviation import min_k_deviation
from detectors.min_k_reference import min_k_reference


def test_by_hand(make):
    text, other = make([-1.0, -6.0, -3.0, -4.0]), make([-1.5, -2.0, -3.0, -2.0])
    # r = -1 + 1.5 = 0.5, -6 + 2 = -4, -3 + 3 = 0, -4 + 2 = -2
    assert min_k_reference(text, other) == -4
    assert min_k_reference(text, other, k=0.5) == (-4 - 2) / 2
    assert min_k_reference(text, other, k=1.0) == (0.5 - 4 + 0 - 2) / 4


def test_its_formula_is_that_of_the_deviation_from_a_tuned_model(agree):
    agree(min_k_reference, min_k_deviation, "text", "reference", k=(0.1, 0.35, 1.0))
