"""Asks nodes for the PyTorch that baselines run in there: whether it starts, its versions, and the GPUs that it sees."""

from __future__ import annotations

import json

from repro.cluster.cluster import Cluster
from repro.cluster.ssh import Remote, RemoteError
from repro.launch.nodes.commands import gpus_option
from repro.planning.baselines import PATIENCE_S, PROBE


def probe_argv(cluster: Cluster) -> list[str]:
    """The command with which a node's PyTorch tells of itself."""
    program = [cluster.baseline.python, "-c", PROBE]
    if not cluster.containers:
        return program
    gpus = ["--gpus", gpus_option(cluster.gpus_per_node)] if cluster.gpu else []
    return ["docker", "run", "--rm", "--pull", "never", "--network", "none", *gpus, cluster.baseline.image, *program]


def versions_on(remote: Remote) -> dict:
    """What a node's PyTorch says of itself; RemoteError if it does not start, or sees too few GPUs."""
    cluster = remote.cluster
    done = remote.run(probe_argv(cluster), timeout=PATIENCE_S, check=False)
    if done.status:
        message = (done.stderr.strip().splitlines() or [f"status {done.status}"])[-1]
        raise RemoteError(remote.node.name, f"the baselines cannot run: {message}. {_fix(cluster)}")
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if cluster.gpu and found["gpus"] < cluster.gpus_per_node:
        seen = f"PyTorch {found['torch']} sees {found['gpus']} of the {cluster.gpus_per_node} GPUs"
        raise RemoteError(remote.node.name, f"{seen}; its CUDA has to suit the driver. {_fix(cluster)}")
    return found


def _fix(cluster: Cluster) -> str:
    where = f" in image {cluster.baseline.image}" if cluster.baseline.image else ""
    return f"cluster_baseline in {cluster.variables} names {cluster.baseline.python}{where}: it needs torch and numpy"
