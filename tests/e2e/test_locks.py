"""Runs that want the same nodes: neither ends the other, whoever waits knows for whom, and a lock can be freed."""

import re
import signal
import time

import pytest
import yaml

from repro.launch.agent.leftovers import AGENT, USER, WORK
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import OWN
from repro.launch.nodes.work import LEASE_S
from repro.launch.ssh.nodes import NodePool
from tests.e2e.launching import WORK as FOLDER
from tests.e2e.launching import cluster_of, containers, launcher_of, note, prepare, trainer, wait_until
from tests.support import tasks
from tests.support.patience import patience, slowness
from tests.support.processes import stop

HANG = "hang@0 hang@1"
LOCK = "/run/lock/oneflow-reproduction.lock"
AGENTS = "repro[.]launch[.]agent"


@pytest.fixture(scope="module")
def inventory(two_nodes, tmp_path_factory):
    return prepare(two_nodes, tmp_path_factory.mktemp("locks"))


@pytest.fixture(scope="module")
def second(two_nodes, tmp_path_factory):
    """An inventory of the same nodes and account with another work folder."""
    for node in two_nodes.names:
        two_nodes.root(node, "install", "-d", "-o", "runner", "-g", "runner", "/home/runner/second")
    return prepare(two_nodes, tmp_path_factory.mktemp("second"), cluster_work="/home/runner/second", cluster_port=29600)


@pytest.fixture(scope="module")
def others(two_nodes, tmp_path_factory):
    """An inventory of the same nodes for an account that has no rights over the first one's processes and files."""
    script = (
        "id other > /dev/null 2>&1 || useradd --create-home --groups docker other; "
        "install -d -o other -m 700 /home/other/.ssh; install -d -o other /home/other/work; "
        "install -o other -m 600 /simulation/authorized_keys /home/other/.ssh/authorized_keys"
    )
    for node in two_nodes.names:
        two_nodes.root(node, "sh", "-ec", script)
    found = prepare(two_nodes, tmp_path_factory.mktemp("others"), cluster_work="/home/other/work", cluster_port=29700)
    hosts = yaml.safe_load((found / "hosts.yml").read_text())
    for each in hosts["nodes"]["hosts"].values():
        each["ansible_user"] = "other"
    (found / "hosts.yml").write_text(yaml.safe_dump(hosts))
    return found


@pytest.fixture
def clean(two_nodes):
    """After the test no node has a container of a run, or an agent."""
    yield
    for node in two_nodes.names:
        wait_until(lambda node=node: not containers(two_nodes, node) and not agents(two_nodes, node))


def agents(nodes, node):
    return nodes.root(node, "pgrep", "-f", AGENTS, check=False).split()


@pytest.fixture
def first_run(two_nodes, inventory, tmp_path, clean):
    """A bench that has both nodes, as soon as its container, whose rank hangs, is on the first; ended after the test."""
    command = f"python {trainer(tmp_path / 'first', 'hang@0 hang@1 hang@2 hang@3')}"
    runs = tmp_path / "runs"
    bench = tasks.start("bench", CLUSTER=inventory, MODEL="bert", RUNS=runs, DATA="synthetic", TRAINER_COMMAND=command)
    try:
        wait_until(lambda: containers(two_nodes, "node1"), 120)
        yield bench, next(runs.glob("*/")).name
    finally:
        bench.send_signal(signal.SIGCONT)
        bench.send_signal(signal.SIGINT)
        bench.communicate(timeout=patience(60))


def want(inventory, folder) -> str:
    """What a second controller is told that wants the nodes; "" if it gets them. How long that took is noted."""
    command = f"python {trainer(folder / 'second')}"
    settings = {"MODEL": "bert", "RUNS": folder / "second runs", "DATA": "synthetic"}
    started = time.monotonic()
    done = tasks.run("bench", 120, CLUSTER=inventory, TRAINER_COMMAND=command, **settings)
    want.seconds = time.monotonic() - started
    return done.stderr if done.returncode else ""


def refused(inventory, folder) -> str:
    """What node1, or else node2, answers to a run that wants both; "" if that gets them. How long that took is noted."""
    cluster = cluster_of(inventory)
    started = time.monotonic()
    try:
        with NodePool(cluster, UploadedCode(trainer(folder / "t")), "tests"):
            return ""
    except Exception as error:
        return next(
            line for node in ("node1", "node2") for line in str(error).splitlines() if line.startswith(f"{node}: ")
        )
    finally:
        refused.seconds = time.monotonic() - started


@pytest.mark.timeout(400)
@pytest.mark.parametrize("which", ["second", "others"])
def test_a_second_controller_leaves_the_first_alone(two_nodes, first_run, which, request, tmp_path):
    """By another inventory with another work folder, and from another account: it is told of the first, and goes."""
    bench, run = first_run
    before = containers(two_nodes, "node1")
    message = want(request.getfixturevalue(which), tmp_path)
    line = next(line for line in message.splitlines() if "node1: " in line)
    assert re.search(r"node1: in use by \S+@\S+ process \d+ since \d{4}-\d\d-\d\d .+ for `make bench .+`, ", line), (
        message
    )
    assert f", run {run} (process " in line
    assert "of account runner); wait for that to end" in line
    assert containers(two_nodes, "node1") == before
    assert bench.poll() is None
    refused(request.getfixturevalue(which), tmp_path)
    note(f"nodes in use: {'other work folder' if which == 'second' else 'other account'}", refused.seconds, line)


def pid_of_holder(nodes, node):
    return int(nodes.root(node, "sh", "-c", "grep -h -o '\"pid\": [0-9]*' /run/lock/*.json | grep -o '[0-9]*'"))


@pytest.mark.parametrize("fault", ["holder killed", "lock removed"])
def test_a_lock_lost_in_mid_attempt_ends_it(two_nodes, inventory, clean, tmp_path, fault):
    launcher = launcher_of(inventory, tmp_path / "attempts")
    with launcher.pool:

        def inject():
            argv = ["kill", "-KILL", pid_of_holder(two_nodes, "node2")] if fault == "holder killed" else ["rm", LOCK]
            two_nodes.root("node2", *argv)

        done = launcher.attempt(trainer(tmp_path / "hang", HANG), inject=inject)
        message = done.outcome.failure.text()
        assert message.startswith("node2 is no longer locked for this run: ")
        assert done.seconds < 10 * slowness()
        note(f"{fault} in mid-attempt", done, message)
        assert [containers(two_nodes, node) for node in two_nodes.names] == [[], []]
        assert launcher.attempt(trainer(tmp_path / "well")).outcome.failure is None, "the next attempt locks it again"


@pytest.mark.timeout(400)
def test_a_holder_that_hangs_under_its_own_run(two_nodes, inventory, clean, tmp_path):
    """The attempt ends well, the next cannot lock the node and says how to free it; freed, the run goes on."""
    launcher = launcher_of(inventory, tmp_path / "attempts")
    well = trainer(tmp_path / "well")
    with launcher.pool:
        argv = ["kill", "-STOP", pid_of_holder(two_nodes, "node2")]
        done = launcher.attempt(well, inject=lambda: two_nodes.root("node2", *argv))
        assert done.outcome.failure is None, "who has begun has the lock"
        wait_until(lambda: launcher.pool.members["node2"].lost, LEASE_S + 5)
        done = launcher.attempt(well)
        message = done.outcome.failure.text()
        assert re.search(r"^node2: in use by .+; it is stopped\. End it with `make unlock CLUSTER=\S+`$", message), (
            message
        )
        note("holder stopped under its own run: the next attempt", done, message)
        freed = tasks.run("unlock", 120, CLUSTER=inventory, YES="1")
        assert "node2: free now" in freed.stdout, freed.stderr
        assert "node1: that run is still heard of" in freed.stderr
        assert launcher.attempt(well).outcome.failure is None


def test_a_stopped_controller_frees_its_nodes_by_itself(two_nodes, first_run, second, tmp_path):
    bench, _ = first_run
    stop(bench.pid)
    seconds = wait_until(lambda: not containers(two_nodes, "node1"), LEASE_S + 20)
    seconds += wait_until(lambda: refused(second, tmp_path) == "", LEASE_S + 20)
    note("controller stopped: another run can have the nodes", seconds, "(no message: nobody hears the nodes)")


@pytest.mark.timeout(600)
def test_stopped_agents_hold_the_nodes_until_their_owner_frees_them(
    two_nodes, first_run, inventory, second, others, tmp_path
):
    """Every agent on the nodes is stopped and the controller killed: only a person can end that, with the right to."""
    bench, run = first_run
    for node in two_nodes.names:
        two_nodes.root(node, "pkill", "-STOP", "-f", AGENTS)
    bench.kill()
    bench.wait()
    message = refused(second, tmp_path)
    known = r"not heard of since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d \(\d+ s\); it is stopped\. "
    assert re.search(known + r"End it with `make unlock CLUSTER=\S+`", message), message
    note("agents stopped: the next run is told", refused.seconds, message)
    message = refused(others, tmp_path)
    assert re.search(known + r"Ask account runner or an administrator of the node to end it \(`kill \d+`", message), (
        message
    )

    done = tasks.run("unlock", 120, CLUSTER=others, YES="1", FORCE="1")
    assert done.returncode == 1, done.stdout
    assert "node1: Ask account runner or an administrator" in done.stderr
    assert containers(two_nodes, "node1")
    assert all(agents(two_nodes, node) for node in two_nodes.names)

    for settings in ({}, {"CHECK": "1", "YES": "1"}):
        shown = tasks.run("unlock", 120, CLUSTER=second, **settings)
        assert f", run {run} (process " in shown.stdout
        assert re.search(r"^    ends process \d+: \S*python3", shown.stdout, re.MULTILINE), shown.stdout
        assert re.search(rf"^    removes container \S+ \(run {run}, account runner\)", shown.stdout, re.MULTILINE)
        assert shown.returncode == (0 if settings else 1)
    assert "YES=1" in tasks.run("unlock", 120, CLUSTER=second).stderr
    assert containers(two_nodes, "node1")
    assert all(agents(two_nodes, node) for node in two_nodes.names)

    started = time.monotonic()
    done = tasks.run("unlock", 120, CLUSTER=second, YES="1")
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = time.monotonic() - started
    assert [line for line in done.stdout.splitlines() if "free now" in line] == ["node1: free now", "node2: free now"]
    note("agents stopped: make unlock frees the nodes", seconds, "node1: free now")
    for node in two_nodes.names:
        assert (agents(two_nodes, node), containers(two_nodes, node)) == ([], [])
    assert refused(others, tmp_path) == "", "the other account gets the nodes"


def test_a_live_run_is_not_unlocked_by_mistake(two_nodes, first_run, inventory):
    bench, _ = first_run
    done = tasks.run("unlock", 120, CLUSTER=inventory, YES="1")
    assert done.returncode == 1
    assert "node1: that run is still heard of. Interrupt it where it was started, or end it with FORCE=1" in done.stderr
    assert bench.poll() is None
    assert containers(two_nodes, "node1")


def left(nodes, inventory, name, account, work):
    """A container on node1 as a dead run of an account leaves it."""
    image = cluster_of(inventory).image.digest
    uid = nodes.root("node1", "id", "-u", account)
    labels = {OWN: "dead", USER: uid, WORK: work, AGENT: "00000000-1-1"}
    words = " ".join(f"--label {key}={value}" for key, value in labels.items())
    nodes.ssh("node1", f"docker run --detach --pull never --name {name} {words} {image} sleep 600", check=True)


def test_only_what_a_dead_run_of_one_s_own_left_is_removed(two_nodes, inventory, second, others, clean, tmp_path):
    left(two_nodes, inventory, "mine", "runner", FOLDER)
    left(two_nodes, inventory, "elsewhere", "runner", "/home/runner/second")
    message = refused(inventory, tmp_path)
    assert "elsewhere (run dead, account runner, whose run is dead). End them with `make unlock" in message
    assert "mine" not in message
    names = two_nodes.root("node1", "docker", "ps", "--all", "--format", "{{.Names}}").split()
    assert names == ["elsewhere"]
    message = refused(others, tmp_path)
    assert "elsewhere (run dead, account runner, whose run is dead). Wait for their runs to end, or ask" in message
    assert "removes container" not in tasks.run("unlock", 120, CLUSTER=others, YES="1").stdout
    assert len(containers(two_nodes, "node1")) == 1
    done = tasks.run("unlock", 120, CLUSTER=inventory, YES="1")
    assert "    removes container elsewhere (run dead, account runner, whose run is dead)" in done.stdout
    assert done.returncode == 0, done.stderr
    assert refused(others, tmp_path) == ""


@pytest.mark.parametrize("task", ["provision", "deprovision"])
def test_nodes_of_a_run_are_not_provisioned(two_nodes, inventory, first_run, task):
    bench, run = first_run
    started = time.monotonic()
    done = tasks.run(task, 120, CLUSTER=inventory)
    seconds = time.monotonic() - started
    assert done.returncode == 1, done.stdout + done.stderr
    for node in two_nodes.names:
        assert re.search(rf"{node}: in use by .*, run {run} .*; wait for that to end", done.stderr)
    assert "nothing was done" in done.stderr and "TASK" not in done.stdout
    assert containers(two_nodes, "node1") and bench.poll() is None
    note(f"{task} of nodes that a run has", seconds, done.stderr.splitlines()[1])
