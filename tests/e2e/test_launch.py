"""`make bench CLUSTER=` over simulated nodes: logs, resume, DRY_RUN and containers, and the real OneFlow across the network."""

import json
import re
import subprocess
import time

import pytest

from tests.e2e import hardware
from tests.e2e.launching import bench, containers, prepare, trainer, trainers
from tests.support.runs import attempts
from tests.support.simulated import containers_asked_for


@pytest.fixture(scope="module")
def inventory(two_nodes, tmp_path_factory):
    return prepare(two_nodes, tmp_path_factory.mktemp("launch"))


@pytest.mark.timeout(600)
def test_losses_across_nodes_are_those_of_one_process(inventory, tmp_path):
    """The real OneFlow, two ranks on each of two nodes: data parallel BERT; what a run records of them is in the next test."""
    done, run = bench(tmp_path, inventory, MODEL="bert", STALL_TIMEOUT="300", DATA="synthetic")
    assert done.returncode == 0, done.stderr
    across, reference = attempts(run)
    assert max(abs(a - b) / b for a, b in zip(across["losses"], reference["losses"], strict=True)) < 1e-4
    folder = run / across["folder"]
    starts = [json.loads((folder / f"metrics-rank{rank}.jsonl").read_text().splitlines()[0]) for rank in range(4)]
    assert [start["host"] for start in starts] == ["node1", "node1", "node2", "node2"]
    assert {start["versions"]["oneflow"] for start in starts} == {"0.8.0"}
    for rank in range(4):
        assert {path.name for path in (folder / f"logs/local_rank_{rank}").iterdir()} >= {"stdout", "stderr"}


def test_a_run_is_gone_on_with_on_its_cluster(two_nodes, inventory, tmp_path):
    started = time.time()
    command = f"python {trainer(tmp_path / 'trainer', 'exit=5@3', '60')}"
    first, run = bench(tmp_path, inventory, MODEL="bert", DATA="synthetic", TRAINER_COMMAND=command)
    assert first.returncode == 1
    assert "rank 3 on node2 exited with status 5" in first.stderr
    trainer(tmp_path / "trainer")
    second, _ = bench(tmp_path, inventory, RUN=run.name, CLUSTER="", TRAINER_COMMAND=command)
    assert second.returncode == 0, second.stderr
    assert [attempt["status"] for attempt in attempts(run)] == ["failed", "ok", "ok"]
    report = (run / "report.en.md").read_text()
    assert "rank 3 on node2 exited with status 5" in report, "a failed attempt stays visible"
    environment = json.loads((run / "run.json").read_text())["environment"]
    assert environment["cluster"]["hosts"] == ["node1", "node2"]
    assert environment["cluster"]["fingerprints"]["nodes"].keys() == {"node1", "node2"}
    assert "node1, node2" in report
    for node in two_nodes.names:
        asked = [each for each in containers_asked_for(two_nodes, node) if each["time"] >= started]
        assert asked
        for each in asked:
            assert each["rlimits"]["RLIMIT_MEMLOCK"] >= 2**63
            assert not each["gpu_hooks"]
        assert containers(two_nodes, node) == []
    other, _ = bench(tmp_path, inventory, RUN=run.name, CLUSTER="v100x32", TRAINER_COMMAND=command)
    assert other.returncode == 2
    assert "was begun on cluster inventory" in other.stderr


def test_dry_asks_no_node(inventory, tmp_path):
    """No node has this address: DRY_RUN=1 never gets so far."""
    folder = tmp_path / "dry"
    folder.mkdir()
    subprocess.run(["cp", "-r", str(inventory), str(folder)], check=True)
    hosts = folder / "inventory" / "hosts.yml"
    hosts.write_text(re.sub(r"ansible_host: \S+\.(\d+)\n", r"ansible_host: 192.0.2.\1\n", hosts.read_text()))
    done, run = bench(tmp_path, folder / "inventory", MODEL="gpt", DRY_RUN="1")
    assert done.returncode == 0, done.stderr
    assert run is None
    commands = [line for line in done.stdout.splitlines() if line.startswith("docker run ")]
    assert sum("--node_rank 1" in line for line in commands) >= 5
    assert all("--cap-drop ALL" in line and "--pull never" in line for line in commands)


@pytest.mark.parametrize(
    ("name", "capability", "message"),
    [
        ("NVIDIA H200", "9.0", "node2: cuDNN 7.6.5 of stack cu102 computes wrong convolutions on NVIDIA H200"),
        ("Tesla V100-SXM2-16GB", "7.0", "node2: the operators cannot be compared with the CPU: rank 0 on node2"),
    ],
)
def test_no_rank_starts_where_operators_were_not_compared(two_nodes, inventory, tmp_path, name, capability, message):
    """Newer GPUs with the published libraries, and GPUs on which the real program finds none: no run is made."""
    folder = prepare(two_nodes, tmp_path, cluster_gpu=name)
    started = time.time()
    for node in two_nodes.names:
        hardware.lay_gpus(two_nodes, node, name, capability)
    try:
        done, run = bench(tmp_path, folder, MODEL="gpt", CASES="DP_1x1x1*", SCALE="published")
    finally:
        for node in two_nodes.names:
            hardware.remove_tools(two_nodes, node)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert run is None
    assert not [program for node in two_nodes.names for program in trainers(two_nodes, node, started)]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", ["gpt", "resnet50"])
def test_every_layout_of_a_model_across_nodes(inventory, tmp_path, model):
    """DP, MP, 2D and PP of GPT, and ResNet50, each with the losses of one process; `make bench` compares them."""
    done, run = bench(tmp_path, inventory, MODEL=model, STALL_TIMEOUT="300")
    assert done.returncode == 0, done.stderr
    assert {attempt["status"] for attempt in attempts(run)} == {"ok"}
