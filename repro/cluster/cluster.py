"""A cluster as its inventory describes it, read through `ansible-inventory` and checked value by value."""

from __future__ import annotations

import getpass
import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from repro.cluster.inventory import (
    ClusterError,
    Variables,
    ask_ansible,
    inventory_folder,
    refuse_ignored,
    setting_of,
)
from repro.cluster.rank_environment import wrong_environment
from repro.images.recipes import BASELINE, RECIPES
from repro.images.runtime import IMAGE, IMAGE_PYTHON, RUNTIMES, Runtime, check_runtime
from repro.images.stack import IMAGE_STACKS, tag_of
from repro.targets import PINNED_BASELINES
from repro.utils.paths import in_home

VARIABLES = Path("group_vars") / "all.yml"
LAUNCHERS = ("ssh", "slurm")
ISOLATED = ("-I", "-B")
"""How Python is started on a node: it heeds no variable that a site's modules set for others, and writes no bytecode."""
ALLOCATIONS = ("attempt", "run")
SLURM_SECONDS = {"poll_seconds": (1, 3600), "lease_seconds": (30, 604_800)}
SECRETS = ("ansible_password", "ansible_ssh_pass", "ansible_become_password", "ansible_become_pass")
MOST_PATIENCE = 100
DIGEST = r"(sha256:[0-9a-f]{64})?"
PLAIN = r"[\w.:%][\w.:%-]*"
"""An address or a user as they may be in a command of ssh."""
PATH = r"/[^\s:]*"
REGISTRY = r"[A-Za-z0-9][\w./:-]*"


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
    """The trainer image: its name, its ID (`sha256:…`), and where it comes from; "" twice is "already on the nodes".

    `digest` is that of its configuration, which most engines take for its ID, and `manifest` that of its manifest, which
    an engine does that keeps images in containerd; either may stand in the place of the other.

    Without an engine it is a file, as the nodes see it: a SIF for Apptainer, squashfs for Pyxis, and its `sha256`.
    """

    name: str
    digest: str = ""
    registry: str = ""
    archive: str = ""
    file: str = ""
    sha256: str = ""
    manifest: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """The IDs that engines may know it by; none if any image of its name will do."""
        return tuple(image_id for image_id in (self.digest, self.manifest) if image_id)


@dataclass(frozen=True)
class BaselinePlace:
    """Where nodes have PyTorch: an interpreter, inside an image where ranks run in containers; "" where they have none.

    `lock` names the pinned environment that provisioning sets up, one of PINNED_BASELINES; the others follow from it.
    """

    python: str = ""
    image: str = ""
    lock: str = ""

    def within(self, runtime: Runtime, work: str) -> BaselinePlace:
        """The place of the pinned environment with a runtime; any other place as it is."""
        if not self.lock:
            return self
        if not runtime.in_image:
            return replace(self, python=f"{work}/{self.lock}/bin/python", image="")
        return replace(self, python=IMAGE_PYTHON, image=tag_of(self.lock) if runtime.engine else self.image)


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

    `jump` are the hosts on the way to all of them and to `login`, this machine's neighbour first. A field with a default
    is a variable that an inventory may leave out: ranks get `environment` besides what a run sets, and `prologue` are
    lines of shell that a node runs before the agent. `compiled_for` is the compute capability, such as 90, that the GPU
    code on the nodes was compiled for ahead of the first start (`repro.images.kernel_overlay`). `patience` is how many
    times as long as usual its hosts may take for whatever has a time limit: to answer, to begin, to be silent, to end.
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
    runtime_name: str = "docker"
    launcher: str = "ssh"
    accepted: frozenset[str] = frozenset()
    private_key: Path | None = None
    python: str = "/usr/bin/python3"
    slurm: Slurm = Slurm()
    baseline: BaselinePlace = BaselinePlace()
    login: Node | None = None
    jump: tuple[Node, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    prologue: tuple[str, ...] = ()
    compiled_for: int | None = None
    patience: float = 1.0

    @property
    def world_size(self) -> int:
        """Ranks when every node is full."""
        return len(self.nodes) * self.gpus_per_node

    @property
    def runtime(self) -> Runtime:
        """What runs the ranks on a node."""
        return RUNTIMES[self.runtime_name]

    @property
    def interpreter(self) -> list[str]:
        """What a command in a node's Python begins with."""
        return [self.python, *ISOLATED]

    @property
    def setting(self) -> str:
        """The value of CLUSTER that selects it: its name, or its folder where that is not among the project's."""
        return setting_of(self.name, self.folder)

    @property
    def variables(self) -> Path:
        """The file that holds the cluster's variables, as messages name it."""
        return self.folder / VARIABLES


def load_cluster(name_or_path: str | Path) -> Cluster:
    """The cluster that an inventory describes; ClusterError names the file, the variable and what to do."""
    folder = inventory_folder(name_or_path)
    inventory = ask_ansible(folder / "hosts.yml")
    hosts = _hosts(inventory, "nodes", folder / "hosts.yml")
    if not hosts:
        raise ClusterError(f"{folder / 'hosts.yml'}: no host in the group `nodes`; put the cluster's machines there")
    read = Variables(folder / VARIABLES, hosts, {f"cluster_{name}" for name in _names()})
    gpus = read.number("cluster_gpus_per_node", 1, 1024)
    key = read.text("ansible_ssh_private_key_file", r"([~/].+)?", "")
    stack = read.one_of("cluster_stack", IMAGE_STACKS)
    image, launcher = _image(read), read.one_of("cluster_launcher", LAUNCHERS, Cluster.launcher)
    before = "docker" if read.flag("cluster_containers", True) else "venv"
    runtime = read.one_of("cluster_runtime", tuple(RUNTIMES), before)
    if wrong := conflict(runtime, launcher, image):
        raise read.wrong(*wrong)
    return Cluster(
        name=folder.name,
        folder=folder,
        nodes=_nodes(folder / "hosts.yml", hosts, gpus),
        gpu=read.text("cluster_gpu", r".*"),
        gpus_per_node=gpus,
        interface=read.text("cluster_interface", r"[\w.@-]{1,15}"),
        hca=read.text("cluster_hca", r"(\w+(:\d+)?(,\w+(:\d+)?)*)?", Cluster.hca),
        gid_index=read.number("cluster_gid_index", 0, 255, default=Cluster.gid_index),
        network_gbits=read.number("cluster_network_gbits", 0.01, 3200, whole=False),
        stack=stack,
        image=image,
        data=read.text("cluster_data", f"({PATH})?", Cluster.data),
        shared_results=read.text("cluster_shared_results", f"({PATH})?", Cluster.shared_results),
        work=read.text("cluster_work", PATH, Cluster.work),
        port=read.number("cluster_port", 1, 65535, default=Cluster.port),
        runtime_name=runtime,
        launcher=launcher,
        accepted=read.names("cluster_accepted_differences"),
        known_hosts=_known_hosts(folder),
        private_key=in_home(key) if key else None,
        python=read.text("ansible_python_interpreter", r"/\S+", Cluster.python),
        slurm=_slurm(read),
        baseline=_baseline(read, runtime),
        login=next(iter(_nodes(folder / "hosts.yml", _hosts(inventory, "login", folder / "hosts.yml"), gpus)), None),
        environment=_environment(read),
        prologue=_prologue(read),
        jump=_nodes(folder / "hosts.yml", _hosts(inventory, "jump", folder / "hosts.yml"), gpus),
        compiled_for=_compiled_for(read),
        patience=read.number("cluster_patience", 1, MOST_PATIENCE, default=Cluster.patience, whole=False),
    )


def _compiled_for(read: Variables) -> int | None:
    name = "cluster_compiled_for"
    architecture = read.number(name, 80, 999, default=Cluster.compiled_for)
    if architecture and read.value("cluster_stack") != "cu102-modern":
        raise read.wrong(
            name, architecture, "only cluster_stack cu102-modern is for GPUs that the wheel has no code for"
        )
    return architecture


def with_runtime(cluster: Cluster, runtime: str | None, launcher: str | None = None) -> Cluster:
    """The cluster with another runtime or launcher than its inventory's; "" or None leaves that.

    PlanError if there is no such runtime, ClusterError if the inventory could not name it, with what else it says.
    """
    if runtime:
        check_runtime(runtime)
    name = runtime or cluster.runtime_name
    baseline = cluster.baseline.within(RUNTIMES[name], cluster.work)
    made = replace(cluster, runtime_name=name, launcher=launcher or cluster.launcher, baseline=baseline)
    if wrong := conflict(made.runtime_name, made.launcher, made.image):
        given = [f"{name}={value}" for name, value in (("RUNTIME", runtime), ("LAUNCHER", launcher)) if value]
        name, value, should = wrong
        raise ClusterError(f"{' '.join(given)}: with {cluster.variables}, {name} is {value!r}; {should}")
    return made


def conflict(runtime: str, launcher: str, image: Image) -> tuple[str, str, str] | None:
    """The variable that does not go with the others, its value, and what is wrong with it; None if all go together."""
    if RUNTIMES[runtime].from_file and not image.file:
        return "cluster_image.file", image.file, f"{runtime} runs an image that is a file: name it"
    if runtime == "pyxis" and launcher != "slurm":
        return "cluster_runtime", runtime, f"it is a plugin of Slurm: cluster_launcher is then slurm, not {launcher}"
    return None


def baseline_conflict(runtime: str, baseline: BaselinePlace) -> tuple[str, str, str] | None:
    """Likewise for where baselines run; it matters only where some do."""
    if not baseline.python:
        return None
    run_by = RUNTIMES[runtime]
    if run_by.whole_step:
        return "cluster_baseline", baseline.python, f"{run_by.launched_by} runs one image per job: leave it out"
    if baseline.lock and run_by.engine and baseline.lock not in RECIPES:
        return (
            "cluster_baseline.lock",
            baseline.lock,
            f"it has no image: ranks run in {runtime}, which takes {BASELINE}",
        )
    if bool(baseline.image) != run_by.in_image:
        said = (
            "ranks run in containers, so name the image that has it" if run_by.in_image else "ranks run in no container"
        )
        return "cluster_baseline.image", baseline.image, said
    return None


def _image(read: Variables) -> Image:
    name = "cluster_image"
    value = read.value(name)
    if not isinstance(value, dict) or not value.get("name") or set(value) - set(Image.__annotations__):
        raise read.wrong(name, value, 'it is {name: …, digest: "sha256:…", registry: "", archive: ""}')
    image = Image(**{key: part or "" for key, part in value.items()})
    if not all(isinstance(part, str) for part in vars(image).values()):
        raise read.wrong(name, value, "each of its values is text")
    if not IMAGE.fullmatch(image.name):
        raise read.wrong(f"{name}.name", image.name, "it is an image's name in an engine, such as oneflow:cu102")
    if image.registry and not re.fullmatch(REGISTRY, image.registry):
        raise read.wrong(
            f"{name}.registry", image.registry, "it is a host with the path to the image, without a scheme"
        )
    if image.archive.startswith("-"):
        raise read.wrong(f"{name}.archive", image.archive, "it is the path of a file on this machine")
    for key, given in (("digest", image.digest), ("manifest", image.manifest)):
        if not re.fullmatch(DIGEST, given):
            raise read.wrong(f"{name}.{key}", given, "it is sha256: and 64 hexadecimal digits, or empty")
    if image.registry and image.archive:
        raise read.wrong(name, value, "give a registry or an archive, not both")
    if image.file and not re.fullmatch(PATH, image.file):
        raise read.wrong(f"{name}.file", image.file, "it is the path of the file on the nodes, from / on")
    if image.file and not re.fullmatch(r"[0-9a-f]{64}", image.sha256):
        raise read.wrong(
            f"{name}.sha256", image.sha256, "it is the file's SHA-256, as `make image FORMAT=sif` prints it"
        )
    if image.registry and not image.ids:
        raise read.wrong(f"{name}.digest", "", "an image from a registry is taken by its digest; write it here")
    return image


def _environment(read: Variables) -> tuple[tuple[str, str], ...]:
    name = "cluster_environment"
    value = read.value(name, {}) or {}
    if not isinstance(value, dict):
        raise read.wrong(name, value, 'it is {NCCL_IB_TIMEOUT: "22"}, or left out')
    if why := wrong_environment(value):
        raise read.wrong(name, value, why)
    return tuple((str(key), str(setting)) for key, setting in value.items())


def _prologue(read: Variables) -> tuple[str, ...]:
    name = "cluster_prologue"
    value = read.value(name, []) or []
    if not isinstance(value, list) or not all(isinstance(line, str) and line.strip() for line in value):
        raise read.wrong(name, value, 'it is a list of shell lines: ["module load apptainer"]')
    return tuple(value)


def _baseline(read: Variables, runtime: str) -> BaselinePlace:
    name = "cluster_baseline"
    value = read.value(name, {})
    if not isinstance(value, dict) or set(value) - set(BaselinePlace.__annotations__):
        raise read.wrong(name, value, 'it is {lock: baseline}, or {python: /opt/pytorch/bin/python, image: ""}')
    baseline = BaselinePlace(**{key: str(part or "") for key, part in value.items()})
    if not re.fullmatch(f"({PATH})?", baseline.python):
        raise read.wrong(f"{name}.python", baseline.python, "it is the path of an interpreter, from / on, or empty")
    if baseline.image and not IMAGE.fullmatch(baseline.image):
        raise read.wrong(f"{name}.image", baseline.image, "it is an image's name, ID or file, or empty")
    if baseline.lock and baseline.lock not in PINNED_BASELINES:
        raise read.wrong(f"{name}.lock", baseline.lock, f"it is {' or '.join(PINNED_BASELINES)}, or left out")
    if baseline.lock and baseline.python:
        raise read.wrong(
            f"{name}.python", baseline.python, "the environment that `lock` names has its own: leave it out"
        )
    baseline = baseline.within(RUNTIMES[runtime], read.text("cluster_work", PATH, Cluster.work))
    if wrong := baseline_conflict(runtime, baseline):
        raise read.wrong(*wrong)
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


def _hosts(inventory: dict, group: str, file: Path) -> dict[str, dict]:
    if children := inventory.get(group, {}).get("children"):
        raise ClusterError(
            f"{file}: the group `{group}` has children ({', '.join(children)}), in which hosts have no order; list its hosts "
            f"under `{group}: hosts:`, the one of rank 0 first"
        )
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
        refuse_ignored(file, name, variables)
        address, user = variables.get("ansible_host", name), variables.get("ansible_user", getpass.getuser())
        port = variables.get("ansible_port", 22)
        for variable, value in (("ansible_host", address), ("ansible_user", user)):
            if not re.fullmatch(PLAIN, str(value)):
                raise ClusterError(f"{file}: {variable} of {name} is {value!r}; write a plain name or address")
        if not is_port(str(port)):
            raise ClusterError(f"{file}: ansible_port of {name} is {port!r}; it is a number from 1 to 65535")
        nodes.append(Node(name, str(address), port=int(port), user=str(user), gpus=gpus))
    for (address, port), times in Counter((node.address, node.port) for node in nodes).items():
        if times > 1:
            same = ", ".join(node.name for node in nodes if (node.address, node.port) == (address, port))
            raise ClusterError(f"{file}: {same} have the same address {address} and port {port}; each host is one node")
    return tuple(nodes)


def is_port(text: str) -> bool:
    """Whether a text is the number of a port."""
    return text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65535


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
    own = {
        "name",
        "folder",
        "nodes",
        "known_hosts",
        "private_key",
        "python",
        "accepted",
        "login",
        "jump",
        "runtime_name",
    }
    return set(Cluster.__annotations__) - own | {"accepted_differences", "runtime", "containers"}
