"""Attempts side by side over simulated nodes, and settings that mean the same there as on one machine."""

import json
import time

import pytest

from tests.e2e import hardware
from tests.e2e.launching import WORK, bench, containers, prepare, trainer
from tests.support import tasks
from tests.support.runs import attempts
from tests.support.simulated import containers_asked_for

ONE_NODE = "bert_1n1g_bs96,resnet50_0821_1n1g_bs128"


@pytest.fixture(scope="module")
def inventory(two_nodes, tmp_path_factory):
    return prepare(two_nodes, tmp_path_factory.mktemp("side by side"))


def overlapping(ended) -> int:
    """How many pairs of attempts ran at the same time."""
    spans = [(each["started"], each["started"] + each["wall_s"]) for each in ended]
    return sum(a < d and c < b for i, (a, b) in enumerate(spans) for c, d in spans[:i])


@pytest.mark.timeout(600)
def test_two_cases_on_one_node_each_run_at_once_in_the_precision_that_is_asked_for(two_nodes, tmp_path):
    """On GPUs that are not there, by the stand-in trainer: PRECISION and ITERATIONS reach the ranks on their nodes."""
    name = "Tesla V100-SXM2-16GB"
    inventory = prepare(two_nodes, tmp_path, cluster_gpu=name)
    command = f"python {trainer(tmp_path / 'trainer', 'slow=3@0')}"
    settings = {"SCALE": "published", "PRECISION": "amp", "ITERATIONS": 130, "DATA": "synthetic", "REPEATS": 2}
    for node in two_nodes.names:
        hardware.lay_gpus(two_nodes, node, name, "7.0")
    try:
        done, run = bench(tmp_path, inventory, CASES=ONE_NODE, TRAINER_COMMAND=command, **settings)
    finally:
        for node in two_nodes.names:
            hardware.remove_tools(two_nodes, node)
    assert done.returncode == 0, done.stderr
    ended = attempts(run)
    assert len(ended) == 4 and {each["status"] for each in ended} == {"ok"}
    by_folder = {each["folder"]: each for each in ended}
    for each in ended:
        assert len(each["nodes"]) == 1 and each["beside"]
        for other in each["beside"]:
            assert by_folder[other["attempt"]]["nodes"] == other["nodes"] != each["nodes"]
        assert [*json.loads((run / each["folder"] / "command.json").read_text())] == each["nodes"]
        config = json.loads((run / each["folder"] / "config.json").read_text())
        assert (config["precision"], config["iterations"]) == ("amp", 130)
    assert overlapping(ended) >= 2
    report = (run / "report.en.md").read_text()
    assert "up to 2 attempts at once, each on nodes of its own" in report
    assert "2 of 2" in report.partition("Nodes of the attempts")[2]
    verified = tasks.run("verify", RUN=run.name, RUNS=run.parent)
    assert verified.returncode == 0, verified.stderr
    assert [containers(two_nodes, node) for node in two_nodes.names] == [[], []]


@pytest.mark.timeout(600)
def test_one_at_a_time_if_that_is_wanted(inventory, tmp_path):
    command = f"python {trainer(tmp_path / 'trainer', 'slow=2@0')}"
    settings = {"CASES": ONE_NODE, "DATA": "synthetic", "TRAINER_COMMAND": command}
    done, run = bench(tmp_path, inventory, SIDE_BY_SIDE=0, **settings)
    assert done.returncode == 0, done.stderr
    ended = attempts(run)
    assert overlapping(ended) == 0
    assert [each["nodes"] for each in ended] == [["node1"]] * len(ended)
    assert not any("beside" in each for each in ended)
    assert "Nodes of the attempts" not in (run / "report.en.md").read_text()


@pytest.mark.timeout(600)
def test_a_case_that_fails_stops_no_other_and_is_gone_on_with(inventory, tmp_path):
    """Rank 3 of a case on both nodes ends; what runs on one node each goes on, before and after."""
    command = f"python {trainer(tmp_path / 'trainer', 'exit=5@3')}"
    settings = {"CASES": f"{ONE_NODE},bert_2n8g_bs96", "DATA": "synthetic", "TRAINER_COMMAND": command}
    first, run = bench(tmp_path, inventory, **settings)
    assert first.returncode == 1
    before = attempts(run)
    assert [each["unit"] for each in before if each["status"] != "ok"] == ["smoke_bert-2020-08-22_4x1x1"]
    trainer(tmp_path / "trainer")
    second, _ = bench(tmp_path, inventory, RUN=run.name, CLUSTER="", TRAINER_COMMAND=command)
    assert second.returncode == 0, second.stderr
    (last,) = attempts(run)[len(before) :]
    assert (last["unit"], last["nodes"]) == ("smoke_bert-2020-08-22_4x1x1", ["node1", "node2"])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_loss_curves_agree_across_nodes_on_the_text_that_is_brought_there(two_nodes, inventory, tmp_path):
    """The real OneFlow on the CPU: references and control perturbations side by side, two ranks over two nodes."""
    narrow = prepare(two_nodes, tmp_path, cluster_gpus_per_node=1)
    done = tasks.run("curves", 900, CLUSTER=narrow, RUNS=tmp_path / "runs", MODEL="gpt", CASES="gpt_fp32_dp2")
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    ended = attempts(run)
    assert {each["status"] for each in ended} == {"ok"}
    assert [each["nodes"] for each in ended if each["unit"] == "gpt_fp32_dp2"] == [["node1", "node2"]]
    assert any(each.get("beside") for each in ended)
    prefix = json.loads((run / ended[0]["folder"] / "config.json").read_text())["data"]["prefix"]
    for node in two_nodes.names:
        two_nodes.root(node, "test", "-s", f"{prefix}.bin")


@pytest.mark.timeout(600)
def test_a_baseline_follows_its_program_on_the_same_nodes(two_nodes, tmp_path):
    """By the stand-in trainer in place of PyTorch, in the image that the inventory names: one node, then both."""
    baseline = {"python": "/opt/venv/bin/python", "image": two_nodes.image}
    inventory = prepare(two_nodes, tmp_path, cluster_baseline=baseline)
    command = f"python {trainer(tmp_path / 'trainer')}"
    settings = {"DATA": "synthetic", "TRAINER_COMMAND": command, "BASELINE_COMMAND": command}
    done, run = bench(tmp_path, inventory, MODEL="bert", CASES="bert_2n8g_bs96", BASELINES="pytorch", **settings)
    assert done.returncode == 0, done.stderr
    by_unit = {each["unit"]: each for each in attempts(run)}
    for name in ("smoke_bert-2020-08-22_1x1x1", "smoke_bert-2020-08-22_4x1x1"):
        own, first = by_unit[f"{name}.pytorch"], by_unit[name]
        assert own["status"] == "ok" and own["nodes"] == first["nodes"]
        assert own["started"] >= first["started"] + first["wall_s"] - 0.1
        commands = json.loads((run / own["folder"] / "command.json").read_text())
        assert all("/opt/repro/baselines/trainer.py" in argv for argv in commands.values())
    assert json.loads((run / "run.json").read_text())["baseline"]["image"] == two_nodes.image


@pytest.fixture
def traceable(two_nodes, tmp_path):
    """An inventory whose nodes claim to have GPUs, and have stand-ins for a compiler and CUPTI."""
    name, gcc, cupti = "Tesla V100-SXM2-16GB", "/usr/local/bin/gcc", "/opt/cupti"
    for node in two_nodes.names:
        hardware.lay_gpus(two_nodes, node, name, "7.0")
        compiler = 'while [ "$1" != -o ]; do shift; done; echo compiled > "$2"'
        two_nodes.root(node, "sh", "-c", f"cat > {gcc}; chmod 755 {gcc}", input=f"#!/bin/sh\n{compiler}\n")
        two_nodes.root(node, "sh", "-c", f"mkdir -p {cupti} && echo cupti > {cupti}/libcupti.so.12")
    baseline = {"python": "/opt/venv/bin/python", "image": two_nodes.image}
    yield prepare(two_nodes, tmp_path, cluster_gpu=name, cluster_baseline=baseline)
    for node in two_nodes.names:
        hardware.remove_tools(two_nodes, node)
        two_nodes.root(node, "rm", "-rf", gcc, cupti, f"{WORK}/compat")


@pytest.mark.timeout(600)
def test_kernels_are_traced_in_the_containers_of_nodes(two_nodes, traceable, tmp_path):
    """By stand-ins for the programs, which find the tracer and the CUPTI of their node, and write a trace."""
    looks = """
for name in ("CUDA_INJECTION64_PATH", "KERNEL_TRACE_CUPTI"):
    if os.environ.get("RANK", "0") == "0":
        print(name, open(os.environ[name]).read(), file=sys.stderr)
    elif name in os.environ and os.environ["RANK"] == "2":
        sys.exit(f"{name} is set on a node without rank 0")
"""
    command = f"python {trainer(tmp_path / 'trainer', first=looks)}"
    settings = {"MAX_GPUS": "1,4", "BASELINES": "pytorch", "TRAINER_COMMAND": command, "BASELINE_COMMAND": command}
    given = {"CLUSTER": traceable, "RUNS": tmp_path / "runs", "MODEL": "bert", "CASES": "bert_2n8g_bs96", **settings}
    started = time.time()
    without = tasks.run("profile", 600, CUPTI="/opt/other", **given)
    assert without.returncode == 1 and "4 configurations have no profile" in without.stderr, without.stderr
    (run,) = (tmp_path / "runs").iterdir()
    failures = [each["failure"] for each in attempts(run)]
    assert {each["values"]["node"] for each in failures} <= {"node1", "node2"}
    assert all("CUPTI=/opt/other: on a cluster it is a libcupti.so" in each["values"]["said"] for each in failures)
    done = tasks.run("profile", 600, CUPTI="/opt/cupti", RUN=run.name, **{**given, "CLUSTER": ""})
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("the GPU is busy 84.9% of it") == 4
    for each in attempts(run)[len(failures) :]:
        folder = run / each["folder"]
        assert (folder / "logs/local_rank_0/stderr").read_text().split() == [
            *("CUDA_INJECTION64_PATH", "compiled", "KERNEL_TRACE_CUPTI", "cupti")
        ]
        assert [path.name for path in folder.glob("trace.*")] == ["trace.json"]
    assert "| Communication (NCCL) | 2.000 | 2.000 | +0.000 |" in (run / "report.en.md").read_text()
    verified = tasks.run("verify", RUN=run.name, RUNS=run.parent)
    assert verified.returncode == 0, verified.stderr
    assert [containers(two_nodes, node) for node in two_nodes.names] == [[], []]
    asked = [each for each in containers_asked_for(two_nodes, "node1") if each["time"] >= started]
    assert all("/opt/cupti/libcupti.so" in each["read_only_mounts"] for each in asked)
