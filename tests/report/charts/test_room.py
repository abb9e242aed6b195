"""No label of a figure leaves it: a page that shows a figure inline cuts off what does."""

from itertools import pairwise

import pytest

from repro.report.charts.canvas import SIZE, WIDTH, text_width
from repro.report.charts.coverage import CoverageChart, CoveredCase
from repro.report.charts.forest import ForestChart, ForestPoint, ForestRow
from repro.report.charts.lines import GridChart, LineChart, Series
from repro.report.charts.rows import BarChart, DotChart, Panel
from repro.report.charts.stacked import Part, StackedChart

NAME = "DP_8x1x1_16_1536x16.as_2x1x1"
WIDE = "WWWW MMMM 0000 @@@@"
LONG = "A title that says more than there is room for in one line of a figure: " + NAME
UNIT = "2D_PP_2x8x2_512_2304x24.iter20.as_1x2x2.fp32.tuned (pytorch-channels-last)"
POINTS = ((1, 1.0), (8, 0.967), (32, 0.93))
CHARTS = [
    ForestChart(LONG, LONG, ((WIDE, (ForestRow(NAME, (ForestPoint(0, 0.9, (0.8, 1.0)),)),)),), (WIDE, NAME)),
    ForestChart("t", "s", ((f"{WIDE} (hidden size x layers)", (ForestRow("1x1", (ForestPoint(0, 0.9, None),)),)),), (WIDE,)),
    ForestChart("t", "s", (("GPT", (ForestRow(NAME, (ForestPoint(0, 0.13, None), ForestPoint(0, 16.0, None))),)),), (WIDE,)),
    CoverageChart("t", "s", tuple(CoveredCase(WIDE, NAME, n, 0) for n in (1, 8)), ("a", "b", "c", "d"), "GPUs"),
    BarChart(LONG, LONG, (NAME, WIDE), (Panel("", ((12565.0, 12565.0), (1.0, None))),), (WIDE, NAME), limit=(WIDE, 13000.0)),
    DotChart("t", "s", (NAME, WIDE), ((12565.0, 3.0), (1.0, 2.0)), (WIDE, NAME), notes=("+15.2%", "−0.3%")),
    LineChart("t", "s", "GPUs", (Series(NAME, POINTS), Series(WIDE, POINTS))),
    GridChart("t", "s", tuple((NAME, (Series("a", tuple((i, 1000.0 + i) for i in range(1, 1201))),)) for _ in range(4))),
    StackedChart("t", "s", (NAME, WIDE), (Part("a", 0),), ((128.12,), (62.0,))),
    StackedChart("t", "s", (UNIT, UNIT), (Part("a", 0), Part("b", None)), ((128.12, 1.0), (62.0, 0.0))),
    BarChart("t", "s", (UNIT, UNIT), (Panel("", ((12565.0, 1.0), (1.0, None))),), (WIDE, NAME), limit=(WIDE, 13000.0)),
    BarChart("t", "s", (WIDE, WIDE), (Panel(WIDE, ((12565.0,), (1.0,))),) * 3),
    DotChart("t", "s", (UNIT, UNIT), ((-0.5, 0.5), (1.0, 2.0)), marks=(0.0, 0.0), decimals=2),
    GridChart("t", "s", ((UNIT[:50], (Series("a", POINTS),)),) * 2),
]  # fmt: skip


def out_of_view(axes):
    """The tick labels that are not drawn: matplotlib keeps those beyond the ends of the scales too."""
    for place, (low, high), labels in (
        (0, sorted(axes.get_xlim()), axes.get_xticklabels()),
        (1, sorted(axes.get_ylim()), axes.get_yticklabels()),
    ):
        yield from (label for label in labels if not low <= label.get_position()[place] <= high)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_every_label_is_within_the_figure(chart):
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    figure = chart.draw()
    figure.set_dpi(720)  # hinting makes text at few pixels to the em wider than it is
    FigureCanvasAgg(figure).draw()
    beyond = {label for axes in figure.axes for label in out_of_view(axes)}
    shown = [each for each in figure.findobj(Text) if each.get_text().strip() and each not in beyond]
    assert shown
    for text in shown:
        box = text.get_window_extent()
        left, right = (72 * x / figure.dpi for x in (box.x0, box.x1))
        assert left >= -1 and right <= 72 * figure.get_figwidth() + 1, (text.get_text(), left, right)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_labels_of_a_scale_stand_apart(chart):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = chart.draw()
    FigureCanvasAgg(figure).draw()
    for axes in figure.axes:
        beyond = set(out_of_view(axes))
        shown = [label for label in axes.get_xticklabels() if label.get_text() and label not in beyond]
        boxes = [label.get_window_extent() for label in shown]
        for (one, other), label in zip(pairwise(boxes), shown, strict=False):
            assert 72 * (other.x0 - one.x1) / figure.dpi > 3, (label.get_text(), one.x1, other.x0)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: type(chart).__name__)
def test_every_chart_is_as_wide_as_a_phones_column_and_its_text_can_be_read_there(chart):
    """Only a title or a heading that would end beyond its room is smaller."""
    from matplotlib.text import Text

    figure = chart.draw()
    assert 72 * figure.get_figwidth() == WIDTH
    shown = {each.get_text(): each.get_size() for each in figure.findobj(Text) if each.get_text().strip()}
    assert {text for text, size in shown.items() if size < SIZE} <= {LONG, WIDE, UNIT}


@pytest.mark.parametrize("text", [NAME, WIDE, "resnet50_0821_1n1g_bs128", "95.1%–97.8%"])
def test_no_text_is_wider_than_was_reckoned(text):
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    for weight in ("normal", "bold"):
        font = FontProperties(family="DejaVu Sans", weight=weight)
        assert TextPath((0, 0), text, 9.0, prop=font).get_extents().width <= text_width(text, 9.0, weight == "bold")


def test_a_chinese_character_is_as_wide_as_it_is_high():
    assert text_width("吞吐率", 10) == 30
