"""Sets up the nodes of a cluster with Ansible, or undoes that, and reports the outcome per node."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from repro.bootstrap import BASELINE_PYTHONS
from repro.cluster.cluster import Cluster
from repro.cluster.jump_hosts import CONNECT_S, ssh_options
from repro.cluster.ssh import Remote, on_all
from repro.utils.errors import ReproError
from repro.utils.paths import ROOT
from repro.utils.progress import said_meanwhile, to_stderr

ANSIBLE = ROOT / "ansible"
ROLES = (
    "base",
    "ssh_mesh",
    "nvidia_driver",
    "infiniband",
    "docker_engine",
    "nvidia_container_toolkit",
    "trainer_image",
    "baseline",
    "data_set",
    "shared_results",
)


MOST_FORKS = 32
"""Nodes that Ansible works on at a time: each takes a process of about 60 MiB here."""
SUDO = (
    "provisioning needs sudo without a password for the user on the node; CHECK=1 shows without it what nodes have and "
    "what a run would miss"
)
PLATFORMS = ANSIBLE / "roles/platform/defaults/main.yml"
MANAGEABLE = """
. /etc/os-release
echo "${ID:-unknown}"
echo "${VERSION_ID:-unknown}"
if [ "$(id -u)" != 0 ] && ! said=$(LC_ALL=C sudo -n true 2>&1); then
    case $said in
        *"must have a tty"*) echo "its sudo wants a terminal (requiretty in /etc/sudoers)" ;;
        *) echo "it has no sudo without a password" ;;
    esac
fi
command -v apt-get >/dev/null || echo "it has no apt-get"
"""
ASKING_S, ALIVE_S = 60.0, 5
"""How long a node may take to say what it is, and how often Ansible's connections ask whether it is there."""
SHOWN = 6
"""How many nodes are named that a task still runs on."""


class ProvisionError(ReproError):
    """Provisioning cannot be started; the message says why and what to do."""


@dataclass(frozen=True)
class NodeOutcome:
    """One node: its tasks by their results, the time, the task and message of a failure, notes, and what was changed."""

    node: str
    ok: int
    changed: int
    failed: int
    seconds: float
    task: str = ""
    message: str = ""
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def line(self) -> str:
        """The outcome as a line of text."""
        reason = f": {self.task}: {self.message}" if self.failed else ""
        state = "FAILED" if self.failed else "ok"
        return f"{self.node}  {state}  {self.ok} ok, {self.changed} changed, {self.seconds:.1f} s{reason}"


@dataclass(frozen=True)
class Provisioned:
    """The outcome of a run on all its nodes; `seconds` is the wall time, `status` Ansible's exit status."""

    outcomes: tuple[NodeOutcome, ...]
    seconds: float
    status: int

    @property
    def succeeded(self) -> bool:
        """Whether every selected node was set up."""
        return self.status == 0 and bool(self.outcomes) and not any(outcome.failed for outcome in self.outcomes)


def provision(
    cluster: Cluster,
    *,
    check: bool = False,
    limit: str = "",
    tags: str = "",
    bundle: Path | None = None,
    extra: Mapping | None = None,
    quiet: bool = False,
) -> Provisioned:
    """Run the roles on a cluster's nodes, or with `check` only report what they would change.

    Parameters
    ----------
    limit, tags : names of nodes and of roles, separated by commas; all if empty.
    bundle : a folder that `make bundle` wrote; then nothing is taken from the network but the distribution's packages.
    extra : further variables of roles, which override those of the inventory.
    quiet : keep Ansible's own output out of the terminal.
    """
    given = dict(extra or {})
    if bundle:
        given |= _from_bundle(bundle)
    if cluster.stack == "cu102-modern":
        if cluster.compiled_for:
            given["provision_overlay"] = _overlay(cluster.compiled_for)
        given["provision_libraries"] = {name.lower(): str(_library(name, bundle)) for name in ("cuBLAS", "cuDNN")}
    if cluster.baseline.lock and (cluster.runtime.engine or not cluster.runtime.in_image):
        given["provision_baseline"] = _baseline(cluster, bundle)
    return _play(
        "site.yml", cluster, check=check, limit=limit, tags=checked_names("TAGS", tags, ROLES), extra=given, quiet=quiet
    )


def unmanaged(cluster: Cluster, limit: str = "") -> dict[str, str]:
    """The nodes that `provision` cannot set up, and why, found without root; those that do not answer are left out."""
    import yaml

    def ask(remote: Remote) -> str:
        name, version, *reasons = remote.run(["sh", "-c", MANAGEABLE], timeout=ASKING_S).stdout.splitlines()
        if version not in supported.get(name, []):
            reasons.append(f"the roles were not written for {name} {version}")
        return ", and ".join(reasons)

    supported = yaml.safe_load(PLATFORMS.read_text(encoding="utf-8"))["platform_supported"]
    answers = on_all(cluster, ask, [node for node in cluster.nodes if node.name in chosen_names(cluster, limit)])
    return {node: why for node, why in answers.items() if isinstance(why, str) and why}


def deprovision(cluster: Cluster, *, check: bool = False, limit: str = "", quiet: bool = False) -> Provisioned:
    """Remove from a cluster's nodes what `provision` added; earlier files, runs and data stay."""
    return _play("deprovision.yml", cluster, check=check, limit=limit, tags="", extra={}, quiet=quiet)


def variables(cluster: Cluster) -> dict:
    """The cluster_… variables as the roles read them, with the defaults of those that the inventory leaves out."""
    return {
        "cluster_gpu": cluster.gpu,
        "cluster_gpus_per_node": cluster.gpus_per_node,
        "cluster_interface": cluster.interface,
        "cluster_hca": cluster.hca,
        "cluster_image": vars(cluster.image),
        "cluster_data": cluster.data,
        "cluster_shared_results": cluster.shared_results,
        "cluster_work": cluster.work,
        "cluster_runtime": cluster.runtime.name,
    }


def _play(playbook: str, cluster: Cluster, check: bool, limit: str, tags: str, extra: dict, quiet: bool) -> Provisioned:
    command = [
        sys.executable,
        "-m",
        "ansible",
        "playbook",
        str(ANSIBLE / playbook),
        "--inventory",
        str(cluster.folder / "hosts.yml"),
    ]
    if check:
        command.append("--check")
    if limit:
        command += ["--limit", ",".join(chosen_names(cluster, limit))]
    if tags:
        command += ["--tags", tags]
    with tempfile.TemporaryDirectory(prefix="provision-") as scratch:
        given, summary = Path(scratch) / "variables.json", Path(scratch) / "summary.json"
        given.write_text(json.dumps(variables(cluster) | extra))
        environment = _environment(cluster, summary)
        started = time.monotonic()
        say = (lambda text: None) if quiet else to_stderr
        with said_meanwhile(partial(_now, summary), say, partial(_share, summary)):
            done = subprocess.run(
                [*command, "--extra-vars", f"@{given}"],
                cwd=ANSIBLE,
                env=environment,
                text=True,
                errors="replace",
                capture_output=quiet,
                stdin=subprocess.DEVNULL,
            )
        seconds = time.monotonic() - started
        if not summary.exists():
            errors = f":\n{done.stderr.strip()}" if quiet else "; its message is above"
            raise ProvisionError(f"Ansible did not start (status {done.returncode}){errors}")
        outcomes = _outcomes(json.loads(summary.read_text()))
    return Provisioned(outcomes, seconds, done.returncode)


def _written(summary: Path) -> tuple[str, list[str], float]:
    """Which task runs, on which nodes, and the share of tasks before it, as Ansible's callback writes it down."""
    try:
        task, nodes, share = json.loads(Path(f"{summary}.now").read_text())
    except (OSError, ValueError):  # nothing yet, or half of it
        return "Ansible starts", [], 0.0
    return task, nodes, share


def _share(summary: Path) -> float:
    return _written(summary)[2]


def _now(summary: Path) -> str:
    """The running task with its role, and the nodes it runs on."""
    task, nodes, _ = _written(summary)
    role = task.partition(" : ")[0]
    task = f"role {ROLES.index(role) + 1} of {len(ROLES)}, {task}" if role in ROLES else task
    shown = ", ".join(nodes[:SHOWN]) + (f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else "")
    return f"{task}: {shown}" if nodes else task


def _environment(cluster: Cluster, summary: Path) -> dict[str, str]:
    """Ansible's settings for this run: only the project's own, whatever the user's home or environment says."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    alive = ["-o", f"ServerAliveInterval={round(ALIVE_S * cluster.patience)}", "-o", "ServerAliveCountMax=3"]
    options = shlex.join([*ssh_options(cluster), *alive])
    return ours | {
        "ANSIBLE_CONFIG": str(ANSIBLE / "ansible.cfg"),
        "ANSIBLE_TIMEOUT": str(round(CONNECT_S * cluster.patience)),
        "ANSIBLE_SSH_COMMON_ARGS": options,
        # Connections of another run may have been checked against other host keys, so they are not reused.
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(summary.parent),
        "ANSIBLE_FORKS": str(min(max(5, len(cluster.nodes)), MOST_FORKS)),
        "ANSIBLE_FORCE_COLOR": "1" if sys.stdout.isatty() else "0",
        "PROVISION_SUMMARY": str(summary),
        "LC_ALL": "C.UTF-8",
    }


def _outcomes(nodes: dict) -> tuple[NodeOutcome, ...]:
    def outcome(name: str, summary: dict) -> NodeOutcome:
        failure = summary["failure"] or {"task": "", "message": ""}
        counts = (summary["ok"], summary["changed"], summary["failed"], summary["seconds"])
        said = tuple(summary["notes"]), tuple(summary["changes"])
        return NodeOutcome(name, *counts, failure["task"], _hint(failure["message"]), *said)

    return tuple(outcome(name, summary) for name, summary in nodes.items())


def _hint(message: str) -> str:
    """A failure's message, with what to do where SSH or sudo only report the error."""
    hints = {
        "Host key verification failed": "the node's host key is not the one in the inventory's known_hosts; if the "
        "node was reinstalled, check its key's fingerprint and write it there",
        "Permission denied (publickey": "the node does not accept your SSH key; `ssh-add` it, or name it with "
        "ansible_ssh_private_key_file in the inventory",
        "password is required": SUDO,
        "Missing sudo password": SUDO,
        "must have a tty": "sudo there wants a terminal, which provisioning has not: take requiretty out of /etc/sudoers, or "
        "write there `Defaults:USER !requiretty`",
    }
    return next((f"{message} ({hint})" for error, hint in hints.items() if error in message), message)


def chosen_names(cluster: Cluster, limit: str) -> list[str]:
    """The names of the nodes that are meant; all without a limit."""
    names = [node.name for node in cluster.nodes]
    return checked_names("LIMIT", limit, names).split(",") if limit else names


def checked_names(setting: str, names: str, known_names: Collection[str]) -> str:
    """Names from a list, separated by commas; ProvisionError for one that is not in it."""
    for name in names.split(",") if names else ():
        if name not in known_names:
            missing = f"there is no {name!r}" if name else "a name is empty"
            raise ProvisionError(f"{setting}={names}: {missing}; there are {', '.join(known_names)}")
    return names


def _from_bundle(bundle: Path) -> dict:
    """The variables that make the roles take everything from a bundle, which is checked first."""
    from repro.images.offline_bundle import check_bundle

    if not bundle.is_dir():
        raise ProvisionError(f"BUNDLE={bundle}: no such folder; `make bundle` writes one")
    problems = check_bundle(bundle)
    if problems:
        raise ProvisionError("\n".join(problems))
    images = json.loads((bundle / "images.json").read_text())
    return {
        "provision_bundle": str(bundle.resolve()),
        "provision_bundle_images": {name: [image["id"], image["digest"]] for name, image in images.items()},
    }


def _baseline(cluster: Cluster, bundle: Path | None) -> dict:
    """What the role needs to set up the pinned environment of the baselines, as an image or as an environment.

    With a bundle, nodes have no network, and their wheels are brought from this machine: those for the oldest Python.
    """
    from repro.images.oci_layout import is_complete, read_layout
    from repro.images.recipes import RECIPES
    from repro.images.wheels import baseline_wheels

    lock = cluster.baseline.lock
    if cluster.runtime.engine:
        layout = RECIPES[lock].layout
        built = read_layout(layout) if is_complete(layout) else []
        ids = [image_id for image in built for image_id in (image.id, image.digest)]
        return {"lock": lock, "image": cluster.baseline.image, "ids": ids, "layout": str(layout) if built else ""}
    pythons = BASELINE_PYTHONS[lock][: 1 if bundle else None]
    return {"lock": lock, "pythons": pythons, "wheels": str(baseline_wheels(lock, pythons[0])) if bundle else ""}


def _overlay(architecture: int) -> dict:
    """What the role needs of the overlay on this machine: its folder, its own files, and the names that are links."""
    from repro.images.kernel_overlay import DESCRIPTION, FOLDER, overlay_for

    overlay = overlay_for(architecture)
    if overlay is None:
        raise ProvisionError(
            f"cluster_compiled_for is {architecture}, and no GPU code was compiled for it here: "
            f"`make setup`, then `make compile-kernels ARCH={architecture}`"
        )
    inside = [path for part in ("oneflow", FOLDER) for path in sorted((overlay.folder / part).iterdir())]
    names = {path: path.relative_to(overlay.folder).as_posix() for path in inside}
    files = [DESCRIPTION, *(name for path, name in names.items() if not path.is_symlink())]
    links = [name for path, name in names.items() if path.is_symlink()]
    return {"folder": str(overlay.folder), "files": files, "links": links}


def _library(artefact: str, bundle: Path | None) -> Path:
    """The folder with a pinned library on this machine, out of the bundle's wheel if there is a bundle."""
    from repro.images.pins import load_pins
    from repro.images.wheels import FOLDERS, WHEELS, unpack

    pins = load_pins()
    name = pins.artefact(artefact).file
    wheel = WHEELS / FOLDERS[artefact] / name
    if bundle and not wheel.exists():
        wheel.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(bundle / "wheels" / name, wheel)
    return unpack(pins, artefact)
