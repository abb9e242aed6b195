"""Which figures a run's report has, and what they draw."""

from dataclasses import replace

from repro.published.cases import Layout
from repro.report.run.attachments import run_figures
from repro.report.run.figures import efficiency_figures
from tests.support.run_data import measured, report_data


def test_a_runs_figures_are_those_it_has_data_for(tmp_path):
    data = report_data(tmp_path, [measured("smoke_a", (100.0, 101.0, 99.0)), measured("smoke_b", (50.0, 51.0))])
    blocks = run_figures(data, tmp_path, tmp_path / "figures", "en")
    assert [block.id for block in blocks] == ["figure-repeats", "figure-throughput-1", "figure-times"]
    assert {block.file.parent for block in blocks} == {tmp_path / "figures"}
    assert (tmp_path / "figures" / "times.en.svg").is_file()
    assert "a repeat 1: 10–11" in blocks[-1].alternative


def test_a_run_without_repeats_or_rows_has_fewer_figures(tmp_path):
    data = report_data(tmp_path, [measured("smoke_a", (100.0,), memory=None), measured("smoke_b", ())], latencies=())
    assert run_figures(data, tmp_path, tmp_path / "figures", "zh") == []


def test_scaling_is_shown_with_the_published():
    unit = measured("one", (), case="resnet50_0821_1n1g_bs128").unit
    points = [
        (unit, replace(unit, config=replace(unit.config, layout=Layout(gpus, 1, 1))), share)
        for gpus, share in ((16, 0.93), (8, 0.95))
    ]
    assert efficiency_figures(points[:1]) == [], "one number of GPUs is no line"
    (spec,) = efficiency_figures(points)
    chart = spec.chart(str)
    assert chart.series[0].points == ((1, 1.0), (8, 0.95), (16, 0.93))
    assert "published, V100: 100.0% (1), 96.4% (8)" in chart.described()
