from fsd.evaluation.intervals import Estimate
from fsd.reporting.dots import dots
from fsd.reporting.figures import png

PANELS = {
    "LoRA": {"base": {"loss": Estimate(0.6, 0.5, 0.7)}, "FSD": {"loss": Estimate(0.8, 0.7, 0.9)}},
    "IA3": {"base": {"loss": Estimate(0.6, 0.5, 0.7), "zlib": Estimate(0.55, 0.5, 0.6)}},
}


def test_each_number_is_a_dot_with_a_bar():
    figure = dots(PANELS, x_name="AUC", title="Table", chance=0.5)
    first, second = figure.axes
    assert [axis.get_title() for axis in figure.axes] == ["LoRA", "IA3"]
    assert [label.get_text() for label in first.get_yticklabels()] == ["loss", "zlib"]
    drawn = [tuple(line.get_xdata()) for line in first.lines]
    assert drawn == [(0.5, 0.7), (0.6,), (0.7, 0.9), (0.8,), (0.5, 0.5)]
    below, above = (first.lines[at].get_ydata()[0] for at in (1, 3))
    assert below < 0 < above
    assert len(second.lines) == 5
    assert png(figure).startswith(b"\x89PNG")


def test_panels_beyond_a_line_go_below():
    figure = dots({f"panel {n}": PANELS["LoRA"] for n in range(5)}, x_name="AUC")
    shown = [axis for axis in figure.axes if axis.axison]
    assert len(shown) == 5
