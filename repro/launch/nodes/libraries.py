"""The set of libraries that ranks on a cluster's nodes compute with: what must be there, and what cannot be right."""

from __future__ import annotations

import posixpath

from repro.cluster.cluster import Cluster
from repro.images.kernel_overlay import DESCRIPTION, FOLDER
from repro.images.stack import (
    CACHE_BYTES,
    FORWARDERS,
    after_turing,
    compile_command,
    library_name,
)

MODERN = "cu102-modern"
OVERLAY = "overlay"
"""The folder below a cluster's work folder with GPU code that was compiled ahead (`repro.images.kernel_overlay`)."""
NEWER = ("cublas", "cudnn")
"""The folders below a cluster's work folder with the libraries that stack cu102-modern needs besides OneFlow's own."""
COMPAT_FOLDER = "docker/compat"
"""Where the sources of what forwards calls to these are, below the code that nodes are sent."""
FIX = (
    "set cluster_stack to cu102-modern on GPUs after Turing, or bring another cuBLAS or cuDNN to the folders cublas and "
    "cudnn of the nodes' work folder; `make provision` takes the pinned ones"
)


def needs_forwarders(cluster: Cluster) -> bool:
    """Whether the nodes have to compile what an image holds compiled: they run OneFlow from a venv, on newer GPUs."""
    return cluster.stack == MODERN and not cluster.runtime.in_image


def overlay_folder(cluster: Cluster) -> str:
    """Where a node has OneFlow with GPU code compiled ahead; "" where the inventory wants none."""
    return posixpath.join(cluster.work, OVERLAY) if cluster.compiled_for else ""


def forwarder_paths(cluster: Cluster) -> dict[str, str]:
    """The libraries that forward calls on a node, {source's name: path}; empty where images hold them, or none is needed."""
    if not needs_forwarders(cluster):
        return {}
    return {name: f"{cluster.work}/compat/{library_name(name)}" for name in FORWARDERS}


def forwarder_orders(cluster: Cluster, code: str) -> dict[str, list[str]]:
    """How a node makes each of these from the sources below the folder of its code: {path: command}.

    The command writes to the path with ".partial" behind it.
    """
    return {
        path: compile_command(f"{code}/{COMPAT_FOLDER}/{name}.c", f"{path}.partial")
        for name, path in forwarder_paths(cluster).items()
    }


def library_environment(cluster: Cluster, device: str) -> dict[str, str]:
    """What ranks get for compiled GPU code, and in a venv so that they compute as those in the stack's image do."""
    if device != "cuda":
        return {}
    compiled = {"PYTHONPATH": overlay_folder(cluster)} if cluster.compiled_for else {}
    if not needs_forwarders(cluster):
        return compiled
    return compiled | {
        "LD_PRELOAD": ":".join(forwarder_paths(cluster).values()),
        "LD_LIBRARY_PATH": ":".join(f"{cluster.work}/{name}" for name in NEWER),
        "CUDA_CACHE_PATH": f"{cluster.work}/jit",
        "CUDA_CACHE_MAXSIZE": str(CACHE_BYTES),
    }


def library_patterns(cluster: Cluster) -> list[str]:
    """The files on a node, as patterns, whose change makes other kernels run; an image is known by its ID instead."""
    newer = [posixpath.join(cluster.work, name, "lib*.so*") for name in NEWER] if cluster.stack == MODERN else []
    venv = ["venv/lock.sha256", "venv/lib/python3*/site-packages/oneflow.libs/liboneflow-*"]
    own = [] if cluster.runtime.in_image else [posixpath.join(cluster.work, path) for path in venv]
    overlay = overlay_folder(cluster)
    compiled = [f"{overlay}/{DESCRIPTION}", f"{overlay}/{FOLDER}/lib*.so*"] if overlay else []
    return [*own, *newer, *compiled]


def library_problems(cluster: Cluster, facts: dict, again: str) -> list[str]:
    """Sentences on the libraries of a node; none if its GPUs can compute with them.

    Parameters
    ----------
    facts : as `repro.launch.agent.node.facts` gives them.
    again : the command that provisions the node.
    """
    sentences = []
    newer = list(dict.fromkeys(gpu["name"] for gpu in facts["gpus"] if after_turing(gpu)))
    if cluster.gpu and newer and cluster.stack != MODERN:
        sentences.append(
            f"cuDNN 7.6.5 of stack {cluster.stack} computes wrong convolutions on {', '.join(newer)}, which is newer "
            f"than Turing, and says nothing: set cluster_stack to {MODERN} in {cluster.variables}, then {again}"
        )
    if cluster.stack == MODERN:
        for name, folder in zip(("cuBLAS", "cuDNN"), NEWER, strict=True):
            if folder not in facts["libraries"]:
                sentences.append(
                    f"there is no {name} in {cluster.work}/{folder}, which these GPUs need; {again} brings it"
                )
    if cluster.compiled_for:
        sentences += _overlay_problems(cluster, facts, again)
    if needs_forwarders(cluster) and not facts["compiler"]:
        sentences.append(
            "there is no gcc, which compiles the libraries that forward OneFlow's calls to the newer cuBLAS and cuDNN; "
            f"{again} brings it"
        )
    return sentences


def _overlay_problems(cluster: Cluster, facts: dict, again: str) -> list[str]:
    sentences, folder = [], overlay_folder(cluster)
    capabilities = {str(gpu.get("compute_cap", "")).replace(".", "") for gpu in facts["gpus"]}
    if other := sorted(capabilities - {str(cluster.compiled_for), ""}):
        sentences.append(
            f"the GPUs are of architecture {', '.join(other)}, and cluster_compiled_for in {cluster.variables} is "
            f"{cluster.compiled_for}: correct it, or remove the line"
        )
    if f"{folder}/{DESCRIPTION}" not in facts["files"]:
        sentences.append(
            f"there is no GPU code compiled for {cluster.compiled_for} in {folder}; {again} brings it, after "
            f"`make compile-kernels ARCH={cluster.compiled_for}` here"
        )
    return sentences
