"""The kernels of 2020: their arithmetic on the CPU, the passes that they make, and how often programs call them."""

import ctypes
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from repro.models.past import BACKWARD, DIRECTIONS, FORWARD
from repro.trainers.past.config import parse_timing
from repro.trainers.past.cuda import ARRAYS, passed
from repro.trainers.past.forms import EPSILON, FORMS, RATE, BatchNorm, Form, Gpu, form
from repro.trainers.past.reference import TOLERANCES, expected, reads
from repro.trainers.validators import ConfigError
from repro.utils.paths import ROOT

SOURCE = ROOT / "docker" / "past" / "kernels.cu"
SUPPORT = ROOT / "tests" / "support"
SMALL = Gpu(multiprocessors=2, threads=2048)
V100 = Gpu(multiprocessors=80, threads=2048)
SHAPES = {
    "softmax 2020-12": (5, 700),
    "softmax 2020-08": (5, 128),
    "cross-entropy 2020-12": (6, 9000),
    "cross-entropy 2020-08": (6, 8999),
    "dropout fp16": (300, 64),
    "dropout fp32": (300, 64),
    "layer norm 2020-12": (40, 96),
    "layer norm 2020-08": (2100, 40),
}
"""Small ones that reach each branch: whole tiles aligned and not, and column sums in one step and in two."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels compiled for the CPU, each with a function that runs it."""
    folder = tmp_path_factory.mktemp("past")
    names = re.findall(r"^__global__ void (\w+)\(", SOURCE.read_text(), re.MULTILINE)
    names += [
        f"{name}_{kind}"
        for name in re.findall(r"^ +__global__ void (\w+)_##suffix", SOURCE.read_text(), re.MULTILINE)
        for kind in (("i32", "i64") if name in ("log_of_label", "cross_entropy_back") else ("f16", "f32"))
    ]
    runs = "".join(
        f'extern "C" void run_{name}(unsigned blocks, unsigned threads, void **arguments)'
        f" {{ launch({name}, blocks, threads, arguments); }}\n"
        for name in names
    )
    (folder / "all.cpp").write_text(f'#include "on_cpu.h"\n#include "kernels.cu"\n{runs}')
    command = ["g++", "-std=c++17", "-O1", "-fPIC", "-shared", "-w", f"-I{SUPPORT}", f"-I{SOURCE.parent}"]
    subprocess.run([*command, folder / "all.cpp", "-o", folder / "all.so"], check=True)
    return folder / "all.so"


@pytest.fixture(scope="module")
def kernels(library: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(library))


class OnCpu:
    """A form with its buffers in memory, run by the kernels compiled for the CPU; cuDNN's part by NumPy."""

    def __init__(self, kernels: ctypes.CDLL, whole: Form):
        self.kernels, self.form = kernels, whole
        random = np.random.default_rng(1)
        self.arrays = {
            name: np.zeros(whole.size(name), np.int8).view(ARRAYS.get(kind, np.uint32))
            for name, (_, kind) in whole.buffers.items()
        }
        for name in whole.given:
            array = self.arrays[name]
            if name == "labels":
                array[:] = random.integers(0, whole.columns, len(array))
            elif name == "states":
                array[:] = random.integers(1, 2**32, len(array), dtype=np.uint32)
            else:
                array[:] = random.uniform(-2, 2, len(array))

    def run(self, direction: str) -> None:
        for step in self.form.steps[direction]:
            if isinstance(step, BatchNorm):
                self.normalise(step)
                continue
            values = [
                ctypes.c_void_p(self.arrays[each].ctypes.data) if isinstance(each, str) else passed(each)
                for each in step.arguments
            ]
            pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
            getattr(self.kernels, f"run_{step.kernel}")(step.blocks, step.threads, pointers)

    def normalise(self, step: BatchNorm) -> None:
        assert (self.arrays["ones"] == 1).all()
        matrices = [self.matrix(name).astype(np.float64) for name in step.reads]
        inverse = 1 / np.sqrt(matrices[0].var(1, keepdims=True) + EPSILON)
        normalized = (matrices[0] - matrices[0].mean(1, keepdims=True)) * inverse
        if step.direction == FORWARD:
            result = normalized
        else:
            slope = matrices[1]
            along = (slope * normalized).mean(1, keepdims=True)
            result = inverse * (slope - slope.mean(1, keepdims=True) - normalized * along)
        self.matrix(step.writes[0])[:] = result

    def matrix(self, name: str) -> np.ndarray:
        array = self.arrays[name]
        per_row = {self.form.rows * self.form.columns: self.form.columns, self.form.rows: 1}
        return array.reshape(-1, per_row.get(len(array), len(array)))


@pytest.mark.parametrize("name", FORMS)
def test_the_kernels_compute_what_the_operator_is(kernels, name):
    whole = form(name, *SHAPES[name], SMALL)
    on_cpu = OnCpu(kernels, whole)
    for direction in DIRECTIONS:
        on_cpu.run(direction)
        found = expected(name, direction, {each: on_cpu.matrix(each) for each in reads(name, direction)})
        assert found
        for buffer, exact in found.items():
            error = np.linalg.norm(on_cpu.matrix(buffer) - exact) / np.linalg.norm(exact)
            assert error < TOLERANCES[whole.precision], (name, direction, buffer)


@pytest.mark.parametrize("name", ["dropout fp16", "dropout fp32"])
def test_a_mask_keeps_nine_tenths(kernels, name):
    on_cpu = OnCpu(kernels, form(name, *SHAPES[name], SMALL))
    on_cpu.run(FORWARD)
    assert on_cpu.arrays["mask"].mean() == pytest.approx(1 - RATE, abs=0.01)


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("softmax 2020-12", 2, 3),
        ("softmax 2020-08", 2, 3),
        ("cross-entropy 2020-12", 6, 2),
        ("cross-entropy 2020-08", 8, 2),
        ("dropout fp16", 4, 3),
        ("dropout fp32", 4, 3),
        ("layer norm 2020-12", 3, 6),
        ("layer norm 2020-08", 6, 10),
    ],
)
def test_passes(name, forward, backward):
    """As read in the kernels of the time: softmax made as few passes as now, only that of the cross-entropy made more."""
    whole = form(name, 4096, 768, V100)
    assert (whole.passes(FORWARD), whole.passes(BACKWARD)) == (forward, backward)


def test_column_sums_of_a_tall_matrix_take_two_kernels():
    """12288 rows become 768 of a matrix 16 times as wide, in blocks of 32 columns, then 16 by a thread per column."""
    first, second, *_ = form("layer norm 2020-08", 12288, 768, V100).steps[BACKWARD]
    assert (first.kernel, first.blocks, first.arguments[:2]) == ("sum_columns_by_blocks_f32", 384, (12288 * 768, 12288))
    assert (second.kernel, second.blocks, second.arguments[:2]) == ("sum_columns_by_threads_f32", 1, (12288, 768))


def test_masks_are_drawn_by_one_block_per_multiprocessor():
    draw, drop = form("dropout fp16", 4096, 768, V100).steps[FORWARD]
    assert (draw.blocks, draw.threads) == (80, 128)
    assert (drop.blocks, drop.threads) == (1536, 1024)


def test_operators_are_checked_and_timed_and_one_that_fails_does_not_end_the_others(probe, library):
    """On the CPU, where the kernels of 2020 are those above, cuDNN is missing and nothing is traced."""
    events = json.loads(probe("past_probe.py", str(library))[-1])
    assert (events[0]["event"], events[-1]["event"]) == ("start", "end")
    phases = [(each["form"], each["direction"], each["kind"]) for each in events if each["event"] == "phase"]
    every = [(direction, kind) for direction in DIRECTIONS for kind in ("present", "past", "cold")]
    for name in ("softmax 2020-08", "cross-entropy 2020-08", "dropout fp32"):
        assert sorted(phase[1:] for phase in phases if phase[0] == name) == sorted(every)
    assert {phase[1:] for phase in phases if phase[0] == "layer norm 2020-08"} == {
        (direction, "present") for direction in DIRECTIONS
    }
    (refused,) = (each for each in events if each["event"] == "refused")
    assert refused["subject"] == "layer norm 2020-08 8x64" and "no cuDNN" in refused["reason"]
    errors = [each for each in events if each["event"] == "error"]
    assert {each["part"] for each in errors} == {"y", "dx", "loss", "share kept"}
    assert all(each["error"] <= each["tolerance"] for each in errors)
    begun = [each["begin"] for each in events if each["event"] == "phase"]
    ended = [each["end"] for each in events if each["event"] == "phase"]
    assert all(end < begin for end, begin in zip(ended, begun[1:], strict=False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "cpu"}, "device"),
        ({"subjects": []}, "subjects"),
        ({"subjects": [{"deviation": "x", "form": "softmax", "rows": 1, "columns": 1}]}, r"subjects\[0\]\.form"),
        ({"calls": 0}, "calls"),
        ({"layout": {"data": 2, "tensor": 1, "pipeline": 1}}, "layout"),
    ],
)
def test_a_wrong_configuration_names_the_key(change, message):
    subject = {"deviation": "softmax-kernel", "form": "softmax 2020-08", "rows": 8, "columns": 64}
    right = {"device": "cuda", "layout": {"data": 1, "tensor": 1, "pipeline": 1}, "code": "x", "calls": 2}
    right |= {"subjects": [subject], "output": "out"}
    assert parse_timing(right).subjects[0].rows == 8
    with pytest.raises(ConfigError, match=message):
        parse_timing({**right, **change})
