"""What a node is asked before ranks start there, and the reasons for which it cannot take part."""

from __future__ import annotations

from repro.cluster.cluster import Cluster, Node
from repro.launch.nodes.commands import NodeFacts
from repro.launch.nodes.libraries import library_patterns, library_problems

MIN_FREE_MIB = 500
MAX_SKEW_S = 2.0
MANIFEST = (
    " (an engine that keeps images in containerd, as Docker 29 does, has the digest of the manifest as their ID: name "
    "that as cluster_image.manifest; `make image` and a bundle's images.json give both)"
)


def check_order(cluster: Cluster, port: int) -> dict:
    """The order of an agent that checks its node."""
    names = [*cluster.image.ids, cluster.image.name]
    return {
        "do": "check",
        "work": cluster.work,
        "interface": cluster.interface,
        "port": port,
        "images": names if cluster.runtime.engine else [],
        "image_file": [cluster.image.file, cluster.runtime.tool] if cluster.runtime.from_file else ["", ""],
        "files": library_patterns(cluster),
    }


def problems(cluster: Cluster, node: Node, facts: dict, skew: float, port: int) -> list[str]:
    """Sentences; none if the node can take part.

    Parameters
    ----------
    facts : as `repro.launch.agent.node.facts` gives them.
    skew : how many seconds the node's clock is ahead of the controller's.
    """
    again = f"`make provision CLUSTER={cluster.setting}`"
    sentences = []
    if facts["read_only"]:
        sentences.append(f"{cluster.work} is on a file system that is mounted read-only there; mount it for writing")
    elif not facts["writable"]:
        sentences.append(f"{cluster.work} cannot be written by {node.user}; {again} sets it up")
    if facts["free_mib"] < MIN_FREE_MIB:
        sentences.append(f"only {facts['free_mib']} MiB are free below {cluster.work}; {MIN_FREE_MIB} are needed")
    if abs(skew) > MAX_SKEW_S:
        way = "ahead of" if skew > 0 else "behind"
        sentences.append(f"its clock is {abs(skew):.1f} s {way} the controller's; {again} starts a time service")
    if not facts["address"]:
        sentences.append(
            f"it has no IPv4 address on interface {cluster.interface}; correct cluster_interface in {cluster.variables}"
        )
    if not facts["port_free"]:
        sentences.append(f"port {port} is taken by another program; PORT=<number> takes another")
    if cluster.hca and not facts["infiniband"]:
        sentences.append(
            "it has no /dev/infiniband, but cluster_hca asks for InfiniBand: load its driver, or set "
            f'cluster_hca to "" in {cluster.variables}'
        )
    sentences += library_problems(cluster, facts, again)
    if cluster.runtime.engine:
        sentences += _image_problems(cluster, facts["images"], again)
    elif cluster.runtime.from_file:
        sentences += _file_problems(cluster, facts["image_file"])
    elif not facts["launcher"]:
        sentences.append(f"there is no OneFlow in {cluster.work}/venv; {again} brings it")
    return [f"{node.name}: {sentence}" for sentence in sentences]


def _image_problems(cluster: Cluster, images: dict, again: str) -> list[str]:
    if "error" in images:
        return [f"its Docker engine does not answer {cluster.image.name}: {images['error']}"]
    expected, named = " or ".join(cluster.image.ids), images["found"].get(cluster.image.name)
    if any(images["found"].get(image_id) for image_id in cluster.image.ids):
        return []
    if expected and named:
        other = "" if cluster.image.manifest else MANIFEST
        return [
            f"{cluster.image.name} is {named} there, and the inventory asks for {expected}; {again} delivers that, "
            f"or correct cluster_image{other}"
        ]
    if not named:
        return [f"it has no image {expected or cluster.image.name}; {again} delivers it"]
    return []


def _file_problems(cluster: Cluster, file: dict) -> list[str]:
    wanted = cluster.image
    if "error" in file:
        return [f"{wanted.file}, cluster_image.file in {cluster.variables}: {file['error']}"]
    if file["sha256"] != wanted.sha256:
        return [
            f"{wanted.file} has the SHA-256 {file['sha256']}, and the inventory asks for {wanted.sha256}; copy the right "
            "file there, or correct cluster_image.sha256"
        ]
    return []


def host_of(node: Node, facts: dict) -> NodeFacts:
    """What the command for a node needs of its facts."""
    image = next((name for name, image_id in facts["images"].get("found", {}).items() if image_id), "")
    cpus, numa = tuple(facts["cpus"]), tuple(facts["numa"])
    return NodeFacts(facts["address"], facts["user"], launcher=facts["launcher"], cpus=cpus, numa=numa, image=image)
