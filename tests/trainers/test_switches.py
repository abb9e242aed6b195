"""OneFlow's switches: which of them a trainer sets, and that what the caller has set stays."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.trainers.conftest import configuration

PROGRAM = """
import json, os, sys
from repro.trainers.config import parse
from repro.trainers.run import set_environment
config = parse(json.loads(sys.argv[1]))
set_environment(config.device, config)
print(*(f"{name}={value}" for name, value in os.environ.items() if name.startswith("ONEFLOW_")))
"""
IMPORTED = """
import json, sys
from repro.trainers.config import parse
from repro.trainers.layout import Layout
from repro.trainers.train import build_program
config = parse(json.loads(sys.argv[1]))
build_program(config, Layout(1, 1, 1, config.device))
print(*(name for name in sys.modules if name.startswith(("repro.trainers.tuning", "repro.trainers.checks"))))
"""
"""Prints which modules were imported of those whose code a published run's record does not cover."""
FREED = """
import ctypes, sys
from repro.trainers.run import merge_freed_blocks
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks",
                                                  "uordblks", "fordblks", "keepcost")]
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.mallinfo.restype = ctypes.c_void_p, Info
if sys.argv[1:] == ["merged"]:
    merge_freed_blocks()
blocks = [ctypes.c_void_p(libc.malloc(64)) for _ in range(100)]
for block in blocks:
    libc.free(block)
print(libc.mallinfo().fsmblks)
"""
"""Prints how many bytes of freed blocks malloc keeps apart, by its own account."""
STARTED = """
import json, sys
from types import SimpleNamespace
from repro.trainers import run
from repro.trainers.config import parse
sys.modules["repro.trainers.train"] = SimpleNamespace(train=lambda config: None)
run.wait_for_master = lambda: None
run.merge_freed_blocks = lambda: print("malloc")
run.train(parse(json.loads(sys.argv[1])))
"""
"""Prints "malloc" if a training's start changes what malloc does."""

ONE_UPDATE = "ONEFLOW_ENABLE_MULTI_TENSOR_MODEL_UPDATE"


def switches(device, layout, program="tuned", **given) -> set[str]:
    shape = {"layers": 4}
    config = {**configuration("gpt", layout, program=program, device=device, shape=shape), "output": "out"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(config)],
        cwd=ROOT,
        env=os.environ | given,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("layout", "one_update"),
    [
        ((1, 1, 1), True),
        ((4, 1, 1), True),
        ((1, 4, 1), True),
        ((2, 2, 1), False),
        ((1, 1, 4), False),
        ((2, 1, 2), False),
        ((2, 2, 2), False),
    ],
)
def test_parameters_are_updated_at_once_only_where_oneflow_can(layout, one_update):
    assert (f"{ONE_UPDATE}=1" in switches("cuda", layout)) == one_update


def test_a_published_program_sets_no_switch_on_cuda():
    assert switches("cuda", (1, 1, 1), "published") == set()


def test_the_cpu_has_a_switch_of_its_own():
    assert switches("cpu", (1, 1, 1)) == {"ONEFLOW_BOXING_DISABLE_MIDDLE_NODE_AND_CHECK=1"}


def test_what_is_set_stays():
    assert f"{ONE_UPDATE}=0" in switches("cuda", (1, 1, 1), **{ONE_UPDATE: "0"})


@pytest.mark.parametrize("how", ["merged", "as it is"])
def test_malloc_keeps_no_freed_blocks_apart(how):
    done = subprocess.run([sys.executable, "-c", FREED, how], cwd=ROOT, capture_output=True, text=True, check=True)
    assert (int(done.stdout) == 0) == (how == "merged")


@pytest.mark.parametrize(("device", "printed"), [("cpu", "malloc\n"), ("cuda", "")])
def test_on_gpus_malloc_is_as_the_system_has_it(device, printed):
    config = json.dumps({**configuration("gpt", device=device), "output": "out"})
    done = subprocess.run([sys.executable, "-c", STARTED, config], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == printed


@pytest.mark.parametrize("program", ["published", "tuned"])
def test_a_published_program_imports_nothing_that_its_code_is_recorded_without(python, program):
    config = json.dumps({**configuration("gpt", (1, 1, 1), program=program), "output": "out"})
    done = subprocess.run([python, "-c", IMPORTED, config], cwd=ROOT, capture_output=True, text=True, check=True)
    assert bool(done.stdout.split()) == (program == "tuned")
