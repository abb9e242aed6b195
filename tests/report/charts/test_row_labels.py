"""Names of rows: beside what they name, or above it where they are long, and never over another row."""

import pytest

from repro.report.charts.canvas import LINE, WIDTH
from repro.report.charts.row_labels import RowLabels
from repro.report.charts.rows import BarChart, DotChart, Panel
from repro.report.charts.stacked import Part, StackedChart

SHORT, LONG = ("a", "bert_1n1g_bs96"), ("a", "DP_PP_8x1x4_512_1536x16.iter20.as_1x1x4.tuned")


def test_short_names_are_beside_their_rows_and_long_ones_above():
    short, long = RowLabels(SHORT, 20), RowLabels(LONG, 20)
    assert not short.above and 0 < short.left < WIDTH / 2 and short.total == 40
    assert long.above and long.left == 0 and long.total == 2 * (20 + LINE)


def test_what_a_row_shows_ends_with_the_row_and_begins_below_its_name():
    short, long = RowLabels(SHORT, 20), RowLabels(LONG, 20)
    assert [short.at(1, part) for part in (-0.5, 0, 0.5)] == [0.5, 1, 1.5]
    assert long.at(1, 0.5) == 1.5
    assert long.at(1, -0.5) == pytest.approx(0.5 + LINE / long.row)
    assert long.at(1) == pytest.approx((long.at(1, -0.5) + long.at(1, 0.5)) / 2)


CHARTS = (
    lambda rows: BarChart("t", "s", rows, (Panel("", ((2.0, 1.0), (1.0, 2.0))),), ("x", "y")),
    lambda rows: StackedChart("t", "s", rows, (Part("part", 0),), ((2.0,), (1.0,))),
    lambda rows: DotChart("t", "s", rows, ((2.0, 1.0), (1.0, 2.0)), ("x", "y")),
)


@pytest.mark.parametrize("chart", CHARTS)
def test_a_long_name_leaves_the_row_the_width_of_the_figure(chart):
    beside, above = (chart(rows).draw() for rows in (SHORT, LONG))
    assert beside.axes[0].get_position().width < 0.8 and above.axes[0].get_position().width > 0.9
    assert [label.get_text() for label in beside.axes[0].get_yticklabels()] == [*SHORT]
    names = [text for text in above.texts if text.get_text() in LONG]
    assert [text.get_text() for text in names] == [*LONG]
    axes = above.axes[0]
    for row, name in enumerate(names):
        _left, baseline = axes.transData.inverted().transform(above.transFigure.transform(name.get_position()))
        shown = [bar.get_y() for bar in axes.patches] or [line.get_ydata()[0] for line in axes.lines]
        first = min(y for y in shown if row - 0.5 <= y <= row + 0.5)
        assert row - 0.5 < baseline < first, "the name is in its row and above what the row shows"
