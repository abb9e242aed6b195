"""Real files, written by samples.py, and stand-ins, through the readers of each model, on one rank and on several."""

import json
import re
import subprocess
from contextlib import nullcontext

import pytest

from repro.models.token_files import TokenFileError, read_index
from repro.trainers.data.megatron import write_tokens
from tests.support.paths import ROOT
from tests.support.patience import patience
from tests.support.token_documents import documents
from tests.trainers.conftest import FEW_BLOCKS, SHAPES, configuration

WRITER = ROOT / "repro" / "trainers" / "samples.py"
OLD_READER = ROOT / "tests" / "support" / "unsigned_reader.py"


@pytest.fixture(scope="module")
def sample(python, tmp_path_factory):
    """Callable that writes a sample and gives where it is."""

    def write(kind: str, *options: str) -> str:
        out = tmp_path_factory.mktemp(kind) / "sample"
        command = [python, WRITER, kind, out, *options]
        done = subprocess.run(command, cwd=out.parent, capture_output=True, text=True, timeout=patience(), check=False)
        assert done.returncode == 0, done.stderr
        return str(out)

    return write


@pytest.fixture(scope="module")
def tokens(sample) -> str:
    """The prefix of token files with real text."""
    return sample("tokens")


def standin(kind: str, name: str, folder, **more) -> dict:
    return {"kind": kind, "standin": name, "scale": "small", "folder": str(folder), **more}


def test_gpt_reads_the_same_text_in_every_layout(tokens, losses):
    data = {"kind": "tokens", "prefix": tokens}
    exclusive = losses(configuration("gpt", data=data))
    assert exclusive[5] < exclusive[1] - 0.3, "text is easier than random tokens"
    assert losses(configuration("gpt", (1, 1, 2), accumulation_steps=2, data=data)) == pytest.approx(
        exclusive, rel=1e-5
    )


@pytest.mark.parametrize(
    ("layout", "accumulation"),
    [((2, 1, 1), 2), ((1, 2, 1), 1), ((2, 2, 1), 1), ((1, 1, 2), 2), ((2, 1, 2), 2), ((1, 2, 2), 2)],
    ids=["data", "tensor", "data-tensor", "pipeline", "data-pipeline", "tensor-pipeline"],
)
def test_the_published_reader_gives_every_layout_the_samples_of_one_process(tokens, losses, layout, accumulation):
    """With the published clipping, whose norm is of all gradients in each of these layouts, and recomputation in one.

    The last one splits the model by both of what others split it by, with stages of several ranks as in data-pipeline;
    test_census.py has its operators and transfers.
    """
    data, clipped = {"kind": "megatron", "prefix": tokens}, {"clip_norm": 1.0}
    changes = {"shape": {"layers": layout[2]}, "optimizer": clipped, "data": data}
    exclusive = losses(configuration("gpt", **changes))
    assert exclusive[5] < exclusive[1] - 0.3, "text is easier than random tokens"
    split = {"accumulation_steps": accumulation, "activation_checkpointing": layout == (2, 1, 2)}
    several = losses(configuration("gpt", layout, **split, **changes))
    assert several == pytest.approx(exclusive, rel=1e-5)


@pytest.mark.parametrize(("layout", "global_batch"), [((1, 4, 1), 2), ((1, 1, 2), 8)], ids=["rows", "samples"])
def test_the_call_of_oneflow_for_global_tensors_fails(train, losses, tmp_path, layout, global_batch):
    """What the reader is built for by hand: samples for all ranks run out before the end, or cannot be split.

    Ours lets a tensor layout have fewer samples than ranks, as the published 1x32x1 has, with 16.
    """
    samples, length = (10 if layout[1] > 1 else 40), 16
    write_tokens(str(tmp_path / "text"), documents(samples * length + 1))
    accumulation = 2 if layout[2] > 1 else 1
    config = configuration(
        "gpt",
        layout,
        global_batch,
        accumulation_steps=accumulation,
        iterations=samples // global_batch,
        data={"kind": "megatron", "prefix": str(tmp_path / "text")},
        shape={"seq_length": length, "layers": layout[2]},
    )
    alone = {**config, "layout": dict.fromkeys(config["layout"], 1)}
    assert losses(config) == pytest.approx(losses(alone), rel=1e-5), "there is text for all iterations"
    reason = re.compile(r"Check failed: index < shuffle_indices_\.size\(\)|cannot split")
    outcome = train(config, program=OLD_READER, until=reason)
    assert reason.search(outcome.stderr), outcome.stderr[-4000:]


@pytest.mark.parametrize(
    ("tokens_there", "samples", "gives"), [(17, 3, True), (17, 4, False), (17, 5, True), (9, 1, True)]
)
def test_oneflow_aborts_where_the_check_of_token_files_says(python, tmp_path, tokens_there, samples, gives):
    write_tokens(str(tmp_path / "text"), documents(tokens_there))
    command = [python, ROOT / "tests" / "trainers" / "token_reader_probe.py", tmp_path / "text", "8", str(samples)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(), check=False)
    assert (done.stdout.strip() == str(samples)) is (done.returncode == 0) is gives, done.stderr
    with nullcontext() if gives else pytest.raises(TokenFileError):
        read_index(str(tmp_path / "text")).check(8, samples)


def test_gpt_draws_the_same_windows_in_every_layout(losses, tmp_path):
    data = standin("text", "text", tmp_path)
    changes = {"log_generation": "D", "shape": {"vocab_size": 512}, "data": data}
    exclusive = losses(configuration("gpt", **changes))
    assert exclusive[5] < exclusive[1] - 0.3
    assert losses(configuration("gpt", (2, 1, 1), **changes)) == pytest.approx(exclusive, rel=1e-5)


def test_a_trainer_makes_its_stand_in_and_records_it(train, tmp_path):
    data = standin("ofrecord", "features", tmp_path, parts=4)
    outcome = train(configuration("bert", (2, 1, 1), data=data))
    assert outcome.returncode == 0, outcome.stderr
    recorded = [events[0]["data"] for events in outcome.events]
    assert recorded[0] == recorded[1] and recorded[0]["standin"] == "features"
    assert recorded[0]["records"] == 64
    assert outcome.stderr.count("writing a stand-in for the published data") == 1


def test_bert_reads_parts_whose_numbers_have_no_zeros(losses, tmp_path):
    found = losses(configuration("bert", data=standin("ofrecord", "features", tmp_path, parts=2)))
    assert found[5] < found[1]


@pytest.mark.parametrize("kind", ["tokens", "megatron"])
def test_gpt_rejects_tokens_outside_the_vocabulary(tokens, train, kind):
    data = {"kind": kind, "prefix": tokens}
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
    split = losses(configuration("bert", (2, 1, 1), data=data))
    assert split[1] == pytest.approx(exclusive[1], rel=0.05)
    assert split[5] < split[1] - 0.1


def test_images_are_resized_by_linear_interpolation_and_normalised_after_they_have_moved(probe, tmp_path):
    """The interpolation is the published one."""
    operators = json.loads(probe("image_reader_probe.py", str(tmp_path))[-1])
    order = [
        "OFRecordReader",
        "ofrecord_image_decoder_random_crop",
        "image_resize_to_fixed",
        "crop_mirror_normalize_from_uint8",
    ]
    assert [kind for kind, *_ in operators if kind in order] == order
    taken = {kind: inputs for kind, inputs, _ in operators}["crop_mirror_normalize_from_uint8"]
    assert taken == {"in": ["kUInt8"], "mirror": ["kInt8"]}, (
        "a byte for each value goes to the device, and a coin an image"
    )
    attributes = {kind: texts for kind, _, texts in operators}
    assert attributes["image_resize_to_fixed"]["interpolation_type"] == "bilinear"


def test_resnet_reads_photographs(sample, train):
    data = {"kind": "ofrecord", "path": sample("images", "--parts", "2", "--image-size", "96"), "parts": 2}
    outcome = train(configuration("resnet50", (2, 1, 1), iterations=6, log_interval=3, data=data), program=FEW_BLOCKS)
    assert outcome.returncode == 0, outcome.stderr
    assert 1.0 < outcome.rows[-1]["loss"] < 4.0
    assert 0.0 <= outcome.rows[-1]["top_1"] <= outcome.rows[-1]["top_5"] <= 1.0
