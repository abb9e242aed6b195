"""Line charts and grids: points where they are, labels that keep apart."""

from dataclasses import replace

from repro.report.charts.canvas import write_svg
from repro.report.charts.figure import ideal_line
from repro.report.charts.lines import GridChart, LineChart, Series, number, spread_out, warm_up

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


def test_the_warm_up_does_not_set_the_scale():
    losses = tuple((i, 20.0 if i < 5 else 2.0 - i / 100) for i in range(1, 101))
    limit = ((1, 1.5), (100, 1.5))
    axes = GridChart("t", "bits", (("unit", (Series("loss", losses), Series("limit", limit))),)).draw().axes[0]
    assert axes.get_ylim()[1] < 2.5
    assert [text.get_text() for text in axes.texts] == ["max 20"], "what is cut off is named"
    assert axes.texts[0].xy == (0, 1), "above the field, where it is cut off"
    assert "1–20" in GridChart("t", "bits", (("unit", (Series("loss", losses),)),)).described()


def test_a_single_row_has_no_warm_up():
    axes = GridChart("t", "ms", (("unit", (Series("a", ((1, 5.0), (2, 4.0))),)),)).draw().axes[0]
    assert axes.get_ylim()[1] > 5 and not axes.texts
    assert [warm_up(n) for n in (1, 2, 3, 20, 1200)] == [0, 0, 1, 2, 120]
