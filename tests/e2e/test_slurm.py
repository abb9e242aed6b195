"""Jobs of Debian's Slurm over two simulated nodes: the real OneFlow across them, nothing left however a job ends."""

import json
import re
import shutil
import time

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.inventory import ClusterError
from repro.launch.attempt import Limits
from repro.launch.nodes.code_upload import Code
from repro.launch.slurm.attempt import slurm_attempts
from repro.launch.ssh.nodes import NodePool
from tests.e2e import slurm_site
from tests.e2e.launching import WORK, bench, containers, note, prepare, trainer, unit_of, wait_until
from tests.support.runs import attempts

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def slurm_nodes(make_nodes):
    nodes = make_nodes("slurm", 2, image=True)
    slurm_site.install(nodes)
    yield nodes
    nodes.down()


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
            node, "pgrep", "-u", "runner", "-f", "repro[.]launch[.]agent|SLURM_NODEID", check=False
        ).split()
    return found


@pytest.mark.timeout(600)
def test_a_whole_run_through_the_queue(slurm_nodes, inventory, tmp_path):
    """Data parallel BERT with two ranks on each of two nodes has the losses of one process."""
    done, run = bench(tmp_path, inventory, MODEL="bert", STALL_TIMEOUT="300")
    assert done.returncode == 0, done.stderr
    assert "job 1" in done.stderr
    reference, across = attempts(run)
    assert max(abs(a - b) / b for a, b in zip(across["losses"], reference["losses"], strict=True)) < 1e-4
    folder = run / across["folder"]
    assert json.loads((folder / "command.json").read_text())["nodes"] == ["node1", "node2"]
    starts = [json.loads((folder / f"metrics-rank{rank}.jsonl").read_text().splitlines()[0]) for rank in range(4)]
    assert [start["host"] for start in starts] == ["node1", "node1", "node2", "node2"]
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
        cluster, begun = load_cluster(str(inventory)), set()

        def on_event(event):
            if event["event"] == "start":
                begun.add(event["rank"])
                if len(begun) == 4:
                    assert all(containers(slurm_nodes, node) for node in slurm_nodes.names)
                    once_begun()

        code = Code(trainer(tmp_path / "hang", "hang@0 hang@1 hang@2 hang@3"))
        make = slurm_attempts(cluster, code, Limits(), True, cluster.port, "it's a run")
        return make(unit_of(4), folder).run(on_event)

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
    cluster, code, told = load_cluster(str(inventory)), Code(trainer(tmp_path / "none")), []
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
    kill = "pkill -9 -f SLURM[_]NODEID; pkill -9 -f repro[.]launch[.]agent; pkill -9 -f 'docker [r]un'; true"
    started = []

    def inject():
        slurm_nodes.root("node2", "sh", "-c", kill)
        started.append(time.monotonic())

    outcome = hanging(inject)
    assert outcome.failure.values.keys() >= {"job"}, outcome
    assert time.monotonic() - started[0] < 60
    wait_until(lambda: left_on(slurm_nodes) == [])
