"""Attempts side by side over simulated nodes, and settings that mean the same there as on one machine."""

import json

import pytest

from tests.e2e import hardware
from tests.e2e.launching import bench, containers, prepare, trainer
from tests.support import tasks
from tests.support.runs import attempts

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
        assert len(each["nodes"]) == 1 and len(each["beside"]) == 1
        other = by_folder[each["beside"][0]["attempt"]]
        assert other["nodes"] == each["beside"][0]["nodes"] != each["nodes"]
        assert [*json.loads((run / each["folder"] / "command.json").read_text())] == each["nodes"]
        config = json.loads((run / each["folder"] / "config.json").read_text())
        assert (config["precision"], config["iterations"]) == ("amp", 130)
    assert overlapping(ended) >= 2
    report = (run / "report.en.md").read_text()
    assert "up to 2 attempts at once, each on nodes of its own" in report
    assert "2 of 2" in report.partition("Nodes of the attempts")[2]
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
