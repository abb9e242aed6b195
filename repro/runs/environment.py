"""What a run records of the machine and the software that it ran on: its form, and its one reader and one writer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from repro.published.trainer_config import COUNT, RANKS
from repro.published.validators import bounded, line, mapping, optional, several, table, text
from repro.utils.records import as_json, values_of

GPU = table({}, ("name",), optional(line()))
FORM = table(
    {
        **dict.fromkeys(("host", "system", "kernel", "cpu", "controller_python"), optional(line())),
        **dict.fromkeys(("cpu_count", "cpu_affinity", "memory_mib", "git_changed_files"), optional(bounded(0, COUNT))),
        "git_commit": optional(text(r"[0-9a-f]{0,64}", "a commit")),
        "gpus": several(GPU, RANKS),
        "locks_sha256": mapping(line()),
        "machine": table(
            dict.fromkeys(("id", "start"), text(r"[0-9a-f]{16}", "16 hexadecimal digits")), ("id", "start")
        ),
        **dict.fromkeys(("cluster", "stack", "kit", "jit_cache"), optional(table({}))),
    }
)
"""The environment in `run.json`."""
WRITTEN_AS_NULL = ("cpu_count", "stack", "jit_cache", "git_commit", "git_changed_files")
"""What is recorded also where there is none."""
MOST_DIGITS = 3
"""Of a count in a node's fingerprint: a report lists each GPU, and a record from elsewhere may name any number."""


@dataclass(frozen=True)
class RankMachine:
    """A machine that ranks ran on; what is not recorded of it is empty."""

    gpus: tuple[Mapping[str, str], ...] = ()
    processor: str = ""
    memory: str = ""
    system: str = ""

    @classmethod
    def of_node(cls, fields: Mapping[str, str]) -> RankMachine:
        """A node of a cluster, by the fields of its fingerprint."""
        cores = [_whole(fields, f"cpu.{name}") for name in ("sockets", "cores_per_socket", "threads_per_core")]
        count = _whole(fields, "gpu.count")
        named = {"name": "gpu.model", "driver_version": "gpu.driver", "memory.total": "gpu.memory"}
        values = {name: _of_each(fields.get(field, ""), count) for name, field in named.items()}
        gpus = ({name: of_gpu[i].removesuffix(" MiB") for name, of_gpu in values.items()} for i in range(count))
        return cls(
            tuple(gpus),
            _listed(", ", fields.get("cpu.model"), math.prod(cores)),
            fields.get("memory.total", ""),
            _system(fields.get("system.distribution"), fields.get("system.kernel")),
        )


def _whole(fields: Mapping[str, str], name: str) -> int:
    """A number of a fingerprint; 0 where the node did not tell, and where no node has as many of anything."""
    value = fields.get(name, "")
    return int(value) if value.isdecimal() and len(value) <= MOST_DIGITS else 0


def _of_each(value: str, count: int) -> list[str]:
    """The value of each GPU of a node, whose fingerprint has one for all or one for each of them."""
    values = value.split(", ")
    return values if len(values) == count else [value] * count


def _listed(between: str, *parts: object) -> str:
    """Those parts that are known."""
    return between.join(str(part) for part in parts if part)


def _system(distribution: str | None, kernel: str | None) -> str:
    return _listed(", ", distribution, kernel and f"Linux {kernel}")


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The machine, the software and the code of a run, read when it began; on a cluster, machine and GPUs are the nodes'.

    Attributes
    ----------
    host, system, kernel, cpu, cpu_count, cpu_affinity, memory_mib : of this machine, on a cluster of the controller.
    gpus : by the names of nvidia-smi's fields.
    machine : an anonymous identity, `id` and `start` (`repro.launch.host_environment.identity`); None in older runs and
        for a cluster's nodes.
    stack : libraries and settings besides OneFlow's wheel (`repro.images.stack.Stack.as_json`).
    jit_cache : the cache of compiled GPU code (`repro.images.jit_cache`).
    git_commit, git_changed_files : of the checkout; None without git.
    locks_sha256 : of the files that pin environments.
    kit : what an offline kit brought. `runtime` : the image that ranks of one machine ran in.
    cluster : the nodes and how ranks start there (`repro.launch.nodes.target`); None for one machine.
    kernels : how the GPUs compute, compared with the CPU (`repro.launch.kernels.Kernels.record`).
    further : what a record has that this release does not know.
    """

    host: str
    system: str
    kernel: str
    cpu: str
    cpu_count: int | None
    cpu_affinity: int
    memory_mib: int
    gpus: tuple[Mapping[str, str], ...]
    machine: Mapping[str, str] | None = None
    stack: Mapping[str, Any] | None = None
    jit_cache: Mapping[str, Any] | None = None
    controller_python: str
    git_commit: str | None = None
    git_changed_files: int | None = None
    locks_sha256: Mapping[str, str | None]
    kit: Mapping[str, Any] | None = None
    runtime: Mapping[str, str] | None = None
    cluster: Mapping[str, Any] | None = None
    kernels: Mapping[str, Any] | None = None
    further: Mapping[str, Any] = field(default_factory=dict)

    @property
    def commit(self) -> str:
        """The commit of its checkout, "?" where none was recorded."""
        return self.git_commit or "?"

    @property
    def own_gpus(self) -> tuple[Mapping[str, str], ...]:
        """The GPUs if ranks ran on them for certain: none for a cluster, whose attempts have nodes of their own."""
        return () if self.cluster else self.gpus

    @property
    def stack_name(self) -> str:
        """The name of the software stack, on a cluster of the nodes; empty without one."""
        return (self.stack or {}).get("name") or (self.cluster or {}).get("stack", "")

    def of_gpus(self, name: str) -> str:
        """The values of a field of all GPUs, each once."""
        return ", ".join(dict.fromkeys(gpu[name] for gpu in self.gpus if name in gpu))

    @property
    def here(self) -> RankMachine:
        """This machine, which the ranks ran on unless there is a cluster."""
        return RankMachine(
            self.gpus,
            f"{self.cpu}, {self.cpu_count}",
            f"{self.memory_mib} MiB",
            _system(self.system, self.kernel),
        )

    @property
    def nodes(self) -> Mapping[str, Mapping]:
        """The fingerprints of a cluster's nodes, by their names; KeyError if none are recorded."""
        return (self.cluster or {})["fingerprints"]["nodes"]

    @property
    def hosts(self) -> Sequence[str]:
        """The names that the machines of its ranks have themselves."""
        return (self.cluster or {}).get("hosts") or [self.host]

    @classmethod
    def from_json(cls, content: Mapping) -> Environment:
        """A recorded environment, whose form was checked; KeyError if it lacks what every release recorded."""
        values = values_of(cls, content)
        return cls(**{**values, "gpus": tuple(values["gpus"])})

    def as_json(self) -> dict:
        """What `run.json` has of it."""
        return as_json(self, WRITTEN_AS_NULL) | {"gpus": list(self.gpus)}


def shown_by(visible: str) -> list[str]:
    """The names of GPUs in a CUDA_VISIBLE_DEVICES: as CUDA reads it, an empty one hides all, and -1 those behind it."""
    names = [name.strip() for name in visible.split(",")] if visible.strip() else []
    return list(takewhile(lambda name: name != "-1", names))
