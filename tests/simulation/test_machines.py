"""Virtual machines as far as they can be tested without one: what is refused, found out, and asked of QEMU."""

import contextlib
import json
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.simulation import machine_disk, machines, qemu
from repro.simulation.distributions import DISTRIBUTIONS, PACKAGES
from repro.simulation.engine import SimulationEngineError
from repro.simulation.machine_disk import Disk
from repro.simulation.machines import Machines, attach, missing, up
from repro.simulation.qemu import Hardware
from tests.support.patience import patience, wait_until
from tests.support.simulated import remove_leftover_machines


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A place for machines, for root with all programs, where nothing is built and nothing starts."""
    monkeypatch.setattr(machines, "MACHINES", tmp_path / "machines")
    monkeypatch.setattr(machines, "simulated_inventory", lambda name: tmp_path / "inventories" / name)
    monkeypatch.setattr(machines, "missing", lambda: None)
    for module in (machines, qemu):
        monkeypatch.setattr(module, "HOME", tmp_path, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        (
            {"qemu-system-x86_64", "qemu-img"},
            "needs qemu-system-x86_64, qemu-img; sudo apt-get install qemu-system-x86 qemu-utils",
        ),
        ({"mke2fs"}, "needs mke2fs; sudo apt-get install e2fsprogs"),
        (set(), None),
    ],
)
def test_what_is_missing_is_named_with_what_to_install(monkeypatch, absent, said):
    monkeypatch.setattr(machines.os, "geteuid", lambda: 0)
    monkeypatch.setattr(machines.shutil, "which", lambda name: None if name in absent else name)
    assert missing() == said


def test_a_name_that_is_up_or_of_containers_is_refused(home):
    (home / "machines/sim-vm").mkdir(parents=True)
    with pytest.raises(
        SimulationEngineError, match="sim-vm is up already; `make sim-down KIND=vm NAME=sim-vm` removes it"
    ):
        up("sim-vm", 2)
    (home / "inventories/sim").mkdir(parents=True)
    with pytest.raises(SimulationEngineError, match="sim is the name of simulated nodes in containers"):
        up("sim", 2)
    with pytest.raises(SimulationEngineError, match="from 1 to 16"):
        up("many", 17)
    with pytest.raises(SimulationEngineError, match="other is not up; up are: sim-vm"):
        attach("other")


def test_only_machines_of_processes_that_are_gone_are_removed(home):
    for name, owner in (("left", "process 999999999 1"), ("used", "command line")):
        made = Machines(name, "disk", "sha256:0", "239.255.88.1:1", (1,), owner)
        made.folder.mkdir(parents=True)
        made.record()
    assert remove_leftover_machines() == ["left"]
    assert [path.name for path in (home / "machines").iterdir()] == ["used"]
    assert attach("used").ports == (1,)


@pytest.mark.parametrize(("ends", "found"), [("in order", "kvm"), ("with an error", "tcg"), ("never", "tcg")])
def test_kvm_is_used_where_a_kernel_boots_with_it_and_asked_once(tmp_path, monkeypatch, ends, found):
    """One that opens and then hangs, or that QEMU cannot set up, is not used."""
    asked = []

    def run(command, timeout, **options):
        asked.append(command)
        if ends == "never":
            raise subprocess.TimeoutExpired(command, timeout)
        return SimpleNamespace(returncode=int(ends != "in order"))

    (tmp_path / "kvm").touch()
    monkeypatch.setattr(qemu, "KVM", tmp_path / "kvm")
    monkeypatch.setattr(qemu, "ACCELERATOR", tmp_path / "accelerator")
    monkeypatch.setattr(qemu.subprocess, "run", run)
    assert [qemu.accelerator(Disk(tmp_path)) for _ in range(2)] == [found] * 2
    assert len(asked) == 1
    (tmp_path / "accelerator").write_text("kvm of-another-boot\n")
    assert qemu.accelerator(Disk(tmp_path)) == found and len(asked) == 2
    (tmp_path / "kvm").unlink()
    assert qemu.accelerator(Disk(tmp_path)) == "tcg"


BARRIER_THEN_END = bytes.fromhex("0faef0 e6f4").ljust(510, b"\0") + b"\x55\xaa"
"""A disk that a processor boots from: mfence, and a byte to the port at which QEMU ends."""


@pytest.mark.skipif(shutil.which(qemu.QEMU) is None, reason=f"needs {qemu.QEMU}")
@pytest.mark.parametrize("processors", [1, 2])
def test_an_emulated_processor_obeys_memory_barriers(home, processors):
    """With `-smp 1` the instruction became nothing, and an adapter's queue stood still: QEMU missed what was in it."""
    given = qemu.command_line(
        "node1", Hardware(1, 512, processors, 2222, "239.255.88.1:1"), Disk(home), {}, accelerator="tcg"
    )
    words = [word for option in ("-accel", "-cpu", "-smp") for word in given[given.index(option) :][:2]]
    (home / "boot").write_bytes(BARRIER_THEN_END)
    bare = (
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-machine",
        "pc",
        "-device",
        "isa-debug-exit,iobase=0xf4",
    )
    disk = ("-drive", f"file={home}/boot,format=raw,if=floppy", "-d", "op", "-dfilter", "0x7c00..0x7dff", "-D", "log")
    subprocess.run([qemu.QEMU, *words, *bare, *disk], cwd=home, timeout=patience(60))
    assert (home / "log").read_text().split().count("mb") == 1


def test_a_process_of_another_program_is_not_taken_for_a_machine(tmp_path):
    """Process numbers are used again."""
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path) as other:
        (tmp_path / "node1.pid").write_text(str(other.pid))
        assert qemu.process_of(tmp_path, "node1") is None
        qemu.end(tmp_path, "node1")
        assert other.poll() is None
        other.kill()
    assert qemu.process_of(tmp_path, "node2") is None


@pytest.fixture
def starved(tmp_path):
    """The folder of a machine, node1, that shares one processor with another busy program."""
    program = Path(shutil.copy(shutil.which("yes"), tmp_path / qemu.QEMU))
    one = min(os.sched_getaffinity(0))
    alone = {"stdout": subprocess.DEVNULL, "preexec_fn": lambda: os.sched_setaffinity(0, {one})}
    with (
        subprocess.Popen(["yes"], executable=program, cwd=tmp_path, **alone) as machine,
        subprocess.Popen(["yes"], **alone) as other,
    ):
        (tmp_path / "node1.pid").write_text(str(machine.pid))
        yield tmp_path
        machine.kill()
        other.kill()


def test_what_a_machine_waits_for_a_processor_is_not_counted(starved, monkeypatch):
    """Linux says how long that was; what else passes does count."""
    assert qemu.held_up_s(starved, "node2") == 0
    monkeypatch.setattr(machines, "MACHINES", starved.parent)
    monkeypatch.setattr(machines, "READY_S", 1.0)
    made = Machines(starved.name, "disk", "sha256:0", "239.255.88.1:1", (1,))
    within, began = made._time_limit("node1"), time.monotonic()
    wait_until(lambda: not within())
    assert time.monotonic() - began > 1.2
    assert qemu.held_up_s(starved, "node1") > 0.2


def test_a_machine_is_told_by_its_program_and_not_by_words_that_come_late(tmp_path):
    """For some time after its start the command line of a process is empty."""
    program = Path(shutil.copy(shutil.which("sleep"), tmp_path / qemu.QEMU))
    with subprocess.Popen(["", "60"], executable=program, cwd=tmp_path) as machine:
        (tmp_path / "node1.pid").write_text(str(machine.pid))
        assert qemu.process_of(tmp_path, "node1") == machine.pid
        program.unlink()
        assert qemu.process_of(tmp_path, "node1") == machine.pid, "an upgrade replaces the program while it runs"
        qemu.end(tmp_path, "node1")
        machine.wait()
    assert qemu.process_of(tmp_path, "node1") is None


def test_a_machine_has_ended_once_its_process_has_and_not_its_program(tmp_path, monkeypatch):
    """A machine that was started at once found its disks locked by the one that was still ending."""
    program = Path(shutil.copy(shutil.which("sleep"), tmp_path / qemu.QEMU))
    with subprocess.Popen(["", "60"], executable=program, cwd=tmp_path) as machine:
        (tmp_path / "node1.pid").write_text(str(machine.pid))
        looks, kill = iter([machine.pid]), os.kill
        monkeypatch.setattr(qemu, "process_of", lambda folder, name: next(looks, None))
        monkeypatch.setattr(qemu.os, "kill", lambda *given: threading.Timer(0.5, kill, given).start())
        qemu.end(tmp_path, "node1")
        assert not Path(f"/proc/{machine.pid}").exists()


def test_packages_that_are_not_pinned_are_named(tmp_path):
    archives = tmp_path / "var/cache/apt/archives"
    archives.mkdir(parents=True)
    for name in ("sudo_1.deb", "udev_2.deb"):
        (archives / name).write_text(name)
    lock = tmp_path / "packages.lock"
    lines = machine_disk._packages(tmp_path)
    lock.write_text("\n".join(lines) + "\n")
    assert machine_disk._differing(tmp_path, lock) == []
    (archives / "udev_2.deb").write_text("another")
    assert machine_disk._differing(tmp_path, lock) == ["udev_2.deb"]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_every_package_is_pinned_once(distribution):
    lines = distribution.lock.read_text().splitlines()
    names = [line.split()[1].partition("_")[0] for line in lines]
    assert len(set(names)) == len(names) > len(PACKAGES)
    assert set(PACKAGES) < set(names)


@pytest.mark.parametrize(
    ("system", "image", "stages"),
    [
        (False, None, ["machines boot from", "trainer image", "2 machines boot"]),
        (True, None, ["trainer image", "2 machines boot"]),
        (True, "sha256:0", ["2 machines boot"]),
    ],
)
def test_each_stage_says_how_long_it_and_the_rest_take(home, monkeypatch, system, image, stages):
    kernel = home / "disk/vmlinuz"
    kernel.parent.mkdir()
    if system:
        kernel.touch()
    monkeypatch.setattr(machines, "system_disk_of_these_files", lambda distribution: Disk(kernel.parent))
    monkeypatch.setattr(machines, "image_with_disk", lambda: image)
    monkeypatch.setattr(machines, "trainer_layout", lambda: None)
    monkeypatch.setattr(machines, "system_disk", lambda distribution: Disk(kernel.parent))
    monkeypatch.setattr(machines, "docker_disk", lambda: "sha256:0")
    for name in ("make_key", "leave_to_caller", "_stop_unused_engine"):
        monkeypatch.setattr(machines, name, lambda: None)
    for name in ("make_node", "start", "wait", "write_ssh_config"):
        monkeypatch.setattr(Machines, name, lambda *given: None)
    monkeypatch.setattr(machines, "exclusive", contextlib.nullcontext)
    monkeypatch.setattr(qemu, "KVM", home / "none")
    told = []
    up("lab", 2, tell=lambda stage, seconds: told.append((stage, seconds)))
    assert all(said in stage for said, (stage, _) in zip(stages, told, strict=True))
    left = [seconds for _, seconds in told]
    assert left == sorted(left, reverse=True) and left[-1] == 2 * machines.BOOT_S["tcg"]


@pytest.mark.parametrize(("runs_by", "patience", "seconds"), [("kvm", 1, 5), ("tcg", 6, 30)])
def test_emulated_machines_may_take_longer(home, monkeypatch, runs_by, patience, seconds):
    monkeypatch.setattr(qemu, "accelerator", lambda system: runs_by)
    made = Machines("lab", "disk", "sha256:0", "239.255.88.1:1", (2222,))
    made.folder.mkdir(parents=True)
    made._host_key("node1").with_suffix(".key.pub").write_text("ssh-ed25519 AAAA\n")
    made.write_ssh_config()
    variables = json.loads((made.write_inventory() / "group_vars/all.yml").read_text())
    assert variables["cluster_patience"] == patience
    assert f"ConnectTimeout {seconds}\n" in made.ssh_config.read_text()
