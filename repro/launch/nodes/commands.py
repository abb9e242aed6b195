"""The command that starts a node's ranks, in the trainer image or from a venv there, as the cluster's runtime has it."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from repro.cluster.cluster import Cluster
from repro.images.runtime import IMAGE_LAUNCHER, IMAGE_PYTHON, Bind, Container, baseline_home
from repro.launch.agent.lock import PLACES
from repro.launch.nodes.libraries import overlay_folder
from repro.launch.rank_command import launched

OWN = "reproduction.run"
LOCK_PLACE = PLACES[0]
INSIDE_CODE = "/opt/repro"
RANK_LAUNCHER = "launch/agent/rank_launcher.py"
INSIDE, INSIDE_MODELS = f"{INSIDE_CODE}/trainers", f"{INSIDE_CODE}/models"


@dataclass(frozen=True)
class NodeFacts:
    """What must be asked of a node before its command can be written.

    `address` is that of the cluster's interface, `user` "uid:gid", `launcher` OneFlow's in the node's venv. `cpus` and
    `numa` are lists as the kernel writes them ("0-19,40-59"), by the index of each GPU; empty where not known. `image` is
    the ID or name by which the node's engine knows the trainer image, "" where it was not asked.
    """

    address: str
    user: str
    launcher: str = ""
    cpus: tuple[str, ...] = ()
    numa: tuple[str, ...] = ()
    image: str = ""


@dataclass(frozen=True)
class Share:
    """A node's part of an attempt: its rank among the nodes, the folders it uses there, and what containers see besides."""

    rank: int
    nodes: int
    ranks: int
    master: str
    port: int
    folder: str
    trainers: str
    script: str = "run.py"
    baseline: bool = False
    binds: tuple[Bind, ...] = ()

    @property
    def code(self) -> str:
        """The folder of the package on the node."""
        return posixpath.dirname(self.trainers)

    @property
    def exclusive(self) -> bool:
        """Whether one process is all, which needs no launcher."""
        return self.nodes == self.ranks == 1


def node_argv(
    cluster: Cluster,
    host: NodeFacts,
    share: Share,
    device: str,
    environment: dict[str, str],
    name: str,
    labels: dict[str, str],
) -> list[str]:
    """The command that starts a node's ranks, in a container called `name` or, where there are none, in its venv.

    Those of a baseline have the image or the interpreter that the inventory names for it.
    """
    if share.baseline:
        environment = {**environment, **baseline_home(cluster.runtime)}
    container = Container(
        image=_image(cluster, host, share),
        folder=share.folder,
        binds=(*_binds(cluster, share), *share.binds),
        environment=environment,
        compiles=share.baseline,
        user=host.user,
        gpus=",".join(map(str, range(share.ranks))) if device == "cuda" else "",
        infiniband=bool(cluster.hca) and share.nodes > 1,
        cpus=_next_to(host.cpus, share.ranks) if device == "cuda" else "",
        memory=_next_to(host.numa, share.ranks) if device == "cuda" else "",
        name=name,
        labels=tuple(labels.items()),
    )
    program = _baseline_program(cluster, share) if share.baseline else _trainer_program(cluster, host, share)
    return [*cluster.runtime.command(container), *program]


def launcher_words(cluster: Cluster, share: Share) -> list[str]:
    """The words with which the command line of a node's launcher begins in an image."""
    if share.baseline:
        return [cluster.baseline.python, f"{_baseline_code(cluster, share)}/{RANK_LAUNCHER}"]
    return [IMAGE_PYTHON, IMAGE_LAUNCHER]


def _image(cluster: Cluster, host: NodeFacts, share: Share) -> str:
    if share.baseline:
        return cluster.baseline.image
    if cluster.runtime.from_file:
        return cluster.image.file
    return host.image or next(iter(cluster.image.ids), cluster.image.name)


def _trainer_program(cluster: Cluster, host: NodeFacts, share: Share) -> list[str]:
    if not cluster.runtime.in_image:
        return _program(share, [f"{cluster.work}/venv/bin/python", host.launcher], share.trainers)
    inside = share.trainers if cluster.runtime.whole_step else INSIDE
    return _program(share, launcher_words(cluster, share), inside)


def _baseline_code(cluster: Cluster, share: Share) -> str:
    bound = cluster.runtime.in_image and not cluster.runtime.whole_step
    return INSIDE_CODE if bound else share.code


def _baseline_program(cluster: Cluster, share: Share) -> list[str]:
    return _program(share, launcher_words(cluster, share), f"{_baseline_code(cluster, share)}/baselines")


def _program(share: Share, launcher: list[str], programs: str) -> list[str]:
    """A program of a folder, started by an interpreter and launcher; without the latter if it is the only process."""
    rank = [launcher[0], "-u", f"{programs}/{share.script}", "--config", f"{share.folder}/config.json"]
    if share.exclusive:
        return rank
    return launched(
        launcher,
        rank,
        share.folder,
        ranks=share.ranks,
        port=str(share.port),
        nodes=share.nodes,
        node_rank=share.rank,
        master=share.master,
    )


def _next_to(reported: tuple[str, ...], ranks: int) -> str:
    """The processors or the memory next to the GPUs in use, where the node reported them for each; else ""."""
    lists = reported[:ranks]
    return ",".join(dict.fromkeys(lists)) if len(lists) == ranks and all(lists) else ""


def standins(cluster: Cluster) -> str:
    """Where stand-ins for data are kept on a node, and found in its containers."""
    return f"{cluster.work}/standins"


def caches(cluster: Cluster) -> dict[str, str]:
    """Folders on a node that outlive containers, and where containers have them.

    They are stand-ins for data, and code compiled for GPUs that are newer than the wheel.
    """
    compiled = {f"{cluster.work}/jit": "/cache"} if cluster.stack == "cu102-modern" else {}
    return {standins(cluster): standins(cluster), **compiled}


def _binds(cluster: Cluster, share: Share) -> tuple[Bind, ...]:
    if share.baseline:
        data = [Bind(cluster.data, cluster.data)] if cluster.data else []
        return (Bind(share.folder, share.folder, True), Bind(share.code, INSIDE_CODE), *data)
    models = f"{posixpath.dirname(share.trainers)}/models"
    binds = [Bind(share.folder, share.folder, True), Bind(share.trainers, INSIDE), Bind(models, INSIDE_MODELS)]
    binds += newer_libraries(cluster)
    binds += [Bind(folder, folder)] if (folder := overlay_folder(cluster)) else []
    binds += [Bind(folder, target, True) for folder, target in caches(cluster).items()]
    if cluster.data:
        binds.append(Bind(cluster.data, cluster.data))
    return tuple(binds)


def step_binds(cluster: Cluster) -> tuple[Bind, ...]:
    """What a step sees that is in the image as a whole: the work folder, where messages go, and the node's lock."""
    folders = [cluster.work, *([cluster.shared_results] if cluster.shared_results else []), LOCK_PLACE]
    binds = [*(Bind(folder, folder, True) for folder in folders), *newer_libraries(cluster)]
    read = [cluster.image.file, *([cluster.data] if cluster.data else [])]
    return tuple([*binds, *(Bind(path, path) for path in read)])


def newer_libraries(cluster: Cluster) -> list[Bind]:
    """Where the image of cu102-modern finds the newer cuBLAS and cuDNN of a node."""
    if cluster.stack != "cu102-modern":
        return []
    return [Bind(f"{cluster.work}/{name}", f"/opt/{name}") for name in ("cublas", "cudnn")]


NVLS_OFF = {"NCCL_NVLS_ENABLE": "0"}


def network_environment(cluster: Cluster, device: str, nodes: int, ranks: int) -> dict[str, str]:
    """What every rank on a node gets besides the launcher's own variables.

    Sources of the names: NCCL's user guide, "Environment Variables". NCCL prefixes `=` for exact names, else `mlx5_1`
    would take `mlx5_10` too. Its log then says which network it used. What the inventory sets wins.

    Parameters
    ----------
    device : "cuda" or "cpu"; on the CPU there is no NCCL.
    nodes, ranks : how many the attempt has.
    """
    environment = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if nodes > 1 and cluster.hca:
        environment |= _oneflow_rdma(cluster)
    if device != "cuda":
        return environment | dict(cluster.environment)
    if ranks > 1:
        environment |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if nodes > 1:
        environment["NCCL_SOCKET_IFNAME"] = f"={cluster.interface}"
        environment |= _infiniband(cluster) if cluster.hca else {"NCCL_IB_DISABLE": "1"}
    if cluster.stack == "cu102-modern":
        environment |= NVLS_OFF
    return environment | dict(cluster.environment)


def _oneflow_rdma(cluster: Cluster) -> dict[str, str]:
    """The adapter of OneFlow's own transfers, for programs that call `init_rdma`: it opens one, NCCL opens all.

    Source: OneFlow's documentation, "Environment Variables". Without them it takes the first adapter and GID index 0.
    """
    device, _, port = cluster.hca.partition(",")[0].partition(":")
    variables = {"ONEFLOW_COMM_NET_IB_HCA": f"{device}:{port or 1}"}
    if cluster.gid_index is not None:
        variables["ONEFLOW_COMM_NET_IB_GID_INDEX"] = str(cluster.gid_index)
    return variables


def _infiniband(cluster: Cluster) -> dict[str, str]:
    environment = {"NCCL_IB_HCA": f"={cluster.hca}"}
    if cluster.gid_index is not None:
        environment["NCCL_IB_GID_INDEX"] = str(cluster.gid_index)
    return environment
