"""How ranks get their libraries: from a venv, or inside the trainer image with Docker, Apptainer or Pyxis.

Each runtime turns one description, a `Container`, into the words in front of the program. What they have in common is
in the description; where they cannot do the same, the class says what it does in its place.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from repro.utils.errors import PlanError

IMAGE_PYTHON = "/opt/venv/bin/python"
IMAGE_LAUNCHER = "/opt/venv/lib/python3.9/site-packages/oneflow/distributed/launch.py"
ALL_GPUS = "all"
IMAGE = re.compile(r"[\w/.~][\w/.:@~+ -]*")
"""An image's name, ID or file: it is a word among options, so it cannot begin as one does."""
NOISE = re.compile(r"'docker( run)? --help'")
PREFIX = re.compile(r"^(docker: |FATAL: +)")


@dataclass(frozen=True)
class Bind:
    """A file or folder of the host, and where the program sees it."""

    source: str
    target: str
    writable: bool = False

    def text(self, separators: str = ":,") -> str:
        """`source:target`, with `:ro` unless it is writable, as Docker, Apptainer and Pyxis all read it.

        PlanError for a path with one of the characters that end a path there; Docker alone takes a comma.
        """
        for path in (self.source, self.target):
            if ends := [character for character in separators if character in path]:
                raise PlanError(
                    f"{path} cannot be mounted into a container: {ends[0]!r} ends a path there. Name it by a path without "
                    "that, such as a symbolic link"
                )
        return f"{self.source}:{self.target}" + ("" if self.writable else ":ro")


@dataclass(frozen=True)
class Container:
    """What a program sees of its host and may use of it: always the host's network, shared memory and process limits.

    Attributes
    ----------
    image : an image's ID or name for Docker; the path of a SIF for Apptainer. A venv has none.
    folder : the working directory, one of the `binds`.
    user : "uid:gid" that the program runs as; Apptainer's is always the caller.
    gpus : "" for none, "all", or numbers such as "0,1".
    infiniband : whether it gets /dev/infiniband.
    compiles : whether it compiles programs in /tmp and runs them.
    locks_memory : whether it may lock any amount of memory, for transfers of GPUs and InfiniBand.
    cpus, memory : processors and NUMA nodes that it is bound to, as the kernel lists them; "" for all.
    name, labels : how an engine finds it; without an engine there is nothing to find.
    """

    image: str
    folder: str
    binds: tuple[Bind, ...]
    environment: dict[str, str]
    user: str = ""
    gpus: str = ""
    infiniband: bool = False
    compiles: bool = False
    locks_memory: bool = True
    cpus: str = ""
    memory: str = ""
    name: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.image and not IMAGE.fullmatch(self.image):
            raise ValueError(f"{self.image!r} is no image's name, ID or file")


class Runtime(ABC):
    """One way to run a program.

    Attributes
    ----------
    in_image : whether it sees the image's files in place of the host's.
    engine : whether a daemon starts it, so that its processes are not the caller's children, and its container has to
        be removed by name.
    from_file : whether the image is a file that the nodes see.
    tool : the command that the host has to have, "" for none.
    wrapped : whether the program is some child of what was started, which its command line tells from the others.
    whole_step : whether the agent of a node is in the image already.
    launched_by : what starts the program, as messages call it.
    refusals : exit statuses with which that says that the program could not be started.
    """

    name: ClassVar[str]
    in_image: ClassVar[bool] = True
    engine: ClassVar[bool] = False
    from_file: ClassVar[bool] = False
    tool: ClassVar[str] = ""
    wrapped: ClassVar[bool] = False
    whole_step: ClassVar[bool] = False
    launched_by: ClassVar[str] = ""
    refusals: ClassVar[range] = range(0)

    @abstractmethod
    def command(self, container: Container) -> list[str]:
        """The words in front of the program."""


class Venv(Runtime):
    """No image: the program is a venv's own, and sees everything that its user does."""

    name = "venv"
    in_image = False

    def command(self, container: Container) -> list[str]:
        return ["env", *_assignments(container.environment)]


class Docker(Runtime):
    """An unprivileged container on a read-only root, which is removed when it ends."""

    name = "docker"
    engine = True
    tool = "docker"
    launched_by = "Docker"
    refusals = range(125, 128)

    def command(self, container: Container) -> list[str]:
        argv = ["docker", "run", "--rm", "--init", "--name", container.name, "--pull", "never"]
        argv += ["--network", "host", "--ipc", "host", "--read-only"]
        argv += ["--tmpfs", "/tmp:exec" if container.compiles else "/tmp"]
        argv += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", container.user]
        argv += ["--workdir", container.folder]
        argv += ["--ulimit", "memlock=-1"] if container.locks_memory else []
        if container.infiniband:
            argv += ["--device", "/dev/infiniband", "--cap-add", "IPC_LOCK"]
        argv += ["--gpus", docker_gpus(container.gpus)] if container.gpus else []
        argv += ["--cpuset-cpus", container.cpus] if container.cpus else []
        argv += ["--cpuset-mems", container.memory] if container.memory else []
        argv += [word for bind in container.binds for word in ("--volume", bind.text(":"))]
        argv += [word for value in _assignments(container.environment) for word in ("--env", value)]
        argv += [word for name, value in container.labels for word in ("--label", f"{name}={value}")]
        return [*argv, container.image]


class Apptainer(Runtime):
    """A SIF, run by the caller's own processes: no daemon and no root, so a job's cgroup holds them and its end ends them.

    Limits are those of the caller. GPUs are chosen by CUDA_VISIBLE_DEVICES, as the container sees all of them; memory
    is not bound, because pages are allocated next to the processors that use them first.
    """

    name = "apptainer"
    from_file = True
    tool = "apptainer"
    wrapped = True
    launched_by = "Apptainer"
    refusals = range(255, 256)

    def command(self, container: Container) -> list[str]:
        argv = ["taskset", "--cpu-list", container.cpus] if container.cpus else []
        argv += ["apptainer", "--silent", "exec", "--cleanenv", "--no-home", "--no-mount", "cwd"]
        argv += ["--pwd", container.folder]
        argv += ["--nv"] if container.gpus else []
        binds = [
            *container.binds,
            *([Bind("/dev/infiniband", "/dev/infiniband", True)] if container.infiniband else []),
        ]
        argv += [word for bind in binds for word in ("--bind", bind.text())]
        environment = dict(container.environment)
        if container.gpus not in ("", ALL_GPUS):
            environment["CUDA_VISIBLE_DEVICES"] = container.gpus
        argv += [word for value in _assignments(environment) for word in ("--env", value)]
        return [*argv, container.image]


class Pyxis(Runtime):
    """Enroot through Slurm's plugin: srun starts the whole task inside the image, so nothing is left to enter there.

    Untested: the plugin needs a site that has it. `make bench DRY_RUN=1` shows what it would be given.
    """

    name = "pyxis"
    from_file = True
    whole_step = True
    launched_by = "Pyxis"

    def command(self, container: Container) -> list[str]:
        return ["env", *_assignments(container.environment)]

    @staticmethod
    def step_options(image: str, binds: tuple[Bind, ...]) -> list[str]:
        """The options of srun that put its tasks into an image, which is a squashfs file."""
        mounts = ",".join(bind.text() for bind in binds)
        return [f"--container-image={image}", f"--container-mounts={mounts}", "--no-container-mount-home"]


RUNTIMES: dict[str, Runtime] = {runtime.name: runtime for runtime in (Docker(), Venv(), Apptainer(), Pyxis())}


def check_runtime(name: str, here: bool = False) -> None:
    """PlanError for a runtime that there is not: on a cluster or, with `here`, on one machine."""
    names = [name for name, runtime in RUNTIMES.items() if not here or runtime.tool or not runtime.in_image]
    if name not in names:
        raise PlanError(f"RUNTIME={name}: {'on one machine ' if here else ''}it is {', '.join(names)}")


def baseline_home(runtime: Runtime) -> dict[str, str]:
    """What PyTorch's compiler needs in an image, as it keeps a cache in the home folder of somebody."""
    if not runtime.in_image:
        return {}
    home = {"HOME": "/tmp"} if runtime.engine else {}  # Apptainer sets its own
    return {**home, "LOGNAME": "reproduction"}


def docker_gpus(numbers: str) -> str:
    """The value of Docker's option for GPUs, which it reads as CSV: a list of devices needs quotes of its own."""
    return numbers if numbers == ALL_GPUS else f'"device={numbers}"'


def refusal(lines: Sequence[str]) -> str:
    """Why a runtime did not start a program, from the last lines that it printed."""
    return PREFIX.sub("", next((line for line in reversed(lines) if not NOISE.search(line)), "?"))


def _assignments(environment: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]
