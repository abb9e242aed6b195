"""The command that starts a node's ranks: `docker run` without privileges, or the same trainer from a venv there."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from repro.cluster.cluster import Cluster

OWN = "reproduction.run"
INSIDE_CODE = "/opt/repro"
INSIDE, INSIDE_MODELS = f"{INSIDE_CODE}/trainers", f"{INSIDE_CODE}/models"
IMAGE_PYTHON = "/opt/venv/bin/python"
IMAGE_LAUNCHER = "/opt/venv/lib/python3.9/site-packages/oneflow/distributed/launch.py"


@dataclass(frozen=True)
class Host:
    """What must be asked of a node before its command can be written.

    `address` is that of the cluster's interface, `user` "uid:gid", `launcher` OneFlow's in the node's venv. `cpus` and
    `numa` are lists as the kernel writes them ("0-19,40-59"), by the index of each GPU; empty where not known.
    """

    address: str
    user: str
    launcher: str = ""
    cpus: tuple[str, ...] = ()
    numa: tuple[str, ...] = ()


@dataclass(frozen=True)
class Share:
    """A node's part of an attempt: its rank among the nodes, and the folders it uses there."""

    rank: int
    nodes: int
    ranks: int
    master: str
    port: int
    folder: str
    trainers: str
    script: str = "run.py"
    baseline: bool = False

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
    host: Host,
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
        return _baseline_argv(cluster, host, share, device, environment, name, labels)
    if cluster.containers:
        program = _program(share, IMAGE_PYTHON, IMAGE_LAUNCHER, INSIDE)
        return [*docker_command(cluster, host, share, device, environment, name, labels), *program]
    python = f"{cluster.work}/venv/bin/python"
    variables = [f"{key}={value}" for key, value in environment.items()]
    return ["env", *variables, *_program(share, python, host.launcher, share.trainers)]


def _baseline_argv(
    cluster: Cluster,
    host: Host,
    share: Share,
    device: str,
    environment: dict[str, str],
    name: str,
    labels: dict[str, str],
) -> list[str]:
    if cluster.containers:
        environment = {
            **environment,
            "HOME": "/tmp",
            "LOGNAME": "reproduction",
        }  # PyTorch's compiler keeps a cache there
        command, code = docker_command(cluster, host, share, device, environment, name, labels), INSIDE_CODE
    else:
        command, code = ["env", *(f"{key}={value}" for key, value in environment.items())], share.code
    python = cluster.baseline.python
    rank = [python, "-u", f"{code}/baselines/{share.script}", "--config", f"{share.folder}/config.json"]
    if share.exclusive:
        return [*command, *rank]
    options = {
        "--nnodes": share.nodes,
        "--node_rank": share.rank,
        "--nproc_per_node": share.ranks,
        "--master_addr": share.master,
        "--master_port": share.port,
        "--logdir": f"{share.folder}/logs",
    }
    words = [word for option, value in options.items() for word in (option, str(value))]
    return [*command, python, f"{code}/launch/agent/rank_launcher.py", *words, *rank]


def _program(share: Share, python: str, launcher: str, trainers: str) -> list[str]:
    """The trainer, inside OneFlow's launcher unless it is the only process; the launcher is started by its path, as locally."""
    trainer = [python, "-u", f"{trainers}/{share.script}", "--config", f"{share.folder}/config.json"]
    if share.exclusive:
        return trainer
    return [
        python,
        launcher,
        "--nnodes",
        str(share.nodes),
        "--node_rank",
        str(share.rank),
        "--nproc_per_node",
        str(share.ranks),
        "--master_addr",
        share.master,
        "--master_port",
        str(share.port),
        "--redirect_stdout_and_stderr",
        "--logdir",
        f"{share.folder}/logs",
        "--no_python",
        *trainer,
    ]


def docker_command(
    cluster: Cluster,
    host: Host,
    share: Share,
    device: str,
    environment: dict[str, str],
    name: str,
    labels: dict[str, str],
) -> list[str]:
    """`docker run` up to and including the image, which is named by its ID wherever the inventory gives one; a baseline's
    has a name of its own.

    The container sees the host's network and shared memory, a read-only root, its own folder, the trainers and the
    data set. It is removed when it ends.
    """
    argv = [
        "docker",
        "run",
        "--rm",
        "--init",
        "--name",
        name,
        "--pull",
        "never",
        "--network",
        "host",
        "--ipc",
        "host",
        "--read-only",
        "--tmpfs",
        "/tmp",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
        "--user",
        host.user,
        "--ulimit",
        "memlock=-1",
        "--workdir",
        share.folder,
    ]
    if cluster.hca and share.nodes > 1:
        argv += ["--device", "/dev/infiniband", "--cap-add", "IPC_LOCK"]
    if device == "cuda":
        argv += ["--gpus", gpus_option(share.ranks), *_binding(host, share.ranks)]
    for source, target, mode in _mounts(cluster, share):
        argv += ["--volume", f"{source}:{target}{mode}"]
    for key, value in environment.items():
        argv += ["--env", f"{key}={value}"]
    for key, value in labels.items():
        argv += ["--label", f"{key}={value}"]
    image = cluster.baseline.image if share.baseline else cluster.image.digest or cluster.image.name
    return [*argv, image]


def gpus_option(count: int) -> str:
    """The first `count` GPUs; Docker reads the value as CSV, so a list of devices needs quotes of its own."""
    devices = ",".join(map(str, range(count)))
    return f'"device={devices}"'


def _binding(host: Host, ranks: int) -> list[str]:
    """Processors and memory next to the GPUs in use, where the node reported them for each."""
    argv = []
    for option, known in (("--cpuset-cpus", host.cpus), ("--cpuset-mems", host.numa)):
        lists = known[:ranks]
        if len(lists) == ranks and all(lists):
            argv += [option, ",".join(dict.fromkeys(lists))]
    return argv


def standins(cluster: Cluster) -> str:
    """Where stand-ins for data are kept on a node, and found in its containers."""
    return f"{cluster.work}/standins"


def caches(cluster: Cluster) -> dict[str, str]:
    """Folders on a node that outlive containers, and where containers have them.

    They are stand-ins for data, and code compiled for GPUs that are newer than the wheel.
    """
    compiled = {f"{cluster.work}/jit": "/cache"} if cluster.stack == "cu102-modern" else {}
    return {standins(cluster): standins(cluster), **compiled}


def _mounts(cluster: Cluster, share: Share) -> list[tuple[str, str, str]]:
    if share.baseline:
        data = [(cluster.data, cluster.data, ":ro")] if cluster.data else []
        return [(share.folder, share.folder, ""), (share.code, INSIDE_CODE, ":ro"), *data]
    models = f"{posixpath.dirname(share.trainers)}/models"
    mounts = [(share.folder, share.folder, ""), (share.trainers, INSIDE, ":ro"), (models, INSIDE_MODELS, ":ro")]
    if cluster.stack == "cu102-modern":
        mounts += [(f"{cluster.work}/{name}", f"/opt/{name}", ":ro") for name in ("cublas", "cudnn")]
    mounts += [(folder, target, "") for folder, target in caches(cluster).items()]
    if cluster.data:
        mounts.append((cluster.data, cluster.data, ":ro"))
    return mounts


NVLS_OFF = {"NCCL_NVLS_ENABLE": "0"}


def network_environment(cluster: Cluster, device: str, nodes: int, ranks: int) -> dict[str, str]:
    """What every rank on a node gets besides the launcher's own variables.

    Sources of the names: NCCL's user guide, "Environment Variables". NCCL prefixes `=` for exact names, else `mlx5_1`
    would take `mlx5_10` too. Its log then says which network it used.

    Parameters
    ----------
    device : "cuda" or "cpu"; on the CPU there is no NCCL.
    nodes, ranks : how many the attempt has.
    """
    found = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    if device != "cuda":
        return found
    if ranks > 1:
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if nodes > 1:
        found["NCCL_SOCKET_IFNAME"] = f"={cluster.interface}"
        found |= _infiniband(cluster) if cluster.hca else {"NCCL_IB_DISABLE": "1"}
    if cluster.stack == "cu102-modern":
        found |= NVLS_OFF
    return found


def _infiniband(cluster: Cluster) -> dict[str, str]:
    found = {"NCCL_IB_HCA": f"={cluster.hca}"}
    if cluster.gid_index is not None:
        found["NCCL_IB_GID_INDEX"] = str(cluster.gid_index)
    return found
