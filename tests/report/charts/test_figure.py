"""Figures before they have a language, and their files."""

import pytest

from repro.published.cases import load_catalogue
from repro.report.charts.figure import FigureSpec, efficiency, stacked, write_figures
from repro.report.charts.lines import Series
from repro.report.published.figures import published_figure_specs

LINE = Series("batch 128", ((1, 384.9), (8, 2969.5), (32, 11711.2)))


def test_efficiency_is_relative_to_the_first_point():
    points = dict(efficiency(LINE).points)
    assert points[1] == 1
    assert points[32] == pytest.approx(11711.2 / 384.9 / 32)


def test_writing_returns_blocks_in_the_order_of_the_specs(tmp_path):
    specs = published_figure_specs(load_catalogue().cases)
    blocks = write_figures([specs["bert-2020-08-22"], specs["gpt-3d-2021-05"]], tmp_path, "en", prefix="x-")
    assert [block.file.name for block in blocks] == ["x-bert-2020-08-22.en.svg", "x-gpt-3d-2021-05.en.svg"]


def test_what_several_drawings_say_is_with_the_last_of_them():
    specs = [FigureSpec(name, None, lambda _, text=text: text) for name, text in zip("abcd", "xyxz", strict=True)]
    assert stacked("all", specs).captions(str) == ("", "y", "x", "z")
    assert stacked("all", specs).caption(str) == "x y z"
    assert specs[0].captions(str) == ("x",)
