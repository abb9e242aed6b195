"""What kept runs measured beside what the model says, and the uncertainties that follow."""

from dataclasses import replace

import pytest

from repro.perfmodel.constants import ELSEWHERE, JUDGES_WITHIN, load_calibration
from repro.perfmodel.validation import (
    as_toml,
    check_frame,
    load_measurements,
    measured_uncertainties,
    megatron_checks,
)

CALIBRATION = load_calibration()
MEASURED = load_measurements()


@pytest.fixture(scope="module")
def kept():
    return check_frame(MEASURED, CALIBRATION.constants)


def test_the_file_holds_all_of_a_measurement(tmp_path):
    (tmp_path / "validation.toml").write_text(as_toml(MEASURED), encoding="utf-8")
    assert load_measurements(tmp_path / "validation.toml") == MEASURED


def test_each_training_of_a_program_on_a_gpu_is_there_once():
    groups = [(each.program, each.gpu, each.job) for each in MEASURED]
    assert len(set(groups)) == len(groups)


def test_uncertainties_are_those_in_the_file(kept):
    groups, elsewhere = measured_uncertainties(kept)
    assert groups.keys() == CALIBRATION.measured.keys()
    for found, written in [(elsewhere, CALIBRATION.uncertainty[ELSEWHERE])] + [
        (groups[group], CALIBRATION.measured[group]) for group in groups
    ]:
        assert (written.cases, written.throughput) == (found.cases, pytest.approx(found.throughput, rel=1e-4))
        assert written.memory == pytest.approx(found.memory, rel=1e-4)


def test_an_uncertainty_follows_from_the_measurements(kept):
    """Nine in ten lie within it, and twice the measurements of one family make that family's, and no other's, larger."""
    for (program, gpu, family), level in measured_uncertainties(kept)[0].items():
        rows = kept[(kept["program"] == program) & (kept["gpu"] == gpu) & (kept["family"] == family)]
        ratios = rows["throughput"] / rows["modelled"]
        within = (ratios <= 1 + level.throughput + 1e-9) & (1 / ratios <= 1 + level.throughput + 1e-9)
        assert within.mean() >= 0.9
    changed = [replace(each, throughput=2 * each.throughput) if each.family == "bert" else each for each in MEASURED]
    before, after = CALIBRATION.measured, measured_uncertainties(check_frame(changed, CALIBRATION.constants))[0]
    for group in before:
        same = after[group].throughput == pytest.approx(before[group].throughput, rel=1e-4)
        assert same == (group[-1] != "bert")


def test_few_measurements_give_no_uncertainty_of_their_own(kept):
    few = kept[kept["family"] == "bert"].head(4)
    groups, elsewhere = measured_uncertainties(few)
    assert groups == {}
    assert elsewhere.cases == 4


def test_what_was_never_measured_is_no_surer_than_what_was():
    elsewhere = CALIBRATION.uncertainty[ELSEWHERE]
    assert all(elsewhere.throughput >= each.throughput for each in CALIBRATION.measured.values())
    assert elsewhere.throughput > JUDGES_WITHIN


def test_other_programs_figures_for_the_formulas():
    errors = [abs(each.error) for each in megatron_checks(CALIBRATION.constants)]
    assert len(errors) == 10
    assert max(errors) < 0.10
