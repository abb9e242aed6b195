"""Forest plots: marks and intervals where their values are, a panel for each program, on one logarithmic scale around 1."""

from repro.report.charts.canvas import PAPER, SERIES
from repro.report.charts.forest import ForestChart, ForestPoint, ForestRow

PORT = (ForestPoint(0, 0.857, (0.813, 0.902)), ForestPoint(1, 1.456, None))
TUNED = (ForestPoint(0, 1.056, None),)
ROWS = (ForestRow("both", (PORT, TUNED)), ForestRow("tuned only", ((), (ForestPoint(0, 1.34, (1.2, 9.0)),))))
CHART = ForestChart("t", "s", ("Port", "Tuned"), (("BERT", ROWS[:1]), ("GPT", ROWS[1:])), ("pytorch", "unfused"))


def marks(axes):
    return [line for line in axes.lines if line.get_marker() in ("o", "s")]


def test_each_program_has_its_panel_with_marks_at_their_ratios():
    port, tuned = CHART.draw().axes
    assert [line.get_xdata()[0] for line in marks(port)] == [0.857, 1.456]
    assert [line.get_xdata()[0] for line in marks(tuned)] == [1.056, 1.34]
    assert [line.get_color() for line in port.lines if tuple(line.get_xdata()) == (0.813, 0.902)] == [SERIES[0].light]


def test_a_mark_without_an_interval_is_hollow_and_each_baseline_has_its_own():
    first, second = marks(CHART.draw().axes[0])
    assert (first.get_markerfacecolor(), second.get_markerfacecolor()) == (SERIES[0].light, PAPER.light)
    assert first.get_marker() != second.get_marker()
    assert first.get_ydata()[0] < second.get_ydata()[0], "they do not cover each other"


def test_the_scale_is_logarithmic_has_one_and_all_values_and_is_the_same_in_all_panels():
    panels = CHART.draw().axes
    assert {axes.get_xscale() for axes in panels} == {"log"}
    assert len({axes.get_xlim() for axes in panels}) == 1
    low, high = CHART.limits
    assert low < 0.813 and 1.456 < high < 9.0, "an interval without end does not squeeze the others"
    single = ForestChart("t", "s", ("x",), (("g", (ForestRow("a", ((ForestPoint(0, 1.0, None),),)),)),), ("a",))
    assert single.limits[0] < 1 < single.limits[1]


def test_a_printed_ratio_is_filled_and_a_chart_with_one_panel_needs_no_title():
    points = (ForestPoint(0, 1.2, None), ForestPoint(1, 1.1, None, printed=True))
    chart = ForestChart("t", "s", ("",), (("GPT", (ForestRow("1x4x1", (points,)),)),), ("tuned", "published"))
    measured, printed = marks(chart.draw().axes[0])
    assert (measured.get_markerfacecolor(), printed.get_markerfacecolor()) == (PAPER.light, SERIES[1].light)
    assert chart.described() == "t (s): GPT, tuned: 1.200 (1); GPT, published: 1.100 (1)"


def test_the_description_is_short():
    assert CHART.described() == (
        "t (s): BERT, Port, pytorch: 0.857 (1); BERT, Port, unfused: 1.456 (1); BERT, Tuned, pytorch: 1.056 (1); "
        "GPT, Tuned, pytorch: 1.340 (1)"
    )
