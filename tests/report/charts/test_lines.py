"""Line charts and grids: points where they are, labels that keep apart."""

from dataclasses import replace

from repro.report.charts.canvas import write_svg
from repro.report.charts.figure import ideal_line
from repro.report.charts.lines import GridChart, LineChart, Series, number, spread_out

LINE = Series("batch 128", ((1, 384.9), (8, 2969.5), (32, 11711.2)))


def test_lines_are_drawn_where_their_points_are():
    chart = LineChart("t", "s", "GPUs", (LINE,), ideal_line([LINE], "ideal"))
    ideal, line = chart.draw().axes[0].lines
    assert [tuple(point) for point in line.get_xydata()] == list(LINE.points)
    assert list(map(tuple, ideal.get_xydata())) == [(0, 0), (32, 32 * 384.9)]


def test_labels_keep_apart_and_stay_below_the_top():
    assert spread_out([0, 1, 50], 10, 100) == [0, 10, 50]
    assert spread_out([95, 97, 99], 10, 100) == [80, 90, 100]


def test_numbers_have_four_digits():
    assert [number(value) for value in (11711.2, 384.94, 4.92, 2.0, 0)] == ["11711", "384.9", "4.92", "2", "0"]


def test_grid_draws_every_field(tmp_path):
    fields = tuple((f"unit-{n}", (LINE, replace(LINE, label="repeat 2"))) for n in range(7))
    chart = GridChart("t", "ms", fields)
    assert len(chart.draw().axes) == 7
    write_svg(chart, tmp_path / "grid.svg")
    assert "unit-6 repeat 2: 384.9–11711" in chart.described()
