"""Asks nodes for the PyTorch that baselines run in there: whether it starts, its versions, and the GPUs that it sees."""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping

from repro.cluster.cluster import Cluster
from repro.cluster.ssh import CommandResult, Remote, RemoteError
from repro.images.runtime import Container, baseline_home
from repro.launch.agent.leftovers import RUN, USER, WORK
from repro.planning.baselines import PATIENCE_S, PROBE

REMOVE_S = 30
WHAT = "the versions of PyTorch"


def probe_argv(cluster: Cluster, user: str, owner: str = "probe") -> list[str]:
    """The command that prints the versions of a node's PyTorch, in a container if the node's ranks run in one.

    `user` is "uid:gid" there. The container's name has a part of its own besides `owner`. Like ranks, it heeds no
    variable that a node's modules set for other Pythons.
    """
    container = Container(
        image=cluster.baseline.image,
        folder="/tmp",
        binds=(),
        environment=baseline_home(cluster.runtime),
        user=user,
        gpus=",".join(map(str, range(cluster.gpus_per_node))) if cluster.gpu else "",
        name=f"reproduction-{secrets.token_hex(5)}-{owner}",
        labels=((RUN, WHAT), (USER, user.partition(":")[0]), (WORK, cluster.work)),
    )
    return [*cluster.runtime.command(container), cluster.baseline.python, "-E", "-c", PROBE]


def versions_on(remote: Remote, user: str) -> dict:
    """What a node's PyTorch says of itself; RemoteError as `versions_in`. `user` is "uid:gid" of the account there."""
    cluster, argv = remote.cluster, probe_argv(remote.cluster, user)
    try:
        done = remote.run(argv, timeout=PATIENCE_S, check=False)
    except RemoteError:
        if cluster.runtime.engine:
            name = argv[argv.index("--name") + 1]
            with contextlib.suppress(RemoteError):
                remote.run(["docker", "rm", "--force", "--volumes", name], check=False, timeout=REMOVE_S)
        raise
    return versions_in(cluster, remote.node.name, done)


def versions_in(cluster: Cluster, node: str, done: CommandResult) -> dict:
    """What a node's PyTorch has said of itself; RemoteError if it did not start, or sees too few GPUs."""
    if done.status:
        message = (done.stderr.strip().splitlines() or [f"status {done.status}"])[-1]
        raise RemoteError(node, f"the baselines cannot run: {message}. {_fix(cluster)}")
    versions = json.loads(done.stdout.strip().splitlines()[-1])
    if cluster.gpu and versions["gpus"] < cluster.gpus_per_node:
        seen = f"PyTorch {versions['torch']} sees {versions['gpus']} of the {cluster.gpus_per_node} GPUs"
        raise RemoteError(node, f"{seen}; its CUDA has to suit the driver. {_fix(cluster)}")
    return versions


def unequal(versions_by_node: Mapping[str, dict]) -> str:
    """What nodes say whose versions differ, "" if all are equal; `found` by the names of the nodes."""
    versions = {json.dumps(node_versions, sort_keys=True): name for name, node_versions in versions_by_node.items()}
    return "; ".join(f"{name}: {text}" for text, name in versions.items()) if len(versions) > 1 else ""


def _fix(cluster: Cluster) -> str:
    if cluster.baseline.lock:
        return f"`make provision CLUSTER={cluster.setting}` sets up what cluster_baseline in {cluster.variables} names"
    where = f" in image {cluster.baseline.image}" if cluster.baseline.image else ""
    return f"cluster_baseline in {cluster.variables} names {cluster.baseline.python}{where}: it needs torch and numpy"
