"""What is said of a simulated node that does not come up: the cause, as far as it can be known."""

import subprocess

import pytest

from repro.simulation.engine import SimulationEngineError
from repro.simulation.nodes import STARTED, THIRD, Nodes, _free_third
from tests.support.patience import patience
from tests.support.simulated import are_kept


class Recorded:
    """An engine around nodes that answers what was recorded, by the first word that tells a command from the others."""

    def __init__(self, **answers):
        self.answers, self.asked = answers, 0

    def docker(self, *argv, check=True, **options):
        self.asked += 1
        return next(answer for word, answer in self.answers.items() if word in map(str, argv))


class Answering(Nodes):
    """Nodes that answer what was recorded."""

    def root(self, node, *argv, **options):
        return self.engine.docker(*argv)


def node(**answers):
    return Answering(Recorded(**answers), "sim", 1, 1)


def test_a_node_that_runs_is_up():
    node(timeout="running").wait("node1")


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            {"timeout": "degraded", "inspect": "running with status 0", "systemctl": "docker.service failed"},
            "sim-node1 has started, but not all of its services:\ndocker.service failed",
        ),
        (
            {"timeout": "", "inspect": "running with status 0", "systemctl": "0 loaded units"},
            "sim-node1 is not up after 180 s:\n0 loaded units",
        ),
        (
            {"timeout": "", "inspect": "exited with status 3"},
            "sim-node1 does not run any more: exited with status 3",
        ),
        (
            {"timeout": "", "inspect": ""},
            "sim-node1 does not run any more: it is gone",
        ),
    ],
)
def test_why_a_node_is_not_up(answers, message):
    with pytest.raises(SimulationEngineError) as error:
        node(**answers).wait("node1")
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("states", "said"), [(["running"], "running"), (["degraded"], "degraded"), (["starting", "", "running"], "running")]
)
def test_the_state_of_a_node_is_waited_for(tmp_path, states, said):
    """systemctl ends with 1 unless all is well, and before the bus is up with nothing."""
    for number, state in enumerate(states):
        (tmp_path / str(number)).write_text(state)
    tool = tmp_path / "systemctl"
    tool.write_text(
        f'#!/bin/sh\ncd {tmp_path}\nset -- [0-9]\nstate=$(cat $1)\nrm $1\necho $state\n[ "$state" = running ]\n'
    )
    tool.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", STARTED], env=environment, capture_output=True, text=True, timeout=patience())
    assert done.stdout.strip() == said


class Kept:
    """An engine with disks of nodes, a third number for each of their tags, and a network of nodes that are up."""

    def __init__(self, disks, taken="10.77.9.0/24"):
        self.disks, self.taken = disks, taken

    def docker(self, *argv, **options):
        if argv[0] == "network":
            return "id" if argv[1] == "ls" else self.taken
        return "\n".join(tag for tag in self.disks) if "{{.Tag}}" in argv else "\n".join(self.disks)

    def inspect(self, *argv):
        return {"Config": {"Labels": {THIRD: str(self.disks[argv[-1].rpartition(":")[2]])}}}


@pytest.mark.parametrize(
    ("disks", "kept"),
    [
        ({"node1": 3, "node2": 3}, True),
        ({}, False),
        ({"node1": 3}, False),
        ({"node2": 3}, False),
        ({"node1": 9, "node2": 9}, False),
    ],
)
def test_disks_of_nodes_are_kept_if_all_are_there_and_their_addresses_are_free(disks, kept):
    assert are_kept(Kept(disks), "provisioned", 2) is kept


@pytest.mark.parametrize(("disks", "free"), [({}, 1), ({"node1": 1, "node2": 1}, 2), ({"node2": 1}, 2)])
def test_new_nodes_get_addresses_that_no_kept_disk_has(disks, free):
    """Also where whoever kept the disks was interrupted before the first."""
    assert _free_third(Kept(disks)) == free


def test_a_node_is_entered_by_its_first_process_which_is_asked_for_again_once_that_is_gone():
    with subprocess.Popen(["sleep", "60"]) as first, subprocess.Popen(["sleep", "60"]) as second:
        engine = Recorded(inspect=str(first.pid))
        found = Nodes(engine, f"sim-{first.pid}", 1, 1)
        assert [found._first_process("node1") for _ in range(3)] == [str(first.pid)] * 3
        assert engine.asked == 1
        first.kill()
        first.wait()
        engine.answers = {"inspect": str(second.pid)}
        assert found._first_process("node1") == str(second.pid)
        second.kill()
    engine.answers = {"inspect": ""}
    assert found.root("node1", "true", check=False) == ""
    with pytest.raises(SimulationEngineError, match="does not run"):
        found.root("node1", "true")
