"""Learning: corpora and their entropies, goals, outcomes, and a small GPT that really learns a real text."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from repro.analysis.convergence import SETTINGS, learned, make_learning_plan, tail_mean
from repro.launch.attempt import Limits
from repro.launch.local import local_attempts
from repro.launch.progress import PlainProgress
from repro.launch.runner import Bench
from repro.planning.datasets import (
    CorpusError,
    Dataset,
    corpora_for,
    entropy,
    text_corpus,
    text_entropies,
    write_pictures,
)
from repro.planning.plan import PlanError
from repro.runs.record import Run
from repro.trainers.config import Shape
from repro.trainers.data.batches import MegatronTokens

ITERATIONS = 60


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A part of the real text, enough for a short training."""
    return text_corpus(tmp_path_factory.mktemp("corpora") / "text", limit=60)


def dataset(kind="text", tokens=10**7):
    """A corpus without files, for plans."""
    entropies = {"entropies_bits": [4.6, 3.5, 2.5, 1.7], "label_entropy_bits": math.log2(10)}
    return Dataset(Path("nowhere"), {"kind": kind, "tokens": tokens, **entropies})


def outcome(tmp_path, losses, limit=1.0):
    """What `learned` says of one unit with these losses."""
    plan, goals = make_learning_plan(0, {"resnet50": dataset("digits")}, iterations=20)
    (name,) = goals
    goals[name]["limit"] = limit
    rows = [{"event": "iteration", "iteration": n, "loss": loss, "top_1": 0.5} for n, loss in enumerate(losses, 1)]
    (tmp_path / "metrics-rank0.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return learned(plan, [{"unit": name, "status": "ok", "folder": "."}], tmp_path, goals)


def test_entropies_of_a_text():
    coin = np.random.default_rng(1).integers(0, 2, 4000)
    assert text_entropies(coin)[:2] == pytest.approx([1.0, 1.0], abs=0.01)
    alternating = [0, 1] * 500
    assert text_entropies(alternating)[:2] == pytest.approx([1.0, 0.0], abs=0.01)
    assert entropy([1, 1, 1, 1]) == pytest.approx(2.0)


def test_the_text_is_real_whole_and_in_the_trainers_format(text):
    tokens = MegatronTokens(1, Shape(seq_length=64, vocab_size=257), text.data["prefix"], 8)
    assert len(tokens.tokens) == text.facts["tokens"] > 200_000
    assert text.facts["files"] == (tokens.tokens == 256).sum() == 60
    assert b"import" in bytes(np.array(tokens.tokens[tokens.tokens < 256], np.uint8))
    assert text.facts["entropies_bits"] == sorted(text.facts["entropies_bits"], reverse=True)
    assert 4 < text.facts["entropies_bits"][0] < 5


def test_a_corpus_that_was_altered_is_refused(text, tmp_path):
    copy = tmp_path / "text"
    copy.mkdir()
    for path in text.folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert text_corpus(copy).facts == text.facts
    with open(copy / "text.bin", "r+b") as file:
        file.write(b"\1")
    with pytest.raises(CorpusError, match="is not what it was when it was made"):
        text_corpus(copy)


def test_digits_become_pictures_by_label(tmp_path):
    rows = np.zeros((3, 65), int)
    rows[:, -1] = 7, 0, 7
    rows[0, :32] = 16
    write_pictures(rows, tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.jpg")) == [
        "0/0001.jpg",
        "7/0000.jpg",
        "7/0002.jpg",
    ]
    pixels = np.asarray(Image.open(tmp_path / "7" / "0000.jpg"))
    assert pixels.shape == (40, 40, 3)
    assert pixels[:15].min() > 240 > 20 > pixels[25:].max()


def test_goals_follow_from_the_data():
    _plan, goals = make_learning_plan(0, {"gpt": dataset(), "resnet50": dataset("digits")})
    assert goals["learn_gpt_fp32"]["limit"] == pytest.approx(3.5 * math.log(2))
    assert goals["learn_resnet50_fp32"]["limit"] == pytest.approx(math.log(10) / 2)


def test_gpus_learn_in_both_precisions():
    plan, goals = make_learning_plan(1, {"gpt": dataset(), "resnet50": dataset("digits")})
    assert [unit.name for unit in plan.units] == list(goals)
    assert {(unit.model, unit.config["precision"]) for unit in plan.units} == {
        (model, precision) for model in ("gpt", "resnet50") for precision in ("fp32", "amp")
    }


def test_too_few_iterations_are_refused():
    with pytest.raises(PlanError, match="19 iterations are too few"):
        make_learning_plan(0, {"gpt": dataset()}, iterations=19)


def test_a_text_is_not_read_twice():
    setting = SETTINGS["cpu"]["gpt"]
    needed = setting["iterations"] * setting["global_batch"] * setting["shape"]["seq_length"]
    make_learning_plan(0, {"gpt": dataset(tokens=needed + 1)})
    with pytest.raises(PlanError, match=r"more than the .* samples that the text has"):
        make_learning_plan(0, {"gpt": dataset(tokens=needed)})


def test_a_model_without_real_data_is_refused():
    with pytest.raises(PlanError, match="it is gpt or resnet50"):
        corpora_for("bert")


def test_the_last_losses_count(tmp_path):
    assert tail_mean((9.0,) * 18 + (1.0, 2.0)) == 1.5
    found = outcome(tmp_path, [9.0] * 18 + [0.5, 0.7])
    assert (found.problems, found.results[0].reached, found.results[0].top_1) == ([], 0.6, 0.5)


def test_what_was_not_learned_is_named(tmp_path):
    found = outcome(tmp_path, [2.0] * 20)
    assert found.problems == ["learn_resnet50_fp32: its last losses are 2.000 on average, they must be below 1.000"]


def test_a_training_that_was_cut_short_does_not_count(tmp_path):
    assert outcome(tmp_path, [0.1] * 19).problems == ["learn_resnet50_fp32: no repeat ran to its end"]


def test_a_small_gpt_learns_more_than_how_often_each_byte_occurs(text, tmp_path):
    """The goal is the entropy of single bytes; the same model that is not allowed to learn must miss it."""
    plan, goals = make_learning_plan(0, {"gpt": text}, iterations=ITERATIONS)
    (unit,) = plan.units
    goals[unit.name]["limit"] = text.facts["entropies_bits"][0] * math.log(2)
    optimizer = {**unit.config["optimizer"], "lr": 1e-9}
    config = {**unit.config, "iterations": 20, "optimizer": optimizer, "schedule": {"kind": "constant"}}
    goals["idle"] = goals[unit.name]
    plan = replace(plan, units=(unit, replace(unit, name="idle", config=config)))
    run = Run.create("learn", {"plan": plan.as_json()}, tmp_path / "runs")
    attempts = Bench(run, plan, PlainProgress(), local_attempts(Limits(), None, None)).run_all()
    learning, idling = learned(plan, attempts, run.folder, goals).results
    assert learning.holds, (learning.reached, learning.goal.limit)
    assert idling.reached == pytest.approx(math.log(257), rel=0.05), "an idle model guesses"
    assert not idling.holds
