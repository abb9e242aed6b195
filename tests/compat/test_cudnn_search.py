"""The search for the fastest way to a convolution, with a stand-in for cuDNN and driver that has a clock of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compat import CALLER, by_statement, compile_library, needs_gcc
from tests.support.paths import ROOT

SOURCE = ROOT / "docker/compat/cudnn_forward.c"
FAKE = Path(__file__).with_name("fake_cudnn_search.c")
HALF, TENSOR_CORES, CONVERTING = 1008, 1001, 2001
HELPERS = """
import os
fake = ctypes.CDLL(os.environ["CUDNN_FORWARD_LIBRARY"])
size = ctypes.c_size_t
def say(text):
    ctypes.CDLL(None).fflush(None)
    print("--", text, flush=True)
def factor(value):
    return ctypes.byref(ctypes.c_float(value))
def forward(beta=0, x=8, convolution=1, algorithm=0, y=0x40, handle=16):
    say(library.cudnnConvolutionForward(p(handle), factor(1), p(x), p(64), p(x), p(64), p(convolution), algorithm, p(0),
                                        size(0), factor(beta), p(x), p(y)))
def data(beta=0):
    say(library.cudnnConvolutionBackwardData(p(16), factor(1), p(8), p(64), p(8), p(64), p(1), 0, p(0), size(0),
                                             factor(beta), p(8), p(0x40)))
def filter():
    say(library.cudnnConvolutionBackwardFilter(p(16), factor(1), p(8), p(64), p(8), p(64), p(1), 0, p(0), size(0),
                                               factor(0), p(8), p(0x40)))
def held():
    fake.say_what_is_held()
    say("held")
"""

pytestmark = needs_gcc


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the library, and a stand-in that is cuDNN and driver at once."""
    folder = tmp_path_factory.mktemp("search")
    compile_library(SOURCE, folder / "libcudnn_forward.so")
    compile_library(FAKE, folder / "libcudnn.so.9")
    (folder / "libcuda.so.1").symlink_to("libcudnn.so.9")
    return folder


@pytest.fixture
def run(built):
    """Runs statements in a process with the library; returns what each printed with its status, and standard error.

    Costs in ms: of the legacy algorithms, of which calls ask for the first, and of the engines; negative ones fail.
    """

    def run(statements, algorithms="4,3", engines="2,1,5", notes="9,9,9,9,9", workspace="0", **environment):
        named = {
            "CUDNN_FORWARD_LIBRARY": str(built / "libcudnn.so.9"),
            "LD_LIBRARY_PATH": str(built),
            "ALGORITHMS": algorithms,
            "ENGINES": engines,
            "NOTES": notes,
            "WORKSPACE": workspace,
        }
        command = [sys.executable, "-c", CALLER + HELPERS + statements, str(built / "libcudnn_forward.so")]
        options = {"env": {**os.environ, **named, **environment}, "capture_output": True, "text": True, "timeout": 60}
        done = subprocess.run(command, **options)
        assert done.returncode == 0, done.stderr
        return by_statement(done.stdout), done.stderr.splitlines()

    return run


def test_the_fastest_is_taken_and_kept(run):
    ((first, status), again), _ = run("forward()\nforward()")
    tried = {line.split(" into ")[0] for line in first}
    assert tried == {"algorithm 0", "algorithm 1", "engine 0", "engine 1", "engine 2"}
    assert (first[-1], status) == ("engine 1 into 0x40", "0")
    assert again == (["engine 1 into 0x40"], "0")


def test_each_convolution_and_handle_is_searched_for_itself(run):
    others = "forward(x=16)", "forward(algorithm=1)", "forward(handle=32)", "forward(beta=1)", "data()", "forward()"
    (_, *searched, known), _ = run("\n".join(("forward()", *others)))
    assert [len(lines) > 5 for lines, _ in searched] == [True] * 5
    assert known == (["engine 1 into 0x40"], "0")


@pytest.mark.parametrize("call", ["data", "filter"])
def test_gradients_take_the_fastest_too(run, call):
    (_, again), _ = run(f"{call}()\n{call}()", algorithms="4,3,2,5", engines="3")
    assert again == ([f"{call} algorithm 2 into 0x40"], "0")
    (_, again), _ = run(f"{call}()\n{call}()", algorithms="4,3,2,5", engines="1")
    assert again == (["engine 0 into 0x40"], "0")


@pytest.mark.parametrize(("engine", "taken"), [("3.95", "algorithm 0"), ("3.9", "engine 0")])
def test_a_gain_below_two_percent_is_none(run, engine, taken):
    (_, again), _ = run("forward()\nforward()", algorithms="4", engines=engine)
    assert again == ([f"{taken} into 0x40"], "0")


def test_fp32_takes_no_engine_of_less_precision(run):
    """Tensor cores, converted inputs and a reduced reduction are never run, however fast."""
    ((first, _), again), _ = run("forward()\nforward()", engines="0.1,0.1,0.1,2", notes="0,1,2,9")
    assert {line.split(" into ")[0] for line in first} == {"algorithm 0", "algorithm 1", "engine 3"}
    assert again == (["engine 3 into 0x40"], "0")


def test_tf32_takes_engines_on_tensor_cores(run):
    """But none that converts its inputs or reduces in less precision."""
    ((first, _), again), _ = run(
        "forward()\nforward()", engines="0.5,0.1,0.1,2", notes="0,1,2,9", CUDNN_FORWARD_TF32="1"
    )
    assert {line.split(" into ")[0] for line in first} == {"algorithm 0", "algorithm 1", "engine 0", "engine 3"}
    assert again == (["engine 0 into 0x40"], "0")


@pytest.mark.parametrize(("convolution", "searched"), [(TENSOR_CORES, True), (CONVERTING, False), (2, False)])
def test_tf32_searches_whatever_mathematics_cudnn_named(run, convolution, searched):
    (only,), _ = run(f"forward(convolution={convolution})", CUDNN_FORWARD_TF32="1")
    assert (len(only[0]) > 5) == searched


def test_what_fails_is_left_out(run):
    (_, again), _ = run("forward()\nforward()", algorithms="4,-1", engines="-1,2,-1")
    assert again == (["engine 1 into 0x40"], "0")
    (first, again), _ = run("forward()\nforward()", algorithms="4,-1", engines="-1")
    assert (first[1], again) == ("0", (["algorithm 0 into 0x40"], "0"))


def test_what_fails_later_gives_way_to_the_plain_call(run):
    failing = "forward()\nos.environ['ENGINES'] = '-1,-1,-1'\nforward()\nforward()"
    (_, fallen, after), _ = run(failing)
    assert fallen == (["engine 1 into 0x40", "algorithm 0 into 0x40"], "0")
    assert after == (["algorithm 0 into 0x40"], "0")


def test_a_plain_call_that_fails_is_told(run):
    ((lines, status),), _ = run("forward()", algorithms="-1,3")
    assert set(lines) == {"algorithm 0 into 0x40"}
    assert status == "3000"


def test_an_output_that_is_added_to_is_computed_once(run):
    ((first, _), again), _ = run("data(1)\ndata(1)", algorithms="4,3", engines="-1")
    assert len(first) > 5
    assert [line for line in first if "into 0x40" in line] == ["data algorithm 1 into 0x40 adding"]
    assert again == (["data algorithm 1 into 0x40 adding"], "0")
    ((first, _), _), _ = run("data(1)\ndata(1)")
    assert [line for line in first if "into 0x40" in line] == ["engine 1 into 0x40"]


def test_the_search_can_be_turned_off(run):
    (only,), _ = run("forward()", CUDNN_FORWARD_SEARCH="0")
    assert only == (["algorithm 0 into 0x40"], "0")


def test_half_precision_takes_tensor_cores(run):
    """Both the plain call and the engines, but none that converts its inputs or reduces in less precision."""
    ((first, _), again), _ = run(f"forward(x={HALF})\nforward(x={HALF})", engines="0.5,0.1,0.1,2", notes="0,1,2,9")
    assert first[0] == "mathematics 1 of 1"
    assert {line.split(" into ")[0] for line in first[1:]} == {"algorithm 0", "algorithm 1", "engine 0", "engine 3"}
    assert again[0][-1] == "engine 0 into 0x40"


def test_half_precision_on_tensor_cores_stays_as_it_is(run):
    (only,), _ = run(f"forward(x={HALF}, convolution={TENSOR_CORES})")
    assert len(only[0]) > 5 and not any(line.startswith("mathematics") for line in only[0])


@pytest.mark.parametrize("call", [f"convolution={TENSOR_CORES}", "convolution=2", "y=0x44"])
def test_other_convolutions_stay_plain(run, call):
    """Tensor cores that OneFlow asked for in fp32, groups, and a tensor that engines may find unaligned."""
    (only,), _ = run(f"forward({call})")
    assert [line.split(" into ")[0] for line in only[0]] == ["algorithm 0"]


def test_without_a_driver_calls_stay_plain(run, built, tmp_path):
    (only,), _ = run("forward()", LD_LIBRARY_PATH=str(tmp_path))
    assert only == (["algorithm 0 into 0x40"], "0")


def test_memory_is_what_the_ways_taken_need(run):
    (_, (kept, _), _, (grown, _), (left, _)), _ = run(
        "forward()\nheld()\nos.environ['WORKSPACE'] = '5000'\nforward(x=16)\nheld()\n"
        "library.cudnnDestroy(p(16))\nheld()",
        workspace="1000",
    )
    assert re.fullmatch(r"1000 bytes, \d+ descriptors", kept[0])
    assert re.fullmatch(r"5000 bytes, \d+ descriptors", grown[0])
    assert left == ["0 bytes, 0 descriptors"]


def test_a_search_in_vain_keeps_nothing(run):
    (_, _, (held, _)), _ = run("forward()\ndata(1)\nheld()", algorithms="1,3", workspace="1000")
    assert held == ["0 bytes, 0 descriptors"]


def test_a_workspace_beyond_the_limit_is_not_asked_for(run):
    ((first, _),), _ = run("forward()", workspace=str((512 << 20) + 1))
    assert {line.split(" into ")[0] for line in first} == {"algorithm 0", "algorithm 1"}


def test_the_log_tells_what_was_found(run):
    _, errors = run("forward()\nforward()", CUDNN_FORWARD_LOG="1")
    (line,) = (error for error in errors if "best" in error)
    assert line.startswith(
        "cudnn_forward: forward x 2x8x8x8 w 2x8x8x8 stride 1 beta 0: algorithm 0 4.000 ms, best "
        "engine 1 1.000 ms with 0.0 MiB; 5 ways in "
    )
    assert "best" not in "".join(run("forward()")[1])
