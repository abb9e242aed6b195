"""The model FLOPs utilization of GPT's trainings, beside that of the published ones."""

from dataclasses import replace

import pytest

from repro.report.host import page
from repro.report.host.results import at_peak
from tests.support.configs import configured

DENSE_FP16 = 989.4e12
"""FLOP/s, of NVIDIA's data sheet of H200."""


def unit_and_environment(host, world_size=1):
    (kept_run,) = host.runs
    results = (each for each in kept_run.results if each.unit.model == "gpt" and not each.unit.baseline_of)
    unit = next(result.unit for result in results if result.unit.world_size == world_size)
    return unit, kept_run.environment


@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_models_operations_are_counted_whatever_a_program_recomputes(host, world_size, recompute):
    unit, environment = unit_and_environment(host, world_size)
    s, h, layers, vocabulary = 2048, 1536, 16, 51200
    flop = 72 * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))
    unit = configured(unit, activation_checkpointing=recompute)
    assert at_peak(unit, environment) == pytest.approx(world_size * DENSE_FP16 / flop, rel=1e-3)


def test_what_has_no_such_peak_or_operations_has_no_utilization(host):
    unit, environment = unit_and_environment(host)
    assert at_peak(replace(unit, baseline_of="other", variant="megatron"), environment) is None
    assert at_peak(configured(unit, precision="fp32"), environment) is None
    other = [{**gpu, "name": "GPU of tomorrow"} for gpu in environment.gpus]
    assert at_peak(unit, replace(environment, gpus=other)) is None


def test_a_utilization_is_the_throughput_over_that_at_the_peak_beside_the_published_one(host):
    (section,) = [each for each in page.build(host, "en", []).sections if each.id == "peak"]
    (table,) = section.blocks
    shown = {row[0].text: row for row in table.rows}
    unit, environment = unit_and_environment(host)
    (result,) = [each for each in host.runs[0].results if each.unit.name == unit.name]
    row = shown[unit.name]
    assert row[1].sort == pytest.approx(result.throughput / at_peak(unit, environment))
    assert row[-1].text == "30.6%", "4.92 samples/s of 7.77 TFLOP each, of the 125 TFLOP/s of a V100"
    derived = [cells for name, cells in shown.items() if name != unit.name]
    assert derived and all(cells[-1].text == "–" for cells in derived), "their cases had other layouts"
    assert {row.goal.of for row in host.peaks if row.goal} == {"peak"}
