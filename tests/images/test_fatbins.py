"""GPU code in libraries: which of it a GPU takes, and that only the rest is left out."""

import mmap
import struct

import pytest

from repro.images.fatbins import MAGIC, PTX, SASS, fatbins, leave_out
from repro.utils.paths import TRAINER_PYTHON
from tests.support.fatbins import library

WHEEL = [(SASS, 60), (SASS, 61), (PTX, 70), (SASS, 70), (PTX, 75), (SASS, 75)]


def left(path) -> list[list[tuple[int, int]]]:
    """Kind and architecture of the code that is not zeros, of each fatbin."""
    data = path.read_bytes()
    return [
        [(code.kind, code.architecture) for code in each.codes if any(data[code.offset : code.offset + code.length])]
        for each in fatbins(data)
    ]


@pytest.mark.parametrize(
    ("architectures", "kept"),
    [
        ((90,), [(PTX, 75)]),
        ((75,), [(SASS, 75)]),
        ((72,), [(SASS, 70)]),
        ((61,), [(SASS, 61)]),
        ((70, 90), [(SASS, 70), (PTX, 75)]),
        ((60, 75), [(SASS, 60), (SASS, 75)]),
    ],
)
@pytest.mark.parametrize("section", [".nv_fatbin", "__nv_relfatbin"])
def test_each_architecture_keeps_what_the_driver_takes_for_it(tmp_path, architectures, kept, section):
    path = library(tmp_path / "lib.so", [WHEEL, WHEEL], section)
    zeroed = leave_out(path, architectures)
    assert left(path) == [kept, kept]
    assert zeroed == 2 * 64 * (len(WHEEL) - len(kept))


def test_machine_code_of_a_later_minor_number_or_another_major_one_does_not_run(tmp_path):
    path = library(tmp_path / "lib.so", [[(SASS, 80), (SASS, 86), (SASS, 90), (PTX, 90)]])
    (found,) = fatbins(path.read_bytes())
    assert [code.architecture for code in found.used_on(80)] == [80]
    assert [code.architecture for code in found.used_on(89)] == [86]
    assert [(code.kind, code.architecture) for code in found.used_on(100)] == [(PTX, 90)]
    assert found.used_on(75) == ()


def test_a_fatbin_from_which_an_architecture_takes_nothing_stays_whole(tmp_path):
    """It says so itself when it is loaded; zeros would only be puzzling."""
    path = library(tmp_path / "lib.so", [[(SASS, 35), (SASS, 60)]])
    assert leave_out(path, (90,)) == 0
    assert left(path) == [[(SASS, 35), (SASS, 60)]]


def test_what_lies_between_fatbins_is_passed_over(tmp_path):
    """Such as the beginning of one where none can be: at a place that is no multiple of eight."""
    data = bytearray(library(tmp_path / "lib.so", [WHEEL, WHEEL, WHEEL]).read_bytes())
    first, second, third = fatbins(bytes(data))
    between = bytes(12) + struct.pack("<I", MAGIC)
    data[second.offset : second.offset + second.length] = between.ljust(second.length, b"\0")
    assert list(fatbins(bytes(data))) == [first, third]
    data[third.offset : third.offset + third.length] = bytes(third.length)
    assert list(fatbins(bytes(data))) == [first]


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x02".ljust(64, b"\0")])
def test_a_file_without_gpu_code_stays_as_it_is(tmp_path, content):
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    assert leave_out(path, (90,)) == 0
    assert path.read_bytes() == content


@pytest.mark.parametrize(("name", "with_ptx"), [("liboneflow", 169 + 39 + 326), ("libcudnn", 222)])
def test_a_hopper_runs_all_of_the_wheel_that_has_intermediate_code(name, with_ptx):
    """The counts are those of the pinned wheel (docker/trainer.lock); with another one they change."""
    folder = TRAINER_PYTHON.parent.parent
    (path,) = folder.glob(f"lib/python3*/site-packages/oneflow.libs/{name}-*")
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        found = [each for each in fatbins(data) if any(code.kind == PTX for code in each.codes)]
        used = [code for each in found for code in each.used_on(90)]
        assert all(data[code.offset : code.offset + 1] != b"\0" for code in used)
    assert len(found) == len(used)
    assert {code.kind for code in used} == {PTX} and {code.architecture for code in used} <= {70, 75}
    assert len(used) == with_ptx
