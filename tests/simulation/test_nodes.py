"""What is said of a simulated node that does not come up: the cause, as far as it can be known."""

import subprocess

import pytest

from repro.simulation import nodes
from repro.simulation.engine import SimulationEngine, SimulationEngineError
from repro.simulation.nodes import STARTED, Nodes, _free_third
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
    """An engine with disks of nodes, by their tags, and networks of nodes that are up."""

    def __init__(self, disks, taken="10.77.9.0/24"):
        self.disks, self.taken = disks, taken

    def docker(self, *argv, **options):
        if argv[0] == "network":
            return "id" if argv[1] == "ls" else self.taken
        return "\n".join(self.disks)


@pytest.mark.parametrize(
    ("disks", "kept"),
    [
        (("node1", "node2"), True),
        ((), False),
        (("node1",), False),
        (("node2",), False),
    ],
)
def test_disks_of_nodes_are_kept_if_all_are_there(disks, kept):
    assert are_kept(Kept(disks), "provisioned", 2) is kept


@pytest.mark.parametrize(("taken", "free"), [("", 1), ("10.77.1.0/24", 2), ("10.77.1.0/24 10.77.2.0/24", 3)])
def test_new_nodes_get_addresses_that_no_node_has(taken, free):
    assert _free_third(Kept((), taken)) == free


class Here(Nodes):
    """Nodes whose commands run on this machine."""

    def root(self, node, *argv, **options):
        subprocess.run(argv, check=True)


def test_nodes_from_kept_disks_have_their_own_addresses(tmp_path, monkeypatch):
    """In the files that are there, whoever still has the addresses that the disks were made with."""
    hosts, absent = tmp_path / "hosts", tmp_path / "absent"
    hosts.write_text("110.77.9.11 other\n10.77.9.11 node1\n10.77.9.12 node2\n10.77.91.1 10x77x9x1\n")
    monkeypatch.setattr(nodes, "ADDRESSED", (hosts, absent))
    Here(SimulationEngine(77), "sim", 12, 2)._readdress("node1", 9)
    assert hosts.read_text() == "110.77.9.11 other\n10.77.12.11 node1\n10.77.12.12 node2\n10.77.91.1 10x77x9x1\n"
    assert not absent.exists()


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
