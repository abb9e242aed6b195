"""The same case in Docker, in Apptainer and in a venv, over SSH and under Slurm, by an account that is not root.

Apptainer is the real one, of Debian unstable; how long each attempt took is kept in tests/output/runtime_times.json.
"""

import json
import shutil
import subprocess
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import yaml

from repro.cluster.cluster import with_runtime
from repro.cluster.inventory import ClusterError
from repro.images.oci_layout import lone_image
from repro.launch.attempt import Limits
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.slurm.attempt import slurm_attempts
from repro.launch.slurm.jobs import Jobs
from repro.launch.ssh.attempt import ssh_attempts
from repro.launch.ssh.nodes import NodePool
from repro.simulation.engine import HOME
from repro.simulation.images import trainer_layout
from repro.utils.paths import sha256
from tests.e2e import slurm_site
from tests.e2e.launching import WORK, bench, cluster_of, containers, prepare, smoke_units, trainer, unit_of, wait_until
from tests.support.paths import ROOT, TRAINER_PYTHON
from tests.support.runs import attempts

SHARED = "/shared"
SIF = f"{SHARED}/trainer.sif"
TABLE = ROOT / "tests" / "output" / "runtime_times.json"
LIMITS = Limits(stall_timeout_s=120)


@pytest.fixture(scope="module")
def nodes(make_nodes):
    """Two nodes with Apptainer, a folder that both see, and this machine's environment of the trainers as their venv."""
    shared = HOME / "shared-sif"
    shared.mkdir(parents=True, exist_ok=True)
    venv = TRAINER_PYTHON.parent.parent.resolve()
    interpreter = subprocess.check_output(
        [TRAINER_PYTHON, "-c", "import sys; print(sys.base_prefix)"], text=True
    ).strip()
    binds = (f"{shared}:{SHARED}", f"{venv}:{venv}:ro", f"{interpreter}:{interpreter}:ro")
    options = [word for bind in binds for word in ("--volume", bind)]
    made = make_nodes("sif", 2, kind="hpc", image=True, options=tuple(options))
    for node in made.names:
        for folder in {*venv.parents, *Path(interpreter).parents}:
            made.root(node, "chmod", "o+x", folder)
        made.root(node, "install", "-d", "-o", "runner", "-g", "runner", WORK)
        made.root(node, "ln", "-s", venv, f"{WORK}/venv")
        made.root(node, "sh", "-c", "[ -e /dev/fuse ] || mknod /dev/fuse c 10 229; chmod 666 /dev/fuse")
    kept = shared / "image-id"
    if not kept.exists() or kept.read_text() != made.image:
        shutil.rmtree(shared / "layout", ignore_errors=True)
        with lone_image(*trainer_layout()) as alone:
            subprocess.run(["cp", "--recursive", "--link", "--dereference", alone, shared / "layout"], check=True)
        fast = ("--mksquashfs-args", "-comp lz4")
        made.root("node1", "apptainer", "build", "--force", *fast, SIF, f"oci:{SHARED}/layout")
        shutil.rmtree(shared / "layout")
        kept.write_text(made.image)
    return made


@pytest.fixture(scope="module")
def inventory(nodes, tmp_path_factory):
    image = {
        "name": "oneflow-reproduction:cu102",
        "digest": nodes.image,
        "registry": "",
        "archive": "",
        "file": SIF,
        "sha256": sha256(HOME / "shared-sif" / "trainer.sif"),
    }
    return prepare(nodes, tmp_path_factory.mktemp("runtimes"), cluster_image=image)


@pytest.fixture(scope="module")
def slurm(nodes):
    slurm_site.start(nodes)


def over_ssh(cluster, unit, folder, script=None):
    """An attempt on both nodes: its outcome and events."""
    folder.mkdir(parents=True)
    code = UploadedCode(script) if script else UploadedCode()
    events = []
    with NodePool(cluster, code, "tests") as pool:
        outcome = ssh_attempts(pool, folder.name, LIMITS, True)(unit, folder).run(events.append)
    return outcome, events


def under_slurm(cluster, unit, folder):
    """The same as a job."""
    folder.mkdir(parents=True)
    jobs, events = Jobs(cluster, UploadedCode(), cluster.port, "run", 10, False), []
    try:
        outcome = slurm_attempts(jobs, LIMITS, True)(unit, folder).run(events.append)
    finally:
        jobs.close()
    return outcome, events


LAUNCHES = {"ssh": over_ssh, "slurm": under_slurm}


def losses(events):
    return [event["loss"] for event in events if event["event"] == "iteration" and event["rank"] == 0]


def note(key, outcome, began, events):
    """Keep how long an attempt took, and how long after its start the first iteration had ended."""
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    first = next(event["time"] for event in events if event["event"] == "iteration")
    table[key] = {"attempt_s": round(outcome.trainer_s, 1), "first_iteration_s": round(first - began, 1)}
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(table, indent=1) + "\n")


def processes(nodes, node):
    """What still runs of an attempt on a node."""
    seen = nodes.root(node, "sh", "-c", "ps -eo args | grep -E '[A]pptainer runtime|[s]quashfuse|/[r]un.py' || true")
    return seen.splitlines()


def nothing_left(nodes):
    return not any(processes(nodes, node) or containers(nodes, node) for node in nodes.names)


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param([("docker", "ssh"), ("apptainer", "slurm"), ("venv", "ssh")], id="each runtime"),
        pytest.param(list(product(("docker", "apptainer", "venv"), LAUNCHES)), id="all", marks=pytest.mark.long),
    ],
)
def test_equal_losses_over_ssh_and_under_slurm_in_every_runtime(nodes, slurm, inventory, tmp_path, ways):
    """To the digit in the image, with Docker or Apptainer; a venv has the C library of its node."""
    unit = next(unit for unit in smoke_units("gpt", 2) if unit.world_size == 2)
    found = {}
    for runtime, launcher in ways:
        cluster = with_runtime(cluster_of(inventory), runtime)
        began = time.time()
        outcome, events = LAUNCHES[launcher](cluster, unit, tmp_path / f"{runtime}-{launcher}")
        assert outcome.failure is None, f"{runtime}, {launcher}: {outcome.failure.text()} {outcome.log_tail}"
        found[runtime, launcher] = losses(events)
        note(f"{runtime}, {launcher}", outcome, began, events)
        wait_until(lambda: nothing_left(nodes))
    first = found["docker", "ssh"]
    assert first
    for (runtime, launcher), each in found.items():
        assert each == (pytest.approx(first, rel=1e-5) if runtime == "venv" else first), (runtime, launcher)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("exit=3@1", "rank 1 on node1 exited with status 3"),
        ("kill@2", "rank 2 on node2 was killed by SIGKILL"),
        ("hang@0 hang@1 hang@2 hang@3", "no rank has printed anything"),
    ],
)
def test_a_fault_in_apptainer_is_named_and_leaves_nothing(nodes, inventory, tmp_path, faults, message):
    cluster = with_runtime(cluster_of(inventory), "apptainer")
    script = trainer(tmp_path / "trainer", faults, "2" if "hang" not in faults else "0")
    folder = tmp_path / "run"
    folder.mkdir()
    with NodePool(cluster, UploadedCode(script), "tests") as pool:
        outcome = ssh_attempts(pool, "run", Limits(stall_timeout_s=5), True)(unit_of(4), folder).run()
    assert outcome.failure.text().startswith(message)
    wait_until(lambda: nothing_left(nodes))


def test_apptainer_that_is_killed_leaves_nothing(nodes, inventory, tmp_path):
    cluster = with_runtime(cluster_of(inventory), "apptainer")
    script = trainer(tmp_path / "trainer", "hang@0 hang@1 hang@2 hang@3", "0")
    folder = tmp_path / "run"
    folder.mkdir()
    begun = set()

    def kill(event):
        begun.add(event.get("rank"))
        if len(begun) == 4:
            nodes.root("node2", "pkill", "-KILL", "-f", "Apptainer runtime parent", check=False)

    with NodePool(cluster, UploadedCode(script), "tests") as pool:
        outcome = ssh_attempts(pool, "run", LIMITS, True)(unit_of(4), folder).run(kill)
    assert outcome.failure is not None
    wait_until(lambda: nothing_left(nodes))


def test_another_file_under_the_same_name_is_refused(nodes, inventory, tmp_path):
    cluster = with_runtime(cluster_of(inventory), "apptainer")
    other = replace(cluster, image=replace(cluster.image, sha256="0" * 64))
    with pytest.raises(ClusterError, match="and the inventory asks for 0000"), NodePool(other, UploadedCode(), "tests"):
        pass


@pytest.fixture
def reviewer(nodes):
    """An account with a home that the nodes share, without sudo and without Docker; its home."""
    home = f"{SHARED}/home/reviewer"
    for node in nodes.names:
        nodes.root(
            node, "useradd", "--uid", "2001", "--no-create-home", "--home-dir", home, "--shell", "/bin/bash", "reviewer"
        )
    owned = ("install", "-d", "-o", "reviewer", "-g", "reviewer", "-m", "700")
    nodes.root("node1", "install", "-d", f"{SHARED}/home")
    nodes.root("node1", *owned, home, f"{home}/.ssh", f"{home}/work", f"{home}/results")
    keys = ("/simulation/authorized_keys", f"{home}/.ssh/authorized_keys")
    nodes.root("node1", "install", "-o", "reviewer", "-m", "600", *keys)
    yield home
    nodes.root("node1", "rm", "-rf", f"{SHARED}/home")
    for node in nodes.names:
        nodes.root(node, "loginctl", "terminate-user", "reviewer", check=False)
        nodes.root(node, "userdel", "--force", "reviewer")


@pytest.mark.parametrize("program", ["stand-in", pytest.param("OneFlow", marks=pytest.mark.long)])
def test_a_site_without_root_docker_or_ssh_to_compute_nodes(nodes, slurm, inventory, reviewer, tmp_path, program):
    """As docs/hpc.md has it: an ordinary account, a shared folder, Slurm and Apptainer; the login node alone answers.

    A rank on each node; several on one are in test_slurm.py. OneFlow trains in Apptainer under Slurm in the first test
    here, so that a stand-in, in the same image, is enough for what the account may do.
    """
    for node in nodes.names:
        for refused in ("sudo -n true", "docker ps"):
            assert nodes.root(node, "su", "reviewer", "-c", f"{refused} 2>/dev/null && echo allowed || echo no") == "no"
    site = tmp_path / "site"
    shutil.copytree(inventory, site)
    slurm_site.hide_compute_nodes(site, "reviewer")
    variables = site / "group_vars/all.yml"
    changed = {
        "cluster_launcher": "slurm",
        "cluster_slurm": {"partition": "main", "time_minutes": 20, "poll_seconds": 5},
        "cluster_gpus_per_node": 1,
        "cluster_runtime": "apptainer",
        "cluster_work": f"{reviewer}/work",
        "cluster_shared_results": f"{reviewer}/results",
    }
    variables.write_text(yaml.safe_dump({**yaml.safe_load(variables.read_text()), **changed}, sort_keys=False))
    where = "import socket; print(socket.gethostname(), file=sys.stderr)"
    command = f"python {trainer(tmp_path / 'trainer', first=where)}"
    standin = {"TRAINER_COMMAND": command} if program == "stand-in" else {}
    done, run = bench(tmp_path, site, MODEL="bert", STALL_TIMEOUT="300", DATA="synthetic", **standin)
    assert done.returncode == 0, done.stderr
    reference, across = attempts(run)
    assert max(abs(a - b) / b for a, b in zip(across["losses"], reference["losses"], strict=True)) < 1e-4
    folder = run / across["folder"]
    if program == "stand-in":
        hosts = [(folder / f"logs/local_rank_{n}/stderr").read_text().strip() for n in range(2)]
    else:
        hosts = [json.loads((folder / f"metrics-rank{n}.jsonl").open().readline())["host"] for n in range(2)]
    assert hosts == ["node1", "node2"]
    wait_until(lambda: nothing_left(nodes))
    left = nodes.root("node1", "find", f"{reviewer}/work", f"{reviewer}/results", "-type", "f").split()
    assert [name for name in left if "/code/" not in name and "/standins/" not in name] == []
