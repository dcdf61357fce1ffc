"""The placebo's AUC and the lead over it are those of the metrics, by group, of detectors that both have."""

import numpy as np
import pytest

from fsd.evaluation.metrics import auc
from fsd.evaluation.placebo import placebo_effect

RNG = np.random.default_rng(0)
LABELS = np.arange(120) % 2 == 0
GROUPS = [f"g{i // 4}-{i % 2}" for i in range(120)]
NOISE = RNG.normal(size=120)


def test_no_effect_has_no_lead() -> None:
    found = placebo_effect(LABELS, {"loss": NOISE, "gone": NOISE}, {"loss": NOISE, "new": NOISE}, GROUPS)
    assert set(found) == {"loss"}
    assert found["loss"].auc.value == pytest.approx(auc(LABELS, NOISE))
    assert found["loss"].lead.gain == (0.0, 0.0, 0.0)
    assert found["loss"].lead.p == 1.0


def test_an_effect_leads_by_the_difference_of_the_aucs() -> None:
    told = NOISE + 2 * LABELS
    found = placebo_effect(LABELS, {"loss": NOISE}, {"loss": told}, GROUPS)["loss"]
    assert found.lead.gain.value == pytest.approx(auc(LABELS, told) - auc(LABELS, NOISE))
    assert found.lead.gain.low > 0
    assert found.lead.p < 0.001
    assert found.auc.low < 0.5 < found.auc.high


def test_a_difference_that_the_texts_make_for_both_has_no_lead() -> None:
    """Both tell the sides apart by the texts, each with noise of its own."""
    by_texts = {name: RNG.normal(size=120) + 2 * LABELS for name in ("placebo", "asked")}
    found = placebo_effect(LABELS, {"loss": by_texts["placebo"]}, {"loss": by_texts["asked"]}, GROUPS)["loss"]
    assert found.auc.low > 0.8
    assert found.lead.gain.low < 0 < found.lead.gain.high
