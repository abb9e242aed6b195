"""Real files, written by samples.py, through the readers of each model, on one rank and on two."""

import subprocess

import pytest

from tests.support.paths import ROOT
from tests.trainers.conftest import SHAPES, configuration

WRITER = ROOT / "repro" / "trainers" / "samples.py"


@pytest.fixture(scope="module")
def sample(python, tmp_path_factory):
    """Callable that writes a sample and gives where it is."""

    def write(kind: str, *options: str) -> str:
        out = tmp_path_factory.mktemp(kind) / "sample"
        command = [python, WRITER, kind, out, *options]
        done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return str(out)

    return write


def test_gpt_reads_the_same_text_in_every_layout(sample, losses):
    data = {"kind": "megatron", "prefix": sample("tokens")}
    exclusive = losses(configuration("gpt", data=data))
    assert exclusive[5] < exclusive[1] - 0.3, "text is easier than random tokens"
    assert losses(configuration("gpt", (1, 1, 2), accumulation_steps=2, data=data)) == pytest.approx(
        exclusive, rel=1e-5
    )


def test_gpt_rejects_tokens_outside_the_vocabulary(sample, train):
    data = {"kind": "megatron", "prefix": sample("tokens")}
    outcome = train(configuration("gpt", shape={"vocab_size": 64}, data=data))
    assert outcome.returncode == 1
    assert "is outside the vocabulary" in outcome.stderr


def test_bert_reads_features(sample, losses):
    shape = SHAPES["bert"]
    options = ("--seq-length", shape["seq_length"], "--max-predictions", shape["max_predictions"])
    folder = sample("masked", *map(str, options), "--vocab-size", str(shape["vocab_size"]), "--parts", "2")
    data = {"kind": "ofrecord", "path": folder, "parts": 2}
    exclusive = losses(configuration("bert", data=data))
    assert exclusive[5] < exclusive[1] - 0.1
    split = losses(configuration("bert", (1, 2, 1), data=data))
    assert split[1] == pytest.approx(exclusive[1], rel=0.05)
    assert split[5] < split[1] - 0.1


def test_resnet_reads_photographs(sample, train):
    data = {"kind": "ofrecord", "path": sample("images", "--parts", "2", "--image-size", "96"), "parts": 2}
    for layout in ((1, 1, 1), (2, 1, 1)):
        outcome = train(configuration("resnet50", layout, iterations=6, log_interval=3, data=data))
        assert outcome.returncode == 0, outcome.stderr
        assert 1.0 < outcome.rows[-1]["loss"] < 4.0
        assert 0.0 <= outcome.rows[-1]["top_1"] <= outcome.rows[-1]["top_5"] <= 1.0
