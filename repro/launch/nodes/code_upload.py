"""Copies the code that runs on a node there, under a name that is its hash, and checks that it is what was sent."""

from __future__ import annotations

import json
import re
from pathlib import Path

from repro.cluster.cluster import Cluster
from repro.cluster.ssh import NOT_FOUND, CommandResult, Remote, RemoteError
from repro.images.stack import COMPAT, TRACER, compat_sources
from repro.launch.agent import START
from repro.launch.nodes.libraries import COMPAT_FOLDER, needs_forwarders
from repro.models.extensions import folders_of
from repro.planning.baselines import SCRIPT as BASELINE
from repro.runs.program_files import files_digest
from repro.utils.paths import PACKAGE, TRAINER, sha256_of

PATIENCE_S = 60
RECEIVE = """
import hashlib, json, os, shutil, sys, tempfile
order = json.load(sys.stdin)
root = os.path.join(order["work"], "code", order["digest"])
def digest(folder):
    paths = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names]
    found = hashlib.sha256()
    for name in sorted(os.path.relpath(path, folder) for path in paths):
        with open(os.path.join(folder, name), "rb") as file:
            found.update(json.dumps([name, hashlib.sha256(file.read()).hexdigest()]).encode())
    return found.hexdigest()
if not os.path.isdir(root):
    os.makedirs(os.path.dirname(root), exist_ok=True)
    scratch = tempfile.mkdtemp(prefix=order["digest"] + ".", dir=os.path.dirname(root))
    try:
        partial = os.path.join(scratch, "code")
        for name, text in order["files"].items():
            path = os.path.join(partial, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        try:
            os.rename(partial, root)
        except OSError:
            if not os.path.isdir(root):
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
if digest(root) != order["digest"]:
    sys.exit(root + " is not as it was sent; remove it")
print(root)
"""
"""Several may run it at once, also on nodes that share the folder: each writes one of its own, and the first gives it
its name. That comes after all files are on the disk: a node that lost its power had the name, and empty files."""


class UploadedCode:
    """What is sent: the node agent, the models' specifications, a trainer's folder, that of the baselines, and the tracer.

    Models from outside lie among the project's own there, so that nodes need not know of their folders.

    Parameters
    ----------
    trainer : the trainer's script; the Python files of its folder go along.
    forwarders : send the sources of the libraries with which a venv reaches a newer cuBLAS and cuDNN too.
    baseline : the baselines' script, None for no baselines; the Python files of its folder go along.
    """

    def __init__(self, trainer: Path = TRAINER, forwarders: bool = False, baseline: Path | None = None):
        self.script, self.baseline_script = trainer.name, baseline.name if baseline else ""
        sources: list[tuple[str, Path]] = [
            ("repro/launch/agent", PACKAGE / "launch" / "agent"),
            *(("repro/models", Path(folder)) for folder in folders_of("models")),
            ("repro/models", PACKAGE / "models"),
            *(("repro/trainers/models", Path(folder)) for folder in folders_of("trainers/models")),
            ("repro/trainers", trainer.parent),
        ]
        if baseline:
            sources += [("repro/baselines", Path(folder)) for folder in folders_of("baselines")]
            sources.append(("repro/baselines", baseline.parent))
        paths = {"repro/__init__.py": PACKAGE / "__init__.py"}
        for target, folder in sources:
            paths |= {f"{target}/{path.relative_to(folder)}": path for path in sorted(folder.rglob("*.py"))}
        compiled = compat_sources() if forwarders else [COMPAT / f"{TRACER}.c"]
        paths |= {f"{COMPAT_FOLDER}/{path.name}": path for path in compiled}
        self.files = {name: path.read_text(encoding="utf-8") for name, path in paths.items()}
        self.digest = files_digest((name, sha256_of(text.encode())) for name, text in self.files.items())

    @classmethod
    def of(cls, cluster: Cluster, trainer: Path = TRAINER, baseline: Path | None = None) -> UploadedCode:
        """What the nodes of a cluster need; `baseline` replaces the script of the baselines, if the cluster runs any."""
        return cls(trainer, needs_forwarders(cluster), baseline or (BASELINE if cluster.baseline.python else None))

    def folder(self, work: str) -> str:
        """Where it is on a node."""
        return f"{work}/code/{self.digest}"

    def agent(self, cluster: Cluster, *mark: str) -> list[str]:
        """The command that starts the agent on a node.

        Its arguments contain the mark of its run, by which `make unlock` finds it on the node.
        """
        return [*cluster.interpreter, "-c", START, self.folder(cluster.work), *mark]


def deliver(remote: Remote, code: UploadedCode) -> None:
    """Write the code to a node unless it is there; RemoteError if that fails, or it was changed there."""
    cluster = remote.cluster
    order = json.dumps({"work": cluster.work, "digest": code.digest, "files": code.files})
    done = remote.run([*cluster.interpreter, "-c", RECEIVE], stdin=order, check=False, timeout=PATIENCE_S)
    if done.status:
        raise RemoteError(remote.node.name, f"the trainers cannot be copied to {cluster.work}: {_why(cluster, done)}")


def _why(cluster: Cluster, done: CommandResult) -> str:
    """Why the code was not taken; what provisioning sets up is the folder alone."""
    if done.status == NOT_FOUND:
        return (
            f"there is no {cluster.python}; install Python 3.8 or newer there, or name the one that is there as "
            f"ansible_python_interpreter in {cluster.variables}"
        )
    reason = (done.stderr.strip().splitlines() or [f"status {done.status}"])[-1]
    if re.match("PermissionError|FileNotFoundError", reason):
        return f"{reason}. `make provision CLUSTER={cluster.setting}` sets that folder up"
    return reason
