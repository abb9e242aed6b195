"""The tasks that bring up simulated nodes on this machine, and remove them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys

from repro.cli.settings import Exit, Invocation, OptionError, task
from repro.utils.errors import BAD_INPUT, FAILED
from repro.utils.paths import ROOT

NAME = "name of the nodes' cluster, for CLUSTER= of other tasks"


@task(nodes="how many nodes", name=NAME)
def sim(
    invocation: Invocation,
    nodes: int = 2,
    name: str = "sim",
    debian: str | None = None,
    debian_security: str | None = None,
) -> None:
    """Bring up simulated nodes: containers as freshly installed machines, for `make provision CLUSTER=sim` and on.

    They need root, dockerd and debootstrap; without root it asks sudo. Exit status: 0 up; 1 this machine cannot do
    it, or nodes of that name are up; 2 wrong input.
    """
    _checked(name)
    _run_as_root(("up", name, str(nodes), "--bare", "--image"), {"DEBIAN": debian, "DEBIAN_SECURITY": debian_security})
    print(f"{nodes} nodes are up; next: make provision CLUSTER={name}; make sim-down{_unless_sim(name)} removes them")


@task(name=NAME)
def sim_down(invocation: Invocation, name: str = "sim") -> None:
    """Remove simulated nodes, and the engine around them if it holds no others; what was built for them is kept.

    Exit status: 0 removed; 1 no nodes of that name are up; 2 wrong input.
    """
    _checked(name)
    _run_as_root(("down", name), {})


def _unless_sim(name: str) -> str:
    return "" if name == "sim" else f" NAME={name}"


def _checked(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
        raise OptionError(f"NAME={name}: it is lower-case letters, digits and -, beginning with a letter")
    if (ROOT / "ansible/inventories" / name / "hosts.yml").exists():
        raise OptionError(f"NAME={name}: ansible/inventories/{name} is a cluster already; take another name")


def _run_as_root(arguments: tuple[str, ...], given: dict[str, str | None]) -> None:
    """Run `repro.simulation.nodes`, through sudo unless this is root, with these variables where they are given."""
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    if sudo and not shutil.which("sudo"):
        raise Exit("simulated nodes need root, and there is no sudo here: run this as root", FAILED)
    kept = {"DOCKER": os.environ.get("DOCKER"), "PATH": os.environ.get("PATH"), **given}
    variables = [f"{name}={value}" for name, value in kept.items() if value]
    command = [*sudo, "env", *variables, sys.executable, "-B", "-m", "repro.simulation.nodes", *arguments]
    status = subprocess.run(command, cwd=ROOT).returncode
    if status:
        raise Exit("", status if status in (FAILED, BAD_INPUT) else FAILED)
