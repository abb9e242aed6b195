"""What rank 0 gets on its node for a trace of its kernels: the tracer, compiled there, a CUPTI, and a file to write to."""

from __future__ import annotations

from dataclasses import dataclass

from repro.cluster.cluster import Cluster
from repro.images.runtime import Bind
from repro.images.stack import TRACER, compile_command, library_name
from repro.launch.agent.ranks import TRACE_NAME
from repro.launch.nodes.libraries import COMPAT_FOLDER

CUPTI_INSIDE = "/opt/cupti/libcupti.so"
"""Where a container finds the CUPTI of its node."""


@dataclass(frozen=True)
class Tracing:
    """A trace of rank 0's kernels; `cupti` is a file or folder that its node has, "" for the CUPTI that is found there."""

    cupti: str = ""

    def environment(self, cluster: Cluster, folder: str) -> dict[str, str]:
        """The variables for ranks whose attempt has this folder on the node."""
        return {
            "CUDA_INJECTION64_PATH": _tracer(cluster),
            "KERNEL_TRACE_CUPTI": CUPTI_INSIDE if cluster.runtime.in_image else _link(folder),
            "KERNEL_TRACE_FILE": f"{folder}/{TRACE_NAME}",
        }

    def binds(self, cluster: Cluster, folder: str) -> tuple[Bind, ...]:
        """What a container sees besides."""
        return Bind(_tracer(cluster), _tracer(cluster)), Bind(_link(folder), CUPTI_INSIDE)

    def libraries(self, cluster: Cluster, code: str) -> dict[str, list[str]]:
        """How the node makes the tracer, as `repro.launch.nodes.libraries.forwarder_orders` has it."""
        return {_tracer(cluster): compile_command(f"{code}/{COMPAT_FOLDER}/{TRACER}.c", f"{_tracer(cluster)}.partial")}

    def cupti_order(self, folder: str) -> dict[str, str]:
        """What `repro.launch.agent.tracing.link_cupti` does on the node."""
        return {"given": self.cupti, "link": _link(folder)}


def _tracer(cluster: Cluster) -> str:
    return f"{cluster.work}/compat/{library_name(TRACER)}"


def _link(folder: str) -> str:
    return f"{folder}/libcupti.so"
