"""The tasks that bring up simulated nodes on this machine, and remove them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Literal

from repro.cli.settings import Exit, Invocation, OptionError, task
from repro.simulation.distributions import DISTRIBUTIONS
from repro.utils.errors import BAD_INPUT, FAILED
from repro.utils.paths import ROOT

Kind = Literal["container", "vm"]
NAME = "name of the nodes' cluster, for CLUSTER= of other tasks (default: sim, or sim-vm)"
KIND = "container: systemd in containers; vm: virtual machines that boot, with RDMA in software"
UBUNTU = "mirror of Ubuntu in place of its own archive"
MODULES = {"container": "repro.simulation.nodes", "vm": "repro.simulation.machines"}
DISTRIBUTION = "what virtual machines boot: debian (12) or ubuntu (22.04)"
NAMES = {"container": "sim", "vm": "sim-vm"}


@task(nodes="how many nodes", name=NAME, kind=KIND, distribution=DISTRIBUTION, ubuntu=UBUNTU)
def sim(
    invocation: Invocation,
    nodes: int = 2,
    name: str | None = None,
    kind: Kind = "container",
    distribution: str = "debian",
    debian: str | None = None,
    debian_security: str | None = None,
    ubuntu: str | None = None,
) -> None:
    """Bring up simulated nodes: containers as freshly installed machines, for `make provision CLUSTER=sim` and on.

    They need root, dockerd and debootstrap; without root it asks sudo. KIND=vm are virtual machines, for
    CLUSTER=sim-vm, and need QEMU too. Exit status: 0 up; 1 this machine cannot do it, or nodes of that name are up; 2
    wrong input.
    """
    name = name or NAMES[kind]
    options = ("--bare", "--image") if kind == "container" else (distribution,)
    given = {"DEBIAN": debian, "DEBIAN_SECURITY": debian_security, "UBUNTU": ubuntu}
    _run_as_root((MODULES[kind], "up", name, str(nodes), *options), given)
    named = f"{'' if kind == 'container' else f' KIND={kind}'}{'' if name == NAMES[kind] else f' NAME={name}'}"
    up = "1 node is up" if nodes == 1 else f"{nodes} nodes are up"
    print(f"{up}; next: make provision CLUSTER={name}; make sim-down{named} removes them")


@task(name=NAME, kind=KIND)
def sim_down(invocation: Invocation, name: str | None = None, kind: Kind = "container") -> None:
    """Remove simulated nodes, and the engine around them if it holds no others; what was built for them is kept.

    Exit status: 0 removed; 1 no nodes of that name are up; 2 wrong input.
    """
    name = name or NAMES[kind]
    _run_as_root((MODULES[kind], "down", name), {})


@sim.checks
@sim_down.checks
def _check_nodes(values: Mapping[str, Any]) -> None:
    """Refuse what cannot be the name of the nodes' cluster, and what nodes of this kind cannot boot."""
    kind, distribution = values["kind"], values.get("distribution", "debian")
    name = values["name"] or NAMES[kind]
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
        raise OptionError(f"NAME={name}: it is lower-case letters, digits and -, beginning with a letter")
    if (ROOT / "ansible/inventories" / name / "hosts.yml").exists():
        raise OptionError(f"NAME={name}: ansible/inventories/{name} is a cluster already; take another name")
    if distribution not in DISTRIBUTIONS or (kind == "container" and distribution != "debian"):
        raise OptionError(f"DISTRIBUTION={distribution}: it is {' or '.join(DISTRIBUTIONS)}, and of containers debian")


def _run_as_root(arguments: tuple[str, ...], given: dict[str, str | None]) -> None:
    """Run a module with its arguments, through sudo unless this is root, with these variables where they are given."""
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if sudo and not shutil.which("sudo"):
        raise Exit("simulated nodes need root, and there is no sudo here: run this as root", FAILED)
    environment = {"DOCKER": os.environ.get("DOCKER"), "PATH": os.environ.get("PATH"), **given}
    variables = [f"{name}={value}" for name, value in environment.items() if value]
    command = [*sudo, "env", *variables, sys.executable, "-B", "-m", *arguments]
    status = subprocess.run(command, cwd=ROOT).returncode
    if status:
        raise Exit("", status if status in (FAILED, BAD_INPUT) else FAILED)
