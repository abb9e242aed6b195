"""Jobs of Slurm: scripts, states, and whole attempts through a stand-in for Slurm's commands on this machine."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from repro.cluster.cluster import Cluster, Image, Node, Slurm
from repro.cluster.ssh import CommandResult
from repro.launch.agent.lock import SEAM as LOCK_FOLDER
from repro.launch.attempt import Limits
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import NodeFacts
from repro.launch.nodes.work import work_of
from repro.launch.slurm.attempt import minutes_of, slurm_attempts
from repro.launch.slurm.batch_script import JobRequest, work_of_step
from repro.launch.slurm.client import SlurmClient, SlurmError, SlurmJob, parse_account, parse_job
from repro.launch.slurm.jobs import Jobs
from repro.published.cases import Layout
from repro.published.rules import MeanRows
from repro.runs.unit import Unit
from repro.utils.ports import free_port
from tests.support.paths import ROOT, STANDIN, TRAINER_PYTHON
from tests.support.patience import patience, wait_until
from tests.support.runs import CONFIG
from tests.support.slurm import lay_slurm

ODD = 'it\'s "a" $(touch x) `y` \\ case'


def cluster_of(folder, **changes):
    """Two nodes of two ranks each, without containers; everything is in one folder of this machine.

    The nodes that Slurm grants have other names, so that none of them is asked over SSH.
    """
    nodes = tuple(Node(f"listed{number}", f"10.0.0.{number}", 22, "bench", 2) for number in (1, 2))
    given = {
        "name": "some",
        "folder": folder,
        "nodes": nodes,
        "gpu": "",
        "gpus_per_node": 2,
        "interface": "lo",
        "hca": "",
        "gid_index": None,
        "network_gbits": 10,
        "stack": "cu102",
        "image": Image("trainer:cu102"),
        "data": "",
        "shared_results": f"{folder}/shared",
        "work": f"{folder}/work",
        "port": 29500,
        "runtime_name": "venv",
        "launcher": "slurm",
        "accepted": frozenset(),
        "known_hosts": folder / "known_hosts",
        "private_key": None,
        "python": sys.executable,
    }
    return Cluster(**{**given, **changes})


def unit_of(ranks=4, name="bert_4x1x1", **changes):
    config = replace(CONFIG, layout=Layout(ranks), iterations=5, **changes)
    return Unit(name, "bert", config, MeanRows(skip_first=1), 8 * ranks)


def request_in(folder, what="bert_4x1x1", run="run", gpus=0, **changes):
    return JobRequest(cluster_of(folder, **changes), what, run, 2, gpus, 30, "token")


def order_in(folder, unit=None, code=None, **changes):
    """The order of the first step of a job, for an attempt on both nodes."""
    request = request_in(folder, **changes)
    made = unit or unit_of()
    work = work_of(request.cluster, code or UploadedCode(), made, True, 29500, request.run, "repeat-1.attempt-1")
    step = work_of_step(request, work)
    hosts = [
        NodeFacts("10.1.0.1", "1000:1000", "/venv/launch.py"),
        NodeFacts("10.1.0.2", "1000:1000", "/venv/launch.py"),
    ]
    names = {node.name: index for index, node in enumerate(work.placement.nodes)}
    return json.loads(request.order(1, request.owner("it", "run"), code or UploadedCode(), step.orders(hosts), names))


def unquoted(script):
    """What bash makes of the assignments in a script: name and value."""
    names = re.findall(r"^(\w+)=(?!\$)", script, re.MULTILINE)
    lines = "\n".join(line for line in script.splitlines() if re.match(r"folder=", line))
    printed = "\nprintf '%s\\0' \"$folder\""
    values = subprocess.run(["bash", "-c", lines + printed], capture_output=True, text=True, check=True).stdout
    assert "folder" in names
    return {"folder": values.split("\0")[0]}


# What is submitted


def test_a_job_asks_for_whole_nodes_and_the_inventory_has_the_last_word(tmp_path):
    slurm = Slurm("gpu", "project-7", 30, ("--qos=high", "--exclusive=user"))
    assert request_in(tmp_path, gpus=2, slurm=slurm).options() == [
        "--job-name=reproduction-bert_4x1x1",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        "--time=30",
        "--no-requeue",
        "--output=/dev/null",
        "--gres=gpu:2",
        "--partition=gpu",
        "--account=project-7",
        "--qos=high",
        "--exclusive=user",
    ]
    assert not any("gres" in option for option in request_in(tmp_path).options())


def test_without_a_limit_of_its_own_a_job_gets_that_of_an_attempt(tmp_path):
    assert minutes_of(cluster_of(tmp_path), 3600) == 62
    assert minutes_of(cluster_of(tmp_path), 7200) == 122
    assert minutes_of(cluster_of(tmp_path), 3600, on_gpus=True) == 72, "operators may be compared first"
    assert minutes_of(cluster_of(tmp_path, slurm=Slurm(time_minutes=7)), 3600) == 7


def test_names_with_spaces_and_quotes_are_only_names(tmp_path):
    odd = tmp_path / ODD.replace("/", "")
    script = request_in(odd, what=ODD, run=ODD).script()
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""
    assert unquoted(script)["folder"].startswith(f"{odd}/shared/runs/")
    directives = [shlex.split(line, comments=False)[1:] for line in script.splitlines() if line.startswith("#SBATCH")]
    assert all(len(argv) == 1 for argv in directives)
    assert directives[0] == ["--job-name=reproduction-it_s__a____touch_x___y____case"]


def test_an_order_has_every_node_and_the_trainers(tmp_path):
    order = order_in(tmp_path)
    first, second = order["nodes"].values()
    assert [first["first"], second["first"]] == [0, 2]
    assert second["argv"][-2:] == ["--config", f"{second['folder']}/config.json"]
    assert second["folder"].startswith(f"{second['home']}/")
    assert "/step-1/node-1" in second["home"]
    assert order["files"]["repro/trainers/run.py"] == (ROOT / "repro/trainers/run.py").read_text()
    assert "@" not in json.dumps(order["nodes"])
    shown = request_in(tmp_path).script(shown=True)
    assert len(shown) < len(request_in(tmp_path).script()) / 1.5


def test_a_job_removes_no_container_but_its_own(tmp_path):
    """Another job of a run with the same name, such as of another account, has other containers."""
    requests = [replace(request_in(tmp_path, runtime_name="docker"), token=token) for token in ("0a1b", "0a1c")]
    for each in requests:
        match = re.search(r"--filter 'name=(\S+)' --filter \"label=reproduction.user=\$\(id -u\)\"", each.sweep())
        works = [work_of(other.cluster, UploadedCode(), unit_of(), True, 29500, "run", "1") for other in requests]
        orders = [work_of_step(*pair).orders([NodeFacts("", "")] * 2) for pair in zip(requests, works, strict=True)]
        own = [bool(re.search(match[1], f"/{order['listed2']['container']}")) for order in orders]
        assert own == [other is each for other in requests]


def test_what_is_left_of_one_step_is_removed_beside_another(tmp_path):
    """Nodes with one file system may be at different steps."""
    request = request_in(tmp_path)
    for step in (1, 2):
        Path(request.home, f"step-{step}/node-0").mkdir(parents=True)
    subprocess.run(["bash", "-uc", request.sweep(), "sweep", "1"], check=True)
    assert [path.name for path in Path(request.home).iterdir()] == ["step-2"]
    subprocess.run(["bash", "-uc", request.sweep()], check=True)
    assert not list(Path(request.home).iterdir())


def test_containers_are_started_by_the_same_words_as_over_ssh(tmp_path):
    order = order_in(tmp_path, runtime_name="docker")["nodes"]["listed2"]
    assert order["argv"][:3] == ["docker", "run", "--rm"]
    assert order["container"] in order["argv"]
    assert "1000:1000" in order["argv"]
    assert "10.1.0.1" in order["argv"]


# What Slurm says


@pytest.mark.parametrize(
    ("line", "job"),
    [
        (
            "JobId=7 JobName=a JobState=PENDING Reason=Resources NodeList=(null) ExitCode=0:0",
            SlurmJob(7, "PENDING", "Resources", ""),
        ),
        (
            "JobId=7 JobState=RUNNING Reason=None NodeList=node[1-2] ReqNodeList=x ExitCode=0:0",
            SlurmJob(7, "RUNNING", "None", "node[1-2]"),
        ),
        (
            "JobId=7 JobState=FAILED Reason=NonZeroExitCode NodeList=node1 ExitCode=3:0 DerivedExitCode=1:0",
            SlurmJob(7, "FAILED", "NonZeroExitCode", "node1", 3),
        ),
        (
            "JobId=7 JobState=NODE_FAIL Reason=NodeDown NodeList=node[1-2] ExitCode=0:9",
            SlurmJob(7, "NODE_FAIL", "NodeDown", "node[1-2]", 0, 9),
        ),
    ],
)
def test_states_are_read_of_scontrol(line, job):
    assert parse_job(7, line) == job


def test_states_are_read_of_the_accounts():
    assert parse_account(7, "CANCELLED by 1000|0:15|None assigned\n") == SlurmJob(7, "CANCELLED", "", "", 0, 15)
    assert parse_account(7, "COMPLETED|0:0|node[1-2]\n") == SlurmJob(7, "COMPLETED", "", "node[1-2]")
    with pytest.raises(SlurmError, match="no longer knows job 7"):
        parse_account(7, "")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("TIMEOUT", "job 7 reached its time limit of 30 minutes; raise cluster_slurm.time_minutes"),
        ("NODE_FAIL", "job 7 ended because a node of it failed: node[1-2]"),
        ("PREEMPTED", "job 7 was preempted by another job"),
        ("OUT_OF_MEMORY", "job 7 ran out of memory on node[1-2]"),
        ("CANCELLED", "job 7 was cancelled by someone else"),
        ("FAILED", "job 7 ended as FAILED with status 3"),
        ("DEADLINE", "job 7 ended as DEADLINE with status 3"),
    ],
)
def test_each_end_has_its_reason(state, message):
    job = SlurmJob(7, state, "", "node[1-2]", 3)
    assert job.ended
    assert job.failure(30).text() == message


@pytest.mark.parametrize("state", ["PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"])
def test_a_job_that_goes_on_has_not_ended(state):
    assert not SlurmJob(7, state).ended
    assert SlurmJob(7, state).waits == (state in ("PENDING", "CONFIGURING"))


def test_failures_are_said_in_chinese():
    from repro.utils.i18n import catalogue

    translate = catalogue("zh").gettext
    for state in ("TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "CANCELLED", "FAILED"):
        assert re.search(r"[一-鿿]", SlurmJob(7, state, "", "node1", 3).failure(30).text(translate)), state


def test_what_sbatch_prints_besides_the_number_is_passed_over():
    outputs = iter(["sbatch: note\n17;cluster\n", "no\n"])
    queue = SlurmClient(lambda argv, **options: CommandResult(next(outputs), "", 0))
    assert queue.submit("x") == 17
    with pytest.raises(SlurmError, match="no job number"):
        queue.submit("x")


# Whole attempts


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Slurm's commands on PATH; the folder in which they keep their jobs."""
    return lay_slurm(tmp_path, monkeypatch)


@pytest.fixture
def site(tmp_path, slurm):
    """A cluster whose nodes have the trainers' environment of this machine, and a folder for an attempt."""
    site = tmp_path / "site"
    (site / "work").mkdir(parents=True)
    (site / "work/venv").symlink_to(TRAINER_PYTHON.parent.parent)
    (tmp_path / "attempt").mkdir()
    return site


def jobs_of(site, code=None, **changes):
    cluster = cluster_of(site, **changes)
    return Jobs(cluster, code or UploadedCode(STANDIN), free_port(), "the run", minutes_of(cluster, 3600), True)


def attempt(site, unit=None, limits=None, **changes):
    make = slurm_attempts(jobs_of(site, **changes), limits or Limits(stall_timeout_s=patience(10)), True)
    return make(unit or unit_of(), site.parent / "attempt")


def job_processes(site):
    """Processes of jobs: their number, the name of their node ("" outside of tasks), and command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_text().split("\0")
            command = (entry / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
        in_job = any(word.startswith("SLURM_JOB_ID=") for word in variables)
        if in_job and f"SLURM_STANDIN={site.parent}/jobs" in variables:
            node = next((word for word in variables if word.startswith("SLURMD_NODENAME=")), "")
            found.append((int(entry.name), node.partition("=")[2], command))
    return found


def left_of(site):
    """Files below the site's folders, which may vanish meanwhile, and processes of its jobs."""
    files = [Path(base, name) for base, _, names in os.walk(site) for name in names]
    return [path for path in files if "venv" not in path.parts], job_processes(site)


def wait_until_nothing_is_left(site):
    wait_until(lambda: not any(left_of(site)))
    assert left_of(site) == ([], [])


def test_a_job_runs_to_its_end_and_leaves_nothing(site, slurm, monkeypatch):
    monkeypatch.setenv("SLURM_FAULT", "asked=2")
    events, began = [], time.monotonic()
    outcome = attempt(site).run(events.append)
    assert outcome.trainer_s < time.monotonic() - began
    assert outcome.failure is None, (outcome, (site.parent / "attempt/slurm.log").read_text())
    states = [event["text"] for event in events if event["event"] == "state"]
    assert "job 1 waits in Slurm's queue: Resources" in states
    for rank in range(4):
        own = [event for event in events if event.get("rank") == rank]
        assert [event["event"] for event in own] == ["start", *["iteration"] * 5, "end"]
        assert {event["node"] for event in own} == {f"node{rank // 2 + 1}"}
    assert [event["loss"] for event in events if event.get("rank") == 3 and "loss" in event] == [10, 5, 10 / 3, 2.5, 2]
    folder = site.parent / "attempt"
    assert "step: 4" in (folder / "logs/local_rank_0/stdout").read_text()
    assert json.loads((folder / "command.json").read_text())["nodes"] == ["node1", "node2"]
    assert "nodes: node1 node2" in (folder / "slurm.log").read_text()
    wait_until_nothing_is_left(site)
    assert not (slurm / "cancelled").exists()


@pytest.mark.parametrize("rank", [0, 3])
def test_all_that_a_rank_printed_arrives_after_the_job_has_ended(site, monkeypatch, rank):
    monkeypatch.setenv("STANDIN", f"print=24@{rank}")
    outcome = attempt(site).run()
    assert (outcome.failure, outcome.cut) == (None, ())
    printed = (site.parent / f"attempt/logs/local_rank_{rank}/stdout").read_bytes()
    assert printed.startswith((b"x" * 1023 + b"\n") * (24 << 10))
    wait_until_nothing_is_left(site)


def test_a_rank_that_fails_is_named_with_its_node(site, monkeypatch):
    monkeypatch.setenv("STANDIN", "exit=3@3")
    monkeypatch.setenv("STANDIN_WAIT", "1")
    outcome = attempt(site).run()
    assert outcome.failure.text() == "rank 3 on node2 exited with status 3"
    assert "this rank gives up" in outcome.log_tail
    wait_until_nothing_is_left(site)


def test_a_hanging_job_is_cancelled(site, slurm, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@0 hang@1 hang@2 hang@3")
    outcome = attempt(site, limits=Limits(stall_timeout_s=4)).run()
    assert outcome.failure.text() == "no rank has printed anything for 4 s: at least one hangs"
    assert (slurm / "cancelled").read_text() == "1\n"
    wait_until_nothing_is_left(site)


def test_an_interrupt_cancels_the_job(site, slurm, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@1")

    def interrupt(event):
        if event.get("rank") == 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(site).run(interrupt)
    assert (slurm / "cancelled").read_text() == "1\n"
    wait_until_nothing_is_left(site)


def test_a_task_that_is_killed_ends_the_job_and_leaves_nothing(site, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@0 hang@1 hang@2 hang@3")
    killed = []

    def kill(event):
        if event["event"] == "start" and event["rank"] == 3:
            for pid, node, command in job_processes(site):
                if node == "node2" and ("repro.launch.agent.__main__" in command or "SLURMD_NODENAME" in command):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    outcome = attempt(site).run(kill)
    assert len(killed) == 2
    assert re.fullmatch(r"step 2 of job 1 ended with status \d+", outcome.failure.text())
    wait_until_nothing_is_left(site)


HOLD = """
import sys
from repro.launch.agent.lock import acquire
acquire({"who": "a@b", "what": "make bench", "since": "noon", "mark": "m"}, 0)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_node_that_a_run_outside_slurm_holds_is_not_shared(site, slurm):
    """Slurm grants it, for it does not know of that run."""
    (slurm / "locks-1").mkdir()
    environment = {**os.environ, LOCK_FOLDER: str(slurm / "locks-1")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HOLD], cwd=ROOT, env=environment, **pipes) as other:
        assert other.stdout.readline() == b"locked\n"
        outcome = attempt(site).run()
        text = outcome.failure.text()
        assert text.startswith(f"node2: in use by a@b since noon for `make bench` (process {other.pid} of account ")
        assert other.poll() is None
        wait_until_nothing_is_left(site)
        other.stdin.close()


def test_an_interrupt_in_the_queue_cancels_the_job(site, slurm, monkeypatch):
    monkeypatch.setenv("SLURM_FAULT", "never")

    def interrupt(event):
        if "Resources" in event["text"]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(site).run(interrupt)
    assert (slurm / "cancelled").read_text() == "1\n"


def test_a_job_cancelled_in_the_queue_says_so(site, slurm, monkeypatch):
    monkeypatch.setenv("SLURM_FAULT", "never")

    def cancel(event):
        subprocess.run(["scancel", "1"], check=True)

    outcome = attempt(site).run(cancel)
    assert outcome.failure.text() == "job 1 was cancelled by someone else"


def test_the_time_limit_is_named_also_when_only_the_accounts_know_it(site, monkeypatch):
    monkeypatch.setenv("SLURM_FAULT", "limit=6 forget")
    monkeypatch.setenv("STANDIN", "hang@0 hang@1 hang@2 hang@3")
    outcome = attempt(site, limits=Limits(stall_timeout_s=60), slurm=Slurm(time_minutes=1)).run()
    assert outcome.failure.text() == "job 1 reached its time limit of 1 minutes; raise cluster_slurm.time_minutes"
    wait_until_nothing_is_left(site)


def test_what_slurm_refuses_is_a_failure_with_its_words(site, monkeypatch):
    monkeypatch.setenv("SLURM_FAULT", "refuse")
    outcome = attempt(site).run()
    assert outcome.failure.text() == "Slurm: sbatch: sbatch: error: invalid partition specified: nowhere"


def test_a_missing_interface_is_named(site):
    outcome = attempt(site, interface="ib9").run()
    assert (
        "job 1 cannot use its nodes: node1: it has no IPv4 address on interface ib9; correct" in outcome.failure.text()
    )
    assert "nodes: node1 node2" in outcome.log_tail
    wait_until_nothing_is_left(site)


def test_a_job_ends_by_itself_when_its_controller_is_gone(site, slurm, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@0 hang@1 hang@2 hang@3")
    cluster = cluster_of(site, slurm=Slurm(lease_seconds=8))
    request = JobRequest(cluster, "the case", "the run", 2, 0, 10, "token")
    subprocess.run(["sbatch", "--parsable"], input=request.script(), text=True, check=True)
    wait_until(lambda: job_processes(site) and Path(request.messages, "lease").exists(), "the job was not started")
    work = work_of_step(request, work_of(cluster, UploadedCode(STANDIN), unit_of(), True, free_port(), "the run", "1"))
    assert work.lease_s == 8
    hosts = [NodeFacts("127.0.0.1", "", str(launcher_of(site)))] * 2
    orders = {f"node{number}": order for number, order in enumerate(work.orders(hosts).values(), 1)}
    Path(request.messages, "nodes-1").write_text("2 node1,node2\n")
    text = request.order(1, request.owner("it", "the run"), UploadedCode(STANDIN), orders, {"node1": 0, "node2": 1})
    Path(request.messages, ".order").write_text(text)
    Path(request.messages, ".order").rename(Path(request.messages, "order-1"))
    wait_until(lambda: any("--config" in command for _, _, command in job_processes(site)), "no rank was started")
    wait_until_nothing_is_left(site)


def launcher_of(site):
    return next((site / "work/venv").glob("lib/python3*/site-packages/oneflow/distributed/launch.py"))


def test_pyxis_puts_each_step_into_the_image(tmp_path):
    """Only what is generated: the plugin needs a site that has it."""
    image = Image("trainer:cu102", file="/p/trainer.sqsh", sha256="a" * 64)
    request = request_in(tmp_path, runtime_name="pyxis", image=image, shared_results="/p/results", data="/p/data")
    (line,) = [line for line in request.script(shown=True).splitlines() if "--container-image" in line]
    words = shlex.split(line.partition("<")[0])
    assert "--container-image=/p/trainer.sqsh" in words
    assert "--no-container-mount-home" in words
    mounts = next(word for word in words if word.startswith("--container-mounts=")).partition("=")[2].split(",")
    work = request.cluster.work
    assert mounts[:3] == [f"{work}:{work}", "/p/results:/p/results", "/run/lock:/run/lock"]
    assert mounts[-2:] == ["/p/trainer.sqsh:/p/trainer.sqsh:ro", "/p/data:/p/data:ro"]
    assert words[words.index("--kill-on-bad-exit=1") + 1] == "/opt/venv/bin/python"
    assert "--container" not in request_in(tmp_path).script(shown=True)


def test_a_prologue_runs_before_the_task_of_each_node(tmp_path):
    script = request_in(tmp_path, prologue=("module load a",)).script(shown=True)
    assert "--kill-on-bad-exit=1 sh -c 'exec \"$@\" 3>&1 >&2' sh bash -lc 'set -e" in script
    assert "module load a" in script
    assert "bash -lc" not in request_in(tmp_path).script(shown=True)


AHEAD_S = (-3600, -61, 0, 61, 3600)


def test_a_lease_does_not_depend_on_whose_clock_its_time_is_by(tmp_path):
    """A file server's clock, or that of the login node, may be off from the batch node's by any time."""
    script = request_in(tmp_path, slurm=Slurm(lease_seconds=3)).script()
    fresh = script[script.index("renewed=''") : script.index("\nbeats()")]
    looks = f"{fresh}\nwhile read -r; do fresh && echo fresh || echo stale; done"

    def watching(ahead_s: float) -> subprocess.Popen:
        folder = tmp_path / str(ahead_s)
        folder.mkdir()
        (folder / "lease").touch()
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        return subprocess.Popen(["bash", "-uc", looks], env={**os.environ, "folder": str(folder)}, **pipes)

    def look(shell: subprocess.Popen) -> str:
        shell.stdin.write("\n")
        return shell.stdout.readline().strip()

    with contextlib.ExitStack() as stack:
        shells = {ahead_s: stack.enter_context(watching(ahead_s)) for ahead_s in AHEAD_S}
        for _ in range(4):
            for ahead_s, shell in shells.items():
                os.utime(tmp_path / str(ahead_s) / "lease", (time.time() + ahead_s,) * 2)
                assert look(shell) == "fresh", f"while it is renewed by a clock that is off by {ahead_s} s"
            time.sleep(1.1)
        time.sleep(3)
        assert {ahead_s: look(shell) for ahead_s, shell in shells.items()} == dict.fromkeys(AHEAD_S, "stale"), (
            "and 3 s after that no longer"
        )
        for shell in shells.values():
            shell.stdin.close()


def test_without_its_lease_a_job_is_over(tmp_path):
    script = request_in(tmp_path).script()
    fresh = script[script.index("renewed=''") : script.index("\nbeats()")]
    done = subprocess.run(["bash", "-uc", f"{fresh}\nfresh"], env={**os.environ, "folder": str(tmp_path / "removed")})
    assert done.returncode == 1
