"""Jobs before and between attempts: what their nodes are, whether they compute rightly, and one that is kept for many."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.cli.options import RunOptions
from repro.cli.session import Session
from repro.cli.settings import Exit, Invocation
from repro.cluster.cluster import BaselinePlace, Cluster, Image, Node, Slurm
from repro.cluster.inventory import ClusterError
from repro.launch.agent.lock import SEAM as LOCK_FOLDER
from repro.launch.agent.lock import current_holder
from repro.launch.attempt import Limits, ignore, interruptible
from repro.launch.base import LaunchOptions
from repro.launch.kernels import KernelError, precisions_of
from repro.launch.nodes import kernels as on_nodes
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.datasets import folder_on_nodes
from repro.launch.nodes.target import ClusterTarget
from repro.launch.nodes.tracing import Tracing
from repro.launch.slurm import allocation as allocations
from repro.launch.slurm import inspection
from repro.launch.slurm import jobs as jobs_module
from repro.launch.slurm.allocation import Allocation, SlurmStep
from repro.launch.slurm.attempt import slurm_attempts
from repro.launch.slurm.batch_script import JobRequest
from repro.launch.slurm.client import Backoff, SlurmJob
from repro.launch.slurm.jobs import Jobs, Size
from repro.launch.slurm.launcher import SlurmLauncher
from repro.launch.traced import traced_on_nodes
from repro.planning.datasets import Dataset
from repro.planning.plan import Wanted, make_plan
from repro.planning.profiling import as_profile
from repro.published.cases import Layout, load_catalogue
from repro.runs.description import PlannedRun
from repro.runs.plan import Plan
from repro.runs.record import Run
from repro.utils.errors import PlanError
from repro.utils.paths import sha256_of
from repro.utils.ports import free_port
from tests.support.compat import needs_gcc
from tests.support.paths import STANDIN, TRAINER_PYTHON
from tests.support.patience import patience
from tests.support.programs import lay_gpu, standins
from tests.support.slurm import lay_slurm, submitted


@pytest.fixture
def jobs_folder(tmp_path, monkeypatch):
    """The folder in which Slurm's stand-in keeps its jobs."""
    monkeypatch.delenv("REPRO_TRAINER_COMMAND", raising=False)
    monkeypatch.setattr(on_nodes, "CACHE", tmp_path / "cache")
    return lay_slurm(tmp_path, monkeypatch)


@pytest.fixture
def cluster(tmp_path, jobs_folder):
    """Two nodes of two ranks each that no SSH reaches: the inventory's addresses are nobody's."""
    site = tmp_path / "site"
    (site / "work").mkdir(parents=True)
    (site / "work/venv").symlink_to(TRAINER_PYTHON.parent.parent)
    nodes = tuple(Node(f"node{number}", f"192.0.2.{number}", 22, "bench", 2) for number in (1, 2))
    return Cluster(
        name="some",
        folder=site,
        nodes=nodes,
        gpu="",
        gpus_per_node=2,
        interface="lo",
        network_gbits=10,
        stack="cu102",
        image=Image("trainer:cu102"),
        known_hosts=site / "known_hosts",
        shared_results=f"{site}/shared",
        work=f"{site}/work",
        port=free_port(),
        runtime_name="venv",
        launcher="slurm",
        python=sys.executable,
    )


@pytest.fixture
def bench(tmp_path, cluster):
    """`make bench` of some units on the cluster; the run."""

    def run(plan, code=None, before=None, wrapped=lambda attempt_of: attempt_of, datasets=(), **changes):
        changed = replace(cluster, **changes)
        target = ClusterTarget(changed, code or UploadedCode(STANDIN), changed.port)
        session = Session(
            invocation=Invocation("bench", {}), options=RunOptions(runs=tmp_path / "runs", run=before and before.id)
        )
        try:
            session.run_on_cluster(before, SlurmLauncher(target), lambda: PlannedRun(plan=plan), datasets, wrapped)
        finally:
            found = sorted((tmp_path / "runs").glob("*/run.json"))
        return Run(found[-1].parent)

    return run


def smoke(ranks=(4,)) -> Plan:
    """Data parallel BERT on so many ranks each."""
    plan = make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke", repeats=1), processes=1)
    unit = plan.units[0]
    units = []
    for count in ranks:
        config = replace(unit.config, layout=Layout(count), iterations=6)
        units.append(replace(unit, name=f"bert on {count}", config=config, reference=None))
    return replace(plan, units=tuple(units))


def on_gpus(models=("gpt", "resnet50")) -> Plan:
    """A published case of one GPU per model."""
    plan = make_plan(load_catalogue().select(None, None), 1, Wanted(scale="published", repeats=1))
    units = [next(unit for unit in plan.units if unit.model == model) for model in models]
    return replace(plan, units=tuple(units), looks=())


# What the nodes are


def test_nodes_that_no_ssh_reaches_get_a_fingerprint_and_a_report(bench, jobs_folder, cluster):
    run = bench(smoke())
    cluster = run.description().environment.cluster
    kept = cluster["fingerprints"]["nodes"]
    assert list(kept) == ["node1", "node2"]
    assert kept["node1"]["fields"]["system.kernel"] == os.uname().release
    assert cluster["hosts"] == [os.uname().nodename] * 2
    (attempt,) = run.attempts()
    assert attempt.status == "ok"
    own = json.loads((run.folder / attempt.folder / "fingerprints.json").read_text())
    assert own["nodes"] == kept
    page = (run.folder / "report.en.md").read_text()
    assert "node1, node2" in page
    assert "not known: no fingerprint" not in page
    assert len(submitted(jobs_folder)) == 1, "the first attempt has the job whose nodes were asked"
    assert not (jobs_folder / "cancelled").exists()


@pytest.fixture
def different(monkeypatch):
    """Gives single nodes another value of a field."""
    others = {}

    def changed(cluster, node, output, sent, received):
        found = probed(cluster, node, output, sent, received)
        return replace(found, fields={**found.fields, **others.get(node, {})})

    probed = inspection.probed
    monkeypatch.setattr(inspection, "probed", changed)
    return others


def test_nodes_that_differ_get_no_ranks(bench, different, tmp_path):
    different["node2"] = {"system.kernel": "4.4"}
    with pytest.raises(ClusterError, match=r"job 1 are not equal, .*: system\.kernel is .* on node1, 4\.4 on node2"):
        bench(smoke())
    assert not (tmp_path / "runs").exists()
    run = bench(smoke(), accepted=frozenset({"system.kernel"}))
    assert [each.status for each in run.attempts()] == ["ok"]


def test_a_run_goes_on_only_on_nodes_that_are_what_its_nodes_were(bench, different, monkeypatch, tmp_path):
    monkeypatch.setenv("STANDIN", "exit=3@0")
    with pytest.raises(Exit, match="the reports say why"):
        bench(smoke())
    (folder,) = (tmp_path / "runs").iterdir()
    run = Run(folder)
    monkeypatch.delenv("STANDIN")
    different["node1"] = different["node2"] = {"system.kernel": "4.4"}
    with pytest.raises(Exit, match="the reports say why"):
        bench(None, before=run)
    failure = run.attempts()[-1].failure
    assert "not what others of this run were" in failure.message
    assert "node1 now" in failure.values["said"]
    different.clear()
    bench(None, before=run)
    assert [each.status for each in run.attempts()] == ["failed", "failed", "ok"]


# Operators


@pytest.fixture
def gpu(cluster, tmp_path, monkeypatch):
    """The cluster's nodes have GPUs, as far as nvidia-smi tells; the programs in the place of the project's."""
    monkeypatch.setenv("PATH", f"{tmp_path}/gpu:{os.environ['PATH']}")
    calls = tmp_path / "calls"
    monkeypatch.setenv("KERNELS_STANDIN_CALLS", str(calls))

    def lay(name="Tesla V100-SXM2-16GB"):
        lay_gpu(tmp_path / "gpu", name)
        return UploadedCode(standins(tmp_path / "programs")), {"gpu": name, "gpus_per_node": 2}

    lay.calls = lambda: len(calls.read_text().splitlines()) if calls.exists() else 0
    return lay


def test_operators_are_compared_inside_the_job(bench, gpu, jobs_folder):
    code, changes = gpu()
    run = bench(on_gpus(("gpt",)), code, **changes)
    kernels = run.description().environment.kernels
    assert (kernels["operators"], kernels["wrong"], kernels["nodes"]) == (1, [], ["node1"])
    assert gpu.calls() == 1
    (job,) = submitted(jobs_folder)
    assert "--gres=gpu:2" in job["options"]
    bench(on_gpus(("gpt",)), code, **changes)
    assert gpu.calls() == 1, "kept"


def test_a_model_that_is_computed_wrongly_gets_no_ranks(bench, gpu, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNELS_STANDIN", "wrong")
    code, changes = gpu()
    with pytest.raises(KernelError, match="node1: convolution 64 to 64, 1x1"):
        bench(on_gpus(("resnet50",)), code, **changes)
    assert not (tmp_path / "runs").exists()
    run = bench(on_gpus(), code, **changes)
    assert {unit.model for unit in run.description().plan.units} == {"gpt"}


def test_a_node_that_is_new_to_a_run_is_compared_before_it_gets_ranks(cluster, gpu, monkeypatch, tmp_path):
    """Which nodes the later jobs of a run get nobody knows before."""
    monkeypatch.setenv("KERNELS_STANDIN", "wrong")
    code, changes = gpu()
    jobs = Jobs(replace(cluster, **changes), code, cluster.port, "the run", 10, True)
    plan = on_gpus(("resnet50",))
    (unit,), jobs.precisions = plan.units, precisions_of(plan)
    outcome = slurm_attempts(jobs, Limits(), False)(unit, _folder(tmp_path)).run()
    assert "operators of resnet50 compute wrongly on the nodes of job 1: node1: convolution" in outcome.failure.text()
    assert not list(_folder(tmp_path).glob("metrics*"))


def test_the_published_libraries_are_refused_on_a_newer_gpu(bench, gpu):
    code, changes = gpu("NVIDIA H200")
    with pytest.raises(
        ClusterError, match=r"job 1 cannot use its nodes: node1: cuDNN 7\.6\.5 of stack cu102 computes wrong"
    ):
        bench(on_gpus(("gpt",)), code, **changes)
    assert gpu.calls() == 0


# Baselines


PYTORCH = """#!/bin/sh
[ "$1 $2" = "-E -c" ] || exec {python} "$@"
case $SLURMD_NODENAME in
{broken}) echo "ModuleNotFoundError: No module named 'torch'" >&2; exit 1;;
{other}) echo '{{"torch": "2.5.0", "cuda": "12.4", "gpus": 2}}';;
*) echo '{{"torch": "2.4.0", "cuda": "12.4", "gpus": 2}}';;
esac
"""


@pytest.fixture
def pytorch(tmp_path):
    """Lays an interpreter that says on `other` that it has another PyTorch, and on `broken` that it has none."""
    interpreter = tmp_path / "interpreter"

    def lay(other="-", broken="-"):
        interpreter.write_text(PYTORCH.format(python=TRAINER_PYTHON, other=other, broken=broken))
        interpreter.chmod(0o755)
        return {"code": UploadedCode(STANDIN, baseline=STANDIN), "baseline": BaselinePlace(str(interpreter))}

    return lay


def with_baselines(plan: Plan) -> Plan:
    own = [
        replace(each, name=f"{each.name}.pytorch", framework="pytorch", variant="pytorch", baseline_of=each.name)
        for each in plan.units
    ]
    return replace(plan, units=tuple(unit for pair in zip(plan.units, own, strict=True) for unit in pair))


def test_baselines_run_in_jobs_with_the_pytorch_of_their_nodes(bench, pytorch, jobs_folder, tmp_path):
    run = bench(with_baselines(smoke((4, 1))), **pytorch())
    assert run.description().baseline.as_json() == {
        "command": (f"{tmp_path}/interpreter", "trainer.py"),
        "versions": {"torch": "2.4.0", "cuda": "12.4", "gpus": 2},
        "variants": ("pytorch",),
        "image": "",
        "lock": "",
    }
    assert [(each.unit, each.status) for each in run.attempts()] == [
        *(("bert on 4", "ok"), ("bert on 4.pytorch", "ok"), ("bert on 1", "ok"), ("bert on 1.pytorch", "ok"))
    ]
    for each in run.attempts():
        commands = json.loads((run.folder / each.folder / "command.json").read_text())["commands"]
        for argv in commands.values():
            assert any(f"/repro/{'baselines' if 'pytorch' in each.unit else 'trainers'}/trainer.py" in w for w in argv)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            {"other": "node2"},
            r"some: the baselines' environments on the nodes of this run are not equal: node1: .*2\.5\.0",
        ),
        ({"broken": "node2"}, "some: node2: the baselines cannot run: ModuleNotFoundError: .* cluster_baseline in "),
    ],
)
def test_nodes_without_the_same_pytorch_get_no_run(bench, pytorch, tmp_path, fault, message):
    with pytest.raises(ClusterError, match=message):
        bench(with_baselines(smoke((4,))), **pytorch(**fault))
    assert not (tmp_path / "runs").exists()


def test_a_node_that_is_new_to_a_run_is_asked_before_a_baseline_gets_it(cluster, pytorch, tmp_path):
    """One that differs harms no later attempt; where tests replace the program, nothing is asked."""
    given = pytorch(other="node2")
    changed = replace(cluster, baseline=given["baseline"])
    alone, both = with_baselines(smoke((1, 4))).units[1::2]

    def messages(asks, units):
        jobs = Jobs(changed, given["code"], cluster.port, "the run", 10, True, asks)
        make = slurm_attempts(jobs, Limits(), True)
        folders = [_folder(tmp_path, f"{turn} {asks}") for turn in range(len(units))]
        failures = [make(unit, folder).run().failure for unit, folder in zip(units, folders, strict=True)]
        return [failure and failure.message for failure in failures]

    refused = "the baselines' environments on the nodes of this run are not equal: {said}"
    assert messages(True, (alone, both, alone)) == [None, refused, None]
    assert messages(False, (both,)) == [None]


# Data


@pytest.fixture
def text(tmp_path):
    """A data set of this machine."""
    folder = tmp_path / "text"
    folder.mkdir()
    for name in ("text.bin", "text.idx"):
        (folder / name).write_text(name)
    facts = {"kind": "text", "sha256": {name: sha256_of(name.encode()) for name in ("text.bin", "text.idx")}}
    (folder / "facts.json").write_text(json.dumps(facts))
    return Dataset(folder, facts)


@pytest.fixture
def asked(monkeypatch):
    """The nodes that were asked by each step for data, sorted: which of them answers first is chance."""
    steps = []

    def recorded(allocation, names, code, argv, *more):
        steps.append(sorted(names))
        return ask(allocation, names, code, argv, *more)

    ask = jobs_module.ask
    monkeypatch.setattr(jobs_module, "ask", recorded)
    return steps


def reading(plan: Plan, cluster: Cluster, dataset: Dataset) -> Plan:
    """The plan with units that read a data set where nodes have it."""
    data = replace(dataset, folder=Path(folder_on_nodes(cluster, dataset))).data
    return replace(plan, units=tuple(replace(each, config=replace(each.config, data=data)) for each in plan.units))


def test_data_is_brought_to_nodes_that_no_ssh_reaches(bench, cluster, text, asked, jobs_folder):
    """Through the shared folder, in the job whose nodes are asked what they are; once, and nothing of it stays there."""
    plan = reading(smoke((4, 1)), cluster, text)
    run = bench(plan, datasets=[text])
    assert [each.status for each in run.attempts()] == ["ok", "ok"]
    there = Path(folder_on_nodes(cluster, text))
    assert {path.name for path in there.iterdir()} == {"text.bin", "text.idx", "facts.json"}
    assert (there / "text.bin").read_text() == "text.bin"
    assert asked == [["node1", "node2"], ["node1", "node2"], ["node1", "node2"]], "absent; brought; and can be read"
    assert not [path for path in Path(cluster.shared_results).rglob("*") if path.is_file()]
    asked.clear()
    shutil.rmtree(text.folder)
    bench(reading(smoke(), cluster, text), datasets=[text])
    assert asked == [["node1", "node2"]] * 2, "they have it from the run before"


def test_without_a_shared_folder_data_is_sent_to_each_node_that_lacks_it(cluster, text, monkeypatch):
    sent = []

    @contextmanager
    def place(name):
        yield SimpleNamespace(
            run=lambda argv: sent.append((name, argv[-1])), put=lambda *path: sent.append((name, *path))
        )

    job = Allocation(JobRequest(replace(cluster, shared_results=""), "case", "run", 2, 0, 30, "token"))
    job.names = ["node1", "node2"]
    monkeypatch.setattr(job, "_places", lambda: iter([(partial(place, "node1"), [0]), (partial(place, "node2"), [1])]))
    path, folder = text.folder / "text.bin", f"{cluster.work}/runs/run/job-token/text"
    job.send(["node2"], [path], "text")
    assert sent == [("node2", folder), ("node2", path, f"{folder}/text.bin")]


def test_nodes_are_asked_for_no_data_that_a_run_does_not_read(bench, text, asked):
    bench(smoke((1,)), datasets=[text])
    assert asked == []


def test_data_that_arrives_altered_is_refused_before_the_run(bench, cluster, text, tmp_path):
    (text.folder / "text.idx").write_text("x")
    with pytest.raises(ClusterError, match=r"some: the data set text-\w{12} cannot be brought to node1: .*checksum"):
        bench(reading(smoke((1,)), cluster, text), datasets=[text])
    assert not (tmp_path / "runs").exists()
    assert list(Path(folder_on_nodes(cluster, text)).iterdir()) == []


def test_a_node_that_is_new_to_a_run_gets_data_before_an_attempt(cluster, text, asked, tmp_path):
    alone, both = reading(smoke((1, 4)), cluster, text).units
    jobs = Jobs(cluster, UploadedCode(STANDIN), cluster.port, "the run", 10, True)
    jobs.datasets = (text,)
    make = slurm_attempts(jobs, Limits(), True)
    for turn, unit in enumerate((alone, both, alone)):
        assert make(unit, _folder(tmp_path, str(turn))).run().failure is None
    assert asked == [["node1"], ["node1"], ["node2"]]


def test_what_data_names_and_nodes_cannot_read_is_said_before_the_run(bench, cluster, text, tmp_path):
    """As over SSH."""
    plan = reading(smoke((4, 1)), cluster, text)
    missing = f"{folder_on_nodes(cluster, text)}/text.idx"
    lines = [f"node{n}: there is no {missing}, which the published program reads; DATA names it" for n in (1, 2)]
    with pytest.raises(PlanError, match=re.escape("\n".join(lines))):
        bench(plan)
    assert not (tmp_path / "runs").exists()


# Profiles


@needs_gcc
def test_the_kernels_of_a_job_are_traced_on_its_node(bench, gpu, tmp_path):
    """With the tracer that the node compiles, and a CUPTI that it has; the report is that of one machine."""
    code, changes = gpu()
    (tmp_path / "libcupti.so.12").touch()

    def traced(attempt_of):
        return traced_on_nodes(attempt_of, Tracing(str(tmp_path)))

    run = bench(as_profile(on_gpus(("gpt",))), code, wrapped=traced, **changes)
    (attempt,) = run.attempts()
    assert attempt.status == "ok", attempt.failure
    folder = run.folder / attempt.folder
    assert json.loads((folder / "profile.json").read_text())["busy_ms"] == pytest.approx(8.49)
    assert [path.name for path in folder.glob("trace.*")] == ["trace.json"]
    assert "| Communication (NCCL) | 2.000 |" in (run.folder / "report.en.md").read_text()


# One job for many attempts


KEPT = Slurm(allocation="run", time_minutes=30)


def test_a_run_may_keep_one_job_for_all_its_attempts(bench, jobs_folder):
    run = bench(smoke((1, 4)), slurm=KEPT)
    assert [each.status for each in run.attempts()] == ["ok"] * 2
    (job,) = submitted(jobs_folder)
    assert {"--nodes=2", "--time=30"} <= set(job["options"])
    numbers = [json.loads(path.read_text())["job"] for path in run.folder.glob("units/*/*/command.json")]
    assert numbers == [1] * 2
    assert not (jobs_folder / "cancelled").exists()


def test_a_node_tells_which_attempt_it_is_locked_for(cluster, tmp_path, jobs_folder, monkeypatch):
    """Also in a job that was submitted before its run had a name."""
    jobs = Jobs(cluster, UploadedCode(STANDIN), cluster.port, "some-1a2b3c4d", 30, True)
    with interruptible() as interrupts:
        jobs.give_back(jobs.take("nodes of a run", Size(2), None, ignore, interrupts), spare=True)
    jobs.run = "the run"
    monkeypatch.setenv(LOCK_FOLDER, str(jobs_folder / "locks-1"))
    told = []

    def on_event(event):
        if event["event"] == "start" and event["rank"] == 2:
            told.append(current_holder())

    (unit,) = smoke().units
    assert slurm_attempts(jobs, Limits(), True)(unit, _folder(tmp_path)).run(on_event).failure is None
    (holder,) = told
    assert (holder["what"], holder["run"], holder["job"]) == ("bert on 4, attempt", "the run", "1")
    assert current_holder() is None


def test_without_that_each_attempt_is_a_job(bench, jobs_folder):
    bench(smoke((1, 4)))
    sizes = [next(option for option in job["options"] if "--nodes" in option) for job in submitted(jobs_folder)]
    assert sizes == ["--nodes=2", "--nodes=1", "--nodes=2"], "the first was asked what the nodes are, and is too large"


def test_a_kept_job_outlives_an_attempt_that_fails_or_hangs(cluster, tmp_path, jobs_folder, monkeypatch):
    jobs = Jobs(replace(cluster, slurm=KEPT), UploadedCode(STANDIN), cluster.port, "the run", 30, True)
    (unit,) = smoke().units
    faults = iter(["exit=3@3", "hang@0 hang@1 hang@2 hang@3", ""])
    outcomes = []
    for number, fault in enumerate(faults):
        script = tmp_path / f"code-{number}" / "trainer.py"
        script.parent.mkdir()
        script.write_text(
            f"import os, runpy\nos.environ['STANDIN'] = {fault!r}\n"
            f"runpy.run_path({str(STANDIN)!r}, run_name='__main__')\n"
        )
        jobs.code = UploadedCode(script)
        limits = Limits(stall_timeout_s=4 if "hang" in fault else patience(10))
        outcomes.append(slurm_attempts(jobs, limits, True)(unit, _folder(tmp_path, str(number))).run())
    failures = [outcome.failure and outcome.failure.text() for outcome in outcomes]
    assert failures == [
        "rank 3 on node2 exited with status 3",
        "no rank has printed anything for 4 s: at least one hangs",
        None,
    ]
    assert len(submitted(jobs_folder)) == 1
    jobs.close()
    assert not (jobs_folder / "cancelled").exists()


def test_a_kept_job_that_was_cancelled_is_replaced(cluster, tmp_path, jobs_folder, monkeypatch):
    """Also if Slurm was asked last before that."""
    monkeypatch.setattr(allocations, "FIRST_POLL_S", patience(60.0))
    jobs = Jobs(replace(cluster, slurm=KEPT), UploadedCode(STANDIN), cluster.port, "the run", 30, True)
    (unit,) = smoke((1,)).units
    make = slurm_attempts(jobs, Limits(), True)
    assert make(unit, _folder(tmp_path, "1")).run().failure is None
    subprocess.run(["scancel", "1"], check=True)
    assert make(unit, _folder(tmp_path, "2")).run().failure is None
    assert len(submitted(jobs_folder)) == 2
    jobs.close()


def test_a_job_asks_for_the_time_of_an_attempt(cluster):
    plan = smoke((1, 4))
    shown = "\n".join(SlurmLauncher.of(LaunchOptions(cluster, attempt_s=7200)).dry_run(plan))
    assert shown.count("#SBATCH --time=122") == shown.count("#SBATCH --time=") == 2
    assert shown.count("--node_rank 1 ") == 1
    kept = replace(cluster, slurm=KEPT)
    shown = "\n".join(SlurmLauncher.of(LaunchOptions(kept, attempt_s=7200)).dry_run(plan))
    assert shown.count("#SBATCH --time=30") == shown.count("#SBATCH --time=") == 1


# A controller that is away, and how often Slurm is asked


def test_a_controller_that_reads_nothing_for_a_while_goes_on_where_it_was(cluster, tmp_path, monkeypatch):
    """As when the connection to the login node is down: the job lives by its lease, and nothing counts as hanging."""
    monkeypatch.setattr(allocations, "LEASE_S", 3.0)
    jobs = Jobs(
        replace(cluster, slurm=Slurm(lease_seconds=600)), UploadedCode(STANDIN), cluster.port, "the run", 30, True
    )
    (unit,) = smoke().units
    monkeypatch.setenv("STANDIN", "slow=16@0")
    away = threading.Event()
    whole = allocations.login

    def login(cluster):
        if away.is_set():
            raise allocations.SlurmError("the login node does not answer")
        return whole(cluster)

    monkeypatch.setattr(allocations, "login", login)
    seen = []

    def on_event(event):
        seen.append(event)
        if event["event"] == "start" and not away.is_set() and event["rank"] != 0:
            away.set()
            for reader in readers:
                reader._place.close()
            threading.Timer(13, away.clear).start()

    readers = []
    made = allocations.Reader

    def reader(*arguments):
        readers.append(made(*arguments))
        return readers[-1]

    monkeypatch.setattr(allocations, "Reader", reader)
    strict = property(
        lambda limits: 10 if away.is_set() else patience(60)
    )  # a machine may stand still before and after
    limits = type("StrictWhileAway", (), {"stall_timeout_s": strict, "total_s": patience(600)})()
    outcome = slurm_attempts(jobs, limits, True)(unit, _folder(tmp_path)).run(on_event)
    assert outcome.failure is None, outcome
    assert len([event for event in seen if event.get("event") == "end"]) == 4


@pytest.mark.parametrize(
    ("unread", "heard", "lease", "expected"),
    [(1, 4, 60, 3), (30, 31, 60, None), (30, 31, 7200, None), (61, 62, 60, 61), (61, 62, 7200, None)],
)
def test_a_node_counts_as_silent_only_while_something_can_be_read(cluster, monkeypatch, unread, heard, lease, expected):
    """Ages in seconds: of the last line that was read at all, and of the node's last message; a lease, and the silence."""
    request = JobRequest(replace(cluster, slurm=Slurm(lease_seconds=lease)), "case", "run", 1, 0, 30, "token")
    assert f"-lt {lease} ]" in request.script()
    job, now = Allocation(request), time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    job._readers = [SimpleNamespace(alive=now - unread)]
    step = SlurmStep(1, ["node1"], None)
    step.heard[0] = now - heard
    silences = job.silences(step)
    assert silences == (None if expected is None else {0: pytest.approx(expected)})


def test_what_nodes_sent_before_their_step_was_ended_is_taken_although_it_is_read_later(cluster, monkeypatch):
    """The end of a step that fails in a job that is kept: the status may be read before the last of long logs."""
    monkeypatch.setattr(allocations, "DRAIN_S", 0)
    job, taken = Allocation(JobRequest(cluster, "case", "run", 1, 0, 30, "token")), []
    late = {"file": "logs/local_rank_0/stdout", "at": 0, "data": "x"}
    job._readers = [SimpleNamespace(wait_for_all=lambda patience: job._take(0, late))]
    job._job, job.names = SlurmJob(1, "RUNNING"), ["node1"]
    step = SlurmStep(1, ["node1"], SimpleNamespace(put=lambda index, message: taken.append(message)))
    job._running[1], job._on_node[0] = step, 1
    step.ended.set()
    assert job.stop(step)
    assert taken == [late]
    job._take(0, late)
    assert taken == [late], "nobody waits for more"


def test_slurm_is_asked_less_and_less_until_something_happens(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("repro.launch.slurm.client.time.monotonic", lambda: clock[0])
    backoff = Backoff(5)
    assert [backoff.wait() for _ in range(6)] == [0.5, 1.0, 2.0, 4.0, 5, 5]
    backoff.reset()
    assert not backoff.due
    clock[0] = 0.6
    assert backoff.due
    assert not backoff.due
    assert [Backoff(0.2).wait() for _ in range(2)] == [0.2, 0.2]


def test_an_end_that_slurm_knows_of_is_found_at_once_also_with_a_long_interval(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@0 hang@1 hang@2 hang@3")
    jobs = Jobs(
        replace(cluster, slurm=Slurm(poll_seconds=3600)), UploadedCode(STANDIN), cluster.port, "the run", 30, True
    )
    (unit,) = smoke().units
    cancelled = []

    def on_event(event):
        if event["event"] == "start" and event["rank"] == 0:
            subprocess.Popen(["scancel", "1"])
            cancelled.append(time.monotonic())

    outcome = slurm_attempts(jobs, Limits(), True)(unit, _folder(tmp_path)).run(on_event)
    assert outcome.failure.text() == "job 1 was cancelled by someone else"
    assert time.monotonic() - cancelled[0] < patience(20)


def _folder(tmp_path, name="attempt") -> Path:
    folder = tmp_path / name
    folder.mkdir(exist_ok=True)
    return folder
