"""The launchers by their names: those of this package, and those that a program registers."""

from __future__ import annotations

from importlib import import_module
from typing import TypeVar

from repro.cluster.inventory import ClusterError
from repro.launch.base import Launcher, LaunchOptions

# Imported when they are chosen: an SSH library takes longer to import than a short run on one machine.
OWN = {
    "local": "repro.launch.local",
    "ssh": "repro.launch.ssh.launcher",
    "slurm": "repro.launch.slurm.launcher",
}
registered: dict[str, type[Launcher]] = {}

L = TypeVar("L", bound=type[Launcher])


def register(kind: L) -> L:
    """Let a launcher be found by its name; to be used as a decorator of its class."""
    registered[kind.name] = kind
    return kind


def names() -> tuple[str, ...]:
    """The names of all launchers, those of this package first."""
    return (*OWN, *(name for name in registered if name not in OWN))


def check_launcher(name: str) -> None:
    """ClusterError if there is no launcher of that name."""
    if name not in names():
        raise ClusterError(f"LAUNCHER={name}: no such launcher; there are {', '.join(names())}")


def select(options: LaunchOptions, name: str | None = None) -> Launcher:
    """The launcher called `name`; without a name the cluster's own or, where there is no cluster, this machine's.

    Raises
    ------
    ClusterError
        There is no launcher of that name.
    """
    name = name or (options.cluster.launcher if options.cluster else "local")
    check_launcher(name)
    if name not in registered:
        import_module(OWN[name])
    return registered[name].of(options)
