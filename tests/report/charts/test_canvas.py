"""The files of charts: the same bytes each time, and legible without colour or in either language."""

import pytest

from repro.report.charts import canvas as drawing
from repro.report.charts.canvas import SERIES, STYLES, legend_places, text_width, write_png
from repro.report.charts.lines import LineChart, Series

LINE = Series("batch 128", ((1, 384.9), (8, 2969.5), (32, 11711.2)))


def test_a_legend_goes_on_in_a_new_row():
    labels = ["OneFlow, not sharded"] * 6
    rows = [row for _left, row, _label in legend_places(labels)]
    assert rows[0] == 0 and rows[-1] > 0 and rows == sorted(rows)
    assert text_width("吞吐") > text_width("ab")


def test_png_is_the_same_each_time(tmp_path):
    chart = LineChart("t", "s", "GPUs", (LINE,))
    for name in ("a.png", "b.png"):
        write_png(chart, chart, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_png_falls_back_to_english_and_says_so_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(drawing, "has_cjk_font", lambda: False)
    monkeypatch.setattr(drawing, "_already_warned", [])
    english, chinese = (LineChart(title, "s", "GPUs", (LINE,)) for title in ("Throughput", "吞吐率"))
    write_png(english, english, tmp_path / "en.png")
    assert capsys.readouterr().err == ""
    for _ in range(2):
        write_png(chinese, english, tmp_path / "zh.png")
    assert (tmp_path / "zh.png").read_bytes() == (tmp_path / "en.png").read_bytes()
    assert capsys.readouterr().err.count("fonts-noto-cjk") == 1


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
