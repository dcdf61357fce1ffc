import numpy as np
import pytest

from fsd.evaluation import metrics
from fsd.evaluation.metrics import Estimate
from fsd.reporting import figures as plots

RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 2 == 0
BASE = {f"d{k}": RNG.normal(size=60) + LABELS for k in range(11)}
FSD = {name: values + LABELS for name, values in BASE.items()} | {"pair": RNG.normal(size=60)}


def test_roc_has_two_panels_a_detector_and_the_true_curves():
    figure = plots.roc(LABELS, BASE, {name: FSD[name] for name in ("d0", "d1", "pair")})
    titled = [axis for axis in figure.axes if axis.get_title()]
    assert [axis.get_title() for axis in titled] == ["d0", "d1", "pair"]
    fpr, tpr, _ = metrics.roc(LABELS, FSD["d0"])
    np.testing.assert_array_equal(titled[0].lines[1].get_xydata(), np.column_stack([fpr, tpr]))
    shown = [text.get_text() for text in titled[0].get_legend().get_texts()]
    assert shown[1] == f"FSD  AUC {metrics.auc(LABELS, FSD['d0']):.3f}"
    assert [t.get_text()[:3] for t in titled[-1].get_legend().get_texts()] == ["FSD"]
    log = next(axis for axis in figure.axes if axis.get_xscale() == "log")
    assert log.get_xlim()[0] == pytest.approx(1 / 30)  # where the non-members end


def test_histograms_hold_every_text_and_state_what_their_outer_bars_hold():
    outliers = np.concatenate([np.linspace(0, 1, 58), [50.0, -50.0]])
    equal = np.concatenate([np.zeros(55), np.linspace(5, 9, 5)])
    for scores, note in (
        (FSD["pair"], "2 beyond the axis, on grey"),
        (outliers, "2 beyond the axis, on grey\n68% of all in one bar"),
        (equal, "1 beyond the axis, on grey\n92% of all in one bar"),
    ):
        above, below = plots.score_distributions(LABELS, {}, {"pair": scores}).axes
        drawn = [patch.get_data().values for patch in below.patches if hasattr(patch, "get_data")]
        assert len(drawn) == 4
        assert all(sum(values) == pytest.approx(1.0) for values in drawn)
        assert [text.get_text() for text in below.texts] == [note]
        assert "no base score" in above.texts[0].get_text()


def test_reliability_is_the_share_of_small_p_values():
    figure = plots.reliability("loss", np.array([0.1, 0.5, 0.5, 0.9]), calibration=9)
    x, y = figure.axes[0].lines[1].get_data()
    assert y[np.searchsorted(x, 0.5 - 1e-9)] == 0.75


def _band_at(axis, rate):
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices
    return np.ptp(corners[np.isclose(corners[:, 0], rate), 1])


def test_the_band_widens_with_fewer_calibration_texts():
    p_values = np.linspace(0.01, 1, 105)
    few, many = (plots.reliability("loss", p_values, calibration=n).axes[0] for n in (42, 10_000))
    assert _band_at(few, 0.5) > 1.5 * _band_at(many, 0.5)
    known, new = np.linspace(-2, 1, 42), np.linspace(-1, 3, 105)
    drawn = plots.verdicts(known, new, p_values, threshold=0.9, fpr=0.05)
    grouped = plots.verdicts(known, new, p_values, threshold=np.inf, fpr=0.05, independent=(42, 10))
    assert _band_at(drawn.axes[1], 0.5) == _band_at(few, 0.5) < _band_at(grouped.axes[1], 0.5)
    assert [len(figure.axes[0].lines) for figure in (drawn, grouped)] == [1, 0]  # where there is a threshold


def test_heat_map_frames_the_best_and_skips_what_is_missing():
    values = np.array([[0.5, 0.9], [np.nan, 0.7]])
    figure = plots.heat_map([10, 20], [0.5, 1.0], values, x_name="k", y_name="ε", name="AUC")
    axis = figure.axes[0]
    assert sorted(text.get_text() for text in axis.texts) == ["0.500", "0.700", "0.900"]
    assert axis.patches[0].get_xy() == pytest.approx((0.52, -0.48))


def test_curves_take_numbers_and_estimates():
    lines = {"loss": [Estimate(0.6, 0.5, 0.7), Estimate(0.7, 0.6, 0.8)], "zlib": [0.5, 0.6]}
    figure = plots.curves([1, 10], {"n": lines, "none": {}}, x_name="n", y_name="AUC", across=2, chance=0.5, x_log=True)
    axis, empty = figure.axes
    assert axis.lines[0].get_ydata() == pytest.approx([0.6, 0.7])
    assert len(axis.collections) == 1
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["loss", "zlib"]
    assert not empty.axison


PANELS = {
    "LoRA": {"base": {"loss": Estimate(0.6, 0.5, 0.7)}, "FSD": {"loss": Estimate(0.8, 0.7, 0.9)}},
    "IA3": {"base": {"loss": Estimate(0.6, 0.5, 0.7), "zlib": Estimate(0.55, 0.5, 0.6)}},
}


def test_each_number_is_a_dot_with_a_bar():
    figure = plots.dots(PANELS, x_name="AUC", title="Table", chance=0.5)
    first, second = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["LoRA", "IA3"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["loss", "zlib"]
    drawn = [tuple(line.get_xdata()) for line in first.lines]
    assert drawn == [(0.5, 0.7), (0.6,), (0.7, 0.9), (0.8,), (0.5, 0.5)]
    below, above = (first.lines[at].get_ydata()[0] for at in (1, 3))
    assert below < 0 < above
    assert len(second.lines) == 5
    many = plots.dots({f"panel {n}": PANELS["LoRA"] for n in range(5)}, x_name="AUC")
    assert sum(axis.axison for axis in many.axes) == 5


@pytest.mark.slow
def test_twelve_detectors_equal_scores_and_a_single_text_can_be_drawn():
    same = {"loss": np.zeros(60)}
    for figure in (
        plots.roc(LABELS, BASE, FSD),
        plots.score_distributions(LABELS, BASE, FSD),
        plots.curves([1.0, 2.0], {"": {name: [0.5, 0.6] for name in FSD}}, x_name="n", y_name="AUC"),
        plots.roc(LABELS, same, same),
        plots.score_distributions(LABELS, same, same),
        plots.verdicts([0.0], [0.0], [1.0], threshold=0.0, fpr=0.5),
        plots.verdicts(np.arange(40.0), np.arange(9.0), np.linspace(0.05, 1, 9), threshold=np.inf, fpr=0.05),
        plots.dots(PANELS, x_name="AUC", title="Table", chance=0.5),
    ):
        assert plots.png(figure, dpi=50).startswith(b"\x89PNG")
