"""GPT by layout beside Megatron-Core: the rows, the figure, and the published ratios."""

import math
import re

import pytest

from repro.analysis.ratio import Ratio
from repro.published.cases import load_catalogue
from repro.published.figures import load_peers
from repro.report.charts.series import AS_PUBLISHED, PORT, style
from repro.report.document import Figure
from repro.report.host import page as host_page
from repro.report.host.answer import believed, by_model, scaled
from repro.report.host.figures import figure_specs
from repro.report.host.measured import over_pytorch
from repro.report.host.megatron import FUSED, UNFUSED, by_layout, layout_rows, megatron_figure
from repro.report.html import check_same_structure
from repro.report.site import speed
from repro.utils.i18n import LANGUAGES, catalogue
from repro.utils.stats import Interval, TooFew
from tests.report.host.conftest import EVERY_BASELINE, SPEEDS
from tests.support.pages import cells

ENGLISH = catalogue("en").gettext
LAYOUTS = {
    "1x1x1, batch size 2",
    "2x1x1, batch size 4",
    "1x2x1, batch size 16",
    "1x1x2, batch size 64",
    "1x1x4, batch size 64",
    "4x1x1, batch size 8",
    "1x4x1, batch size 16",
    "2x1x2, batch size 128",
}


def chart_of(host):
    (spec,) = megatron_figure(host)
    return spec.chart(ENGLISH)


def test_every_layout_is_a_row_with_both_programs_over_both_variants(megatron_host):
    (section,) = by_layout(ENGLISH, megatron_host, [])
    (table,) = section.blocks
    assert [column.title for column in table.columns] == [
        "Layout",
        "Port / megatron-unfused",
        "Tuned / megatron-unfused",
        "Port / megatron",
        "Tuned / megatron",
        "megatron / megatron-unfused",
        "OneFlow / Megatron-LM, published (V100)",
    ]
    narrow = [column.title for column in table.columns if not column.minor]
    assert narrow == [
        "Layout",
        "Port / megatron",
        "Tuned / megatron",
        "OneFlow / Megatron-LM, published (V100)",
    ]
    assert {row[0].text for row in table.rows} == LAYOUTS
    assert [row[0].note.split(", ")[1] for row in table.rows] == ["1 GPU", *["2 GPUs"] * 3, *["4 GPUs"] * 4]
    for row in table.rows:
        assert row[1].sort == pytest.approx(SPEEDS["published"] / SPEEDS[UNFUSED], rel=1e-2)
        assert row[4].sort == pytest.approx(math.sqrt(1.02 / 1.005) * SPEEDS["tuned"] / SPEEDS[FUSED], rel=1e-3)
        assert row[5].sort == pytest.approx(SPEEDS[FUSED] / SPEEDS[UNFUSED], rel=1e-2)
        assert all("n\xa0=\xa02" in cell.note for cell in row[1:6])


def test_published_ratios_are_those_of_the_original_case(megatron_host):
    (section,) = by_layout(ENGLISH, megatron_host, [])
    published = {row[0].note.split(", ")[0]: row[-1] for row in section.blocks[0].rows}
    megatron = {peer.case: peer for peer in load_peers() if peer.framework == "Megatron-LM"}
    for name, cell in published.items():
        (case,) = load_catalogue().select("gpt", name.split(".as_")[0])
        assert cell.sort == pytest.approx(case.published.throughput / megatron[case.name].throughput)
        assert cell.note.split()[0] == str(case.layout.world_size)


def test_the_figure_has_the_four_series_by_layout_with_the_published_ratio(megatron_host):
    chart = chart_of(megatron_host)
    names = (PORT, "tuned", FUSED, AS_PUBLISHED)
    assert chart.styles == tuple(map(style, names)) and len(chart.series) == len(names)
    ((heading, rows),) = chart.groups
    assert heading.startswith("1536x16") and {row.label for row in rows} == LAYOUTS
    for row in rows:
        points = row.points
        assert [point.series for point in points] == [0, 1, 2, 3]
        assert all(point.interval for point in points[:3]) and points[3].printed
        assert points[1].value > points[0].value > points[2].value > 1


def test_a_configuration_without_the_figures_base_is_in_the_table_alone(megatron_host):
    alone = {name for name in (row.name for row in layout_rows(megatron_host)) if "as_1x4x1" in name}
    fewer = [row for row in megatron_host.ratios if not (row.base.label == UNFUSED and "as_1x4x1" in row.unit.name)]
    host = Changed(megatron_host, ratios=fewer)
    assert {row.name for row in layout_rows(host)} >= alone
    (spec,) = megatron_figure(host)
    assert "1x4x1" not in repr(spec.chart(ENGLISH))
    assert "Configurations that are in the table only: 1." in spec.caption(ENGLISH)
    assert megatron_figure(Changed(megatron_host, ratios=over_pytorch(megatron_host))) == []
    assert by_layout(ENGLISH, Changed(megatron_host, ratios=[]), []) == []


class Changed:
    """A host with something replaced that it computes itself."""

    def __init__(self, host, **changed):
        self._host, self._changed = host, changed

    def __getattr__(self, name):
        return self._changed[name] if name in self._changed else getattr(self._host, name)


def test_the_page_is_ready_for_every_baseline_in_both_languages(megatron_host, tmp_path):
    documents = {}
    for language in LANGUAGES:
        drawn = [Figure(f"figure-{spec.id}", tmp_path, "", ()) for spec in figure_specs(megatron_host)]
        documents[language] = host_page.build(megatron_host, language, drawn)
    check_same_structure(documents["en"], documents["zh"])
    ids = [section.id for section in documents["en"].sections]
    assert ids.index("speed") < ids.index("megatron") < ids.index("transfers")
    (compared,) = (section for section in documents["en"].sections if section.id == "speed")
    titles = [column.title for column in compared.blocks[0].columns]
    assert not any("megatron" in title for title in titles), "those are by layout, in a section of their own"
    assert {"Port / pytorch-compiled", "Tuned / pytorch-compiled"} <= set(titles)


def test_the_words_and_the_first_screen_have_every_baseline(megatron_host):
    words = by_model(ENGLISH, megatron_host)
    assert [text.split("`")[1] for text in words] == sorted(EVERY_BASELINE, key=lambda name: (name[:1] != "m", name))
    (megatron,) = (text for text in words if "over `megatron`" in text)
    assert megatron.startswith("**GPT AMP** over `megatron`, 1, 2 and 4 GPUs: port 1.06 (n\xa0=\xa02")
    assert not any("95%" in text for text in (*words, scaled(ENGLISH, megatron_host))), (
        "a range has no interval of its own"
    )
    assert believed(ENGLISH, megatron_host).startswith(
        "Every comparison has an interval over several sessions. Nothing"
    )
    rows = {row[0].note: row for row in speed.table(ENGLISH, [megatron_host]).rows}
    assert set(rows) == {"PyTorch", "Megatron-Core"}
    assert rows["Megatron-Core"][1].note == "1, 2 and 4 GPUs"
    assert (rows["PyTorch"][2].text, rows["PyTorch"][2].note) == ("0.80", "pytorch-compiled, n\xa0=\xa02")
    assert [rows[name][4].text for name in ("PyTorch", "Megatron-Core")] == ["1.59", "1.36"]
    assert rows["Megatron-Core"][2].text == "1.06"


def with_interval(row, low, high):
    """The row with this interval over its sessions."""
    interval = Interval(low, high, 0.95, "of this test", (2,))
    return Changed(row, ratio=Ratio((low * high) ** 0.5, interval))


def test_what_intervals_over_sessions_decide_may_be_concluded(megatron_host):
    decided = [
        with_interval(row, 0.7, 0.9 if row.base.label == "pytorch-compiled" else 1.1)
        for row in megatron_host.ratios
        if row.base.label.startswith("pytorch") and row.unit.program == "published"
    ]
    (port,) = speed.conclusion(ENGLISH, [Changed(megatron_host, ratios=decided)])
    assert port.startswith(
        "The **port** (the published program rewritten for OneFlow 0.8.0) was slower than PyTorch in "
    )
    assert port.endswith(" GPT AMP configurations (pytorch-compiled).") and "faster" not in port
    beside = [with_interval(row, 0.9, 1.1) for row in megatron_host.ratios if row.base.label == "megatron"]
    *_decided, rest = speed.conclusion(ENGLISH, [Changed(megatron_host, ratios=[*decided, *beside])])
    assert re.match(
        r"The other [1-9]\d* of \d+ comparisons are undecided, all those with Megatron-Core among them: a single session",
        rest,
    )
    assert speed.conclusion(ENGLISH, [Changed(megatron_host, ratios=[])]) == []


def test_a_single_session_decides_nothing(megatron_host):
    single = [Changed(row, ratio=Ratio(0.5, TooFew((1,), 2))) for row in megatron_host.ratios]
    (rest,) = speed.conclusion(ENGLISH, [Changed(megatron_host, ratios=single)])
    assert re.match(r"All \d+ comparisons are undecided: a single session", rest)


def test_a_series_has_one_colour_in_all_figures_of_the_page(megatron_host):
    charts = {spec.id: spec.chart(ENGLISH) for spec in figure_specs(megatron_host)}
    assert {"ratios", "megatron", "efficiency-1"} <= set(charts)
    port, tuned = charts["ratios"].charts
    assert port.title.endswith(": Port") and tuned.title.endswith(": Tuned")
    for part in (port, tuned):
        over = {name.removeprefix("over "): look for name, look in zip(part.series, part.styles, strict=True)}
        assert over == {name: style(name) for name in EVERY_BASELINE if name.startswith("pytorch")}
    looks = {line.label: line.style for line in charts["efficiency-1"].series}
    assert (looks["OneFlow"], looks["OneFlow (tuned)"]) == (style(PORT), style("tuned"))
    assert looks["published, V100"] == style(AS_PUBLISHED)
    assert cells(host_page.by_layout(ENGLISH, megatron_host, [])[0])
