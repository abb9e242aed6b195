"""What is mistyped or left out: the nearest name is said, and where only one thing can be meant, which one it is."""

import subprocess

import pytest

from repro.cli import cluster as tasks
from repro.cli.make import run
from repro.cli.settings import unknown_variable
from repro.cli.tasks import every
from repro.cluster import inventory
from repro.targets import unknown_task
from repro.utils.paths import ROOT


@pytest.mark.parametrize(("typed", "nearest"), [("model", "MODEL"), ("repeat", "REPEATS"), ("Cluster", "CLUSTER")])
def test_the_nearest_variable_is_said(typed, nearest):
    assert f"the nearest is {nearest}." in unknown_variable(
        typed, "bench", [option.variable for option in every()["bench"].options.values()]
    )


@pytest.mark.parametrize(
    ("typed", "nearest"), [("bnech", "bench"), ("verfy", "verify"), ("host-report", "host-reports")]
)
def test_the_nearest_target_is_said_by_make(typed, nearest):
    assert f"did you mean {nearest}?" in unknown_task(typed, [*every()])
    done = subprocess.run(["make", "-s", typed], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and f"did you mean {nearest}?" in done.stderr and "Error 2" in done.stderr


def test_the_nearest_inventory_is_said(capsys):
    assert run("fingerprint", [("CLUSTER", "v100x23")]) == 2
    assert "the nearest is v100x32 (there are" in capsys.readouterr().err


def test_a_variable_of_the_environment_is_mentioned(monkeypatch, capsys):
    monkeypatch.setenv("MODEL", "gpt")
    assert run("cases", [("CASES", "bert*")]) == 0
    said = capsys.readouterr().err
    assert said == "notice: MODEL of the environment has no effect; give it behind make: make cases MODEL=gpt\n"


def test_inventories_that_come_with_the_project_are_told_from_own_ones():
    listed = subprocess.run(
        ["git", "ls-files", "ansible/inventories/*/hosts.yml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {line.split("/")[2] for line in listed.stdout.splitlines()} == inventory.SHIPPED


@pytest.mark.parametrize(("own", "meant"), [([], None), (["mine"], "mine"), (["mine", "yours"], None)])
def test_provisioning_takes_the_only_inventory_of_a_checkout_and_says_which(own, meant, monkeypatch, capsys):
    monkeypatch.setattr(inventory, "own_inventories", lambda: own)
    monkeypatch.setattr(tasks, "_cluster", lambda name: name and type("Cluster", (), {"name": name}))
    monkeypatch.setattr("repro.cluster.provision.chosen_names", lambda cluster, limit: ["node1", "node2"])
    found = tasks._only_cluster(None, None)
    assert (found and found.name) == meant
    assert capsys.readouterr().out == (
        f"CLUSTER={meant}, the only inventory that was written in this checkout. Provisioned will be: node1, node2\n"
        if meant
        else ""
    )
    assert tasks._only_cluster("named", None).name == "named" and capsys.readouterr().out == ""
