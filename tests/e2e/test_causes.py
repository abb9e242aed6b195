"""Output without end, and the causes that are easily taken for others: Docker, the agent, the controller, its make."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace

import pytest

from repro.launch.nodes.collector import LOG_CAP
from repro.launch.ssh.agent_client import LEASE_S
from tests.e2e import faults
from tests.e2e.launching import WORK, containers, launcher_of, note, prepare, trainer, wait_until
from tests.support import tasks
from tests.support.paths import ROOT
from tests.support.patience import slowness
from tests.support.processes import heed_interrupts, stop
from tests.support.runs import attempts

HANG = "hang@0 hang@1"
MIB = 1 << 20
ENGINE = (
    r"Docker on node2 (was killed, stopped or restarted, which ended the container|failed while the container ran: .+)"
)
CASE = {"MODEL": "bert", "CASES": "bert_1n1g_bs96", "REPEATS": 1, "DATA": "synthetic", "STALL_TIMEOUT": 300}


@pytest.fixture(scope="module")
def inventory(two_nodes, tmp_path_factory):
    for node in two_nodes.names:
        two_nodes.root(node, "rm", "-rf", f"{WORK}/runs")  # where other modules' lost nodes kept theirs
    return prepare(two_nodes, tmp_path_factory.mktemp("causes"))


@pytest.fixture(scope="module")
def launcher(inventory, tmp_path_factory):
    made = launcher_of(inventory, tmp_path_factory.mktemp("attempts"))
    with made.pool:
        yield made


@pytest.fixture(autouse=True)
def clean(two_nodes):
    """After each test no node has a container of a run, nor what an attempt wrote."""
    yield
    for node in two_nodes.names:
        wait_until(lambda node=node: not containers(two_nodes, node), 60)


def left(nodes) -> str:
    """What attempts left in the nodes' work folders."""
    return "".join(nodes.root(node, "find", f"{WORK}/runs", "-type", "f", check=False) for node in nodes.names)


# What ranks print


@pytest.mark.parametrize(("mib", "rank"), [(200, 0), (1024, 1)])
@pytest.mark.timeout(600)
def test_much_output(launcher, tmp_path, two_nodes, mib, rank):
    """200 MiB before the rows that are measured arrive whole; of 1 GiB the cap is kept, and the record says so."""
    started = time.monotonic()
    done = launcher.attempt(trainer(tmp_path / "t", f"print={mib}@{rank}", "0"))
    seconds = time.monotonic() - started
    assert done.outcome.failure is None, done.outcome
    log = done.folder / f"logs/local_rank_{rank}/stdout"
    if mib * MIB < LOG_CAP:
        assert done.outcome.cut == ()
        assert log.stat().st_size > mib * MIB
    else:
        (cut,) = done.outcome.cut
        assert (cut.path, cut.written) == (f"logs/local_rank_{rank}/stdout", LOG_CAP)
        assert cut.printed == mib * MIB
    assert "step: 6" in (done.folder / "logs/local_rank_0/stdout").read_bytes()[-5000:].decode()
    assert left(two_nodes) == ""
    note(f"{mib} MiB printed by rank {rank}", seconds, f"ok; cut: {[vars(each) for each in done.outcome.cut]}")


def test_binary_output(launcher, tmp_path):
    first = "if os.environ['RANK'] == '1':\n    os.write(1, bytes(range(256)) * 40000)\n"
    started = time.monotonic()
    done = launcher.attempt(trainer(tmp_path / "t", first=first))
    assert (done.outcome.failure, done.outcome.cut) == (None, ())
    assert (done.folder / "logs/local_rank_1/stdout").read_bytes() == bytes(range(256)) * 40000
    note("10 MB of binary output", time.monotonic() - started, "ok")


def test_a_loss_that_is_no_number(launcher, tmp_path):
    """Rank 0 prints its rows 3 s after all ranks have begun, and then neither ends."""
    done = launcher.attempt(trainer(tmp_path / "t", "slow=3@0 nan stay@0 stay@1", "0"), inject=lambda: None)
    message = done.outcome.failure.text()
    assert message == "the loss at iteration 3 is not a number"
    assert done.seconds < 15 * slowness()
    note("NaN", done.seconds - 3, message)


# Docker and the agent


@pytest.mark.parametrize(
    ("fault", "inject", "message"),
    [
        ("dockerd killed", faults.kill_engine, ENGINE),
        ("dockerd restarted", faults.restart_engine, ENGINE),
    ],
)
@pytest.mark.timeout(300)
def test_an_engine_that_fails_is_named(launcher, tmp_path, two_nodes, fault, inject, message):
    try:
        done = launcher.attempt(trainer(tmp_path / "t", HANG), inject=lambda: in_background(inject, two_nodes, "node2"))
    finally:
        faults.start_engine(two_nodes, "node2")
    text = done.outcome.failure.text()
    assert re.fullmatch(message, text)
    assert "--help" not in text
    assert done.seconds < 20 * slowness()
    note(fault, done, text)


def in_background(fault, *arguments):
    """Begin a fault that takes a while, and do not wait for it."""
    threading.Thread(target=fault, args=arguments, daemon=True).start()


def test_an_engine_that_does_not_start_the_container(launcher, tmp_path, monkeypatch):
    """The image is gone since the node was looked at: Docker's own words are shown, and not where its help is."""
    for member in launcher.pool.members.values():
        monkeypatch.setattr(member, "host", replace(member.host, image="nothing:here"))
    started = time.monotonic()
    done = launcher.attempt(trainer(tmp_path / "t", HANG))
    text = done.outcome.failure.text()
    assert re.match(r"Docker on node[12] did not start the container: .*No such image: nothing:here", text), text
    assert "--help" not in text
    note("image missing as the container is started", time.monotonic() - started, text)


@pytest.mark.parametrize(
    ("fault", "kind", "message", "limit"),
    [
        ("agent killed", "KILL", r"the agent on node2 ended, and its ranks with it: it was killed", 10),
        (
            "agent stopped",
            "STOP",
            r"nothing was heard from the agent on node2 for 1[5-9] s, while the node itself answers: it was stopped",
            LEASE_S + 15,
        ),
    ],
)
def test_an_agent_that_is_killed_or_stopped(launcher, tmp_path, two_nodes, fault, kind, message, limit):
    done = launcher.attempt(trainer(tmp_path / "t", HANG), inject=lambda: faults.signal_agent(two_nodes, "node2", kind))
    text = done.outcome.failure.text()
    assert re.fullmatch(message, text)
    assert done.seconds < limit * slowness()
    cleaned = wait_until(lambda: not containers(two_nodes, "node2"), 40)
    note(fault, done, f"{text}; container gone {cleaned:.1f} s later")
    assert launcher.attempt(trainer(tmp_path / "t")).outcome.failure is None


# The controller


class Controller:
    """`make bench` on the nodes, its standard error read as it comes."""

    def __init__(self, folder, inventory, script):
        settings = {**CASE, "CLUSTER": inventory, "RUNS": folder / "runs"}
        _, environment = tasks.call("bench", TRAINER_COMMAND=f"python {script}")
        self.runs = folder / "runs"
        self.process = subprocess.Popen(
            ["make", "--no-print-directory", "bench", *(f"{name}={value}" for name, value in settings.items())],
            cwd=ROOT,
            env={**environment, "REPRO_NO_SET_UP": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=heed_interrupts,
        )
        self.said = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.said += line

    @property
    def run(self):
        return next(iter(self.runs.glob("*-bert-*")))

    def begun(self):
        """Whether the attempt's rank has begun."""
        return list(self.runs.glob("*/units/*/*/metrics-rank0.jsonl"))

    def task(self):
        """The process number of the task that make started."""
        return int(subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout)

    def group(self, kind):
        """What a terminal sends: to make and its task at once."""
        os.killpg(self.process.pid, kind)

    def alive(self):
        """Whether anything of it runs."""
        self.process.poll()
        return subprocess.run(["pgrep", "-g", str(self.process.pid)], capture_output=True).returncode == 0


@pytest.fixture
def controller(tmp_path, inventory, launcher):
    """A bench under way, of which nothing is left after the test; what else uses the nodes lets them go meanwhile."""
    launcher.pool.__exit__(None, None, None)
    made = Controller(tmp_path, inventory, trainer(tmp_path / "t", "hang@0"))
    wait_until(made.begun, 90)
    yield made
    if made.alive():
        made.group(signal.SIGKILL)
    made.process.wait()
    wait_until(lambda: launcher.pool.recover() == {}, 30)


@pytest.mark.timeout(300)
def test_a_controller_that_was_paused_does_not_blame_a_node(controller, two_nodes):
    stop(controller.task())
    wait_until(lambda: not any(containers(two_nodes, node) for node in two_nodes.names), LEASE_S + 15)
    time.sleep(3)
    os.kill(controller.task(), signal.SIGCONT)
    seconds = wait_until(lambda: "FAILED" in controller.said, 40)
    found = re.search(r"FAILED: (this controller did not run for \d+ s \(suspended, stopped, .*?);", controller.said)
    assert found, controller.said
    note("controller paused (SIGSTOP), then continued", seconds, found[1])


@pytest.mark.timeout(300)
def test_a_run_folder_that_is_deleted(controller, two_nodes):
    shutil.rmtree(controller.run)
    two_nodes.ssh("node1", "docker kill $(docker ps -q)")
    seconds = wait_until(lambda: not controller.alive(), 60)
    assert "was deleted or moved while the run went on" in controller.said
    assert "Traceback" not in controller.said
    assert list(controller.runs.iterdir()) == []
    note("run folder deleted, then its rank ends", seconds, controller.said.strip().splitlines()[-2])


@pytest.mark.timeout(300)
def test_an_interrupt_twice(controller, two_nodes):
    run = controller.run
    controller.group(signal.SIGINT)
    time.sleep(0.3)
    controller.group(signal.SIGINT)
    seconds = wait_until(lambda: not controller.alive(), 60)
    assert f"interrupted; go on with: make bench RUN={run.name}" in controller.said
    assert "Traceback" not in controller.said
    assert [attempt["status"] for attempt in attempts(run)] == ["interrupted"]
    wait_until(lambda: not any(containers(two_nodes, node) for node in two_nodes.names), LEASE_S + 10)
    note("Ctrl-C twice", seconds, "interrupted; go on with: make bench RUN=…")


@pytest.mark.timeout(300)
def test_a_make_that_is_killed_takes_the_controller_along(controller, two_nodes):
    run = controller.run
    controller.process.kill()
    seconds = wait_until(lambda: not controller.alive(), 60)
    assert f"interrupted; go on with: make bench RUN={run.name}" in controller.said
    assert json.loads((run / "attempts.jsonl").read_text().splitlines()[-1])["status"] == "interrupted"
    wait_until(lambda: not any(containers(two_nodes, node) for node in two_nodes.names))
    note("make killed", seconds, "interrupted; go on with: make bench RUN=…")
