"""The share of the GPUs' peak that GPT's trainings reach, counted as the published ones were."""

from dataclasses import replace

import pytest

from repro.perfmodel.hardware import describe
from repro.published.audit.flops import efficiency
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


@pytest.mark.parametrize("world_size", [1, 2])
def test_operations_are_counted_by_the_published_formula(host, world_size):
    unit, environment = unit_and_environment(host, world_size)
    s, h, layers, vocabulary = 2048, 1536, 16, 51200
    assert unit.config.activation_checkpointing
    flop = 96 * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (16 * layers * h))
    assert at_peak(unit, environment) == pytest.approx(world_size * DENSE_FP16 / flop, rel=1e-3)
    without = configured(unit, activation_checkpointing=False)
    flop = 72 * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))
    assert at_peak(without, environment) == pytest.approx(world_size * DENSE_FP16 / flop, rel=1e-3)


def test_what_has_no_published_peak_or_operations_has_no_share(host):
    unit, environment = unit_and_environment(host)
    assert at_peak(replace(unit, baseline_of="other", variant="megatron"), environment) is None
    assert at_peak(configured(unit, precision="fp32"), environment) is None
    other = [{**gpu, "name": "GPU of tomorrow"} for gpu in environment.gpus]
    assert at_peak(unit, replace(environment, gpus=other)) is None


def test_a_share_is_its_throughput_over_that_at_the_peak_beside_the_published_one(host):
    (section,) = [each for each in page.build(host, "en", []).sections if each.id == "peak"]
    (table,) = section.blocks
    shown = {row[0].text: row for row in table.rows}
    unit, environment = unit_and_environment(host)
    (result,) = [each for each in host.runs[0].results if each.unit.name == unit.name]
    row = shown[unit.name]
    assert row[1].sort == pytest.approx(result.throughput / at_peak(unit, environment))
    case = host.catalogue.case(unit.name)
    gpu = describe(host.catalogue.report(case.report).cluster).gpu
    assert row[-1].sort == pytest.approx(efficiency(case, gpu.tensor_tflops).share_of_peak)
    assert row[-1].text == "39.5%", "4.92 samples/s of 10.0 TFLOP each, of the 125 TFLOP/s of a V100"
    assert {row.goal.of for row in host.peaks if row.goal} == {"peak"}
