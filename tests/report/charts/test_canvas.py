"""What charts have in common: legends that fit, and colours that can be told apart."""

import pytest

from repro.report.charts import canvas as drawing
from repro.report.charts.canvas import SERIES, STYLES, legend_places, text_width


def test_a_legend_goes_on_in_a_new_row():
    labels = ["OneFlow, not sharded"] * 6
    rows = [row for _left, row, _label in legend_places(labels)]
    assert rows[0] == 0 and rows[-1] > 0 and rows == sorted(rows)
    assert text_width("吞吐") > text_width("ab")


def luminance(colour: str) -> float:
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_and_lines_can_be_read_on_their_paper(mode):
    paper = getattr(drawing.PAPER, mode)
    for ink in (drawing.TEXT, drawing.MUTED, *SERIES):
        assert contrast(getattr(ink, mode), paper) >= 4.5


def test_series_differ_without_colour():
    for kind in ("line", "marker", "hatch"):
        assert len({getattr(style, kind) for style in STYLES}) == len(STYLES)
