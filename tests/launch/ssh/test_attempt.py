"""Launches over SSH to a node in this process, without containers: orders, leases, locks, and what is said."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from repro.analysis.verification import verify
from repro.cluster.fingerprint import gather
from repro.cluster.inventory import ClusterError
from repro.cluster.ssh import RemoteError
from repro.launch.attempt import Limits
from repro.launch.host_environment import capture
from repro.launch.nodes.code_upload import UploadedCode, deliver
from repro.launch.nodes.tracing import Tracing
from repro.launch.nodes.unlock import free, survey
from repro.launch.runner import Bench
from repro.launch.ssh.agent_client import AgentClient
from repro.launch.ssh.attempt import ssh_attempts
from repro.launch.ssh.holding import held
from repro.launch.ssh.nodes import NodePool, NodeSession
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import Layout, load_catalogue
from repro.report.run.page import render
from repro.runs.manifest import record
from repro.runs.record import Run
from repro.targets import OF_OTHER_PYTHONS
from repro.utils.ports import free_port
from tests.support.compat import compile_library, needs_gcc
from tests.support.paths import ROOT, STANDIN, TRAINER_PYTHON
from tests.support.patience import patience, wait_until
from tests.support.processes import processes_of, stop
from tests.support.ssh_server import SshServer
from tests.support.synthetic import described

WRAPPER = """
import os, runpy, sys
os.environ["STANDIN"] = {faults!r}
os.environ["STANDIN_WAIT"] = {wait!r}
runpy.run_path({standin!r}, run_name="__main__")
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """One node that may hold 4 ranks, with the trainer environment as its venv."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    if not TRAINER_PYTHON.exists():
        pytest.fail(f"{TRAINER_PYTHON} is missing: `make setup` builds the trainer environment")
    work = tmp_path / "work"
    work.mkdir()
    (work / "venv").symlink_to(TRAINER_PYTHON.parent.parent)
    server = SshServer(tmp_path)
    server.cluster_of = server.cluster(
        runtime_name="venv",
        work=str(work),
        gpus_per_node=4,
        port=free_port(),
        python=os.path.realpath("/usr/bin/python3"),
    )
    yield server.cluster_of
    server.stop()


def code(folder: Path, faults="", wait="") -> UploadedCode:
    folder.mkdir(exist_ok=True)
    (folder / "trainer.py").write_text(WRAPPER.format(faults=faults, wait=wait, standin=str(STANDIN)))
    return UploadedCode(folder / "trainer.py")


def unit(ranks=2, name="bert, 'two' ranks"):
    made = make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1).units[0]
    return replace(made, name=name, config=replace(made.config, layout=Layout(ranks)))


def attempt(cluster, folder, faults="", wait="", ranks=2, **limits):
    events = []
    with NodePool(cluster, code(folder / "code", faults, wait), "tests") as pool:
        target = folder / "the attempt's folder"
        target.mkdir()
        outcome = ssh_attempts(pool, "run", Limits(**limits), True)(unit(ranks), target).run(events.append)
        assert not processes_of(f"{cluster.work}/runs")
    return outcome, events, target


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_attempt_leaves_on_the_controller_what_a_local_one_does(cluster, tmp_path, ranks):
    outcome, events, folder = attempt(cluster, tmp_path, ranks=ranks)
    assert outcome.failure is None, outcome
    assert [event["event"] for event in events if event["rank"] == 0] == ["start", *["iteration"] * 7, "end"]
    assert {event["node"] for event in events} == {"node0"}
    assert "step: 6" in (folder / "logs/local_rank_0/stdout").read_text()
    for rank in range(ranks):
        assert json.loads((folder / f"metrics-rank{rank}.jsonl").read_text().splitlines()[-1])["event"] == "end"
    assert json.loads((folder / "command.json").read_text())["node0"][0] == "env"
    assert list(Path(cluster.work, "runs").rglob("metrics*")) == [], "nothing stays on the node"


def test_what_a_site_s_modules_set_for_python_reaches_neither_agent_nor_ranks(cluster, tmp_path, monkeypatch):
    """Another json in front of Python's own, another folder for packages, no home, and a prompt when a program ends."""
    others = tmp_path / "others"
    others.mkdir()
    for name in ("json.py", "sitecustomize.py"):
        (others / name).write_text("raise SystemExit('of another Python')")
    script = tmp_path / "code" / "trainer.py"
    script.parent.mkdir()
    script.write_text(
        "import os, runpy, sys\n"
        f"unwanted = {set(OF_OTHER_PYTHONS)} & os.environ.keys()\n"
        "if unwanted: sys.exit(f'{unwanted}')\n"
        f"runpy.run_path({str(STANDIN)!r}, run_name='__main__')\n"
    )
    for name in ("PYTHONPATH", "PYTHONUSERBASE"):
        monkeypatch.setenv(name, str(others))
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    monkeypatch.setenv("PYTHONINSPECT", "1")
    with held(cluster, ["node0"], "provision"):
        pass
    assert gather(cluster)["node0"].fields["system.python"]
    with NodePool(cluster, UploadedCode(script), "tests") as pool:
        (tmp_path / "attempt").mkdir()
        outcome = ssh_attempts(pool, "run", Limits(), True)(unit(2), tmp_path / "attempt").run(lambda event: None)
    assert outcome.failure is None, outcome
    assert not survey(cluster)["node0"].holder


@pytest.mark.parametrize(
    ("fault", "wait", "message"),
    [
        ("exit=3@1", "60", "rank 1 on node0 exited with status 3"),
        ("kill@1 hang@0", "", "rank 1 on node0 was killed by SIGKILL"),
        ("quiet@1 hang@0", "", "rank 1 on node0 ended before its work was done"),
        (
            "full@1 hang@0",
            "",
            "rank 1 on node0 exited with status 1 (the disk is full: free some space, then resume the run)",
        ),
        ("hang@0 hang@1", "", "no rank has printed anything for 2 s: at least one hangs"),
    ],
)
def test_a_fault_is_named_and_leaves_no_process(cluster, tmp_path, fault, wait, message):
    outcome, _, _ = attempt(cluster, tmp_path, fault, wait, stall_timeout_s=2 if "hang@1" in fault else patience(10))
    assert outcome.failure.text() == message


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("exit=5@0", "exited with status 5"),
        ("kill@0", "was killed by SIGKILL"),
        ("quiet@0", "ended before its work was done"),
    ],
)
def test_a_single_process_that_ends(cluster, tmp_path, fault, message):
    outcome, _, _ = attempt(cluster, tmp_path, fault, ranks=1)
    assert outcome.failure.text() == f"rank 0 on node0 {message}"


def test_retries_are_recorded_and_never_hide_what_failed(cluster, tmp_path):
    flag = tmp_path / "was here"
    (tmp_path / "code").mkdir()
    script = tmp_path / "code" / "trainer.py"
    script.write_text(
        f"import os, sys, runpy\nflag = {str(flag)!r}\nif not os.path.exists(flag):\n"
        f"    open(flag, 'w').close()\n    sys.exit('first time')\n"
        f"runpy.run_path({str(STANDIN)!r}, run_name='__main__')\n"
    )
    plan = replace(
        make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1),
        units=(unit(1),),
    )
    run = Run.create("test", described(plan, environment=capture()), tmp_path / "runs")
    with NodePool(cluster, UploadedCode(script), "tests") as pool:
        Bench(run, plan, Silent(), ssh_attempts(pool, run.id, Limits(), True), retries=2).run_all()
    first, second = run.attempts()
    assert (first.status, second.status) == ("failed", "ok")
    assert first.log_tail == "first time"
    assert first.folder != second.folder


def test_a_signal_ends_what_runs_on_nodes_and_is_recorded(cluster, tmp_path):
    """It comes while the attempt waits; another, as it begins to end what it started, does not break that off."""
    plan = replace(
        make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1),
        units=(unit(),),
    )
    run = Run.create("test", described(plan, environment=capture()), tmp_path / "runs")
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = {kind: signal.signal(kind, signal.default_int_handler) for kind in kinds}

    def interrupt():
        while not list(run.folder.glob("units/*/*/metrics-rank1.jsonl")):
            time.sleep(0.05)
        for kind in kinds:  # without a pause: a late one would hit the next test
            os.kill(os.getpid(), kind)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with NodePool(cluster, code(tmp_path / "code", "hang@0 hang@1"), "tests") as pool:
            with pytest.raises(KeyboardInterrupt):
                Bench(run, plan, Silent(), ssh_attempts(pool, run.id, Limits(), True)).run_all()
            assert not processes_of(f"{cluster.work}/runs")
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
    assert [attempt.status for attempt in run.attempts()] == ["interrupted"], run.attempts()[0].failure


class Silent:
    """A display that shows nothing."""

    def __getattr__(self, name):
        return lambda *args, **more: None


HELD = r"node0: in use by \w+@\S+ process \d+ since 20\d\d-.* for `make bench MODEL=gpt` \(process \d+ of .*\); wait"


def test_two_runs_exclude_each_other_and_say_who(cluster, tmp_path):
    with NodePool(cluster, code(tmp_path / "code"), "make bench MODEL=gpt"):
        with pytest.raises(ClusterError) as error, NodePool(cluster, code(tmp_path / "code"), "another"):
            pass
        assert re.search(HELD, str(error.value))
    with NodePool(cluster, code(tmp_path / "code"), "another"):
        pass


def second_inventory(cluster, tmp_path):
    """The same node by an inventory with another work folder."""
    work = tmp_path / "other work"
    work.mkdir()
    (work / "venv").symlink_to(TRAINER_PYTHON.parent.parent)
    return replace(cluster, work=str(work), port=free_port())


def test_inventories_with_other_work_folders_exclude_each_other(cluster, tmp_path):
    """The second is told of the first and of its run; the attempt of the first goes on to its end."""
    other = second_inventory(cluster, tmp_path)
    with NodePool(cluster, code(tmp_path / "code", "", "2"), "make bench MODEL=gpt") as pool:
        pool.announce("20261123-120000-gpt-smoke")
        refused, folder = [], tmp_path / "attempt"
        folder.mkdir()

        def on_event(event):
            if event["event"] == "start" and not refused:
                with pytest.raises(ClusterError) as error, NodePool(other, pool.code, "another"):
                    pass
                refused.append(str(error.value))

        outcome = ssh_attempts(pool, "run", Limits(), True)(unit(), folder).run(on_event)
    assert outcome.failure is None, outcome
    assert "for `make bench MODEL=gpt`, run 20261123-120000-gpt-smoke (process" in refused[0]


def holder_of(cluster):
    """The process that holds the node's lock."""
    return survey(cluster)["node0"].holder["pid"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda cluster, lock: os.kill(holder_of(cluster), signal.SIGKILL), "the process that held it has ended"),
        (lambda cluster, lock: lock.unlink(), "oneflow-reproduction.lock was removed"),
        (lambda cluster, lock: os.replace(make(lock.parent / "new"), lock), "has taken the place of"),
    ],
    ids=["holder killed", "lock removed", "lock replaced"],
)
def test_a_lock_that_is_lost_ends_the_attempt_and_the_next_takes_it_again(cluster, tmp_path, fault, reason):
    lock = tmp_path / "oneflow-reproduction.lock"
    with NodePool(cluster, code(tmp_path / "code", "hang@0 hang@1"), "tests") as pool:
        begun, folders = [], [tmp_path / "first", tmp_path / "second"]

        def on_event(event):
            if event["event"] == "start":
                begun.append(event["rank"])
                if len(begun) == 2:
                    fault(cluster, lock)

        for folder in folders:
            folder.mkdir()
        outcome = ssh_attempts(pool, "run", Limits(), True)(unit(), folders[0]).run(on_event)
        assert outcome.failure.text().startswith("node0 is no longer locked for this run: ")
        assert reason in outcome.failure.text()
        assert not processes_of(f"{cluster.work}/runs")
        pool.code = code(tmp_path / "code")
        deliver(pool.members["node0"].remote, pool.code)
        assert ssh_attempts(pool, "run", Limits(), True)(unit(), folders[1]).run().failure is None


def make(path):
    path.touch()
    return path


def test_a_stopped_holder_is_shown_and_ended(cluster, tmp_path):
    """As a hung node agent is: it holds the lock, and neither its lease nor its controller's end frees it."""
    pool = NodePool(cluster, code(tmp_path / "code"), "make bench MODEL=gpt")
    with pool:
        pid = holder_of(cluster)
        found = survey(cluster)["node0"]
        assert found.refusal(force=False).startswith("node0: that run is still heard of. Interrupt it")
        assert found.refusal(force=True) == ""
        stop(pid)
        pool.members["node0"].close()
        with pytest.raises(ClusterError) as error, NodePool(cluster, pool.code, "another"):
            pass
        assert re.search(r"not heard of since 20\d\d-\S+ \S+ \(\d+ s\); it is stopped\. End it", str(error.value))
        found = survey(cluster)["node0"]
        assert pid in [number for number, _ in found.processes]
        assert any(line.startswith(f"    ends process {pid}: ") for line in found.lines())
        assert free(cluster, [found]) == {"node0": ""}
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the holder was not ended")
        with NodePool(cluster, pool.code, "another"):
            pass


def test_nothing_is_ended_but_what_was_shown(cluster, tmp_path):
    with NodePool(cluster, code(tmp_path / "code"), "first"):
        shown = survey(cluster)["node0"]
    with NodePool(cluster, code(tmp_path / "code"), "second"):
        assert "another run has the node by now" in str(free(cluster, [shown])["node0"])
        assert not survey(cluster)["node0"].nothing


def test_a_lock_ends_with_the_connection(cluster, tmp_path):
    pool = NodePool(cluster, code(tmp_path / "code"), "tests")
    with pool:
        pool.members["node0"].remote.close()
        wait_until(lambda: survey(cluster)["node0"].nothing, "the lock was not freed")
        assert pool.members["node0"].lost
        assert pool.recover() == {}, "the node is opened anew"
        assert not pool.members["node0"].lost


def test_an_agent_without_a_lease_removes_what_it_started(cluster, tmp_path, monkeypatch):
    """The connection stays open and nothing is sent: only the lease can notice."""
    monkeypatch.setattr("repro.launch.ssh.agent_client.LEASE_S", 1.0)
    monkeypatch.setattr(AgentClient, "_send", lambda self, data: None)
    messages = []
    with NodePool(replace(cluster, port=free_port()), code(tmp_path / "code", "hang@0 hang@1"), "tests") as pool:
        member = pool.members["node0"]
        from repro.launch.nodes.work import work_of

        order = work_of(cluster, pool.code, unit(), True, cluster.port, "run", "1").order(0, [member.host])
        client = member.start(order, messages.append)
        wait_until(lambda: any("rank1" in message.get("file", "") for message in messages))
        assert client.gone.wait(patience())
        assert messages[-1] == {"gone": "it had heard nothing from this controller for 1 s", "connected": True}
        assert not processes_of(order["folder"])


def agents_of(cluster) -> list[int]:
    """The process numbers of the agents that run an attempt: what they started runs in the attempt's folder."""
    parents = set()
    for pid, _ in processes_of(f"{cluster.work}/runs"):
        parents.add(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]))
    return [pid for pid in parents if b"repro.launch.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (signal.SIGKILL, "the agent on node0 ended, and its ranks with it: it was killed"),
        (
            signal.SIGSTOP,
            "nothing was heard from the agent on node0 for 4 s, while the node itself answers: it was stopped",
        ),
    ],
)
def test_an_agent_that_is_killed_or_stopped_is_not_a_connection_that_was_lost(
    cluster, tmp_path, monkeypatch, kind, message
):
    monkeypatch.setattr("repro.launch.nodes.follower.LEASE_S", 4.0)
    monkeypatch.setattr("repro.launch.ssh.attempt.STOP_S", 2.0)
    target = tmp_path / "attempt"
    target.mkdir()
    done: list[int] = []

    def inject(event):
        if not done and event["event"] == "start" and (agents := agents_of(cluster)):
            done.extend(agents)
            os.kill(agents[0], kind)

    with NodePool(cluster, code(tmp_path / "code", "hang@0 hang@1"), "tests") as pool:
        outcome = ssh_attempts(pool, "run", Limits(), True)(unit(), target).run(inject)
        assert outcome.failure.text() == message
    wait_until(lambda: not processes_of(f"{cluster.work}/runs"))
    assert not processes_of(f"{cluster.work}/runs")


def test_an_attempt_whose_folder_is_deleted_on_its_node_says_so(cluster, tmp_path):
    target = tmp_path / "attempt"
    target.mkdir()

    def inject(event):
        shutil.rmtree(Path(cluster.work, "runs"), ignore_errors=True)

    with NodePool(cluster, code(tmp_path / "code", "hang@0 hang@1"), "tests") as pool:
        outcome = ssh_attempts(pool, "run", Limits(), True)(unit(), target).run(inject)
    said = outcome.failure.text()
    assert said.startswith(f"{cluster.work}/runs/") and said.endswith(
        " on node0 was deleted or moved while ranks wrote to it"
    )
    assert not processes_of(f"{cluster.work}/runs")


def test_a_rank_that_ends_with_the_lease_is_not_reported(tmp_path):
    """A job of Slurm keeps the messages of an agent: read there later, such a rank would be taken for the cause."""
    argv = ["bash", "-c", "trap 'sleep 1' TERM; sleep 60 & echo started; wait"]
    order = {
        "do": "run",
        "work": str(tmp_path),
        "folder": str(tmp_path / "attempt"),
        "config": {},
        "logs": [""],
        "output": ["launcher.log", "launcher.log"],
        "port": 0,
        "argv": argv,
        "container": "",
        "inside": [],
        "first": 0,
        "ranks": 1,
        "caches": [],
        "libraries": {},
        "meeting": {},
        "cupti": {},
        "sample": [],
        "log_cap": 1 << 24,
        "lease_s": 60,
    }
    command = [sys.executable, "-m", "repro.launch.agent.__main__"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
        agent.stdin.write(json.dumps(order) + "\n")
        agent.stdin.flush()
        heard = iter(map(json.loads, agent.stdout))
        assert any(message.get("data") == "started\n" for message in heard)
        agent.stdin.close()
        assert [message for message in heard if {"rank", "end"} & message.keys()] == []


def test_code_that_was_changed_on_a_node_is_not_run(cluster, tmp_path):
    sent = code(tmp_path / "code")
    with NodePool(cluster, sent, "tests") as pool:
        Path(sent.folder(cluster.work), "repro/trainers/trainer.py").write_text("print('mine')")
        with pytest.raises(RemoteError, match="is not as it was sent; remove it"):
            deliver(pool.members["node0"].remote, sent)


def test_a_node_that_cannot_be_looked_at_says_why(cluster, tmp_path, monkeypatch):
    """In the agent's own words, not as its message."""
    agent = NodeSession._agent
    fails = """cat > /dev/null; echo '{"error": "[Errno 5] Input/output error"}'; exit 1"""
    monkeypatch.setattr(NodeSession, "_agent", lambda self, *mark: agent(self, *mark) if mark else ["sh", "-c", fails])
    with pytest.raises(ClusterError) as error:
        NodePool(cluster, code(tmp_path / "code"), "tests").__enter__()
    assert str(error.value).splitlines()[1:] == ["node0: [Errno 5] Input/output error"]


def test_a_work_folder_that_is_not_there(cluster, tmp_path):
    with pytest.raises(ClusterError, match=r"node0: the trainers cannot be copied to .*make provision CLUSTER="):
        NodePool(replace(cluster, work="/proc/nowhere"), code(tmp_path / "code"), "tests").__enter__()


NOISE = """
import os, sys
if os.environ["RANK"] == {rank!r}:
    piece = {piece} * 1024
    for _ in range({mib}):
        os.write(1, piece[: 1 << 20])
"""


def noisy(
    folder: Path, mib: int, rank: int = 0, piece: str = "(b'x' * 1023 + b'\\n')", faults: str = ""
) -> UploadedCode:
    """A trainer of which one rank prints MiB before its first row."""
    folder.mkdir(exist_ok=True)
    first = NOISE.format(rank=str(rank), piece=piece, mib=mib)
    text = first + WRAPPER.format(faults=faults, wait="", standin=str(STANDIN))
    (folder / "trainer.py").write_text(text)
    return UploadedCode(folder / "trainer.py")


def noisy_attempt(cluster, folder: Path, sent: UploadedCode, ranks: int = 2):
    target = folder / "attempt"
    target.mkdir()
    with NodePool(cluster, sent, "tests") as pool:
        outcome = ssh_attempts(pool, "run", Limits(), True)(unit(ranks), target).run()
    return outcome, target


@pytest.mark.parametrize("rank", [0, 1])
def test_all_that_a_rank_printed_arrives(cluster, tmp_path, rank):
    """Far more than an agent sends at one look, before the rows: each byte is here, and the rows after them."""
    outcome, folder = noisy_attempt(cluster, tmp_path, noisy(tmp_path / "code", 40, rank))
    assert (outcome.failure, outcome.cut) == (None, ())
    printed = (folder / f"logs/local_rank_{rank}/stdout").read_bytes()
    assert printed.startswith((b"x" * 1023 + b"\n") * (40 << 10))
    assert "step: 6" in (folder / "logs/local_rank_0/stdout").read_text()


def test_binary_output_arrives_as_it_was(cluster, tmp_path):
    outcome, folder = noisy_attempt(cluster, tmp_path, noisy(tmp_path / "code", 6, 1, "bytes(range(256)) * 4"))
    assert outcome.failure is None
    assert (folder / "logs/local_rank_1/stdout").read_bytes() == bytes(range(256)) * (6 << 12)


@pytest.mark.parametrize(("rank", "judged"), [(1, None), (0, "logs/local_rank_0/stdout, from which figures are read")])
def test_a_log_beyond_the_cap_keeps_its_ends_and_says_so(cluster, tmp_path, monkeypatch, rank, judged):
    cap = 8 << 20
    monkeypatch.setattr("repro.launch.nodes.work.LOG_CAP", cap)
    outcome, folder = noisy_attempt(cluster, tmp_path, noisy(tmp_path / "code", 40, rank))
    assert outcome.failure.text().startswith(judged) if judged else outcome.failure is None, outcome.failure
    (log,) = outcome.cut
    assert log.path == f"logs/local_rank_{rank}/stdout"
    assert log.printed >= 40 << 20
    assert log.written == cap
    kept = (folder / log.path).read_bytes()
    gap = f"\n[{log.printed - log.written} bytes that were printed here are not kept]\n".encode()
    assert kept[7 << 20 : (7 << 20) + len(gap)] == gap
    assert len(kept) == cap + len(gap)
    if rank == 0:
        assert kept.endswith(b"\n") and b"step: 6" in kept[-2000:], "the end says how it ended"


def test_record_report_and_verification_say_what_was_cut(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("repro.launch.nodes.work.LOG_CAP", 2 << 20)
    plan = replace(
        make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1),
        units=(unit(),),
    )
    run = Run.create("test", described(plan, created=time.time(), environment=capture()), tmp_path / "runs")
    with NodePool(cluster, noisy(tmp_path / "code", 6, 1), "tests") as pool:
        Bench(run, plan, Silent(), ssh_attempts(pool, run.id, Limits(), True)).run_all()
    (attempt,) = run.attempts()
    (log,) = attempt.cut
    assert (attempt.status, log.path, log.written) == ("ok", "logs/local_rank_1/stdout", 2 << 20)
    render(run, figures=False)
    record(run)
    english, chinese = ((run.folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    assert f"| {attempt.folder}/{log.path} | 6.0 | 2.0 |" in english.partition("## Logs that were cut")[2]
    assert "## 被截断的日志" in chinese
    where = f"{attempt.folder}/{log.path} was cut as it was recorded: {log.written} of the {log.printed} bytes"
    assert any(where in line for line in verify(run).holds)


DRIVER = """
import ctypes, os, runpy, sys
if "CUDA_INJECTION64_PATH" in os.environ:
    ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]).InitializeInjection()
os.environ["STANDIN"] = "untraced"  # else it would write a trace of its own
runpy.run_path({standin!r}, run_name="__main__")
"""


def traced_attempt(cluster, tmp_path, cupti: Path, ranks: int = 2):
    """An attempt whose ranks call the tracer as a GPU's driver does."""
    script = tmp_path / "code" / "trainer.py"
    script.parent.mkdir()
    script.write_text(DRIVER.format(standin=str(STANDIN)))
    target = tmp_path / "attempt"
    target.mkdir()
    with NodePool(cluster, UploadedCode(script), "tests") as pool:
        made = ssh_attempts(pool, "run", Limits(), True)(unit(ranks), target)
        return made.traced(Tracing(str(cupti))).run(), target


@needs_gcc
def test_a_node_compiles_the_tracer_and_the_trace_of_rank_0_comes_back(cluster, tmp_path):
    cupti = tmp_path / "cupti" / "libcupti.so.12"
    cupti.parent.mkdir()
    compile_library(ROOT / "tests/compat/fake_cupti.c", cupti)
    outcome, folder = traced_attempt(cluster, tmp_path, cupti.parent)
    assert outcome.failure is None, outcome
    pids = [json.loads((folder / f"metrics-rank{rank}.jsonl").read_text().splitlines()[0])["pid"] for rank in (0, 1)]
    (trace,) = folder.glob("trace.*")
    assert trace.name == f"trace.{pids[0]}"
    lines = trace.read_text().splitlines()
    assert lines[0].startswith("trace 1 130001 ") and lines[0].endswith("/libcupti.so")
    assert any(line.endswith("void foo::bar<float>(float*)") for line in lines)
    assert (outcome.cut, list(Path(cluster.work, "runs").rglob("trace*"))) == ((), [])
    assert len(list(Path(cluster.work, "compat").iterdir())) == 1


def test_a_node_without_a_cupti_is_named(cluster, tmp_path):
    outcome, _ = traced_attempt(cluster, tmp_path, tmp_path / "nothing")
    assert outcome.failure.text().startswith(f"node0: CUPTI={tmp_path}/nothing: on a cluster it is a libcupti.so")
