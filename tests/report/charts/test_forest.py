"""Forest plots: marks and intervals where their values are, on a logarithmic scale around 1."""

from itertools import pairwise

from repro.report.charts.canvas import PAPER, SERIES
from repro.report.charts.forest import EDGE, MARK, ForestChart, ForestPoint, ForestRow

BERT = ForestRow("bert_1n1g_bs24", (ForestPoint(0, 0.857, (0.813, 0.902)), ForestPoint(1, 1.456, None)))
GPT = ForestRow("DP_1x1x1", (ForestPoint(0, 1.34, (1.2, 9.0)),))
CHART = ForestChart("t", "s", (("BERT", (BERT,)), ("GPT", (GPT,))), ("pytorch", "unfused"))


def marks(chart):
    (axes,) = chart.draw().axes
    return [line for line in axes.lines if line.get_marker() in ("o", "s", "^", "D")]


def texts(chart):
    return [text.get_text() for text in chart.draw().texts]


def test_marks_are_at_their_ratios_and_bars_at_their_intervals():
    (axes,) = CHART.draw().axes
    assert [line.get_xdata()[0] for line in marks(CHART)] == [0.857, 1.456, 1.34]
    assert [line.get_color() for line in axes.lines if tuple(line.get_xdata()) == (0.813, 0.902)] == [SERIES[0].light]


def test_a_mark_without_an_interval_is_hollow_and_each_baseline_has_its_own():
    first, second, _third = marks(CHART)
    assert (first.get_markerfacecolor(), second.get_markerfacecolor()) == (SERIES[0].light, PAPER.light)
    assert first.get_marker() != second.get_marker()


def test_no_mark_lies_on_another_however_close_their_values_are():
    """The scale is in points from top to bottom."""
    rows = tuple(ForestRow(f"x{n}", tuple(ForestPoint(index, 1.0, None) for index in range(n))) for n in (4, 1, 3, 2))
    chart = ForestChart("t", "s", (("g", rows),), ("a", "b", "c", "d"))
    drawn = marks(chart)
    assert len(drawn) == 10
    assert all(two.get_ydata()[0] - one.get_ydata()[0] >= MARK + EDGE for one, two in pairwise(drawn))
    (axes,) = chart.draw().axes
    assert axes.get_ylim()[0] == round(72 * axes.get_position().height * chart.draw().get_figheight(), 6)


def test_the_scale_is_logarithmic_and_has_one_and_all_values():
    (axes,) = CHART.draw().axes
    assert axes.get_xscale() == "log"
    low, high = CHART.limits
    assert low < 0.813 and 1.456 < high < 9.0, "an interval without end does not squeeze the others"
    single = ForestChart("t", "s", (("g", (ForestRow("a", (ForestPoint(0, 1.0, None),)),)),), ("a",))
    assert single.limits[0] < 1 < single.limits[1]


def test_the_scale_has_most_of_the_width_and_names_what_does_not_collide():
    def named(low, high):
        row = ForestRow("DP_1x1x1_2_1536x16.tf32", (ForestPoint(0, low, None), ForestPoint(0, high, None)))
        (axes,) = ForestChart("t", "s", (("g", (row,)),), ("a",)).draw().axes
        assert axes.get_position().width > 0.5
        return [label.get_text() for label in axes.get_xticklabels()]

    assert named(0.49, 3.2) == ["0.5", "0.7", "1", "1.4", "2", "3"]
    assert named(0.62, 1.31) == ["0.7", "0.8", "1", "1.2"]
    assert named(0.1, 16) == ["0.125", "0.25", "0.5", "1", "2", "3", "4", "8", "16"]


def test_how_all_names_of_a_group_begin_is_said_once():
    more = ForestRow("bert_1n1g_bs24.amp", BERT.points)
    shown = texts(ForestChart("t", "s", (("BERT", (BERT, more)), ("GPT", (GPT,))), ("pytorch", "unfused")))
    assert shown[-5:] == ["BERT (bert_1n1g_…)", "bs24", "bs24.amp", "GPT", "DP_1x1x1"]


def test_a_printed_ratio_is_filled():
    points = (ForestPoint(0, 1.2, None), ForestPoint(1, 1.1, None, printed=True))
    chart = ForestChart("t", "s", (("GPT", (ForestRow("1x4x1", points),)),), ("tuned", "published"))
    measured, printed = marks(chart)
    assert (measured.get_markerfacecolor(), printed.get_markerfacecolor()) == (PAPER.light, SERIES[1].light)


def test_the_description_is_short():
    assert CHART.described() == "t (s): BERT, pytorch: 0.857 (1); BERT, unfused: 1.456 (1); GPT, pytorch: 1.340 (1)"
