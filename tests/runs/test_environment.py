"""What a run records of machine and software: what is read of it is what was recorded."""

import json
from dataclasses import replace

import pytest

from repro.runs.environment import FORM, Environment
from repro.runs.files import read_json
from repro.runs.record import Run
from tests.support.paths import ROOT
from tests.support.synthetic import GPU, environment, ran_on

KEPT = sorted((ROOT / "reports" / "reproduced").glob("*/runs/*-[a-z]*.zip"))
RUNS = [path for path in KEPT if not path.name.startswith("preflight")]


@pytest.mark.parametrize("host", ["h100", "h200"])
def test_kept_environments_are_written_as_they_were(host):
    paths = [path for path in RUNS if path.parent.parent.name == host]
    assert paths
    for path in paths:
        recorded = read_json(Run(path).files / "run.json")["environment"]
        assert json.dumps(Run(path).description().environment.as_json()) == json.dumps(recorded), path.name


def test_what_there_is_none_of_is_recorded_or_left_out():
    recorded = ran_on(count=0, git_commit=None, git_changed_files=None).as_json()
    assert FORM(recorded) is None
    assert recorded["stack"] is recorded["jit_cache"] is recorded["git_commit"] is recorded["git_changed_files"] is None
    assert recorded["gpus"] == []
    assert not {"machine", "kit", "runtime", "cluster", "kernels"} & recorded.keys()
    assert ran_on(own=1).as_json()["own"] == 1, "what another release recorded"


def test_what_every_release_recorded_is_needed():
    recorded = environment()
    del recorded["host"]
    with pytest.raises(KeyError, match="host"):
        Environment.from_json(recorded)


def test_the_gpus_of_a_cluster_are_not_those_of_this_machine():
    here = ran_on(count=2)
    there = replace(here, cluster={"hosts": ["n1", "n2"], "fingerprints": {"nodes": {"a": {}}}})
    assert (len(here.own_gpus), there.own_gpus) == (2, ())
    assert (list(here.hosts), list(there.hosts)) == (["node1"], ["n1", "n2"])
    assert there.nodes == {"a": {}}
    assert here.of_gpus("name") == GPU["name"] and here.of_gpus("none") == ""


def test_a_run_without_a_commit_or_a_stack_says_so():
    assert ran_on(git_commit=None).commit == "?" != ran_on().commit
    assert (ran_on().stack_name, ran_on(stack={"name": "cu102"}).stack_name) == ("", "cu102")
