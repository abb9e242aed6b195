"""Stand-ins for the published data: their records, sizes and lengths, and that each is made once and whole."""

import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from repro.models.registry import spec_of
from repro.models.token_files import read_index
from repro.published.cases import load_catalogue
from repro.trainers.config import Shape
from repro.trainers.data import ofrecord
from repro.trainers.data.bpe import BytePairs, byte_characters, files_of_text, missing_of_text, text_files
from repro.trainers.data.megatron import check_tokens, tokens_of
from repro.trainers.data.settings import described, parse_data
from repro.trainers.data.standin import images
from repro.trainers.data.standin.sets import FACTS, StandIn, facts_of, make
from repro.trainers.data.text import TextWindows, chunks_of
from repro.trainers.validators import ConfigError
from tests.support.paths import ROOT
from tests.support.patience import patience

FEATURES = {"seq_length": 128, "max_predictions": 20, "vocab_size": 3000}


def made(folder, name: str, parts: int = 0, shape: dict | None = None):
    """Where a small stand-in is, once made."""
    standin = StandIn.of(name, "small", parts, shape or {})
    path = standin.path(str(folder))
    make(standin, str(path))
    return standin, path


def decoded(python, folder) -> list[dict]:
    """The records of a folder's parts, as OneFlow's own protocol buffer reads them."""
    code = """
import json, struct, sys
from pathlib import Path
from oneflow.core.record.record_pb2 import OFRecord
for path in sorted(Path(sys.argv[1]).glob("part-*")):
    content = path.read_bytes()
    while content:
        (size,) = struct.unpack("<q", content[:8])
        record = OFRecord.FromString(content[8 : 8 + size])
        content = content[8 + size :]
        values = {}
        for name, feature in record.feature.items():
            kind = feature.WhichOneof("kind")
            value = getattr(feature, kind).value
            values[name] = [len(each) for each in value] if kind == "bytes_list" else list(value)
        print(json.dumps({"part": path.name, **values}))
"""
    done = subprocess.run([python, "-c", code, folder], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_number_is_encoded_as_protocol_buffers_do():
    assert [ofrecord.number(value) for value in (0, 127, 128, 300)] == [b"\x00", b"\x7f", b"\x80\x01", b"\xac\x02"]
    assert ofrecord.number(-1) == b"\xff" * 9 + b"\x01"


def test_images_are_jpeg_of_one_class_in_the_published_parts(python, tmp_path):
    _, folder = made(tmp_path, "images", 44)
    records = decoded(python, folder)
    assert Counter(record["part"] for record in records) == {
        f"part-{part:05d}": images.PER_PART["small"] for part in range(44)
    }
    assert {tuple(record["class/label"]) for record in records} == {(0,)}
    facts = facts_of(folder)
    assert facts["records"] == len(records) and facts["labels"] == 1
    assert np.mean([record["encoded"][0] for record in records]) == pytest.approx(facts["mean_bytes"])


def test_images_have_the_sizes_of_imagenet():
    generator = np.random.default_rng(3)
    sides = np.array([images.sides(generator) for _ in range(20000)])
    assert Counter(map(tuple, sides)).most_common(1)[0][0] == (500, 375)
    assert sides.prod(axis=1).mean() == pytest.approx(images.mean_area(), rel=0.03)
    scene = images.canvas(1, 1700)
    sizes = [len(content) for _, _, content in images.drawn(generator, scene, 40, 1)]
    assert np.mean(sizes) == pytest.approx(images.MEAN_BYTES, rel=0.25)
    assert np.std(np.log(sizes)) > 0.3


def test_features_have_the_lengths_and_masks_of_bert(python, tmp_path):
    _, folder = made(tmp_path, "features", 32, FEATURES)
    records = decoded(python, folder)
    assert {record["part"] for record in records} == {f"part-{part}" for part in range(32)}
    lengths = np.array([sum(record["input_mask"]) for record in records])
    assert np.mean(lengths == 128) == pytest.approx(0.9, abs=0.05)
    assert lengths.min() < 64
    for record in records:
        length = sum(record["input_mask"])
        masked = int(sum(record["masked_lm_weights"]))
        assert [len(record[name]) for name in ("input_ids", "segment_ids", "masked_lm_ids")] == [128, 128, 20]
        assert masked <= min(20, max(1, round(0.15 * length)))
        assert all(0 < place < length for place in record["masked_lm_positions"][:masked])
        assert max(record["input_ids"]) < FEATURES["vocab_size"]


def test_tokens_follow_zipf(tmp_path):
    _, prefix = made(tmp_path, "tokens", shape={"vocab_size": 1000})
    tokens = tokens_of(str(prefix))
    check_tokens(str(prefix), 1000)
    counts = np.bincount(tokens, minlength=1000)
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.25)
    with pytest.raises(ValueError, match="is outside the vocabulary of 100"):
        check_tokens(str(prefix), 100)


def test_every_published_case_finds_its_samples_in_the_stand_in(tmp_path):
    """With the full vocabulary, at the full length: what a run would abort for after hours."""
    cases = [case for case in load_catalogue().cases if case.report == "gpt-3d-2021-05"]
    folder = StandIn.of("tokens", "published", 0, cases[0].shape)
    make(folder, str(folder.path(str(tmp_path))))
    index = read_index(str(folder.path(str(tmp_path))))
    for case in cases:
        index.check(case.shape["seq_length"], case.iterations * case.global_batch)


def test_text_is_encoded_by_its_own_merges(tmp_path):
    _, folder = made(tmp_path, "text", shape={"vocab_size": 512})
    pairs = BytePairs(str(folder))
    assert len(pairs.numbers) == 512
    text = (folder / "text.txt").read_text()[:2000] + " Ünïcode, it's 42!\n"
    names = {number: token for token, number in pairs.numbers.items()}
    bytes_of = {character: byte for byte, character in byte_characters().items()}
    tokens = pairs.encode(text)
    assert bytes(bytes_of[each] for token in tokens for each in names[token]).decode() == text
    assert len(tokens) < 0.8 * len(text)
    assert max(map(len, (names[token] for token in tokens))) > 1


def text_folder(tmp_path, **files: str) -> str:
    """A folder with these text files and the encoding of a small stand-in."""
    _, folder = made(tmp_path, "text", shape={"vocab_size": 512})
    (folder / "text.txt").unlink()
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_windows_are_the_published_samplers(tmp_path):
    """The starts are those of the published sampler, drawn with seed 1 for whole batches, also if batches are skipped."""
    _, folder = made(tmp_path, "text", shape={"vocab_size": 512})
    shape = Shape(seq_length=16, vocab_size=512)
    windows = TextWindows(shape, str(folder), 8)
    text = (folder / "text.txt").read_text()
    assert len(text) < 50_000
    tokens = BytePairs(str(folder)).encode(text + "<|endoftext|>")
    generator = np.random.RandomState(1)
    starts = [generator.randint(0, len(tokens) - 16 - 1) for _ in range(5 * 8)]
    ids, labels = windows.rows(3, 0, 8)
    assert ids.tolist() == [tokens[start : start + 16].tolist() for start in starts[24:32]]
    assert (ids[:, 1:] == labels[:, :-1]).all() and ids.shape == labels.shape
    assert (windows.rows(3, 4, 8)[0] == ids[4:]).all()
    assert (windows.rows(4, 0, 8)[0] != ids).any()
    assert (windows.rows(0, 0, 8)[0] == [tokens[start : start + 16] for start in starts[:8]]).all()
    assert (TextWindows(shape, str(folder), 8).rows(3, 0, 8)[0] == ids).all()


def test_files_are_joined_by_the_published_separator_into_chunks(tmp_path):
    """A file ends a chunk that has 50,000 characters; wikiextractor's names and subfolders are read."""
    long = "a" * 50_000
    folder = text_folder(tmp_path, AA__wiki_00="one", AA__wiki_01="two", **{"AB__wiki_00": long, "AC__b.txt": "end"})
    assert list(chunks_of(text_files(folder))) == [f"one<|endoftext|>two<|endoftext|>{long}", "end<|endoftext|>"]
    assert missing_of_text(folder) is None
    assert [path.name for path in files_of_text(folder)] == [
        *("encoder.json", "vocab.bpe", "wiki_00", "wiki_01", "wiki_00", "b.txt")
    ]


def test_no_window_crosses_two_chunks(tmp_path):
    folder = text_folder(tmp_path, **{"a.txt": "a" * 50_000, "b.txt": "b" * 50_000, "c.txt": "c"})
    windows = TextWindows(Shape(seq_length=8000, vocab_size=512), folder, 16)
    assert len(windows.ends) == 3
    for batch in range(4):
        for ids, labels in zip(*windows.rows(batch, 0, 16), strict=True):
            assert len({*ids.tolist(), *labels.tolist()}) == 1


def test_a_text_that_is_too_short_is_refused(tmp_path):
    folder = text_folder(tmp_path, **{"a.txt": "a b c"})
    with pytest.raises(ValueError, match="tokens in 1 chunks are too few for samples of 64"):
        TextWindows(Shape(seq_length=64, vocab_size=512), folder, 1)


def test_a_stand_in_is_the_same_anywhere_and_made_once(tmp_path):
    standin, first = made(tmp_path / "a", "features", 2, FEATURES)
    _, second = made(tmp_path / "b", "features", 2, FEATURES)
    assert facts_of(first)["sha256"] == facts_of(second)["sha256"]
    before = (first / "part-0").stat().st_mtime_ns
    make(standin, str(first))
    assert (first / "part-0").stat().st_mtime_ns == before
    assert sorted(path.name for path in (tmp_path / "a").iterdir() if not path.name.endswith(".lock")) == [first.name]


def test_processes_that_want_a_stand_in_at_once_make_it_once(tmp_path):
    code = (
        "import sys; from repro.trainers.data.standin.sets import StandIn, make; "
        "s = StandIn.of('images', 'small', 44, {}); make(s, str(s.path(sys.argv[1])))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=patience())[1] for process in started]
    assert [process.returncode for process in started] == [0, 0, 0], said
    assert sum("writing a stand-in" in each for each in said) == 1


def test_a_damaged_stand_in_is_refused(tmp_path):
    standin, folder = made(tmp_path, "features", 2, FEATURES)
    with open(folder / "part-1", "ab") as file:
        file.write(b"x")
    with pytest.raises(ConfigError, match="part-1 is not what it was when it was made; remove"):
        make(standin, str(folder))


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    standin = StandIn.of("tokens", "small", 0, {"vocab_size": 100})
    with pytest.raises(ConfigError, match="no stand-in can be made in"):
        make(standin, str(standin.path(str(tmp_path / "file"))))


def test_a_run_records_what_it_reads(tmp_path):
    _, folder = made(tmp_path, "features", 2, FEATURES)
    values = {"kind": "ofrecord", "parts": 2, "standin": "features", "scale": "small", "folder": str(tmp_path)}
    data = parse_data(spec_of("bert"), Shape(**FEATURES), values)
    assert data.path == str(folder)
    facts = described(data)
    assert facts["standin"] == "features" and facts["sha256"] == json.loads((folder / FACTS).read_text())["sha256"]
    own = parse_data(spec_of("bert"), Shape(**FEATURES), {"kind": "ofrecord", "parts": 2, "path": str(folder)})
    size = sum((folder / f"part-{part}").stat().st_size for part in range(2))
    assert described(own) == {"kind": "ofrecord", "path": str(folder), "parts": 2, "bytes": size}
