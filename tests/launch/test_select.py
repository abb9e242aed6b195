"""Launchers are found by name, and one that this file adds runs a bench to its report."""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest

from repro.cluster.cluster import BaselinePlace
from repro.cluster.inventory import ClusterError
from repro.launch import select as registry
from repro.launch.attempt import Limits, Outcome, Tail
from repro.launch.base import Launcher, LaunchOptions, LaunchSession
from repro.launch.host_environment import capture
from repro.launch.progress import Progress
from repro.launch.runner import Bench
from repro.launch.select import register, select
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.run.page import render
from repro.runs.record import Run, write_json
from repro.utils.errors import PlanError
from tests.support.clusters import V100
from tests.support.paths import STANDIN
from tests.support.synthetic import described


class OneByOneAttempt:
    """Runs the ranks one after another, each to its end."""

    def __init__(self, unit, folder):
        self.unit, self.folder = unit, folder

    def run(self, on_event, stop):
        config = self.folder / "config.json"
        write_json(config, replace(self.unit.config, output=str(self.folder)).as_json())
        for rank in range(self.unit.world_size):
            logs = self.folder / "logs" / f"local_rank_{rank}"
            logs.mkdir(parents=True)
            with open(logs / "stdout", "wb") as stdout:
                argv = [sys.executable, STANDIN, "--config", config]
                subprocess.run(argv, stdout=stdout, env={**os.environ, "RANK": str(rank)}, check=True)
            for event in Tail(self.folder / f"metrics-rank{rank}.jsonl").read():
                on_event({**event, "rank": rank})
        return Outcome(None, 1.0)


class OneByOneSession(LaunchSession):
    def attempts(self, run, plan, limits):
        return OneByOneAttempt

    def environment(self, plan):
        return capture()

    def kernels(self, plan, recorded):
        return None

    def check_unchanged(self, environment):
        pass


@dataclass(frozen=True)
class OneByOne(Launcher):
    port: int
    name = "one-by-one"

    @classmethod
    def of(cls, options):
        return cls(options.port or 1)

    def plan(self, cases, wanted):
        return make_plan(cases, 0, wanted)

    def dry_run(self, plan):
        return (f"{unit.name} at port {self.port}" for unit in plan.units)

    @contextlib.contextmanager
    def open(self, command):
        yield OneByOneSession()


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(registry, "registered", dict(registry.registered))
    return register(OneByOne)


def test_a_launcher_of_ones_own_runs_a_bench_to_its_report(registered, tmp_path, monkeypatch):
    monkeypatch.delenv("STANDIN", raising=False)
    launcher = select(LaunchOptions(port=7), "one-by-one")
    plan = launcher.plan(load_catalogue().select("bert", None), Wanted(repeats=2))
    assert list(launcher.dry_run(plan)) == [f"{unit.name} at port 7" for unit in plan.units]
    with launcher.open("tests") as session:
        description = described(plan, command="tests", environment=session.environment(plan))
        run = Run.create("bert", description, tmp_path)
        session.check_unchanged(run.description().environment)
        attempts = Bench(run, plan, Progress(), session.attempts(run, plan, Limits())).run_all()
    assert [attempt.status for attempt in attempts] == ["ok"] * 2 * len(plan.units)
    render(run)
    report = (run.folder / "report.en.md").read_text()
    assert all(unit.name in report for unit in plan.units)
    assert "| 800.00" in report


def test_names_are_those_of_the_project_and_the_registered_ones(registered):
    assert registry.names() == ("local", "ssh", "slurm", "one-by-one")


@pytest.mark.parametrize(
    ("cluster", "name", "chosen"),
    [(None, None, "local"), (V100, None, "ssh"), (V100, "slurm", "slurm"), (None, "local", "local")],
)
def test_the_cluster_decides_where_no_name_does(cluster, name, chosen):
    assert select(LaunchOptions(cluster), name).name == chosen


@pytest.mark.parametrize(
    ("cluster", "name", "error", "message"),
    [
        (None, "nope", ClusterError, "LAUNCHER=nope: no such launcher; there are local, ssh, slurm"),
        (None, "ssh", ClusterError, "LAUNCHER=ssh starts ranks on the nodes of a cluster; name it with CLUSTER"),
        (None, "slurm", ClusterError, "LAUNCHER=slurm starts ranks on the nodes of a cluster"),
        (V100, "local", PlanError, "LAUNCHER=local starts ranks on this machine; leave CLUSTER out"),
    ],
)
def test_what_cannot_be_started_is_refused(cluster, name, error, message):
    with pytest.raises(error, match=message):
        select(LaunchOptions(cluster), name)


def test_a_cluster_runs_baselines_where_its_inventory_says_that_nodes_have_pytorch():
    cases, wanted = load_catalogue().select("bert", "bert_1n1g_bs96"), Wanted(baselines=("pytorch",))
    with pytest.raises(PlanError, match=r"all.yml does not say where nodes have PyTorch; set cluster_baseline"):
        select(LaunchOptions(V100)).plan(cases, wanted)
    there = replace(V100, baseline=BaselinePlace("/opt/conda/bin/python", "pytorch:1"))
    plan = select(LaunchOptions(there)).plan(cases, wanted)
    assert [unit.variant for unit in plan.units] == [None, "pytorch"]
    venv = replace(there, runtime_name="venv")
    with pytest.raises(
        PlanError, match=r"cluster_baseline\.image in .* the runtime is venv: ranks run in no container"
    ):
        select(LaunchOptions(venv)).plan(cases, wanted)
    assert select(LaunchOptions(venv)).plan(cases, Wanted()).units


def test_a_cluster_plans_in_the_precision_that_is_asked_for():
    plan = select(LaunchOptions(V100)).plan(load_catalogue().select("bert", "bert_1n1g_bs96"), Wanted(precision="amp"))
    assert {unit.config.precision for unit in plan.units} == {"amp"}
