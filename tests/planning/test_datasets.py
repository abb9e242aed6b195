"""Data sets that models learn: whole, in the trainers' format, and of known entropy."""

import numpy as np
import pytest
from PIL import Image

from repro.planning.datasets import DatasetError, datasets_for, entropy, text_dataset, text_entropies, write_pictures
from repro.trainers.config import Shape
from repro.trainers.data.batches import Tokens
from repro.utils.errors import PlanError
from tests.support.datasets import small_text


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return small_text(tmp_path_factory.mktemp("datasets"))


def test_entropies_of_a_text():
    coin = np.random.default_rng(1).integers(0, 2, 4000)
    assert text_entropies(coin)[:2] == pytest.approx([1.0, 1.0], abs=0.01)
    alternating = [0, 1] * 500
    assert text_entropies(alternating)[:2] == pytest.approx([1.0, 0.0], abs=0.01)
    assert entropy([1, 1, 1, 1]) == pytest.approx(2.0)


def test_the_text_is_real_whole_and_in_the_trainers_format(text):
    tokens = Tokens(1, Shape(seq_length=64, vocab_size=257), text.data.prefix, 8)
    assert len(tokens.tokens) == text.facts["tokens"] > 200_000
    assert text.facts["files"] == (tokens.tokens == 256).sum() == 60
    assert b"import" in bytes(np.array(tokens.tokens[tokens.tokens < 256], np.uint8))
    assert text.facts["entropies_bits"] == sorted(text.facts["entropies_bits"], reverse=True)
    assert 4 < text.facts["entropies_bits"][0] < 5


def test_a_dataset_that_was_altered_is_refused(text, tmp_path):
    copy = tmp_path / "text"
    copy.mkdir()
    for path in text.folder.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    assert text_dataset(copy).facts == text.facts
    with open(copy / "text.bin", "r+b") as file:
        file.write(b"\1")
    with pytest.raises(DatasetError, match="is not what it was when it was made"):
        text_dataset(copy)


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


def test_a_model_without_real_data_is_refused():
    with pytest.raises(PlanError, match="it is gpt or resnet50"):
        datasets_for("bert")
