"""What goes wrong with machines that have a kernel of their own: power, panic, memory, disk, clock, network.

On the machines that `test_machines.py` has provisioned, with the stand-in trainer.
"""

import re

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.inventory import ClusterError
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.ssh.nodes import NodePool
from repro.preflight.framework import FAILED, OK, choose, of_cluster, run_checks
from repro.preflight.network import CHECKS
from tests.e2e.launching import WORK, containers, launcher_of, note, trainer, wait_until

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("provisioned_machines"), pytest.mark.timeout(3600)]
HANG = "hang@0 hang@1"
LOST = r"nothing was heard from node2 for \d+ s: it is down, cut off, or stopped|node2 was lost: .+"
SLOW_MACHINE_S = 300
"""Without KVM, what takes a second elsewhere takes tens of seconds."""


@pytest.fixture
def launcher(machines, tmp_path_factory):
    """Makes attempts; afterwards no machine has a container of a run, and the next attempt succeeds."""
    made = launcher_of(machines.inventory, tmp_path_factory.mktemp("attempts"))
    with made.pool:
        yield made
        for node in machines.names:
            wait_until(lambda node=node: not containers(machines, node), SLOW_MACHINE_S)
        assert made.attempt(trainer(tmp_path_factory.mktemp("next"))).outcome.failure is None


def test_power_that_fails(launcher, machines, tmp_path):
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: machines.kill("node2"))
    message = done.outcome.failure.text()
    machines.start("node2")
    machines.wait("node2")
    assert re.fullmatch(LOST, message)
    assert (done.folder / "metrics-rank1.jsonl").read_text(), "what the node sent before stays"
    note("virtual machine: power fails", done, message)


def test_a_kernel_that_panics(launcher, machines, tmp_path):
    """The connection stays open, and nothing comes over it any more."""
    panic = "echo 1 > /proc/sys/kernel/sysrq; (sleep 1; echo c > /proc/sysrq-trigger) > /dev/null 2>&1 &"
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: machines.root("node2", "sh", "-c", panic))
    message = done.outcome.failure.text()
    assert "Kernel panic" in (machines.folder / "node2.console").read_text(errors="replace")
    machines.kill("node2")
    machines.start("node2")
    machines.wait("node2")
    assert re.fullmatch(LOST, message)
    note("virtual machine: kernel panics", done, message)


def test_memory_that_the_kernel_runs_out_of(launcher, machines, tmp_path):
    """The machine's own, not a container's limit."""
    eat = (
        "import json, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    with open(json.load(open(sys.argv[2]))['output'] + '/metrics-rank1.jsonl', 'w') as file:\n"
        "        file.write(json.dumps({'event': 'start', 'time': time.time()}) + '\\n')\n"
        "    eaten = [bytearray(b'x' * (64 << 20)) for _ in range(200)]\n"
    )
    done = launcher.attempt(trainer(tmp_path, "hang@0", "", eat))
    message = done.outcome.failure.text()
    assert message == (
        "rank 1 on node2 was killed by SIGKILL (the kernel of this node ran out of memory and killed processes)"
    )
    assert "Out of memory: Killed process" in machines.root("node2", "dmesg")
    note("virtual machine: out of memory", done, message)


def test_a_disk_that_fills(launcher, machines, tmp_path):
    fill = f"fallocate -l $(($(stat -f -c '%a * %S' {WORK}) - (10 << 20))) {WORK}/filler"
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: machines.root("node2", "sh", "-c", fill))
    message = done.outcome.failure.text()
    machines.root("node2", "rm", f"{WORK}/filler")
    assert re.fullmatch(r"the disk of node2 has only \d+ MiB left \(the disk is full: free some space, .+\)", message)
    note("virtual machine: disk fills", done, message)


def refusal(machines, folder) -> str:
    """What keeps a run from starting."""
    code = UploadedCode(trainer(folder))
    with pytest.raises(ClusterError) as error, NodePool(load_cluster(machines.inventory), code, "tests"):
        pass
    return str(error.value)


def test_a_clock_that_steps(machines, tmp_path):
    """The kernel's own: chrony may not correct it meanwhile."""
    machines.root("node2", "systemctl", "stop", "chrony")
    machines.root("node2", "date", "--set", "+90 seconds")
    try:
        said = refusal(machines, tmp_path)
        assert "node2" in said and "clock" in said
    finally:
        machines.root("node2", "date", "--set", "-90 seconds")
        machines.root("node2", "systemctl", "start", "chrony")
    note("virtual machine: clock steps", 0, said)


def preflight(machines, only) -> dict:
    """The findings of checks on node2, and of those over all machines."""
    found, errors = of_cluster(load_cluster(machines.inventory))
    assert not errors
    try:
        entries = [entry for each in run_checks(choose(CHECKS, only), found) for entry in each]
    finally:
        for machine in found:
            machine.runner.close()
    return {entry.check: entry.finding for entry in entries if entry.machine in ("node2", "all")}


def test_an_adapter_that_is_gone_or_down(machines):
    machines.root("node2", "systemctl", "stop", "soft-roce")
    gone = preflight(machines, "link")["link"]
    machines.root("node2", "systemctl", "start", "soft-roce")
    machines.root("node2", "ip", "link", "set", "eth1", "down")
    down = preflight(machines, "link")["link"]
    machines.root("node2", "ip", "link", "set", "eth1", "up")
    assert (gone.result, down.result) == (FAILED, FAILED)
    assert gone.facts == "no rxe0 port 1" and down.facts.startswith("rxe0 port 1 is DOWN")
    wait_until(lambda: preflight(machines, "link,gid")["gid"].result == "ok", SLOW_MACHINE_S)


def test_packets_that_are_late_or_lost(machines):
    before = preflight(machines, "bandwidth")["bandwidth"]
    assert before.result == OK, before.facts
    machines.root("node2", "tc", "qdisc", "add", "dev", "eth1", "root", "netem", "delay", "50ms", "loss", "2%")
    try:
        after = preflight(machines, "bandwidth")["bandwidth"]
    finally:
        machines.root("node2", "tc", "qdisc", "delete", "dev", "eth1", "root")
    assert after.result == FAILED, (before.facts, after.facts)
    note("virtual machine: packets late and lost", 0, f"{before.facts}; {after.facts}")
