"""Brings the data sets that models learn from this machine to nodes, into the folder that containers see too."""

from __future__ import annotations

import json
import posixpath

from repro.cluster.cluster import Cluster
from repro.cluster.ssh import Remote, RemoteError
from repro.launch.nodes.collector import safe
from repro.launch.nodes.commands import standins
from repro.planning.datasets import FACTS, Dataset

ABSENT = 75
TAKE = f"""
set -e
folder=$1 source=$2 sums=$3
shift 3
[ ! -e "$folder/{FACTS}" ] || exit 0
[ -d "$source" ] || exit {ABSENT}
mkdir -p -- "$folder"
own=$(mktemp -d -- "$folder/XXXXXX")
trap 'rm -rf -- "$own"' EXIT
cp -- "$source"/* "$own"
cd -- "$own"
printf %s "$sums" | sha256sum --check --quiet >&2
for name; do
    mv -- "$name" "$folder"
done
"""
"""Nodes may share the folder: each checks a copy of its own before it moves that there, the facts last."""


def folder_on_nodes(cluster: Cluster, dataset: Dataset) -> str:
    """Where a data set is on the nodes of a cluster; another one, by its contents, is elsewhere."""
    return f"{standins(cluster)}/datasets/{dataset.folder.name}-{dataset.digest[:12]}"


def take_argv(cluster: Cluster, dataset: Dataset, source: str) -> list[str]:
    """The command with which a node takes a data set from one of its folders; ABSENT is its status if that is not there.

    A node that has the data set already looks at nothing else.
    """
    sums = "".join(f"{digest}  {name}\n" for name, digest in dataset.facts["sha256"].items())
    return ["sh", "-c", TAKE, "-", folder_on_nodes(cluster, dataset), source, sums, *dataset.facts["sha256"], FACTS]


def bring(remote: Remote, dataset: Dataset) -> None:
    """Copy a data set to a node unless it is there; RemoteError if that fails, or if it arrives altered."""
    folder = folder_on_nodes(remote.cluster, dataset)
    facts = posixpath.join(folder, FACTS)
    if not remote.run(["test", "-f", facts], check=False).status:
        return
    remote.run(["mkdir", "-p", folder])
    sums, own = dataset.facts["sha256"], f"{folder}/{safe(remote.node.name)}-"  # other nodes may share the folder
    for name in sums:
        remote.put(dataset.folder / name, own + name)
    lines = remote.run(["sha256sum", "--", *(own + name for name in sums)]).stdout.splitlines()
    altered = [name for (name, expected), line in zip(sums.items(), lines, strict=True) if line.split()[0] != expected]
    if altered:
        raise RemoteError(remote.node.name, f"{', '.join(altered)} arrived altered in {folder}")
    remote.run(["sh", "-c", 'cat > "$1"', "-", own + FACTS], stdin=json.dumps(dataset.facts))
    for name in (*sums, FACTS):
        remote.run(["mv", "--", own + name, posixpath.join(folder, name)])
