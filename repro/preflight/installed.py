"""Checks of what provisioning brings to a node, without root: for sites whose nodes somebody else sets up."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial

from repro.cluster.cluster import Cluster
from repro.cluster.rank_environment import after_prologue
from repro.cluster.ssh import CommandResult
from repro.preflight.framework import (
    COMMAND_S,
    CheckResult,
    Machine,
    PreflightCheck,
    failed,
    last_line,
    ok,
    unavailable,
)
from repro.utils.i18n import Message
from repro.utils.paths import ROOT

OLDEST_PYTHON = (3, 8)
MACHINE = "x86_64"
VENV = "venv/bin/python"
VERSIONS = "from importlib.metadata import version; print(version('oneflow'))"
DATA_ROLE = ROOT / "ansible" / "roles" / "data_set" / "defaults" / "main.yml"
NEAREST = 'p=$1; while [ ! -e "$p" ]; do p=$(dirname "$p"); done; [ -d "$p" ] && [ -w "$p" ] && [ -x "$p" ]'
HASH_S = 600


def checks(cluster: Cluster) -> tuple[PreflightCheck, ...]:
    """The checks of a cluster's nodes; each needs a login and nothing else."""
    of_nodes: tuple[tuple[str, str, Callable[[Cluster, Machine], CheckResult]], ...] = (
        ("platform", "distribution and kernel", check_platform),
        ("python", "Python for the node agent", check_python),
        ("work", "the folder for runs can be written", check_work),
        ("trainer", "the trainers' image or environment", check_trainer),
        ("data", "the data set", check_data),
        ("shared-results", "the shared folder can be written", check_shared_results),
    )
    return tuple(PreflightCheck(name, what, partial(check, cluster)) for name, what, check in of_nodes)


def _run(cluster: Cluster, machine: Machine, argv: Sequence[str]) -> CommandResult:
    """A command as a run starts it, after the inventory's prologue; one that is not installed is a failure."""
    return machine.runner.run(after_prologue(cluster.prologue, argv), check=False, timeout=COMMAND_S)


def check_platform(cluster: Cluster, machine: Machine) -> CheckResult:
    """Failed on another machine than x86-64: no wheel of OneFlow runs there."""
    release = machine.run(["cat", "/etc/os-release"]).stdout
    named = re.search(r'(?m)^PRETTY_NAME="?(.*?)"?$', release)
    kernel, kind = machine.text(["uname", "-rm"]).split()
    message = Message(
        "{distribution}, Linux {kernel}, {machine}",
        distribution=named[1] if named else Message("a distribution that does not name itself"),
        kernel=kernel,
        machine=kind,
    )
    if kind != MACHINE:
        return failed(message, "OneFlow 0.8.0 exists for x86-64 only.", "take other nodes into the inventory")
    return ok(message)


def check_python(cluster: Cluster, machine: Machine) -> CheckResult:
    """Failed where the inventory's Python is older than the node agent needs, or not there."""
    done = _run(cluster, machine, [*cluster.interpreter, "-c", "import sys; print(sys.version.split()[0])"])
    oldest = ".".join(map(str, OLDEST_PYTHON))
    impact = f"The node agent needs Python {oldest} or newer."
    fix = f"name one that is as ansible_python_interpreter in {cluster.variables}"
    if done.status:
        return failed(last_line(done), impact, fix)
    version = done.stdout.strip()
    message = Message("{path} is Python {version}", path=cluster.python, version=version)
    new_enough = tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= OLDEST_PYTHON
    return ok(message) if new_enough else failed(message, impact, fix)


def check_work(cluster: Cluster, machine: Machine) -> CheckResult:
    """Failed where neither cluster_work nor, if it is not there yet, the folder above it can be written."""
    if machine.run(["sh", "-c", NEAREST, "sh", cluster.work]).status == 0:
        return ok(Message("{folder} can be written", folder=cluster.work))
    return failed(
        Message("{folder} cannot be written", folder=cluster.work),
        "Code, logs and metrics of a run are written there.",
        f"`make provision` makes it; without root, set cluster_work in {cluster.variables} to a folder of yours",
    )


def check_trainer(cluster: Cluster, machine: Machine) -> CheckResult:
    """Failed where the runtime of the inventory would not find what it starts."""
    if cluster.runtime.engine:
        return _image(cluster, machine)
    if cluster.runtime.from_file:
        return _image_file(cluster, machine)
    path = f"{cluster.work}/{VENV}"
    done = _run(cluster, machine, [path, "-c", VERSIONS])
    if done.status == 0:
        return ok(Message("OneFlow {version} in {folder}", version=done.stdout.strip(), folder=f"{cluster.work}/venv"))
    return failed(
        Message("no OneFlow in {folder}: {said}", folder=f"{cluster.work}/venv", said=last_line(done)),
        "Trainers cannot start on this machine.",
        "`make provision` brings it; docs/hpc.md does it without root",
    )


def _image(cluster: Cluster, machine: Machine) -> CheckResult:
    """By any of its IDs, or by its name where the inventory has none."""
    names = cluster.image.ids or (cluster.image.name,)
    said = []
    for name in names:
        done = _run(cluster, machine, ["docker", "image", "inspect", "--format", "{{.Id}}", name])
        if done.status == 0:
            return ok(Message("{name}, {id}", name=cluster.image.name, id=done.stdout.strip()[:19]))
        said.append(last_line(done))
    return failed(
        said[-1],
        "Trainers cannot start on this machine.",
        "`make provision` sets up the engine and delivers the image; where you may not use Docker, set cluster_runtime to "
        "apptainer or venv (docs/hpc.md)",
    )


def _image_file(cluster: Cluster, machine: Machine) -> CheckResult:
    """Whether the file is the inventory's, and whether what runs it is there."""
    path, tool = cluster.image.file, cluster.runtime.tool
    impact = "Trainers cannot start on this machine."
    if tool and (done := _run(cluster, machine, [tool, "--version"])).status:
        return failed(
            last_line(done), impact, f"ask the site for {tool}, or load its module with cluster_prologue (docs/hpc.md)"
        )
    done = machine.run(["sha256sum", path], timeout=HASH_S)
    if done.status:
        return failed(last_line(done), impact, f"copy the file there, or correct cluster_image in {cluster.variables}")
    if (digest := done.stdout.split()[0]) != cluster.image.sha256:
        return failed(
            Message("{path} has the SHA-256 {digest}", path=path, digest=digest),
            impact,
            f"copy the right file there, or correct cluster_image.sha256 in {cluster.variables}",
        )
    return ok(Message("{path} is the inventory's file", path=path))


def check_data(cluster: Cluster, machine: Machine) -> CheckResult:
    """Failed where the folder of the data set holds no part of one."""
    if not cluster.data:
        return unavailable(Message("the inventory names no data set; runs write stand-ins"))
    patterns = data_parts()
    names = [word for pattern in patterns for word in ("-o", "-name", pattern)][1:]
    parts = len(machine.run(["find", "-L", cluster.data, "-type", "f", "(", *names, ")"]).stdout.splitlines())
    if parts:
        return ok(Message("{n:,} parts in {folder}", n=parts, folder=cluster.data))
    return failed(
        Message("no files named {names} in {folder}", names=", ".join(patterns), folder=cluster.data),
        "Runs with this data set cannot start.",
        f"bring it there, correct cluster_data in {cluster.variables}, or leave that empty for stand-ins",
    )


def data_parts() -> tuple[str, ...]:
    """The patterns of the files that count as parts of a data set, as provisioning has them."""
    import yaml  # of the dependency group that clusters need

    return tuple(yaml.safe_load(DATA_ROLE.read_text(encoding="utf-8"))["data_set_parts"])


def check_shared_results(cluster: Cluster, machine: Machine) -> CheckResult:
    """Failed where the folder that all nodes share cannot be written."""
    folder = cluster.shared_results
    if not folder:
        return unavailable(Message("the inventory names no shared folder"))
    if machine.run(["test", "-w", folder]).status == 0:
        return ok(Message("{folder} can be written", folder=folder))
    return failed(
        Message("{folder} cannot be written", folder=folder),
        "Results cannot be shared there.",
        f"mount it, or empty cluster_shared_results in {cluster.variables}",
    )
