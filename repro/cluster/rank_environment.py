"""What an inventory may add to the environment of ranks, and what runs before them on a node."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

OWN = re.compile(r"(LD_|PYTHON|GLOG_|APPTAINER|SINGULARITY|REPRODUCTION_|SLURM_|CUDA_VISIBLE_DEVICES$|PATH$|HOME$)")
OF_THE_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NCCL = tuple(
    f"NCCL_{name}"
    for name in [
        "ALGO",
        "ALLOC_P2P_NET_LL_BUFFERS",
        "BUFFSIZE",
        "CHECKS_DISABLE",
        "CHECK_POINTERS",
        "COLLNET_ENABLE",
        "COLLNET_NODE_THRESHOLD",
        "COMM_BLOCKING",
        "COMM_ID",
        "CONF_FILE",
        "CROSS_NIC",
        "CTA_POLICY",
        "CUMEM_ENABLE",
        "CUMEM_HOST_ENABLE",
        "DEBUG",
        "DEBUG_FILE",
        "DEBUG_SUBSYS",
        "DMABUF_ENABLE",
        "DUMP_COMM",
        "GDRCOPY_ENABLE",
        "GDRCOPY_FLUSH_ENABLE",
        "GRAPH_DUMP_FILE",
        "GRAPH_FILE",
        "GRAPH_MIXING_SUPPORT",
        "GRAPH_REGISTER",
        "HOSTID",
        "IB_ADAPTIVE_ROUTING",
        "IB_ADDR_FAMILY",
        "IB_ADDR_RANGE",
        "IB_AR_THRESHOLD",
        "IB_CUDA_SUPPORT",
        "IB_DISABLE",
        "IB_ECE_ENABLE",
        "IB_FIFO_TC",
        "IB_GID_INDEX",
        "IB_HCA",
        "IB_MERGE_NICS",
        "IB_MERGE_VFS",
        "IB_PCI_RELAXED_ORDERING",
        "IB_PKEY",
        "IB_QPS_PER_CONNECTION",
        "IB_RETRY_CNT",
        "IB_RETURN_ASYNC_EVENTS",
        "IB_ROCE_VERSION_NUM",
        "IB_SL",
        "IB_SPLIT_DATA_ON_QPS",
        "IB_TC",
        "IB_TIMEOUT",
        "IB_USE_INLINE",
        "IGNORE_CPU_AFFINITY",
        "IGNORE_DISABLED_P2P",
        "LAUNCH_MODE",
        "LAUNCH_ORDER_IMPLICIT",
        "LL128_BUFFSIZE",
        "LL128_NTHREADS",
        "LL_BUFFSIZE",
        "LL_THRESHOLD",
        "LOCAL_REGISTER",
        "MAX_CTAS",
        "MAX_NCHANNELS",
        "MAX_NRINGS",
        "MAX_P2P_NCHANNELS",
        "MIN_CTAS",
        "MIN_NCHANNELS",
        "MIN_NRINGS",
        "MIN_P2P_NCHANNELS",
        "MNNVL_ENABLE",
        "NCHANNELS_PER_NET_PEER",
        "NET",
        "NETDEVS_POLICY",
        "NET_FORCE_FLUSH",
        "NET_GDR_LEVEL",
        "NET_GDR_READ",
        "NET_MERGE_LEVEL",
        "NET_PLUGIN",
        "NET_SHARED_BUFFERS",
        "NET_SHARED_COMMS",
        "NSOCKS_PERTHREAD",
        "NTHREADS",
        "NVB_DISABLE",
        "NVLSTREE_MAX_CHUNKSIZE",
        "NVLS_CHUNKSIZE",
        "NVLS_ENABLE",
        "OOB_NET_ENABLE",
        "OOB_NET_IFNAME",
        "P2P_DIRECT_DISABLE",
        "P2P_DISABLE",
        "P2P_LEVEL",
        "P2P_NET_CHUNKSIZE",
        "P2P_NVL_CHUNKSIZE",
        "P2P_PCI_CHUNKSIZE",
        "P2P_PXN_LEVEL",
        "P2P_READ_ENABLE",
        "P2P_USE_CUDA_MEMCPY",
        "PROFILER_PLUGIN",
        "PROTO",
        "PXN_DISABLE",
        "RAS_ADDR",
        "RINGS",
        "RAS_ENABLE",
        "RAS_TIMEOUT_FACTOR",
        "SET_STACK_SIZE",
        "SET_THREAD_NAME",
        "SHM_DISABLE",
        "SHM_LOCALITY",
        "SHM_USE_CUDA_MEMCPY",
        "SINGLE_RING_THRESHOLD",
        "SOCKET_FAMILY",
        "SOCKET_IFNAME",
        "SOCKET_NTHREADS",
        "SOCKET_RETRY_CNT",
        "SOCKET_RETRY_SLEEP_MSEC",
        "SYM_GIN_KERNELS_ENABLE",
        "THREAD_THRESHOLDS",
        "TOPO_DUMP_FILE",
        "TOPO_FILE",
        "TREE_THRESHOLD",
        "TUNER_PLUGIN",
        "WIN_ENABLE",
        "WIN_STRIDE",
        "WORK_ARGS_BYTES",
        "WORK_FIFO_BYTES",
        "WORK_FIFO_DEPTH",
    ]
)
"""Variables that NCCL reads, from 2.4 on; a name that NCCL does not know has no effect and no message."""


def wrong_name(name: str) -> str:
    """Why ranks cannot be given a variable of this name; "" if they can."""
    if not NAME.fullmatch(name):
        return "it is no name of a variable"
    if OWN.match(name) or name in OF_THE_LAUNCHER:
        return "a run sets this itself"
    if name.startswith("NCCL_") and name not in NCCL:
        near = difflib.get_close_matches(name, NCCL, 1)
        return "NCCL has no such variable" + (f"; did you mean {near[0]}?" if near else "")
    return ""


def wrong_environment(values: Mapping[str, object]) -> str:
    """What is wrong with an inventory's environment of ranks; "" if nothing."""
    for name, value in values.items():
        if why := wrong_name(str(name)):
            return f"{name}: {why}"
        if isinstance(value, bool) or not isinstance(value, str | int) or "\n" in str(value):
            return f"{name} is {value!r}; it is text or a number, in quotes where YAML would read something else"
    return ""


def after_prologue(lines: Sequence[str], argv: Sequence[str]) -> list[str]:
    """A command that runs after these lines of a login shell, such as `module load`; one that fails ends it.

    What the lines print goes to the standard error.
    """
    if not lines:
        return list(argv)
    script = "\n".join(["set -e", "{", *lines, "} >&2", 'exec "$0" "$@"'])
    return ["bash", "-lc", script, *argv]
