"""A cluster as its inventory describes it, read through `ansible-inventory` and checked value by value."""

from __future__ import annotations

import getpass
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from repro.cluster.inventory import INVENTORIES, ClusterError, Variables, ask_ansible, inventory_folder
from repro.images.stack import IMAGE_STACKS

VARIABLES = Path("group_vars") / "all.yml"
LAUNCHERS = ("ssh", "slurm")
ALLOCATIONS = ("attempt", "run")
SLURM_SECONDS = {"poll_seconds": (1, 3600), "lease_seconds": (30, 604_800)}
SECRETS = ("ansible_password", "ansible_ssh_pass", "ansible_become_password", "ansible_become_pass")
DIGEST = r"(sha256:[0-9a-f]{64})?"
PATH = r"/[^\s:]*"


@dataclass(frozen=True)
class Node:
    """One machine: its name in the inventory, how SSH reaches it, and the ranks that it may hold."""

    name: str
    address: str
    port: int
    user: str
    gpus: int


@dataclass(frozen=True)
class Image:
    """The trainer image: its name, its ID (`sha256:…`), and where it comes from; "" twice is "already on the nodes"."""

    name: str
    digest: str = ""
    registry: str = ""
    archive: str = ""


@dataclass(frozen=True)
class Baseline:
    """Where nodes have PyTorch: an interpreter, inside an image where ranks run in containers; "" where they have none."""

    python: str = ""
    image: str = ""


@dataclass(frozen=True)
class Slurm:
    """How jobs of Slurm are submitted, and followed.

    Attributes
    ----------
    time_minutes : a job's time limit, None for that of an attempt and what comes before it.
    options : further options of sbatch.
    allocation : one of ALLOCATIONS: a job for each attempt, or one that a run keeps for many.
    poll_seconds : the longest time between two questions to Slurm.
    lease_seconds : how long a job goes on while no controller reads its output.
    """

    partition: str = ""
    account: str = ""
    time_minutes: int | None = None
    options: tuple[str, ...] = ()
    allocation: str = "attempt"
    poll_seconds: int = 30
    lease_seconds: int = 60


@dataclass(frozen=True)
class Cluster:
    """An inventory: its nodes, rank 0 first, and the variables that all of them share.

    A field with a default is a variable that an inventory may leave out.
    """

    name: str
    folder: Path
    nodes: tuple[Node, ...]
    gpu: str
    gpus_per_node: int
    interface: str
    network_gbits: float
    stack: str
    image: Image
    known_hosts: Path
    hca: str = ""
    gid_index: int | None = None
    data: str = ""
    shared_results: str = ""
    work: str = "/var/lib/oneflow-reproduction"
    port: int = 29500
    containers: bool = True
    launcher: str = "ssh"
    accepted: frozenset[str] = frozenset()
    private_key: Path | None = None
    python: str = "/usr/bin/python3"
    slurm: Slurm = Slurm()
    baseline: Baseline = Baseline()
    login: Node | None = None

    @property
    def world_size(self) -> int:
        """Ranks when every node is full."""
        return len(self.nodes) * self.gpus_per_node

    @property
    def setting(self) -> str:
        """The value of CLUSTER that selects it: its name, or its folder where that is not among the project's."""
        return self.name if self.folder.parent == INVENTORIES else str(self.folder)

    @property
    def variables(self) -> Path:
        """The file that holds the cluster's variables, as messages name it."""
        return self.folder / VARIABLES


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster that an inventory describes; ClusterError names the file, the variable and what to do."""
    folder = inventory_folder(name_or_path)
    inventory = ask_ansible(folder / "hosts.yml")
    hosts = _hosts(inventory, "nodes")
    if not hosts:
        raise ClusterError(f"{folder / 'hosts.yml'}: no host in the group `nodes`; put the cluster's machines there")
    read = Variables(folder / VARIABLES, hosts, {f"cluster_{name}" for name in _names()})
    gpus = read.number("cluster_gpus_per_node", 1, 1024)
    key = read.text("ansible_ssh_private_key_file", r"([~/].+)?", "")
    return Cluster(
        name=folder.name,
        folder=folder,
        nodes=_nodes(folder / "hosts.yml", hosts, gpus),
        gpu=read.text("cluster_gpu", r".*"),
        gpus_per_node=gpus,
        interface=read.text("cluster_interface", r"[\w.@-]{1,15}"),
        hca=read.text("cluster_hca", r"(\w+(:\d+)?(,\w+(:\d+)?)*)?", Cluster.hca),
        gid_index=read.number("cluster_gid_index", 0, 255, default=Cluster.gid_index),
        network_gbits=read.number("cluster_network_gbits", 0.1, 3200, whole=False),
        stack=read.one_of("cluster_stack", IMAGE_STACKS),
        image=_image(read),
        data=read.text("cluster_data", f"({PATH})?", Cluster.data),
        shared_results=read.text("cluster_shared_results", f"({PATH})?", Cluster.shared_results),
        work=read.text("cluster_work", PATH, Cluster.work),
        port=read.number("cluster_port", 1, 65535, default=Cluster.port),
        containers=read.flag("cluster_containers", Cluster.containers),
        launcher=read.one_of("cluster_launcher", LAUNCHERS, Cluster.launcher),
        accepted=read.names("cluster_accepted_differences"),
        known_hosts=_known_hosts(folder),
        private_key=Path(key).expanduser() if key else None,
        python=read.text("ansible_python_interpreter", r"/\S+", Cluster.python),
        slurm=_slurm(read),
        baseline=_baseline(read),
        login=next(iter(_nodes(folder / "hosts.yml", _hosts(inventory, "login"), gpus)), None),
    )


def _image(read: Variables) -> Image:
    name = "cluster_image"
    value = read.value(name)
    if not isinstance(value, dict) or not value.get("name") or set(value) - set(Image.__annotations__):
        raise read.wrong(name, value, 'it is {name: …, digest: "sha256:…", registry: "", archive: ""}')
    image = Image(**{key: each or "" for key, each in value.items()})
    if not all(isinstance(each, str) for each in vars(image).values()):
        raise read.wrong(name, value, "each of its values is text")
    if not re.fullmatch(DIGEST, image.digest):
        raise read.wrong(f"{name}.digest", image.digest, "it is sha256: and 64 hexadecimal digits, or empty")
    if image.registry and image.archive:
        raise read.wrong(name, value, "give a registry or an archive, not both")
    if image.registry and not image.digest:
        raise read.wrong(f"{name}.digest", "", "an image from a registry is taken by its digest; write it here")
    return image


def _baseline(read: Variables) -> Baseline:
    name, containers = "cluster_baseline", read.flag("cluster_containers", Cluster.containers)
    value = read.value(name, {})
    if not isinstance(value, dict) or set(value) - set(Baseline.__annotations__):
        raise read.wrong(name, value, 'it is {python: /opt/pytorch/bin/python, image: ""}')
    baseline = Baseline(**{key: str(each or "") for key, each in value.items()})
    if not re.fullmatch(f"({PATH})?", baseline.python):
        raise read.wrong(f"{name}.python", baseline.python, "it is the path of an interpreter, from / on, or empty")
    if not re.fullmatch(r"([\w][\w./:@-]*)?", baseline.image):
        raise read.wrong(f"{name}.image", baseline.image, "it is an image's name or ID, or empty")
    if baseline.python and bool(baseline.image) != containers:
        said = "ranks run in containers, so name the image that has it" if containers else "ranks run in no container"
        raise read.wrong(f"{name}.image", baseline.image, said)
    return baseline


def _slurm(read: Variables) -> Slurm:
    name = "cluster_slurm"
    value = read.value(name, {})
    if not isinstance(value, dict) or set(value) - set(Slurm.__annotations__):
        raise read.wrong(name, value, 'it is {partition: "", account: "", time_minutes: 60, options: ["--qos=high"]}')
    minutes, options = value.get("time_minutes"), value.get("options") or []
    if minutes is not None and not _whole(minutes, 1):
        raise read.wrong(f"{name}.time_minutes", minutes, "it is a whole number from 1 on, or left out")
    for key in ("partition", "account"):
        if not re.fullmatch(r"[\w.,@-]*", str(value.get(key) or "")):
            raise read.wrong(f"{name}.{key}", value[key], "it is a name that Slurm knows, or left out")
    if not isinstance(options, list) or not all(re.fullmatch(r"--?\w.*", str(option)) for option in options):
        raise read.wrong(f"{name}.options", options, 'it is a list of options of sbatch: ["--qos=high"]')
    seconds = {}
    for key, (least, most) in SLURM_SECONDS.items():
        seconds[key] = value.get(key, getattr(Slurm, key))
        if not _whole(seconds[key], least, most):
            raise read.wrong(f"{name}.{key}", seconds[key], f"it is a whole number from {least} to {most}, or left out")
    allocation = value.get("allocation", Slurm.allocation)
    if allocation not in ALLOCATIONS:
        raise read.wrong(f"{name}.allocation", allocation, f"it is {' or '.join(ALLOCATIONS)}, or left out")
    if allocation == "run" and minutes is None:
        raise read.wrong(f"{name}.time_minutes", minutes, "a job that a run keeps needs it: the limit of the whole job")
    names = value.get("partition") or "", value.get("account") or ""
    return Slurm(*names, minutes, tuple(map(str, options)), allocation, **seconds)


def _whole(value: object, least: int, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _hosts(inventory: dict, group: str) -> dict[str, dict]:
    variables = inventory["_meta"]["hostvars"]
    return {name: variables.get(name, {}) for name in inventory.get(group, {}).get("hosts", [])}


def _nodes(file: Path, hosts: dict[str, dict], gpus: int) -> tuple[Node, ...]:
    nodes = []
    for name, variables in hosts.items():
        for secret in SECRETS:
            if secret in variables:
                raise ClusterError(
                    f"{file}: {secret} of {name}: no password belongs here; use SSH keys and sudo without a password"
                )
        address, user = variables.get("ansible_host", name), variables.get("ansible_user", getpass.getuser())
        port = variables.get("ansible_port", 22)
        for variable, value in (("ansible_host", address), ("ansible_user", user)):
            if not re.fullmatch(r"[\w.:%-]+", str(value)) or str(value).startswith("-"):
                raise ClusterError(f"{file}: {variable} of {name} is {value!r}; write a plain name or address")
        if not str(port).isascii() or not str(port).isdigit() or not 1 <= int(port) <= 65535:
            raise ClusterError(f"{file}: ansible_port of {name} is {port!r}; it is a number from 1 to 65535")
        nodes.append(Node(name, str(address), int(port), str(user), gpus))
    for (address, port), times in Counter((node.address, node.port) for node in nodes).items():
        if times > 1:
            same = ", ".join(node.name for node in nodes if (node.address, node.port) == (address, port))
            raise ClusterError(f"{file}: {same} have the same address {address} and port {port}; each host is one node")
    return tuple(nodes)


def _known_hosts(folder: Path) -> Path:
    own = folder / "known_hosts"
    if not own.exists():
        return Path.home() / ".ssh" / "known_hosts"
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"{own}: cannot be read ({error}); write it with ssh-keyscan, and check it") from error
    for number, line in enumerate(lines, 1):
        fields = line.split()
        if fields and not fields[0].startswith("#") and not _is_host_key(fields):
            raise ClusterError(
                f"{own}, line {number}: not `HOST KEY-TYPE KEY` as ssh-keyscan prints it; write the line again"
            )
    return own


def _is_host_key(fields: list[str]) -> bool:
    _, kind, key, *_ = [*(fields[1:] if fields[0].startswith("@") else fields), "", "", ""]
    return bool(re.fullmatch(r"(ssh|ecdsa|sk)-[\w@.-]+", kind)) and key.startswith("AAAA")


def _names() -> set[str]:
    """The inventory's `cluster_…` variables, without that prefix."""
    own = {"name", "folder", "nodes", "known_hosts", "private_key", "python", "accepted", "login"}
    return set(Cluster.__annotations__) - own | {"accepted_differences"}
