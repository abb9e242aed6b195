"""The figures: the data they draw, the same bytes each time, and legible without colour or in either language."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from repro.planning.plan import Unit
from repro.published.cases import load_catalogue
from repro.report.charts import canvas as drawing
from repro.report.charts.canvas import INKS, SERIES, STYLES, legend_places, text_width, write_png, write_svg
from repro.report.charts.figure import efficiency, ideal_line, write_figures
from repro.report.charts.lines import GridChart, LineChart, Series, number, spread_out
from repro.report.charts.rows import BarChart, DotChart, Panel
from repro.report.document import Document, Section
from repro.report.published.figures import published_figure_specs, published_figures
from repro.report.run.attachments import DRAWING_PAYS_AFTER_S, drawing_pays, illustrated, run_figures
from repro.utils.i18n import catalogue
from tests.support.paths import ROOT

LINE = Series("batch 128", ((1, 384.9), (8, 2969.5), (32, 11711.2)))
CHINESE = re.compile("[一-鿿]")


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    return folder, published_figures(folder)


def test_every_published_report_has_the_same_figures_in_both_languages(published):
    _folder, reports = published
    assert set(reports) == {report.id for report in load_catalogue().reports}
    for blocks in reports.values():
        assert [block.id for block in blocks["zh"]] == [block.id for block in blocks["en"]]
        assert len(blocks["en"]) >= 2
        for language in ("zh", "en"):
            for block in blocks[language]:
                assert block.file.name.endswith(f"-{block.id.removeprefix('figure-')}.{language}.svg")
                assert bool(CHINESE.search(block.caption)) == (language == "zh")
                assert bool(CHINESE.search(block.file.read_text(encoding="utf-8"))) == (language == "zh")


def test_every_kind_of_figure_is_there(published):
    _folder, reports = published
    kinds = {report: [block.id.removeprefix("figure-") for block in blocks["en"]] for report, blocks in reports.items()}
    assert kinds["resnet50-2020-08-08"] == ["throughput", "efficiency", "peers"]
    assert kinds["resnet50-2020-08-21"] == ["throughput", "efficiency", "repeats", "peers"]
    assert kinds["bert-2020-08-22"] == ["throughput", "efficiency", "repeats", "peers", "peers-largest-batch"]
    assert kinds["gpt2-small-2020-12"] == ["memory", "throughput"]
    assert kinds["gpt-3d-2021-05"] == ["data-parallel", "data-parallel-efficiency", "layouts", "peers", "memory"]


def test_alternative_text_gives_the_published_figures(published):
    _folder, reports = published
    said = " ".join(block.alternative for block in reports["gpt-3d-2021-05"]["en"])
    for case in load_catalogue().select("gpt", "DP_* MP_* 2D_*"):
        assert f"{case.name} OneFlow {float(case.published.throughput):g}, Megatron-LM" in said
        assert f"{case.name} OneFlow {float(case.published.memory_mib):.0f}, Megatron-LM" in said


def test_published_repeats_deviate_from_their_own_median(published):
    cases = load_catalogue().cases
    figure_spec = next(
        figure_spec
        for figure_spec in published_figure_specs(cases)["resnet50-2020-08-21"]
        if figure_spec.id == "repeats"
    )
    chart = figure_spec.chart(catalogue("en").gettext)
    assert all(sorted(values)[3] == 0 and len(values) == 7 for values in chart.values)
    assert max(abs(value) for values in chart.values for value in values) < 2


def test_lines_are_drawn_where_their_points_are():
    chart = LineChart("t", "s", "GPUs", (LINE,), ideal_line([LINE], "ideal"))
    ideal, line = chart.draw().axes[0].lines
    assert [tuple(point) for point in line.get_xydata()] == list(LINE.points)
    assert list(map(tuple, ideal.get_xydata())) == [(0, 0), (32, 32 * 384.9)]


def test_bars_are_as_long_as_their_values():
    panel = Panel("", ((5603, 3849), (11301, None)))
    axes = BarChart("t", "MiB", ("a", "b"), (panel,), ("off", "on"), limit=("16 GiB", 16384)).draw().axes[0]
    assert [bar.get_width() for bar in axes.patches] == [5603, 3849, 11301]
    assert [text.get_text() for text in axes.texts] == ["5603", "3849", "11301", "16 GiB"]
    assert axes.get_xlim()[1] > 16384


def test_dots_are_where_their_values_are():
    axes = DotChart("t", "s", ("a", "b"), ((1.0, 2.0), (30.0, 20.0)), ("one", "other"), log=True).draw().axes[0]
    dots = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() in "os"]
    assert dots == [(1, 0), (2, 0), (30, 1), (20, 1)]
    assert axes.get_xscale() == "log"


def test_efficiency_is_relative_to_the_first_point():
    points = dict(efficiency(LINE).points)
    assert points[1] == 1
    assert points[32] == pytest.approx(11711.2 / 384.9 / 32)


def test_labels_keep_apart_and_stay_below_the_top():
    assert spread_out([0, 1, 50], 10, 100) == [0, 10, 50]
    assert spread_out([95, 97, 99], 10, 100) == [80, 90, 100]


def test_numbers_have_four_digits():
    assert [number(value) for value in (11711.2, 384.94, 4.92, 2.0, 0)] == ["11711", "384.9", "4.92", "2", "0"]


def test_a_legend_goes_on_in_a_new_row():
    labels = ["OneFlow, not sharded"] * 6
    rows = [row for _left, row, _label in legend_places(labels)]
    assert rows[0] == 0 and rows[-1] > 0 and rows == sorted(rows)
    assert text_width("吞吐") > text_width("ab")


def test_bytes_depend_on_neither_time_zone_nor_hash_seed_nor_fonts(published, tmp_path):
    folder, _reports = published
    program = (
        "import sys, pathlib; from matplotlib.font_manager import fontManager;"
        "fontManager.ttflist = [f for f in fontManager.ttflist if 'DejaVu' in f.name];"
        "from repro.report.published.figures import published_figures; published_figures(pathlib.Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Shanghai", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, env=environment, check=True, timeout=120)
    files = sorted(path.name for path in folder.iterdir())
    assert files == sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in files if (folder / name).read_bytes() != (tmp_path / name).read_bytes()] == []


def test_svg_holds_text_known_colours_and_no_date(published):
    folder, _reports = published
    known = {ink.light for ink in INKS} | {"none"}
    for file in folder.glob("*.svg"):
        root = ElementTree.fromstring(file.read_text(encoding="utf-8"))
        colours = {each.get(name) for each in root.iter() for name in ("fill", "stroke") if each.get(name)}
        assert {each for each in colours if not each.startswith("url(")} <= known, file.name
        assert not [each for each in root.iter() if each.get("style") or each.tag.endswith(("metadata", "style"))]
        assert len(list(root.iter(f"{drawing.SVG}text"))) > 5


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


def test_grid_draws_every_field(tmp_path):
    fields = tuple((f"unit-{n}", (LINE, replace(LINE, label="repeat 2"))) for n in range(7))
    chart = GridChart("t", "ms", fields)
    assert len(chart.draw().axes) == 7
    write_svg(chart, tmp_path / "grid.svg")
    assert "unit-6 repeat 2: 384.9–11711" in chart.described()


def result(name, throughputs, memory=600.0):
    config = {"log_generation": "A", "precision": "fp32", "shape": {"image_size": 32}, "layout": {"data": 1}}
    unit = Unit(name, "resnet50", config, {}, 128)
    middle = sorted(throughputs)[len(throughputs) // 2] if throughputs else None
    return SimpleNamespace(unit=unit, throughputs=throughputs, throughput=middle, memory_mib=memory)


def story(tmp_path, results, scale="smoke", latencies=(10.0, 11.0)):
    attempts = []
    for each in results:
        folder = tmp_path / each.unit.name
        folder.mkdir()
        events = [{"event": "start"}]
        events += [{"event": "iteration", "iteration": n, "latency_ms": ms} for n, ms in enumerate(latencies, 1)]
        lines = "".join(json.dumps(event) + "\n" for event in events)
        (folder / "metrics-rank0.jsonl").write_text(lines + '{"event": "it', encoding="utf-8")
        attempts.append({"status": "ok", "unit": each.unit.name, "repeat": 1, "folder": each.unit.name})
    plan = SimpleNamespace(scale=scale, kind="bench", device="cpu")
    return SimpleNamespace(results=results, attempts=attempts, plan=plan)


def test_a_runs_figures_are_those_it_has_data_for(tmp_path):
    told = story(tmp_path, [result("smoke_a", (100.0, 101.0, 99.0)), result("smoke_b", (50.0, 51.0))])
    blocks = run_figures(told, tmp_path, "en")
    assert [block.id for block in blocks] == ["figure-repeats", "figure-throughput-1", "figure-memory", "figure-times"]
    assert {block.file.parent for block in blocks} == {tmp_path / "figures"}
    assert (tmp_path / "figures" / "times.en.png").is_file()
    assert "a repeat 1: 10–11" in blocks[-1].alternative


def test_a_run_without_repeats_or_rows_has_fewer_figures(tmp_path):
    told = story(tmp_path, [result("smoke_a", (100.0,), memory=None), result("smoke_b", ())], latencies=())
    assert run_figures(told, tmp_path, "zh") == []


def test_scaling_is_shown_beside_the_published(tmp_path):
    names = ("resnet50_0821_1n1g_bs128", "resnet50_0821_1n8g_bs128")
    told = story(tmp_path, [result(names[0], (850.0,)), result(names[1], (6460.0,))], scale="published")
    block = next(block for block in run_figures(told, tmp_path, "en", ("svg",)) if block.id == "figure-efficiency-1")
    assert "measured: 100.0% (1), 95.0% (8); published: 100.0% (1), 96.4% (8)" in block.alternative


def test_figures_and_data_are_added_to_a_report(tmp_path):
    told = story(tmp_path, [result("smoke_a", (100.0, 101.0))])
    (tmp_path / "run.json").write_text("{}")
    document = Document("zh", "t", "", (Section("results", "结果"), Section("environment", "环境")))
    drawn = illustrated(document, told, tmp_path, draw=True)
    assert [section.id for section in drawn.sections] == ["results", "figures", "environment", "data"]
    assert [block.file.name for block in drawn.sections[-1].blocks] == ["run.json"]
    plain = illustrated(document, told, tmp_path, draw=False)
    assert [section.id for section in plain.sections] == ["results", "environment", "data"]


def test_drawing_pays_after_a_long_run_only():
    assert not drawing_pays([{"wall_s": DRAWING_PAYS_AFTER_S / 2}, {"status": "interrupted"}])
    assert drawing_pays([{"wall_s": DRAWING_PAYS_AFTER_S}] * 2)


def test_a_report_without_figures_does_not_import_matplotlib():
    program = "import sys, repro.report.run.page, repro.report.html, repro.report.run.attachments; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60).returncode == 0


def test_writing_returns_blocks_in_the_plates_order(tmp_path):
    figure_specs = published_figure_specs(load_catalogue().cases)["gpt2-small-2020-12"]
    blocks = write_figures(figure_specs, tmp_path, "en", prefix="x-")
    assert [block.file.name for block in blocks] == ["x-memory.en.svg", "x-throughput.en.svg"]
