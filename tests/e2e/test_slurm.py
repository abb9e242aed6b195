"""Jobs of Debian's Slurm over two simulated nodes: whole runs by the stand-in trainer, nothing left however a job ends.

OneFlow trains in jobs in test_runtimes.py.
"""

import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
import yaml

from repro.cluster.inventory import ClusterError
from repro.launch.attempt import Limits
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.slurm.attempt import slurm_attempts
from repro.launch.slurm.jobs import Jobs
from repro.launch.ssh.nodes import NodePool
from tests.e2e import hardware, slurm_site
from tests.e2e.launching import (
    WORK,
    bench,
    cluster_of,
    containers,
    note,
    prepare,
    trainer,
    trainers,
    unit_of,
    wait_until,
)
from tests.support import tasks
from tests.support.patience import slowness
from tests.support.runs import attempts

SHARED = "/shared"


@pytest.fixture(scope="module")
def slurm_nodes(make_nodes, simulation):
    """Two nodes that also share a folder, which only some tests use."""
    volume = f"shared-{os.getpid()}"
    nodes = make_nodes("slurm", 2, kind="hpc", image=True, options=("--volume", f"{volume}:{SHARED}"))
    nodes.root("node1", "chown", "runner", SHARED)
    slurm_site.start(nodes)
    yield nodes
    nodes.down()
    simulation.docker("volume", "rm", "--force", volume)


@pytest.fixture(scope="module")
def inventory(slurm_nodes, tmp_path_factory):
    options = {"partition": "main", "time_minutes": 20, "options": ['--comment=it\'s "a" comment; $(touch /tmp/x) #']}
    return prepare(slurm_nodes, tmp_path_factory.mktemp("slurm"), cluster_launcher="slurm", cluster_slurm=options)


def left_on(nodes):
    """What jobs have left on the nodes: jobs, containers, files, processes."""
    found = nodes.root("node1", "squeue", "--noheader").split()
    for node in nodes.names:
        found += containers(nodes, node)
        found += nodes.root(node, "find", WORK, "-type", "f").split()
        found += nodes.root(
            node, "pgrep", "-u", "runner", "-f", "repro[.]launch[.]agent|SLURMD_NODENAME", check=False
        ).split()
    return found


@pytest.mark.timeout(600)
def test_a_whole_run_through_the_queue(slurm_nodes, inventory, tmp_path):
    """A job for one rank, then one with two ranks on each of two nodes, which say where they are."""
    where = "import socket; print(socket.gethostname(), file=sys.stderr)"
    command = f"python {trainer(tmp_path / 'trainer', first=where)}"
    done, run = bench(tmp_path, inventory, MODEL="bert", DATA="synthetic", TRAINER_COMMAND=command)
    assert done.returncode == 0, done.stderr
    assert "job 1" in done.stderr
    _, across = attempts(run)
    folder = run / across["folder"]
    assert json.loads((folder / "command.json").read_text())["nodes"] == ["node1", "node2"]
    said = [(folder / f"logs/local_rank_{rank}/stderr").read_text().split() for rank in range(4)]
    assert said == [["node1"], ["node1"], ["node2"], ["node2"]]
    assert json.loads((run / "run.json").read_text())["environment"]["cluster"]["launcher"].startswith("slurm")
    assert left_on(slurm_nodes) == []
    comment = slurm_nodes.root("node1", "scontrol", "show", "job", "2")
    assert 'Comment=it\'s "a" comment; $(touch /tmp/x) #' in comment, "Slurm reads the options as they were written"


@pytest.fixture
def hanging(slurm_nodes, inventory, tmp_path):
    """Runs an attempt whose ranks hang once they have begun, and calls something then."""

    def run(once_begun):
        folder = tmp_path / "attempt"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        cluster, begun = cluster_of(inventory), set()

        def on_event(event):
            if event["event"] == "start":
                begun.add(event["rank"])
                if len(begun) == 4:
                    assert all(containers(slurm_nodes, node) for node in slurm_nodes.names)
                    once_begun()

        code = UploadedCode(trainer(tmp_path / "hang", "hang@0 hang@1 hang@2 hang@3"))
        jobs = Jobs(cluster, code, cluster.port, "it's a run", 20, True)
        return slurm_attempts(jobs, Limits(), True)(unit_of(4), folder).run(on_event)

    return run


def test_scancel_leaves_nothing(slurm_nodes, hanging):
    outcome = hanging(lambda: slurm_nodes.ssh("node2", "scancel --user=runner"))
    assert outcome.failure.message == "job {job} was cancelled by someone else", outcome
    assert left_on(slurm_nodes) == []


def test_an_interrupt_leaves_nothing(slurm_nodes, hanging):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hanging(interrupt)
    assert left_on(slurm_nodes) == []


def test_a_job_and_a_run_over_ssh_exclude_each_other(slurm_nodes, inventory, hanging, tmp_path):
    """Slurm grants a node that it knows nothing of a run on; and that run is told of the job."""
    cluster, code, told = cluster_of(inventory), UploadedCode(trainer(tmp_path / "none")), []
    with NodePool(cluster, code, "make bench MODEL=gpt"):
        outcome = hanging(lambda: pytest.fail("the ranks began on nodes that another run has"))
        message = outcome.failure.text()
        assert re.match(r"node[12]: in use by .+ for `make bench MODEL=gpt` \(process \d+ of account runner\)", message)
        assert not any(containers(slurm_nodes, node) for node in slurm_nodes.names)
        note("node in use over SSH: a Slurm job is told", outcome.trainer_s, message)

    def want():
        started = time.monotonic()
        with pytest.raises(ClusterError) as error, NodePool(cluster, code, "another"):
            pass
        told.extend((time.monotonic() - started, str(error.value).splitlines()[1]))
        slurm_nodes.ssh("node2", "scancel --user=runner")

    outcome = hanging(want)
    assert outcome.failure.message == "job {job} was cancelled by someone else", outcome
    assert re.search(r"node1: in use by .+, run it's a run, job \d+ \(process \d+ of account runner\); wait", told[1])
    note("node in use by a Slurm job: a run over SSH is told", *told)
    for node in slurm_nodes.names:
        slurm_nodes.root(node, "rm", "-rf", f"{WORK}/code")
    wait_until(lambda: left_on(slurm_nodes) == [])


def test_a_killed_task_leaves_nothing(slurm_nodes, hanging):
    """Everything of the job on a node but its container is killed at once, so that nobody there can remove it."""
    kill = "pkill -9 -f SLURMD[_]NODENAME; pkill -9 -f repro[.]launch[.]agent; pkill -9 -f 'docker [r]un'; true"
    started = []

    def inject():
        slurm_nodes.root("node2", "sh", "-c", kill)
        started.append(time.monotonic())

    outcome = hanging(inject)
    assert outcome.failure.values.keys() >= {"job"}, outcome
    assert time.monotonic() - started[0] < 60 * slowness()
    wait_until(lambda: left_on(slurm_nodes) == [])


@pytest.fixture
def hidden(slurm_nodes, inventory, tmp_path):
    """The inventory of a site whose compute nodes answer no SSH: only a login node does, and a folder is shared."""
    folder = tmp_path / "hidden"
    shutil.copytree(inventory, folder)
    slurm_site.hide_compute_nodes(folder)
    _change(folder, cluster_shared_results=SHARED)
    return folder


def _change(folder, **variables):
    file = folder / "group_vars" / "all.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **variables}, sort_keys=False))


@pytest.mark.timeout(600)
def test_without_ssh_to_compute_nodes(slurm_nodes, hidden, tmp_path):
    """A run through one job that it keeps: its nodes are known, its report is there."""
    _change(hidden, cluster_slurm={"partition": "main", "time_minutes": 20, "allocation": "run", "poll_seconds": 5})
    command = f"python {trainer(tmp_path / 'trainer', wait='0')}"
    done, run = bench(tmp_path, hidden, MODEL="bert", DATA="synthetic", TRAINER_COMMAND=command)
    assert done.returncode == 0, done.stderr
    cluster = json.loads((run / "run.json").read_text())["environment"]["cluster"]
    assert list(cluster["fingerprints"]["nodes"]) == ["node1", "node2"]
    assert cluster["fingerprints"]["nodes"]["node1"]["fields"]["system.distribution"].startswith("Debian")
    assert cluster["hosts"] == ["node1", "node2"]
    made = attempts(run)
    assert [attempt["status"] for attempt in made] == ["ok", "ok"]
    jobs = {json.loads((run / each["folder"] / "command.json").read_text())["job"] for each in made}
    assert len(jobs) == 1
    assert "node1, node2" in (run / "report.en.md").read_text()
    assert left_on(slurm_nodes) == []
    assert slurm_nodes.root("node1", "find", SHARED, "-type", "f") == ""


READS = """
import json, sys
prefix = json.load(open(sys.argv[sys.argv.index("--config") + 1]))["data"]["prefix"]
[open(prefix + end).close() for end in (".bin", ".idx")]
"""


@pytest.mark.timeout(600)
def test_loss_curves_on_a_text_that_comes_through_the_shared_folder(slurm_nodes, hidden, tmp_path):
    """The trainer opens the text in its container; each node has it in a work folder of its own."""
    kept = {"partition": "main", "time_minutes": 20, "allocation": "run"}
    _change(hidden, cluster_slurm=kept, cluster_gpus_per_node=1)
    command = f"python {trainer(tmp_path / 'trainer', 'learns', '0', READS)}"
    settings = {"MODEL": "gpt", "CASES": "gpt_fp32_dp2", "TRAINER_COMMAND": command}
    done = tasks.run("curves", 600, CLUSTER=hidden, RUNS=tmp_path / "runs", **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    by_unit = {each["unit"]: each for each in attempts(run)}
    assert {each["status"] for each in by_unit.values()} == {"ok"}
    folder = run / by_unit["gpt_fp32_dp2"]["folder"]
    assert json.loads((folder / "command.json").read_text())["nodes"] == ["node1", "node2"]
    data = Path(json.loads((folder / "config.json").read_text())["data"]["prefix"]).parent
    for node in slurm_nodes.names:
        slurm_nodes.root(node, "test", "-s", data / "facts.json")
        slurm_nodes.root(node, "rm", "-r", data)
    assert left_on(slurm_nodes) == []
    assert slurm_nodes.root("node1", "find", SHARED, "-type", "f") == ""


@pytest.mark.parametrize(
    ("name", "capability", "message"),
    [
        ("NVIDIA H200", "9.0", "node1: cuDNN 7.6.5 of stack cu102 computes wrong convolutions on NVIDIA H200"),
        ("Tesla V100-SXM2-16GB", "7.0", "node1: the operators cannot be compared with the CPU: rank 0 on node1"),
    ],
)
def test_no_rank_starts_where_operators_were_not_compared(slurm_nodes, inventory, tmp_path, name, capability, message):
    """Newer GPUs with the published libraries, and GPUs on which the real program finds none: no run is made."""
    folder = tmp_path / "inventory"
    shutil.copytree(inventory, folder)
    _change(folder, cluster_gpu=name)
    started = time.time()
    for node in slurm_nodes.names:
        hardware.lay_gpus(slurm_nodes, node, name, capability)
    try:
        done, run = bench(tmp_path, folder, MODEL="gpt", CASES="DP_1x1x1*", SCALE="published")
    finally:
        for node in slurm_nodes.names:
            hardware.remove_tools(slurm_nodes, node)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert run is None
    assert not [program for node in slurm_nodes.names for program in trainers(slurm_nodes, node, started)]
    assert left_on(slurm_nodes) == []
