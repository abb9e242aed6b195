"""LZ4 blocks: what is compressed comes back, what other compressors wrote is read, and damage is noticed."""

import random

import pytest

from repro.images.lz4 import compress, decompress

TEXT = b".reg .f32 %f<9>;\nld.global.f32 %f1, [%rd1];\n" * 40


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"a" * 5000, TEXT, random.Random(1).randbytes(3000), bytes(70000) + TEXT + bytes(range(256)) * 300],
    ids=["empty", "one byte", "one letter", "text", "random", "far apart"],
)
def test_what_is_compressed_comes_back(data):
    assert decompress(compress(data), len(data)) == data


def test_repetitions_take_less_room():
    assert len(compress(TEXT)) < len(TEXT) / 10


def test_the_blocks_end_is_as_the_format_wants_it():
    """The last five bytes are literals, and no repetition begins in the last twelve."""
    block = compress(b"abcd" * 10)
    assert block == b"\x4fabcd" + b"\x04\x00" + bytes([40 - 4 - 5 - 4 - 15]) + b"\x50dabcd"


@pytest.mark.parametrize(
    ("block", "data"),
    [
        (b"\x50hello", b"hello"),
        (b"\x11a\x01\x00\x50abcde", b"a" * 6 + b"abcde"),
        (b"\x1fa\x01\x00\xff\x00\x50abcde", b"a" * (1 + 4 + 15 + 255) + b"abcde"),
    ],
)
def test_a_block_by_hand_is_read(block, data):
    assert decompress(block, len(data)) == data


@pytest.mark.parametrize("block", [b"\x50hell", b"\xf0", b"\x11a\x00\x00\x10b", b"\x11a\x05\x00\x10b", b"\x10ab"])
def test_damage_is_noticed(block):
    with pytest.raises(ValueError, match="LZ4 block"):
        decompress(block, 5)
