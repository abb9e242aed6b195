"""Programs in a plan: the published one, the tuned one, or both in turn, with nothing else changed."""

import csv
import json
import typing

import pytest

from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.planning.convergence import make_convergence_plan
from repro.planning.derived import case_of
from repro.planning.loss_curves import CONTROL, ERROR, LAYOUT, make_curve_plan
from repro.planning.plan import Wanted, make_plan
from repro.planning.profiling import as_profile
from repro.planning.programs import Programs, in_programs
from repro.published.cases import load_catalogue
from repro.published.trainer_config import TrainingData
from repro.runs.plan import Plan
from tests.support.datasets import without_files
from tests.support.runs import attempts, only_run
from tests.support.tasks import STANDIN_COMMAND as COMMAND

BOTH = (PUBLISHED, TUNED)
BERT = "bert_1n1g_bs96"
SYNTHETIC = {"DATA": "synthetic"}
PYTORCH = {"BASELINE_COMMAND": COMMAND, "BASELINES": "pytorch"}
TEXT = TrainingData("text", "/a/text.npy")


def plan(gpus=1, cases=BERT, **rest):
    return make_plan(load_catalogue().select(None, cases), gpus, Wanted(**rest))


def without_program(unit) -> dict:
    return {key: value for key, value in unit.config.as_json().items() if key not in ("case", "program")}


def test_the_option_has_the_programs_that_there_are():
    assert typing.get_args(typing.get_args(Programs)[0]) == KINDS


def test_the_published_program_runs_under_the_names_of_the_cases():
    (unit,) = plan().units
    assert (unit.name, unit.program, unit.config.program, unit.tuned_of) == (BERT, PUBLISHED, PUBLISHED, None)
    assert plan(programs=(PUBLISHED,)) == plan()


def test_the_tuned_program_alone_takes_the_units_places():
    published, tuned = plan(0, "bert*"), plan(0, "bert*", programs=(TUNED,))
    assert [unit.name for unit in tuned.units] == [f"{unit.name}.tuned" for unit in published.units]
    assert {unit.reference for unit in tuned.units} - {None} <= {unit.name for unit in tuned.units}
    for ours, other in zip(published.units, tuned.units, strict=True):
        assert (other.program, other.config.program, other.config.case) == (TUNED, TUNED, other.name)
        assert without_program(other) == without_program(ours) and other.stands_for == ours.stands_for


def test_both_run_in_turn_and_then_the_baselines():
    found = plan(programs=BOTH, baselines=("pytorch",))
    assert [unit.name for unit in found.units] == [BERT, f"{BERT}.tuned", f"{BERT}.pytorch"]
    published, tuned, baseline = found.units
    assert (tuned.tuned_of, tuned.reference, tuned.follows) == (BERT, None, BERT)
    assert (baseline.framework, baseline.program, baseline.follows) == ("pytorch", PUBLISHED, BERT)
    assert (published.label, tuned.label, baseline.label) == ("OneFlow", "OneFlow (tuned)", "pytorch")
    assert Plan.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_a_tuned_unit_runs_the_case_of_the_published_one():
    published, tuned, baseline = plan(programs=BOTH, baselines=("pytorch",)).units
    assert case_of(published) == case_of(tuned) == load_catalogue().select(None, BERT)[0]
    assert case_of(baseline) is None


def test_a_baseline_follows_the_program_that_it_is_beside():
    tuned, baseline = plan(programs=(TUNED,), baselines=("pytorch",)).units
    assert (baseline.name, baseline.baseline_of) == (f"{BERT}.tuned.pytorch", tuned.name)
    assert (baseline.program, baseline.config.program, baseline.variant) == (TUNED, TUNED, "pytorch")


def test_at_the_smoke_scale_the_tuned_program_must_print_the_published_ones_losses():
    found = plan(0, "DP_8x1x1_16*", programs=BOTH)
    tuned = [unit for unit in found.units if unit.program == TUNED]
    assert [unit.reference for unit in tuned] == [unit.name for unit in found.units if unit.program == PUBLISHED]


def test_derived_cases_have_a_tuned_program_too():
    found = plan(2, "DP_8x1x1_16*", max_gpus=(2,), programs=BOTH)
    assert "DP_8x1x1_16_1536x16.as_2x1x1.tuned" in {unit.name for unit in found.units}
    assert len({unit.name for unit in found.units}) == len(found.units)


def test_curves_of_the_tuned_program_are_compared_with_the_published_reference():
    found = make_curve_plan(4, TEXT, model="gpt", programs=BOTH)
    published = {unit.name: unit for unit in make_curve_plan(4, TEXT, model="gpt").units}
    tuned = [unit for unit in found.units if unit.program == TUNED]
    assert {unit.name for unit in found.units} - {unit.name for unit in tuned} == set(published)
    assert len(tuned) == sum(unit.role not in (CONTROL, ERROR) for unit in published.values())
    for unit in tuned:
        ours = published[unit.tuned_of]
        assert (unit.role, unit.reference) == (LAYOUT, ours.reference or ours.name)
        assert published[unit.reference].program == PUBLISHED


def test_curves_of_the_tuned_program_alone_have_references_of_their_own():
    units = make_curve_plan(0, TEXT, model="gpt", names="gpt_fp32_dp2", programs=(TUNED,)).units
    assert {unit.program for unit in units} == {TUNED}
    assert {unit.reference for unit in units} - {None} <= {unit.name for unit in units}


def test_convergence_has_a_goal_for_each_program():
    planned = make_convergence_plan(0, {"resnet50": without_files("digits")}, programs=BOTH)
    assert [unit.program for unit in planned.plan.units] == [PUBLISHED, TUNED]
    assert list(planned.goals) == [unit.name for unit in planned.plan.units]
    assert len(set(map(str, planned.goals.values()))) == 1


def test_a_profile_has_both():
    cases = load_catalogue().select(None, BERT)
    assert [unit.label for unit in as_profile(make_plan(cases, 1, Wanted(programs=BOTH))).units] == [
        "OneFlow",
        "OneFlow (tuned)",
    ]


@pytest.mark.parametrize("programs", [(), ("fast",)])
def test_other_programs_are_refused(programs):
    with pytest.raises(ValueError, match="published, tuned"):
        in_programs(plan().units[0], programs)


def test_both_programs_from_the_task_to_the_reports(task, tmp_path):
    done = task("bench", MODEL="bert", CASES=BERT, PROGRAM="tuned,published", REPEATS=2, **SYNTHETIC, **PYTORCH)
    assert done.returncode == 0, done.stderr
    folder = only_run(tmp_path)
    smoke = "smoke_bert-2020-08-22_1x1x1"
    names = [smoke, f"{smoke}.tuned", f"{smoke}.pytorch"]
    assert [attempt["unit"] for attempt in attempts(folder)] == names * 2
    assert {path.name for path in (folder / "units").iterdir()} == set(names)
    rows = {row["unit"]: row for row in csv.DictReader((folder / "results.csv").open())}
    assert [rows[name]["program"] for name in names] == [PUBLISHED, TUNED, PUBLISHED]
    assert [rows[name]["tuned_of"] for name in names] == ["", smoke, ""]
    english, chinese = ((folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert (
        "| Training program | port of the published program (bert-2020-08-22); tuned program (bert-2020-08-22) |"
        in english
    )
    assert "| OneFlow | stand-in |" in english
    assert "| Tuned programs whose losses match the ports' | 1 / 1 |" in english
    assert "| 训练程序 | 移植程序（bert-2020-08-22）；调优程序（bert-2020-08-22） |" in chinese


def test_a_program_that_there_is_not_is_refused(refused):
    said = refused("bench", MODEL="bert", PROGRAM="published,fast")
    assert "PROGRAM=published,fast: it is published or tuned, or published,tuned" in said


def test_the_census_of_the_compiled_job_is_recorded(task, tmp_path):
    assert task("bench", MODEL="bert", CASES=BERT, REPEATS=1, STANDIN="census", **SYNTHETIC).returncode == 0
    (attempt,) = attempts(only_run(tmp_path))
    assert attempt["operators"] == {"matmul": 4, "layer_norm": 2}
