import numpy as np
import pytest

from fsd.reporting import charts
from fsd.reporting import figures as plots
from fsd.statistics import metrics
from fsd.statistics.intervals import Estimate

RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 2 == 0
BASE = {f"d{k}": RNG.normal(size=60) + LABELS for k in range(11)}
FSD = {name: values + LABELS for name, values in BASE.items()} | {"pair": RNG.normal(size=60)}


def _legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_roc_has_a_panel_a_detector_with_the_true_curves_and_one_legend():
    figure = plots.roc(LABELS, BASE, {name: FSD[name] for name in ("d0", "d1", "pair")} | {"d2": FSD["d2"]})
    assert [axis.get_title(loc="left") for axis in figure.axes][:3] == ["d0", "d1", "pair"]
    first, pair = figure.axes[0], figure.axes[2]
    fpr, tpr, _ = metrics.roc(LABELS, FSD["d0"])
    np.testing.assert_array_equal(first.lines[1].get_xydata(), np.column_stack([np.maximum(fpr, 1 / 30), tpr]))
    assert first.texts[1].get_text() == f"FSD: AUC {metrics.auc(LABELS, FSD['d0']):.2f}".replace("0.", ".")
    assert [text.get_text().partition(":")[0] for text in pair.texts] == ["both models"]
    assert _legend(figure) == ["base score", "FSD", "guessing", "both models"]
    assert [line.get_color() for line in first.lines[:2]] == [plots.BASE, plots.FSD]
    assert pair.lines[0].get_color() == plots.BOTH
    assert first.get_xlim()[0] == pytest.approx(1 / 30)  # where the non-members end
    assert plots.roc(LABELS, {"d0": BASE["d0"]}, {}).axes


def test_the_headline_draws_each_score_with_its_band_in_its_colour():
    curves = {
        "base": (BASE["d0"], plots.BASE),
        "both": (FSD["pair"], plots.BOTH),
        "control": (BASE["d1"], plots.CONTROL),
    }
    figure = plots.headline(LABELS, list(map(str, range(60))), curves)
    assert _legend(figure) == ["base", "both", "control", "guessing"]
    for axis in figure.axes:
        assert [line.get_color() for line in axis.lines[:3]] == [plots.BASE, plots.BOTH, plots.CONTROL]
        assert {line.get_linestyle() for line in axis.lines[:3]} == {"-"}
        assert len(axis.collections) == 3
    assert figure.axes[1].xaxis.get_major_formatter()(0.1, 0) == "10 %"


def test_distributions_are_the_shares_with_at_least_a_score_and_no_panel_is_empty():
    figure = plots.score_distributions(LABELS, {"d0": BASE["d0"]}, {"d0": FSD["d0"], "pair": FSD["pair"]})
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["d0: base score", "FSD", "pair: both models"]
    for axis, scores in zip(figure.axes, (BASE["d0"], FSD["d0"], FSD["pair"]), strict=True):
        for line, side in zip(axis.lines, (LABELS, ~LABELS), strict=True):
            x, y = line.get_data()
            assert y[100] == pytest.approx((scores[side] >= x[100]).mean())
        assert [line.get_color() for line in axis.lines] == [plots.MEMBERS, plots.OTHERS]


def test_reliability_is_the_share_of_small_p_values():
    figure = plots.reliability("loss", np.array([0.1, 0.5, 0.5, 0.9]), calibration=9, texts=4, colour=plots.FSD)
    x, y = figure.axes[0].lines[1].get_data()
    assert y[np.searchsorted(x, 0.5 - 1e-9)] == 0.75


def _band_at(axis, rate):
    (band,) = axis.collections
    corners = band.get_paths()[0].vertices
    return np.ptp(corners[np.isclose(corners[:, 0], rate), 1])


def test_the_band_widens_with_fewer_calibration_texts():
    p_values = np.linspace(0.01, 1, 105)
    figures = [plots.reliability("loss", p_values, calibration=n, texts=105, colour=plots.FSD) for n in (42, 10_000)]
    few, many = (figure.axes[0] for figure in figures)
    assert _band_at(few, 0.5) > 1.5 * _band_at(many, 0.5)
    known, new = np.linspace(-2, 1, 42), np.linspace(-1, 3, 105)
    drawn = plots.verdicts(known, new, p_values, threshold=0.9, fpr=0.05, independent=(42, 105))
    grouped = plots.verdicts(known, new, p_values, threshold=np.inf, fpr=0.05, independent=(42, 10))
    assert _band_at(drawn.axes[1], 0.5) == _band_at(few, 0.5) < _band_at(grouped.axes[1], 0.5)
    assert [len(figure.axes[0].lines) for figure in (drawn, grouped)] == [3, 2]  # where there is a threshold


def test_a_heat_map_skips_what_is_missing():
    values = np.array([[0.5, 0.9], [np.nan, 0.7]])
    figure = charts.heat_map([10, 20], [0.5, 1.0], values, x_name="k", y_name="ε", name="AUC")
    axis = figure.axes[0]
    assert sorted(text.get_text() for text in axis.texts) == [".50", ".70", ".90"]
    assert not axis.patches


def test_a_heat_map_with_a_default_is_centred_on_it_and_noise_stays_pale():
    values = np.array([[0.52, 0.5], [0.49, 0.51]])
    figure = charts.heat_map([10.0, 20.0], [0.5, 1.0], values, x_name="k", y_name="ε", name="AUC", default=(20.0, 0.5))
    image = figure.axes[0].images[0]
    assert (image.norm.vmin, image.norm.vcenter, image.norm.vmax) == pytest.approx((0.4, 0.5, 0.6))
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["10", "20"]
    assert _legend(figure) == ["highest", "default"]
    assert [patch.get_xy() for patch in figure.axes[0].patches] == [(-0.47, -0.47), (0.53, -0.47)]


@pytest.mark.parametrize("rows", [1, 12])
def test_a_heat_map_has_room_beside_long_names(rows):
    names = [f"min_k_reference.base {number}" for number in range(rows)]
    figure = charts.heat_map(["k"], names, np.full((rows, 1), 0.5), x_name="setting", y_name="study", name="importance")
    assert plots.png(figure)  # a warning, such as of a layout without room, fails the test


def test_curves_take_numbers_and_estimates():
    lines = {"loss": [Estimate(0.6, 0.5, 0.7), Estimate(0.7, 0.6, 0.8)], "zlib": [0.5, 0.6]}
    figure = charts.curves(
        [1, 10], {"n": lines, "none": {}}, x_name="n", y_name="AUC", across=2, chance=0.5, x_log=True
    )
    axis, empty = figure.axes
    assert axis.lines[0].get_ydata() == pytest.approx([0.6, 0.7])
    assert len(axis.collections) == 1
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["loss", "zlib"]
    assert not empty.axison


def test_many_lines_have_room_above_their_legend():
    lines = {f"standardised_ratio.fsd {number}": [0.5, 0.6] for number in range(90)}
    assert plots.png(charts.curves([1, 2], {"Best so far": lines}, x_name="trials", y_name="AUC"))


def test_a_line_has_its_colour_and_a_logarithmic_axis_few_ticks():
    lines = {"one": [0.0, 1.0], "two": [0.5, 1.0]}
    figure = charts.curves([1, 2], {"": lines}, x_name="n", y_name="share", colours={"one": "#123456"})
    assert _legend(figure) == list(lines)
    assert figure.axes[0].lines[0].get_color() == "#123456"
    ticks = charts.curves(np.geomspace(0.001, 10, 13), {"": {"a": [0.5] * 13}}, x_name="cap", y_name="AUC", x_log=True)
    assert [tick.get_text() for tick in ticks.axes[0].get_xticklabels()][:2] == [".001", ".0046"]


PANELS = {
    "LoRA": {"base": {"loss": Estimate(0.6, 0.5, 0.7)}, "FSD": {"loss": Estimate(0.8, 0.7, 0.9)}},
    "IA3": {"base": {"loss": Estimate(0.6, 0.5, 0.7), "zlib": Estimate(0.55, 0.5, 0.6)}},
}


def test_each_number_is_a_dot_with_a_bar():
    figure = plots.dots(PANELS, x_name="AUC", title="Table", chance=0.5)
    first, second = figure.axes
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["LoRA", "IA3"]
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
        charts.curves([1.0, 2.0], {"": {name: [0.5, 0.6] for name in FSD}}, x_name="n", y_name="AUC"),
        plots.roc(LABELS, same, same),
        plots.score_distributions(LABELS, same, same),
        plots.verdicts([0.0], [0.0], [1.0], threshold=0.0, fpr=0.5, independent=(1, 1)),
        plots.verdicts(
            np.arange(40.0), np.arange(9.0), np.linspace(0.05, 1, 9), threshold=np.inf, fpr=0.05, independent=(40, 9)
        ),
        plots.dots(PANELS, x_name="AUC", title="Table", chance=0.5),
    ):
        assert plots.png(figure).startswith(b"\x89PNG")


def test_before_and_after_have_all_texts_of_both_sides_over_one_axis():
    values = np.append(np.linspace(1.0, 2.0, 59), 1000.0)
    figure = charts.before_and_after(LABELS, values, values - 0.5, name="perplexity")
    members, others = figure.axes
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["members", "non-members"]
    assert members.get_xlim() == others.get_xlim()
    assert sum(patch.get_height() for patch in others.patches if hasattr(patch, "get_height")) == 30  # before
    assert _legend(figure) == ["before fine-tuning", "after fine-tuning"]


def test_tokens_have_a_panel_of_all_and_one_of_each_selection():
    chosen = np.arange(60) < 15
    figure = charts.tokens(LABELS, np.arange(60.0), -np.arange(60.0), {"low": chosen})
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["all tokens", "low"]
    assert [len(axis.collections[0].get_offsets()) for axis in figure.axes] == [60, 15]
    assert figure.axes[1].texts[0].get_text() == "25 % of them"
    assert _legend(figure) == ["members", "non-members"]


def test_the_name_of_a_work_is_no_formula():
    values = np.linspace(-5.0, -1.0, 20)
    assert plots.png(charts.strips({"from $x_{ to $ 5.txt": values, "other.txt": values}, name="log p"))
