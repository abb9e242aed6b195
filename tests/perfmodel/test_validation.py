"""What kept runs measured beside what the model says, and the uncertainties that follow."""

from dataclasses import replace

import pytest

from repro.perfmodel.constants import ELSEWHERE, JUDGES_WITHIN, load_calibration
from repro.perfmodel.validation import (
    as_toml,
    check_frame,
    elsewhere,
    load_measurements,
    measured_uncertainties,
    megatron_checks,
)

CALIBRATION = load_calibration()
MEASURED = load_measurements()


@pytest.fixture(scope="module")
def kept():
    return check_frame(MEASURED, CALIBRATION)


@pytest.fixture(scope="module")
def plain():
    return check_frame(MEASURED, replace(CALIBRATION, kernels={}))


def test_the_file_holds_all_of_a_measurement(tmp_path):
    (tmp_path / "validation.toml").write_text(as_toml(MEASURED), encoding="utf-8")
    assert load_measurements(tmp_path / "validation.toml") == MEASURED


def test_each_training_of_a_program_on_a_gpu_is_there_once():
    groups = [(each.program, each.gpu, each.job) for each in MEASURED]
    assert len(set(groups)) == len(groups)


def test_uncertainties_are_those_in_the_file(kept, plain):
    found, written = measured_uncertainties(kept, CALIBRATION), CALIBRATION.measured
    assert found.keys() == written.keys() == CALIBRATION.kernels.keys()
    groups = [(elsewhere(plain), CALIBRATION.uncertainty[ELSEWHERE])] + [(found[each], written[each]) for each in found]
    for one, other in groups:
        assert (one.cases, one.throughput, one.memory) == pytest.approx(
            (other.cases, other.throughput, other.memory), rel=1e-4
        )


def test_a_group_has_the_factor_of_its_generation():
    for (generation, _program, _model), level in CALIBRATION.measured.items():
        assert level.throughput == CALIBRATION.generations[generation].factor


def test_a_group_without_kernels_of_its_own_has_no_uncertainty(kept):
    group = next(iter(CALIBRATION.kernels))
    fewer = replace(
        CALIBRATION, kernels={each: CALIBRATION.kernels[each] for each in CALIBRATION.kernels if each != group}
    )
    assert measured_uncertainties(kept, fewer).keys() == fewer.kernels.keys()


def test_what_was_never_measured_is_no_surer_than_what_was(plain):
    """The errors of constants that were fitted on none of the GPUs, of the family that they are worst for."""
    level = elsewhere(plain)
    assert level.throughput > JUDGES_WITHIN
    factors = plain.assign(factor=[max(1 + each, 1 / (1 + each)) - 1 for each in plain["error"]])
    assert level.throughput == pytest.approx(factors["factor"].max()), "of fewer than nine the worst counts"


def test_other_programs_figures_for_the_formulas():
    errors = [abs(each.error) for each in megatron_checks(CALIBRATION.constants)]
    assert len(errors) == 10
    assert max(errors) < 0.10
