"""Baseline processes from outside: they train the trainers' models, and write and print what trainers do."""

import re

import pytest

from repro.published.logs import parse
from tests.baselines.conftest import COSINE, losses
from tests.trainers.conftest import configuration

CLOSE = 1e-5
"""Both frameworks compute in fp32, in different orders."""
POLYNOMIAL = {"kind": "polynomial", "warmup_iterations": 1, "decay_iterations": 5}
CASES = {
    "gpt": ("gpt", {"schedule": COSINE, "accumulation_steps": 2, "activation_checkpointing": True}),
    "gpt-2": ("gpt", {"log_generation": "D"}),
    "bert": ("bert", {"schedule": POLYNOMIAL}),
    "resnet50": (
        "resnet50",
        {"schedule": {"kind": "constant", "warmup_iterations": 4}, "accumulation_steps": 2, "seed": 1},
    ),
}
"""ResNet50 begins with a seed at which rounding puts no element on the other side of a ReLU's zero."""
UNFUSED = {"baseline": {"unfused": True}}


@pytest.mark.parametrize(("model", "changes"), CASES.values(), ids=CASES)
def test_losses_are_those_of_the_trainer(baseline, train, model, changes):
    config = configuration(model, **changes)
    expected = losses(train, config)
    assert set(expected) == {1, 2, 3, 4, 5}
    assert losses(baseline, config) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize(
    ("model", "changes"),
    [("gpt", {"accumulation_steps": 2}), ("bert", {}), ("resnet50", {})],
    ids=["gpt-accumulated", "bert", "resnet50"],
)
def test_losses_do_not_depend_on_the_number_of_ranks(baseline, model, changes):
    """ResNet50 alone accumulates, so that it normalises each half of the batch by itself, as two ranks do."""
    exclusive = configuration(model, **({"accumulation_steps": 2} if model == "resnet50" else changes))
    assert losses(baseline, configuration(model, (2, 1, 1), **changes)) == pytest.approx(
        losses(baseline, exclusive), rel=CLOSE
    )


@pytest.mark.parametrize("name", ["gpt", "gpt-2", "bert"])
def test_unfused_operators_change_no_loss(baseline, name):
    model, changes = CASES[name]
    config = configuration(model, **changes)
    assert losses(baseline, {**config, **UNFUSED}) == pytest.approx(losses(baseline, config), rel=CLOSE)


@pytest.mark.parametrize("name", ["gpt", "gpt-2", "bert"])
def test_the_pytorch_of_2022_prints_the_same_losses(old_baseline, baseline, name):
    model, changes = CASES[name]
    config = {**configuration(model, **changes), **UNFUSED}
    assert losses(old_baseline, config) == pytest.approx(losses(baseline, config), rel=CLOSE)


def test_unfused_gradients_travel_in_half_precision(baseline):
    """Scales that never overflow, so that both ways update from the first iteration on; the sums round differently."""
    config = {**configuration("gpt", precision="amp", loss_scale=1024.0), **UNFUSED}
    alone = losses(baseline, config)
    together = losses(baseline, {**configuration("gpt", (2, 1, 1), precision="amp", loss_scale=1024.0), **UNFUSED})
    assert together == pytest.approx(alone, rel=5e-3)
    assert together != alone


def test_channels_last_changes_no_loss(baseline):
    config = configuration("resnet50")
    expected = losses(baseline, config)
    assert losses(baseline, {**config, "baseline": {"channels_last": True}}) == pytest.approx(expected, rel=CLOSE)


@pytest.mark.parametrize(
    ("model", "variant"),
    [("gpt", {}), ("gpt", UNFUSED), ("bert", {}), ("bert", UNFUSED), ("resnet50", {})],
    ids=["gpt", "gpt-unfused", "bert", "bert-unfused", "resnet50"],
)
def test_amp_computes_in_half_precision_and_learns(baseline, model, variant):
    """The first scales overflow and skip their updates, so the two are compared at the first loss alone."""
    exact = losses(baseline, configuration(model))
    mixed = losses(baseline, {**configuration(model, precision="amp", iterations=30, log_interval=15), **variant})
    assert mixed[1] == pytest.approx(exact[1], rel=5e-3)
    assert mixed[1] != exact[1]
    assert mixed[30] < 0.95 * mixed[1]


def test_metrics_of_every_rank(baseline):
    outcome = baseline({**configuration("bert", (2, 1, 1), iterations=6, log_interval=3), "baseline": {"tf32": True}})
    assert outcome.returncode == 0, outcome.stderr
    for rank, events in enumerate(outcome.events):
        names = ["start", "loss", "loss", "iteration", "loss", "loss", "iteration", "end"]
        assert [event["event"] for event in events] == names
        start = events[0]
        assert (start["rank"], start["world_size"], start["padded_vocab_size"]) == (rank, 2, 500)
        asked = {"tf32": True, "channels_last": False, "compile": False, "unfused": False, "megatron": False}
        read_back = {"tf32_matmul": True, "tf32_cudnn": True, "cudnn_benchmark": True}
        assert start["settings"] == {**asked, "amp": False, **read_back}
        assert start["versions"].keys() == {"torch", "torch_commit", "numpy", "python"}
        assert [event.get("loss") for event in events] == [event.get("loss") for event in outcome.events[0]]
    first, last = outcome.rows
    assert (first["iteration"], first["samples"], last["samples"]) == (3, 24, 48)
    assert 24 / last["throughput"] == pytest.approx(last["time"] - first["time"], rel=0.2, abs=0.5)
    assert last["latency_ms"] == pytest.approx(8000 / last["throughput"])
    assert last["loss"] == pytest.approx(last["mlm_loss"] + last["nsp_loss"], rel=1e-5)


@pytest.mark.parametrize(("model", "generation"), [("gpt", "D"), ("gpt", "E"), ("bert", "C"), ("resnet50", "B")])
def test_the_published_rules_read_its_log(baseline, tmp_path, model, generation):
    outcome = baseline(configuration(model, iterations=6, log_interval=2, log_generation=generation))
    assert outcome.returncode == 0, outcome.stderr
    rows = parse(outcome.stdout.splitlines()).rows
    assert [row.samples_per_s for row in rows] == pytest.approx([row["throughput"] for row in outcome.rows], abs=1e-3)


def test_dropout_is_drawn_in_training(baseline):
    config = configuration("gpt")
    assert losses(baseline, {**config, "dropout": 0.1})[1] != pytest.approx(losses(baseline, config)[1], rel=1e-6)


def test_refusal_ends_with_2_and_one_line(baseline):
    outcome = baseline(configuration("gpt", (1, 2, 1)), processes=1)
    assert outcome.returncode == 2
    message = r"run\.py: .*/config\.json: layout\.tensor: PyTorch's baselines are data parallel only, tensor is 2\n"
    assert re.fullmatch(message, outcome.stderr)


def test_failure_on_one_rank_ends_with_its_reason(baseline, tmp_path):
    """The output folder of rank 1's metrics file is taken by a folder of that name; no gradient is exchanged yet."""
    (tmp_path / "out" / "metrics-rank1.jsonl").mkdir(parents=True)
    outcome = baseline(configuration("gpt", (2, 1, 1), output=str(tmp_path / "out")))
    assert outcome.returncode == 1
    assert "run.py: rank 1: IsADirectoryError" in outcome.stderr
