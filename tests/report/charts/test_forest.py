"""Forest plots: dots, intervals and targets where their values are."""

import pytest

from repro.report.charts.canvas import SERIES
from repro.report.charts.forest import ForestChart, ForestRow

ROWS = (
    ForestRow("several", 0.857, (0.813, 0.902), True, 3, 0.85, "undecided"),
    ForestRow("one", 1.056, (1.055, 1.058), False, 1, 1.0, "undecided"),
    ForestRow("none", 0.312, None, False, 1),
)
CHART = ForestChart("t", "s", (("AMP", ROWS[:1]), ("fp32", ROWS[1:])), ("ratio", "n", "verdict"), ("a", "b", "c"))


def lines():
    return CHART.draw().axes[0].lines


def test_dots_are_at_their_ratios_and_filled_where_the_interval_decides():
    dots = [line for line in lines() if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in dots] == [row.value for row in ROWS]
    filled = [line.get_markerfacecolor() == SERIES[0].light for line in dots]
    assert filled == [True, False, False]


def test_intervals_and_targets_are_drawn_in_their_rows():
    drawn = [tuple(line.get_xdata()) for line in lines()]
    for row in ROWS[:2]:
        assert row.interval in drawn and (row.target,) * 2 in drawn
    targets = [line for line in lines() if line.get_color() == SERIES[1].light]
    assert len(targets) == 2, "what has no target has no line"
    heights = [sorted(line.get_ydata()) for line in targets]
    assert heights[0][1] <= heights[1][0]


def test_all_values_and_one_are_within_the_scale():
    low, high = CHART.limits
    assert low < 0.312 and high > 1.058
    single = ForestChart("t", "s", (("x", (ForestRow("a", 1.0, None, False, 1),)),), ("", "", ""), ("", "", ""))
    assert single.limits[0] < 1 < single.limits[1]


def test_numbers_of_runs_and_verdicts_stand_beside_the_rows():
    texts = [text.get_text() for text in CHART.draw().texts]
    for shown in ("0.857", "3", "undecided", "AMP", "several", "n"):
        assert shown in texts


def test_the_description_is_short():
    assert CHART.described() == "t (s): AMP: 0.857 (1); fp32: 1.056–0.312 (2)".replace("1.056–0.312", "0.312–1.056")


@pytest.mark.parametrize("decides", [True, False])
def test_the_line_of_an_interval_that_decides_is_thicker(decides):
    row = ForestRow("a", 1.0, (0.9, 1.1), decides, 2)
    axes = ForestChart("t", "s", (("x", (row,)),), ("", "", ""), ("", "", "")).draw().axes[0]
    (line,) = (line for line in axes.lines if tuple(line.get_xdata()) == (0.9, 1.1))
    assert (line.get_linewidth() > 2) == decides
