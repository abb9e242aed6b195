"""What keeps a node out of a run is said with what to do about it."""

import re
from dataclasses import replace

import pytest

from repro.launch.nodes.node_check import problems
from tests.support.clusters import NODES, V100

FACTS = {
    "writable": True,
    "read_only": False,
    "free_mib": 10_000,
    "address": "10.0.0.1",
    "port_free": True,
    "images": {"found": {}},
    "infiniband": ["/dev/infiniband/uverbs0"],
    "launcher": "/venv/launch.py",
    "libraries": ["cublas"],
    "gpus": [],
    "files": {},
    "compiler": True,
}


@pytest.mark.parametrize(
    ("facts", "skew", "changes", "message"),
    [
        ({"writable": False}, 0, {}, "cannot be written by alice; `make provision CLUSTER=inventories/v100x32` sets"),
        (
            {"writable": False, "read_only": True},
            0,
            {},
            "/var/lib/w is on a file system that is mounted read-only there",
        ),
        ({"free_mib": 12}, 0, {}, "only 12 MiB are free below /var/lib/w"),
        ({}, -3.2, {}, "its clock is 3.2 s behind the controller's"),
        ({"address": ""}, 0, {}, "no IPv4 address on interface ib0"),
        ({"port_free": False}, 0, {}, "port 29500 is taken by another program"),
        ({"infiniband": []}, 0, {}, "it has no /dev/infiniband, but cluster_hca asks for InfiniBand"),
        ({}, 0, {"stack": "cu102-modern"}, "there is no cuDNN in /var/lib/w/cudnn"),
        (
            {"libraries": ["cublas", "cudnn"]},
            0,
            {"stack": "cu102-modern", "compiled_for": 90},
            "there is no GPU code compiled for 90 in /var/lib/w/overlay; `make provision CLUSTER=inventories/v100x32` "
            "brings it, after `make compile-kernels ARCH=90` here",
        ),
        (
            {
                "libraries": ["cublas", "cudnn"],
                "gpus": [{"name": "NVIDIA A100", "compute_cap": "8.0", "driver_version": "535"}],
                "files": {"/var/lib/w/overlay/overlay.json": [1, 1]},
            },
            0,
            {"stack": "cu102-modern", "compiled_for": 90, "gpu": ""},
            "the GPUs are of architecture 80, and cluster_compiled_for in",
        ),
        ({"launcher": ""}, 0, {"hca": ""}, "there is no OneFlow in /var/lib/w/venv"),
        ({"images": {"error": "cannot connect"}}, 0, {"hca": "", "runtime_name": "docker"}, "does not answer"),
        (
            {"images": {"found": {V100.image.digest: None, V100.image.name: "sha256:b"}}},
            0,
            {"hca": "", "runtime_name": "docker"},
            f"is sha256:b there, and the inventory asks for {V100.image.digest}",
        ),
        ({"images": {"found": {}}}, 0, {"hca": "", "runtime_name": "docker"}, "it has no image sha256:a"),
    ],
)
def test_what_keeps_a_node_out_is_said(facts, skew, changes, message):
    cluster = replace(V100, **{"runtime_name": "venv", **changes})
    (problem,) = problems(cluster, NODES[0], FACTS | facts, skew, 29500)
    assert problem.startswith("n1: ")
    assert message in problem


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            {"error": "apptainer is not installed here"},
            "/p/a.sif, cluster_image.file in .*apptainer is not installed here",
        ),
        ({"sha256": "b" * 64}, "/p/a.sif has the SHA-256 bbb.*, and the inventory asks for aaa"),
        ({"sha256": "a" * 64}, None),
    ],
)
def test_the_file_of_an_image_is_the_one_of_the_inventory(file, message):
    image = replace(V100.image, file="/p/a.sif", sha256="a" * 64)
    cluster = replace(V100, hca="", runtime_name="apptainer", image=image)
    found = problems(cluster, NODES[0], {**FACTS, "image_file": file}, 0.0, 29500)
    assert (not found) if message is None else re.search(message, found[0])
