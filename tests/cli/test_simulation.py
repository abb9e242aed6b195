"""make sim and make sim-down: what is run as root, and what is refused before."""

import os
import stat

import pytest

from repro.cli import simulation
from repro.cli.settings import Exit
from repro.simulation import places


@pytest.fixture
def sudo(monkeypatch, tmp_path):
    """An ordinary user's machine with a sudo that notes what it is to run, and returns SIM_STATUS."""
    program = tmp_path / "sudo"
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\nexit ${{SIM_STATUS:-0}}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(simulation.os, "geteuid", lambda: 1000)
    return tmp_path


def test_only_the_nodes_are_brought_up_as_root(sudo, capsys):
    simulation.sim(nodes=3, name="lab", debian="http://mirror/debian")
    asked = (sudo / "asked").read_text().strip()
    assert asked.startswith("env PATH=") and " DEBIAN=http://mirror/debian " in asked
    assert asked.endswith("-B -m repro.simulation.nodes up lab 3 --bare --image")
    assert "make provision CLUSTER=lab; make sim-down NAME=lab removes them" in capsys.readouterr().out


def test_virtual_machines_have_a_name_of_their_own(sudo, capsys):
    simulation.sim(kind="vm")
    assert (sudo / "asked").read_text().strip().endswith("-B -m repro.simulation.machines up sim-vm 2 debian")
    assert "make provision CLUSTER=sim-vm; make sim-down KIND=vm removes them" in capsys.readouterr().out
    simulation.sim_down(kind="vm", name="lab")
    assert (sudo / "asked").read_text().strip().endswith("repro.simulation.machines down lab")
    simulation.sim(kind="vm", distribution="ubuntu", ubuntu="http://mirror/ubuntu")
    asked = (sudo / "asked").read_text().strip()
    assert asked.endswith("up sim-vm 2 ubuntu") and " UBUNTU=http://mirror/ubuntu " in asked
    for kind, distribution in (("container", "ubuntu"), ("vm", "plan9")):
        with pytest.raises(
            Exit, match=f"DISTRIBUTION={distribution}: it is debian or ubuntu, and of containers debian"
        ):
            simulation.sim(kind=kind, distribution=distribution)
    with pytest.raises(Exit, match="--kind metal: it is container or vm"):
        simulation.sim(kind="metal")


def test_only_the_named_nodes_are_removed(sudo):
    simulation.sim_down()
    assert (sudo / "asked").read_text().strip().endswith("repro.simulation.nodes down sim")


def test_what_fails_there_fails_here(sudo, monkeypatch):
    monkeypatch.setenv("SIM_STATUS", "1")
    with pytest.raises(Exit) as caught:
        simulation.sim_down()
    assert (caught.value.status, caught.value.message) == (1, "")


def test_without_root_and_sudo_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(simulation.os, "geteuid", lambda: 1000)
    with pytest.raises(Exit, match="there is no sudo here"):
        simulation.sim()


@pytest.mark.parametrize("name", ["v100x32", "a/b", "Sim"])
def test_a_name_that_is_taken_or_no_name_is_refused(name):
    with pytest.raises(Exit, match="NAME="):
        simulation.sim(name=name)


def test_nodes_that_are_up_are_a_cluster_by_their_name(monkeypatch, tmp_path):
    from repro.cluster.inventory import ClusterError, inventory_folder, inventory_names, setting_of

    monkeypatch.setattr(places, "CLUSTERS", tmp_path)
    with pytest.raises(ClusterError, match="bring up simulated nodes with: make sim"):
        inventory_folder("lab")
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/hosts.yml").write_text("")
    assert inventory_folder("lab") == tmp_path / "lab"
    assert setting_of("lab", tmp_path / "lab") == "lab"
    assert setting_of("lab", tmp_path / "elsewhere/lab") == f"{tmp_path}/elsewhere/lab"
    assert {"lab", "v100x32"} <= set(inventory_names())
