"""A trainer process from outside: what it writes, what it prints, how it ends."""

import re

import pytest

from tests.trainers.conftest import FEW_BLOCKS, configuration

LOSSES = ["loss", "loss", "iteration", "loss", "loss", "iteration"]
"""Events of six iterations, of which every third is printed."""


def test_metrics_of_every_rank(train):
    outcome = train(configuration("gpt", (1, 1, 2), accumulation_steps=2, iterations=6, log_interval=3))
    assert outcome.returncode == 0, outcome.stderr
    for rank, events in enumerate(outcome.events):
        found = [event["event"] for event in events]
        assert found == (["start", "census", *LOSSES] if rank == 0 else ["start", "iteration", "iteration"]) + ["end"]
        start, end = events[0], events[-1]
        assert (start["rank"], start["world_size"], start["padded_vocab_size"]) == (rank, 2, 512)
        assert start["parameters"] == 12 * 2 * 32**2 + 13 * 2 * 32 + (512 + 16 + 2) * 32
        assert start["versions"]["oneflow"] == "0.8.0"
        assert end["iterations"] == 6
        assert any("loss" in event for event in events) == (rank == 0), "outputs are gathered on rank 0"
    first, last = outcome.rows
    assert (first["iteration"], first["samples"], last["samples"]) == (3, 24, 48)
    assert last["throughput"] == pytest.approx(24 / (last["time"] - first["time"]), rel=0.05)
    assert last["latency_ms"] == pytest.approx(8000 / last["throughput"])
    assert first["throughput"] < last["throughput"], "the first window holds the compilation"
    assert 100 < last["memory_mib"] <= last["peak_memory_mib"]


def test_gpt_learns_with_dropout_and_prints_its_table(train):
    optimizer = {"lr": 0.003, "eps": 1e-8, "clip_norm": 1.0}
    outcome = train(configuration("gpt", dropout=0.1, iterations=75, log_interval=25, optimizer=optimizer))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.rows[-1]["loss"] < 0.85 * outcome.losses[1]
    lines = outcome.stdout.splitlines()
    assert lines[0] == " > padded vocab (size: 500) with 12 dummy tokens (new size: 512)"
    table = lines[lines.index("Training...") + 1 :]
    assert table[0].startswith("| step     | micro_batches   |")
    assert [line.split("|")[1].strip() for line in table[2:]] == ["25", "50", "75"]


def test_bert_learns_and_prints_its_lines(train):
    given = {"lr": 0.001, "eps": 1e-6, "clip_norm": 1.0}
    config = configuration("bert", iterations=60, log_interval=20, optimizer=given)
    outcome = train(config)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.rows[-1]["loss"] < 0.8 * outcome.losses[1]
    last = outcome.rows[-1]
    assert last["loss"] == pytest.approx(last["mlm_loss"] + last["nsp_loss"], rel=1e-5)
    assert re.fullmatch(r"step: 59, total_loss: \d+\.\d{3}, .* \d+\.\d+", outcome.stdout.splitlines()[-1])


def test_resnet_learns_and_prints_its_lines(train):
    outcome = train(configuration("resnet50", iterations=20, log_interval=10))
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.rows[-1]["loss"] < 0.7 * outcome.losses[1]
    assert outcome.rows[-1]["top_1"] > 0.8
    assert re.fullmatch(r"train: epoch 0, iter 20, loss: \d\.\d{6}, top_1: .*", outcome.stdout.splitlines()[-1])


@pytest.mark.parametrize(("program", "ranks"), [("published", 2), ("tuned", 1)])
def test_the_published_resnet_compiles_a_job_for_evaluation_as_well(train, program, ranks):
    """It shares parameters and running statistics with the training job, and changes neither."""
    outcome = train(
        configuration("resnet50", (ranks, 1, 1), program=program, iterations=2, log_interval=2), program=FEW_BLOCKS
    )
    assert outcome.returncode == 0, outcome.stderr
    census = next(event for event in outcome.events[0] if event["event"] == "census")
    evaluation = census.get("evaluation", {})
    assert bool(evaluation) == (program == "published")
    if evaluation:
        forward = ("conv2d", "normalization", "relu", "softmax", "tf_max_pool_2d", "tf_avg_pool_2d")
        assert {name: evaluation[name] for name in forward} == {name: census["operators"][name] for name in forward}
        assert not [name for name in evaluation if "grad" in name or "update" in name or "cross_entropy" in name]


def test_wrong_configuration_ends_with_2_and_one_line(train):
    outcome = train(configuration("gpt", colour="blue"))
    assert outcome.returncode == 2
    assert re.fullmatch(r"run.py: .*config.json: colour: unknown key; .*\n", outcome.stderr)
    assert outcome.events == [[]]


def test_layout_for_other_processes_ends_with_2(train):
    outcome = train(configuration("gpt", (2, 1, 1)), processes=1)
    assert outcome.returncode == 2
    assert "layout: needs 2 processes, 1 were started" in outcome.stderr


def test_failure_on_one_rank_ends_all_with_its_reason(train, tmp_path):
    """The output folder of rank 1's metrics file is taken by a folder of that name."""
    (tmp_path / "out" / "metrics-rank1.jsonl").mkdir(parents=True)
    outcome = train(configuration("gpt", (2, 1, 1), output=str(tmp_path / "out")))
    assert outcome.returncode == 1
    assert re.search(r"run.py: rank 1: IsADirectoryError: .*metrics-rank1.jsonl", outcome.stderr)
