"""What the orders for nodes hold when rank 0's kernels are traced, in each runtime."""

from dataclasses import replace

import pytest

from repro.cluster.cluster import BaselinePlace, Image
from repro.images.stack import library_name
from repro.launch.base import LaunchOptions
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import NodeFacts
from repro.launch.nodes.tracing import Tracing
from repro.launch.nodes.work import work_of
from repro.launch.select import select
from repro.published.cases import Layout
from repro.published.rules import MeanRows
from repro.runs.unit import Unit
from tests.support.clusters import V100
from tests.support.runs import CONFIG

HOSTS = [NodeFacts(f"10.1.0.{i}", "1000:1000", "/var/lib/w/venv/launch.py") for i in range(1, 5)]
TRACER = f"/var/lib/w/compat/{library_name('kernel_trace')}"


def orders(cluster, tracing=Tracing("/opt/cupti"), **more):  # noqa: B008
    config = replace(CONFIG, layout=Layout(16), device="cuda")
    made = Unit("case", "gpt", config, MeanRows(skip_first=1), 8, **more)
    work = work_of(cluster, UploadedCode(), made, False, 29500, "run-1", "repeat-1.attempt-1")
    return [replace(work, tracing=tracing).order(index, HOSTS) for index in range(2)]


def variables(argv):
    """The variables that a command gives the ranks, those of the trace alone."""
    words = [word.partition("=") for word in argv if "=" in word]
    return {name: value for name, _, value in words if name.startswith(("CUDA_INJ", "KERNEL_TRACE"))}


@pytest.mark.parametrize("more", [{}, {"baseline_of": "other"}], ids=["trainer", "baseline"])
def test_a_container_gets_the_tracer_and_the_cupti_of_its_node(more):
    cluster = replace(V100, baseline=BaselinePlace("/opt/conda/bin/python", "pytorch:1"))
    first, second = orders(cluster, **more)
    folder, argv = first["folder"], first["argv"]
    assert variables(argv) == {
        "CUDA_INJECTION64_PATH": TRACER,
        "KERNEL_TRACE_CUPTI": "/opt/cupti/libcupti.so",
        "KERNEL_TRACE_FILE": f"{folder}/trace",
    }
    assert {f"{TRACER}:{TRACER}:ro", f"{folder}/libcupti.so:/opt/cupti/libcupti.so:ro"} <= set(argv)
    assert first["cupti"] == {"given": "/opt/cupti", "link": f"{folder}/libcupti.so"}
    ((path, command),) = first["libraries"].items()
    assert (path, command[0]) == (TRACER, "gcc")
    assert f"{TRACER}.partial" in command
    (source,) = (word for word in command if word.endswith("/docker/compat/kernel_trace.c"))
    assert source.startswith("/var/lib/w/code/") and "docker/compat/kernel_trace.c" in UploadedCode().files
    assert (variables(second["argv"]), second["cupti"], second["libraries"]) == ({}, {}, {}), "it has no rank 0"


def test_apptainer_gets_the_same():
    cluster = replace(V100, runtime_name="apptainer", image=Image("x", file="/images/x.sif", sha256="a" * 64))
    argv = orders(cluster)[0]["argv"]
    assert {f"{TRACER}:{TRACER}:ro", f"CUDA_INJECTION64_PATH={TRACER}"} <= set(argv)
    assert variables(argv)["KERNEL_TRACE_CUPTI"] == "/opt/cupti/libcupti.so"


def test_a_venv_sees_the_node_s_own_files():
    first = orders(replace(V100, runtime_name="venv", stack="cu102-modern"))[0]
    assert variables(first["argv"])["KERNEL_TRACE_CUPTI"] == first["cupti"]["link"]
    assert len(first["libraries"]) == 3, "beside what forwards calls"


def test_without_a_trace_there_is_nothing_of_it():
    for order in orders(V100, None):
        assert (variables(order["argv"]), order["cupti"], order["libraries"]) == ({}, {}, {})


@pytest.mark.parametrize(
    ("changes", "name", "refusal"),
    [
        ({}, "ssh", None),
        ({}, "slurm", None),
        ({"gpu": ""}, "ssh", "make profile traces what a GPU does, and cluster_gpu is empty in "),
        ({"runtime_name": "pyxis"}, "slurm", "make profile: no compiler is beside ranks that Pyxis starts"),
    ],
)
def test_where_nothing_can_be_traced_it_is_said_before_anything_starts(changes, name, refusal):
    found = select(LaunchOptions(replace(V100, **changes)), name).trace_refusal()
    assert found is None if refusal is None else found.startswith(refusal)
