"""Overlays: published lines dashed, measured points solid, each panel on its own scale."""

from repro.report.charts.overlay import OverlayChart, OverlayLine, OverlayPanel
from repro.report.charts.series import AS_PUBLISHED, style

TUNED = style("tuned")
BERT = OverlayLine("bs 96", ((1, 1.0), (8, 0.967), (32, 0.93)), ((1, 1.0), (2, 0.978)), TUNED)
SMALL = OverlayLine("bs 1", (), ((1, 1.0), (4, 0.461)), TUNED)
CHART = OverlayChart(
    "t", "s", "GPUs", (OverlayPanel("BERT", (BERT,)), OverlayPanel("GPT-2", (SMALL,))), ("published", "measured")
)


def test_both_are_where_their_points_are():
    first, second = CHART.draw().axes
    published, measured = first.lines
    assert [tuple(point) for point in published.get_xydata()] == list(BERT.published)
    assert [tuple(point) for point in measured.get_xydata()] == list(BERT.measured)
    assert published.get_linestyle() != measured.get_linestyle()
    assert (published.get_color(), measured.get_color()) == (style(AS_PUBLISHED).ink.light, TUNED.ink.light)
    assert len(second.lines) == 1, "what was not published has no line"


def test_panels_share_the_numbers_of_gpus_and_not_the_scale_of_shares():
    first, second = CHART.draw().axes
    assert first.get_xlim() == second.get_xlim()
    assert first.get_ylim()[0] > 0.8 > second.get_ylim()[0]
    assert first.get_ylim()[0] <= 0.9, "a small loss is not drawn as a large one"


def test_the_description_tells_published_from_measured():
    assert CHART.described() == (
        "t (s): BERT, published: 93.0%–96.7% (GPUs ≤ 32); BERT, measured: 97.8%–97.8% (GPUs ≤ 2); "
        "GPT-2, measured: 46.1%–46.1% (GPUs ≤ 4)"
    )


def test_an_interval_is_a_bar_at_its_point_and_within_the_scale():
    line = OverlayLine("bs 2", ((1, 1.0), (8, 0.97)), ((1, 1.0), (2, 0.947)), TUNED, ((2, 0.62, 0.975),))
    (axes,) = OverlayChart("t", "s", "GPUs", (OverlayPanel("GPT", (line,)),), ("published", "measured")).draw().axes
    (bar,) = [each for each in axes.lines if tuple(each.get_ydata()) == (0.62, 0.975)]
    assert tuple(bar.get_xdata()) == (2, 2)
    assert axes.get_ylim()[0] < 0.62
