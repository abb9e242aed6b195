"""The script of a Slurm job: what it asks for, and the folder in which it takes orders; and the orders of its steps."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cluster.cluster import ISOLATED, Cluster
from repro.cluster.rank_environment import after_prologue
from repro.images.runtime import IMAGE_PYTHON, Pyxis
from repro.launch.agent.leftovers import USER
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.collector import safe
from repro.launch.nodes.commands import NodeFacts, step_binds
from repro.launch.nodes.holder import holder
from repro.launch.nodes.work import LEASE_S, NodeWork
from repro.launch.placement import Placement
from repro.utils.paths import PACKAGE

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).resolve().parent
PROGRAM = PACKAGE / "launch" / "agent" / "slurm_task.py"
NODE, STEP = "@NODE@", "@STEP@"
"""Placeholders for a node's position in its job and for the number of a step, until both are known."""


@dataclass(frozen=True)
class JobRequest:
    """A job that is to be submitted.

    Attributes
    ----------
    what : what it is for, in a few words.
    run : the run that it belongs to.
    nodes, gpus : whole nodes, and the GPUs that are used on each.
    token : makes its folder unique: what another job left there would be read as this one's.
    """

    cluster: Cluster
    what: str
    run: str
    nodes: int
    gpus: int
    minutes: int
    token: str

    @property
    def home(self) -> str:
        """The job's folder on each node; nodes that share a file system have folders of their own in it."""
        return f"{self.cluster.work}/runs/{safe(self.run)}/job-{self.token}"

    @property
    def messages(self) -> str:
        """Where the job's script takes orders and keeps what its nodes send."""
        shared = self.cluster.shared_results
        return shared + self.home.removeprefix(self.cluster.work) if shared else self.home

    @property
    def step_home(self) -> str:
        """The folder of a step on each of its nodes."""
        return f"{self.home}/step-{STEP}/node-{NODE}"

    def options(self) -> list[str]:
        """What the job asks for: whole nodes, one task on each, and their GPUs.

        The inventory's own options come last, where they win.
        """
        slurm = self.cluster.slurm
        options = [
            f"--job-name={re.sub(r'[^A-Za-z0-9_.-]', '_', f'reproduction-{self.what}')}",
            f"--nodes={self.nodes}",
            "--ntasks-per-node=1",
            "--exclusive",
            "--mem=0",
            f"--time={self.minutes}",
            "--no-requeue",
            "--output=/dev/null",
        ]
        options += [f"--gres=gpu:{self.gpus}"] if self.gpus else []
        options += [f"--partition={slurm.partition}"] if slurm.partition else []
        options += [f"--account={slurm.account}"] if slurm.account else []
        return [*options, *slurm.options]

    def script(self, shown: bool = False) -> str:
        """The script, rendered; with `shown` it is without the text of the program that it runs."""
        return _template("sbatch.sh.j2").render(
            options=self.options(),
            title=f"{self.what}, run {self.run}".replace("\n", " "),
            folder=self.messages,
            lease_s=self.cluster.slurm.lease_seconds,
            program=f"(the text of repro/launch/agent/{PROGRAM.name})"
            if shown
            else PROGRAM.read_text(encoding="utf-8"),
            python=self._python(),
            container=self._container(),
            sweep=self.sweep(),
        )

    def _python(self) -> list[str]:
        inside = self.cluster.runtime.whole_step
        return after_prologue(self.cluster.prologue, [IMAGE_PYTHON, *ISOLATED] if inside else self.cluster.interpreter)

    def _container(self) -> list[str]:
        """The options of srun that put the tasks of a step into the image."""
        if not self.cluster.runtime.whole_step:
            return []
        return Pyxis.step_options(self.cluster.image.file, step_binds(self.cluster))

    def sweep(self) -> str:
        """A shell command that removes from a node what this job, and no other, may have left there.

        With the number of a step as its argument it removes that step's folder alone, for nodes may share a file system.
        """
        remove = f"rm -rf -- {shlex.quote(self.home)}/step-${{1:-*}}"
        if not self.cluster.runtime.engine:
            return remove
        name = shlex.quote(f"name=^/?reproduction-[0-9a-f]+-{self.token}-")
        match = f'--filter {name} --filter "label={USER}=$(id -u)"'
        return f"docker ps --all --quiet {match} | xargs --no-run-if-empty docker rm --force --volumes; {remove}"

    def owner(self, what: str, run: str) -> dict[str, str]:
        """What a node that is locked for a step tells others of it; the steps of a job have one mark."""
        return {**holder(what, run), "mark": self.token}

    def order(
        self, step: int, owner: dict, code: UploadedCode, orders: Mapping[str, dict], positions: Mapping[str, int]
    ) -> str:
        """The line that the tasks of a step take: the code, and the order for the agent on each node, by its name.

        `positions` are those of the nodes in the job, `owner` is what the method of that name gives.
        """
        own = {
            "code": f"{self.step_home}/code",
            "home": self.step_home,
            "lease_s": LEASE_S * self.cluster.patience,
            "patience": self.cluster.patience,
            "messages": f"{self.messages}/messages-{NODE}.jsonl",
        }
        content = {
            "step": step,
            "owner": owner,
            "nodes": {name: fill({**order, **own}, step, positions[name]) for name, order in orders.items()},
            "files": code.files,
        }
        return json.dumps(content) + "\n"


@dataclass(frozen=True)
class SlurmWork(NodeWork):
    """An attempt as the nodes of a job get it; `home` is the folder of its step on each node, `token` the job's."""

    home: str = ""
    token: str = ""

    @property
    def key(self) -> str:
        """Distinguishes the job's containers from those of another run with the same names."""
        return f"{super().key}-{self.token}"

    @property
    def lease_s(self) -> float:
        return self.cluster.slurm.lease_seconds

    def folder(self, index: int) -> str:
        """What a rank's files are written below; the folder of the step has the node's position already."""
        return f"{self.home}/attempt"

    def orders(self, hosts: Sequence[NodeFacts]) -> dict[str, dict]:
        """What the agents of the nodes have to do, by the names of the nodes, in the order of their ranks."""
        return {node.name: self.order(index, list(hosts)) for index, node in enumerate(self.placement.nodes)}


def fill(value: Any, step: int, node: int) -> Any:
    """A value with the number of its step and the position of its node wherever its texts have the placeholders."""
    if isinstance(value, dict):
        return {key: fill(item, step, node) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, step, node) for item in value]
    return value.replace(NODE, str(node)).replace(STEP, str(step)) if isinstance(value, str) else value


def work_of_step(request: JobRequest, work: NodeWork, placement: Placement | None = None) -> SlurmWork:
    """An attempt as the nodes of a job get it, on these nodes or those that the work has."""
    home = request.step_home
    given = {**vars(work), "trainers": f"{home}/code/repro/{'baselines' if work.baseline else 'trainers'}"}
    return SlurmWork(**{**given, "placement": placement or work.placement}, home=home, token=request.token)


def _template(name: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    return environment.get_template(name)
