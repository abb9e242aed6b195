"""Whether the GPUs of each node compute as the CPU does: once per node, GPU, driver and set of libraries."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait

from repro.cluster.cluster import Cluster
from repro.images.stack import tf32_refusal
from repro.launch.attempt import interruptible
from repro.launch.check_programs import ProgramOf
from repro.launch.kernels import KernelError, Kernels, compared, program_digests
from repro.launch.nodes.libraries import FIX, forwarder_paths
from repro.runs.unit import TF32
from repro.utils.paths import CACHE

WAKE_S = 0.2


def identity_of(cluster: Cluster, node: str, facts: dict) -> dict:
    """Everything that decides which kernels run on a node, as `repro.launch.agent.node.facts` gives it."""
    images = facts["images"].get("found", {})
    return {
        "cluster": cluster.name,
        "node": node,
        "gpus": sorted((gpu["name"], gpu["uuid"]) for gpu in facts["gpus"]),
        "driver": facts["gpus"][0]["driver_version"],
        "stack": cluster.stack,
        "image": facts["image_file"].get("sha256")
        or next((image_id for name in _names(cluster) if (image_id := images.get(name))), None),
        "forwarders": sorted(forwarder_paths(cluster).values()),
        "files": facts["files"],
        "programs": program_digests(),
    }


def _names(cluster: Cluster) -> tuple[str, ...]:
    return (*cluster.image.ids, cluster.image.name) if cluster.runtime.engine else ()


def compared_on_nodes(
    cluster: Cluster,
    facts: Mapping[str, dict],
    precisions: Mapping[str, tuple[str, ...]],
    attempts_on: Callable[[str], ProgramOf],
    say: Callable[[str], None] = print,
) -> Kernels:
    """The comparisons of these nodes as one, each made only if none is kept; all nodes at the same time.

    Parameters
    ----------
    facts : those of each node, by its name.
    precisions : those in which the operators of each model are compared, by the model.
    attempts_on : makes attempts of the program on a node.

    Raises
    ------
    KernelError
        A node has no GPU, or none that computes in a precision, or nothing can be compared on it; the message has a line
        for each such node.
    """
    missing = [node for node, node_facts in facts.items() if not node_facts["gpus"]]
    if missing:
        raise KernelError(
            f"{', '.join(missing)}: nvidia-smi shows no GPU, and ranks need one: load or reinstall the driver "
            f"(`make provision CLUSTER={cluster.setting}` does it)"
        )
    if any(TF32 in model_precisions for model_precisions in precisions.values()):
        refused = [
            f"{node}: {text}"
            for node, node_facts in facts.items()
            if (text := tf32_refusal(node_facts["gpus"], cluster.stack))
        ]
        if refused:
            raise KernelError("\n".join(refused))
    stop = threading.Event()

    def one(node: str) -> Kernels:
        subject = f"what {facts[node]['gpus'][0]['name']} of {node} computes"
        identity = identity_of(cluster, node, facts[node])
        return compared(identity, precisions, attempts_on(node), subject, CACHE / "kernels", say, stop=stop)

    with interruptible(stop) as interrupts, ThreadPoolExecutor(len(facts)) as pool:
        futures = {node: pool.submit(one, node) for node in facts}
        try:
            while wait(futures.values(), WAKE_S).not_done:
                interrupts.check()
        except BaseException:
            stop.set()
            raise
    failed = [f"{node}: {error}" for node, future in futures.items() if (error := future.exception())]
    for future in futures.values():
        if (error := future.exception()) and not isinstance(error, KernelError | OSError):
            raise error
    if failed:
        raise KernelError("\n".join(failed))
    return Kernels.together({node: future.result() for node, future in futures.items()}, FIX)
