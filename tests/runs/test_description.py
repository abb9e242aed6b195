"""The description of a run: kept ones are read and written as they were, and what no run records is refused."""

import json

import pytest

from repro.models.programs import TUNED
from repro.planning.plan import make_plan
from repro.published.cases import load_catalogue
from repro.runs.description import BaselineProgram, Goal, RunDescription
from repro.runs.failures import Failure
from repro.runs.files import RecordError, read_json
from repro.runs.record import Run, write_json
from repro.targets import command_line
from tests.support.paths import EARLIER_RUN, ROOT
from tests.support.synthetic import described, ran_on

KEPT = sorted((ROOT / "reports" / "reproduced").glob("*/runs/2*.zip"))


def again(description):
    """A description as it is read after it was written."""
    return RunDescription.from_json(json.loads(json.dumps(description.as_json())))


def test_kept_descriptions_are_written_as_they_were():
    assert KEPT
    for path in KEPT:
        recorded = read_json(Run(path).files / "run.json")
        unchanged = json.dumps(recorded)
        read = RunDescription.from_json(recorded)
        assert again(read) == read == Run(path).description(), path.name
        assert json.dumps(read.as_json()) == unchanged, path.name


def test_a_description_of_an_earlier_release_is_read_in_the_terms_of_today_and_written_so_that_it_is_the_same():
    """Its units say neither their report nor their case; there was only one program, the tuned one of today."""
    recorded = json.loads(EARLIER_RUN.read_text(encoding="utf-8"))
    assert not {"report", "case", "framework", "kind"} & {*recorded["plan"], *recorded["plan"]["units"][0]}
    read = RunDescription.from_json(recorded)
    assert again(read) == read
    found = [(unit.case and unit.case.name, unit.report, unit.framework, unit.program) for unit in read.plan.units]
    names = ("resnet50_0808_1n1g_bs128", "resnet50_0808_1n4g_bs128")
    assert found == [(name, "resnet50-2020-08-08", "oneflow", TUNED) for name in names]
    assert read.plan.kind == "bench"


def test_what_was_planned_is_read_as_it_was():
    plan = make_plan(load_catalogue().select(None, "bert_1n1g_bs24"), 1)
    baseline = BaselineProgram(("python", "run.py"), {"torch": "2.9.1"}, ("pytorch",), lock="a.lock")
    goal = Goal(1.5, Failure("a goal of {n}", {"n": 1}))
    full = described(plan, id="x", baseline=baseline, datasets=({"source": "a text"},), goals={"a": goal})
    assert again(full) == full
    bare = described(plan, id="x")
    assert again(bare) == bare and not {"baseline", "datasets", "goals"} & bare.as_json().keys()
    assert again(described(plan, id="x", further={"own": 1})).as_json()["own"] == 1, "what another release recorded"


@pytest.mark.parametrize(
    ("visible", "number"),
    [
        ({}, 8),
        ({"CUDA_VISIBLE_DEVICES": "0"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0, 3", "OMP_NUM_THREADS": "4"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1a-2b,GPU-3c,-1,2"}, 2),
        ({"CUDA_VISIBLE_DEVICES": ""}, 0),
        ({"CUDA_VISIBLE_DEVICES": ",".join(["MIG-1"] * 9)}, 8),
        ({"CUDA_VISIBLE_DEVICES": " 0 ,1"}, 2),
        ({"CUDA_VISIBLE_DEVICES": "MIG-GPU-1/1/0,MIG-GPU-1/2/0"}, 2),
    ],
)
def test_a_run_could_use_the_gpus_that_its_command_left_it(visible, number):
    command = command_line("bench", {"MODEL": "gpt", **visible})
    assert described(command=command).gpu_count == number
    nodes = ran_on(cluster={"name": "x"})
    assert described(command=command, environment=nodes).gpu_count == 8, "it says nothing of a cluster's nodes"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *(
            (lambda record, name=name: record.pop(name), f"has no {name}")
            for name in ("created", "plan", "environment")
        ),
        (lambda record: record["environment"].pop("host"), "KeyError: 'host'"),
        (lambda record: record.update(baseline={"command": [1]}), "'baseline' 'command' 1: is 1; must be a text"),
        (lambda record: record.update(baseline={}), "KeyError: 'command'"),
        (lambda record: record.update(datasets=[{}]), "'datasets' 1: has no source"),
        (lambda record: record.update(goals={"a": {"limit": 1}}), "'goals' 'a' has no meaning"),
    ],
)
def test_what_no_run_records_is_refused(tmp_path, change, said):
    run = Run.create("x", described(), tmp_path)
    record = read_json(run.folder / "run.json")
    change(record)
    write_json(run.folder / "run.json", record)
    with pytest.raises(RecordError) as refused:
        run.description()
    assert said in str(refused.value) and str(run.path) in str(refused.value)
