"""Which figures a run's report has, and what they draw."""

from repro.report.run.attachments import run_figures
from tests.support.run_data import measured, report_data


def test_a_runs_figures_are_those_it_has_data_for(tmp_path):
    data = report_data(tmp_path, [measured("smoke_a", (100.0, 101.0, 99.0)), measured("smoke_b", (50.0, 51.0))])
    blocks = run_figures(data, tmp_path, tmp_path / "figures", "en")
    assert [block.id for block in blocks] == ["figure-repeats", "figure-throughput-1", "figure-memory", "figure-times"]
    assert {block.file.parent for block in blocks} == {tmp_path / "figures"}
    assert (tmp_path / "figures" / "times.en.svg").is_file()
    assert "a repeat 1: 10–11" in blocks[-1].alternative


def test_a_run_without_repeats_or_rows_has_fewer_figures(tmp_path):
    data = report_data(tmp_path, [measured("smoke_a", (100.0,), memory=None), measured("smoke_b", ())], latencies=())
    assert run_figures(data, tmp_path, tmp_path / "figures", "zh") == []


def test_scaling_is_shown_with_the_published(tmp_path):
    names = ("resnet50_0821_1n1g_bs128", "resnet50_0821_1n8g_bs128")
    runs = [measured(name, (speed,), case=name) for name, speed in zip(names, (850.0, 6460.0), strict=True)]
    data = report_data(tmp_path, runs, scale="published")
    block = next(
        block for block in run_figures(data, tmp_path, tmp_path / "figures", "en") if block.id == "figure-efficiency-1"
    )
    assert "measured: 100.0% (1), 95.0% (8); published: 100.0% (1), 96.4% (8)" in block.alternative
