"""The figures of published reports: the data they draw, and the same bytes each time."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from repro.published.cases import load_catalogue
from repro.report.charts import canvas as drawing
from repro.report.charts.canvas import INKS
from repro.report.published.figures import published_figure_specs, published_figures
from repro.utils.i18n import catalogue
from tests.support.paths import ROOT
from tests.support.patience import patience

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
        assert blocks["en"]
        for language in ("zh", "en"):
            for block in blocks[language]:
                assert block.file.name == f"{block.id.removeprefix('figure-')}.{language}.svg"
                assert bool(CHINESE.search(block.caption)) == (language == "zh")
                assert bool(CHINESE.search(block.file.read_text(encoding="utf-8"))) == (language == "zh")


TITLES = {
    "resnet50-2020-08-08": ("Throughput by number", "Scaling efficiency", "batch size 128"),
    "resnet50-2020-08-21": ("Throughput by number", "Scaling efficiency", "Repeats", "batch size 128"),
    "bert-2020-08-22": ("Throughput by number", "Scaling efficiency", "Repeats", "batch size 32", "largest batch size"),
    "gpt2-small-2020-12": ("Memory with and without", "Throughput with and without"),
    "gpt-3d-2021-05": (
        "Throughput by number",
        "Scaling efficiency",
        "Throughput by layout",
        "every case",
        "Memory by layout",
    ),
}


@pytest.mark.parametrize("report", TITLES)
def test_a_report_has_one_figure_with_a_drawing_of_each_kind(published, report):
    _folder, reports = published
    (figure,) = reports[report]["en"]
    charts = published_figure_specs(load_catalogue().cases)[report].chart(catalogue("en").gettext).charts
    assert [title in chart.title for title, chart in zip(TITLES[report], charts, strict=True)] == [True] * len(charts)
    drawn = [text.text for text in ElementTree.parse(figure.file).iter(f"{drawing.SVG}text")]
    assert {chart.title for chart in charts} <= set(drawn)
    places = [figure.alternative.index(f"{chart.title} (") for chart in charts]
    assert places == sorted(places)


def test_alternative_text_gives_the_published_figures(published):
    _folder, reports = published
    text = " ".join(block.alternative for block in reports["gpt-3d-2021-05"]["en"])
    for case in load_catalogue().select("gpt", "DP_* MP_* 2D_*"):
        assert f"{case.name}  ·  {float(case.published.throughput):g} / " in text
        assert f"{case.name} OneFlow {float(case.published.memory_mib):.0f}, Megatron-LM" in text


def test_published_repeats_deviate_from_their_own_median(published):
    cases = load_catalogue().cases
    figure = published_figure_specs(cases)["resnet50-2020-08-21"]
    _throughput, _efficiency, chart, *_peers = figure.chart(catalogue("en").gettext).charts
    assert all(sorted(values)[3] == 0 and len(values) == 7 for values in chart.values)
    assert max(abs(value) for values in chart.values for value in values) < 2


def test_bytes_depend_on_neither_time_zone_nor_hash_seed_nor_fonts(published, tmp_path):
    folder, _reports = published
    program = (
        "import sys, pathlib; from matplotlib.font_manager import fontManager;"
        "fontManager.ttflist = [f for f in fontManager.ttflist if 'DejaVu' in f.name];"
        "from repro.report.published.figures import published_figures; published_figures(pathlib.Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Shanghai", "SOURCE_DATE_EPOCH": "1"}
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, env=environment, check=True, timeout=patience()
    )
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
        drawings = [element for element in root.iter(f"{drawing.SVG}svg") if element.get("viewBox")]
        fonts = [element for element in root.iter() if element.get("font-family")]
        assert fonts and all(element in drawings for element in fonts), "the reader's own fonts"
        idle = [element for name in ("g", "defs") for element in root.iter(drawing.SVG + name) if not element.attrib]
        assert all(element.tag == f"{drawing.SVG}defs" and len(element) for element in idle)
        ids = [element.get("id") for element in root.iter() if element.get("id")]
        assert len(ids) == len(set(ids)), file.name
