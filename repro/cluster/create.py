"""Writes a new inventory, and detects on the first node what most of its variables should be."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro.cluster.cluster import PLAIN, VARIABLES, Cluster, Node, is_port, load_cluster
from repro.cluster.cluster import Image as TrainerImage
from repro.cluster.fingerprint import GATHER_S, SCRIPT, TOOL_S
from repro.cluster.host_keys import HostKey
from repro.cluster.infiniband import Port, ports_from_files
from repro.cluster.inventory import ClusterError, VariableError, folder_of
from repro.cluster.node_fields import images_of
from repro.cluster.nvidia_smi import parse_report
from repro.cluster.ssh import Remote, RemoteError
from repro.images.stack import IMAGE_NAME, UP_TO_TURING, tag_of
from repro.runs.record import check_creatable
from repro.utils.errors import FormatError
from repro.utils.paths import in_home

NETWORK_FILES = "/sys/class/net/"
MEANINGS = {
    "gpu": 'as nvidia-smi prints it; "" for nodes without GPUs, which do smoke runs only',
    "gpus_per_node": "ranks per node",
    "interface": "the network interface of NCCL's and OneFlow's bootstrap and sockets",
    "hca": 'InfiniBand or RoCE adapters, joined by commas; "" for none',
    "gid_index": "RoCE only",
    "network_gbits": "rate of one port",
    "image": 'digest is the image\'s ID; it comes from a registry or an archive here; "" twice: already on the nodes',
    "data": 'the data set\'s folder on each node; "" for synthetic data',
    "work": "folder that provisioning owns on a node",
    "port": "rendezvous port of the ranks",
    "accepted_differences": "fields of `make fingerprint` in which nodes may differ, such as gpu.vbios",
}
OPTIONS = {
    "cluster_gpu": "GPU",
    "cluster_gpus_per_node": "GPUS",
    "cluster_interface": "INTERFACE",
    "cluster_hca": "HCA",
    "cluster_network_gbits": "GBITS",
    "cluster_stack": "STACK",
    "cluster_image": "IMAGE",
    "cluster_image.registry": "IMAGE",
    "cluster_image.archive": "IMAGE",
    "cluster_image.digest": "DIGEST",
    "cluster_data": "DATA",
    "ansible_ssh_private_key_file": "KEY",
}
"""The option that gives each variable its value."""
GROUPS = ("all", "ungrouped", "nodes", "jump", "login")
"""The groups of Ansible and of our inventories, which nothing else may be named as."""


@dataclass(frozen=True)
class Found:
    """What was detected on the first node: "" and 0 where there is nothing of the kind."""

    gpu: str = ""
    gpus: int = 0
    interface: str = ""
    hca: str = ""
    network_gbits: float = 0
    stack: str = "cu102"
    image_ids: dict[str, str] = field(default_factory=dict)


def target_folder(name: str) -> Path:
    """Where the inventory goes: a name under ansible/inventories, or a path.

    ClusterError if it exists, or is named as a group is; RecordError if it cannot be made.
    """
    if not re.fullmatch(r"[\w./~-]*[A-Za-z0-9]", name) or name.startswith("-"):
        raise ClusterError(f"NAME={name}: it is letters, digits, dots and dashes, or the path of a folder to make")
    folder = folder_of(name)
    if folder.name in GROUPS:
        raise ClusterError(f"NAME={name}: {folder.name} is a group of hosts in an inventory; choose another name")
    check_creatable(folder, "NAME")
    if folder.exists():
        raise ClusterError(f"NAME={name}: {folder} exists already; choose another name, or move that folder away")
    return folder


def nodes_of(hosts: str, user: str, option: str = "HOSTS") -> tuple[Node, ...]:
    """Nodes from `address`, `address:port` or `name=address:port`, separated by blanks or commas; rank 0 first.

    ClusterError names the option that they are the value of, or LOGIN for the user.
    """
    if not re.fullmatch(PLAIN, user):
        raise ClusterError(f"LOGIN={user}: write the plain name of a user")
    nodes = []
    for number, host in enumerate(hosts.replace(",", " ").split(), 1):
        match = re.fullmatch(r"(?:(\w[\w.-]*)=)?(\[[0-9A-Fa-f:.]+\]|\w[\w.-]*)(?::(\d+))?", host)
        if not match:
            raise ClusterError(f"{option}: {host!r} is no address, address:port or name=address:port ([…] around IPv6)")
        if match[3] and not is_port(match[3]):
            raise ClusterError(f"{option}: the port of {host!r} is no number from 1 to 65535")
        address = match[2].strip("[]")
        nodes.append(
            Node(
                match[1] or (f"node{number}" if _is_address(address) else address),
                address,
                port=int(match[3] or 22),
                user=user,
                gpus=1,
            )
        )
    names, places = {node.name for node in nodes}, {(node.address, node.port) for node in nodes}
    if not nodes or min(len(names), len(places)) < len(nodes):
        raise ClusterError(f"{option}={hosts}: name at least one node, and each once")
    for node in nodes:
        if node.name in GROUPS:
            raise ClusterError(f"{option}: {node.name} is a group of hosts in an inventory; name that host otherwise")
    return tuple(nodes)


def jump_hosts_of(hosts: str, user: str) -> tuple[Node, ...]:
    """Jump hosts from `address`, `address:port` or `user@address:port`, separated by blanks or commas."""
    hops: list[Node] = []
    for word in hosts.replace(",", " ").split():
        account, _, host = word.rpartition("@")
        if account and not re.fullmatch(r"\w[\w.-]*", account):
            raise ClusterError(f"JUMP: {word!r} is no address, address:port or user@address:port")
        (node,) = nodes_of(host, account or user, "JUMP")
        hops.append(replace(node, name=f"jump{len(hops) + 1}"))
    return tuple(hops)


def key_of(path: str) -> Path | None:
    """The private SSH key of this path, None without one; ClusterError if it cannot be read."""
    file = in_home(path)
    if path and not (os.path.isfile(file) and os.access(file, os.R_OK)):
        raise ClusterError(
            f"KEY={path}: no file there that can be read; name your private SSH key, such as ~/.ssh/id_ed25519, or leave "
            "it empty"
        )
    return file.resolve() if path else None


def unwritten(
    nodes: tuple[Node, ...], jump: tuple[Node, ...], key: Path | None, keys: list[HostKey], scratch: Path
) -> Cluster:
    """What is known of a cluster before it has an inventory, enough to connect; its known_hosts goes to `scratch`."""
    known_hosts = scratch / "known_hosts"
    known_hosts.write_text("".join(f"{host_key.line}\n" for host_key in keys))
    image = TrainerImage("")
    return Cluster(
        scratch.name,
        scratch,
        nodes=nodes,
        gpu="",
        gpus_per_node=1,
        interface="",
        network_gbits=0.0,
        stack="",
        image=image,
        known_hosts=known_hosts,
        private_key=key,
        jump=jump,
    )


def detect(cluster: Cluster) -> Found:
    """GPUs, network and images of the first node, by one exchange over SSH; ClusterError if it cannot be probed."""
    nodes = cluster.nodes
    argv = [*cluster.interpreter, "-", str(TOOL_S), "*", "*", "libc6"]
    try:
        with Remote(cluster, nodes[0]) as remote:
            facts = json.loads(remote.run(argv, stdin=SCRIPT.read_text(encoding="utf-8"), timeout=GATHER_S).stdout)
    except (RemoteError, ValueError) as error:
        raise ClusterError(f"the first node cannot be probed: {error}") from error
    return found_in(facts, nodes[0].address)


def found_in(facts: dict, address: str) -> Found:
    """Values for a node at this address, from the output of node_probe.py for every interface and adapter."""
    files = facts["files"]
    try:
        gpus = parse_report(facts["commands"]["nvidia-smi -q"]["output"]).gpus
    except FormatError:
        gpus = ()
    gpu = gpus[0].field("model") if gpus else ""
    active = [port for port in ports_from_files(files) if port.state == "Active"]
    interface = _interface(files, address, active)
    speed = files.get(f"{NETWORK_FILES}{interface}/speed", "")
    rate = max((port.rate_gbits for port in active), default=int(speed) / 1000 if speed.isdigit() else 0)
    prefix = f"{IMAGE_NAME}:"
    images = {name.removeprefix(prefix): digest for name, digest in images_of(facts).items() if name.startswith(prefix)}
    modern = gpu and not UP_TO_TURING.search(gpu)
    return Found(
        gpu,
        len(gpus),
        interface=interface,
        hca=",".join(dict.fromkeys(port.device for port in active)),
        network_gbits=rate,
        stack="cu102-modern" if modern else "cu102",
        image_ids=images,
    )


def _interface(files: dict[str, str], address: str, active: list[Port]) -> str:
    """An interface over InfiniBand that is up, else the one that leads to the node's own network, else the default."""
    up = {path.split("/")[4] for path, value in files.items() if path.endswith("/operstate") and value == "up"}
    over_infiniband = sorted(name for name in up if name.startswith("ib"))
    if over_infiniband and any(port.layer == "InfiniBand" for port in active):
        return over_infiniband[0]
    own, best = _ipv4(address), (-1, "")
    for line in files.get("/proc/net/route", "").splitlines()[1:]:
        name, destination, _, _, _, _, _, mask = line.split()[:8]
        network, bits = (int.from_bytes(bytes.fromhex(digits)[::-1], "big") for digits in (destination, mask))
        if own & bits == network and not name.startswith(("docker", "br-", "veth")):
            best = max(best, (bits, name))
    return best[1]


def _ipv4(address: str) -> int:
    """An address as a number, 0 if there is no IPv4 address of that name."""
    try:
        return int(ipaddress.IPv4Address(socket.gethostbyname(address)))
    except (OSError, ValueError):
        return 0


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def image_of(stack: str, source: str, digest: str) -> TrainerImage:
    """The image of a stack from an archive (a path), a registry (anything else), or already on the nodes ("")."""
    archive = source if source.startswith(("/", "~")) or source.endswith(".tar") else ""
    return TrainerImage(tag_of(stack), digest, "" if archive else source, archive)


def write_inventory(
    folder: Path,
    nodes: Iterable[Node],
    keys: list[HostKey],
    values: dict,
    key: Path | None,
    jump: tuple[Node, ...] = (),
) -> Cluster:
    """Write an inventory, read it back, and only then put it into its place; ClusterError if a value is wrong.

    `values` are the variables of group_vars/all.yml without `cluster_`.
    """
    draft = folder.with_name(f".{folder.name}.{os.getpid()}")
    (draft / VARIABLES).parent.mkdir(parents=True)
    try:
        (draft / "hosts.yml").write_text(_hosts_text(nodes, key, jump), encoding="utf-8")
        (draft / VARIABLES).write_text(_variables_text(values), encoding="utf-8")
        (draft / "known_hosts").write_text("".join(f"{host_key.line}\n" for host_key in keys), encoding="utf-8")
        cluster = load_cluster(draft)
        draft.rename(folder)
    except VariableError as error:
        raise ClusterError(f"{OPTIONS[error.name]}={error.value}: {error.should}") from error
    except ClusterError as error:
        raise ClusterError(str(error).replace(str(draft), str(folder))) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return replace(cluster, name=folder.name, folder=folder, known_hosts=folder / "known_hosts")


def _hosts_text(nodes: Iterable[Node], key: Path | None, jump: tuple[Node, ...]) -> str:
    lines = ["# Rank 0 is on the first node.", "nodes:", "  hosts:"]
    for node in nodes:
        port = f", ansible_port: {node.port}" if node.port != 22 else ""
        lines.append(f"    {node.name}: {{ansible_host: {json.dumps(node.address)}{port}}}")
        user = node.user
    lines += ["  vars:", f"    ansible_user: {json.dumps(user)}"]
    if key:
        lines.append(f"    ansible_ssh_private_key_file: {json.dumps(str(key))}")
    if jump:
        lines += ["# The hosts on the way to all nodes, the one next to this machine first.", "jump:", "  hosts:"]
    for host in jump:
        account = f"ansible_user: {json.dumps(host.user)}"
        lines.append(
            f"    {host.name}: {{ansible_host: {json.dumps(host.address)}, ansible_port: {host.port}, {account}}}"
        )
    return "\n".join(lines) + "\n"


def _variables_text(values: dict) -> str:
    lines = []
    for name, value in values.items():
        lines += [f"# {MEANINGS[name]}"] if name in MEANINGS else []
        lines.append(f"cluster_{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"
