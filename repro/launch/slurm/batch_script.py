"""The script of a Slurm job that runs one attempt: what it asks for, and the orders of its nodes."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from repro.cluster.cluster import Cluster
from repro.launch.agent.leftovers import USER
from repro.launch.nodes.code_upload import Code
from repro.launch.nodes.commands import Host
from repro.launch.nodes.holder import holder
from repro.launch.nodes.work import LEASE_S, Work
from repro.utils.paths import PACKAGE

if TYPE_CHECKING:
    import jinja2

TEMPLATES = Path(__file__).resolve().parent
PROGRAM = PACKAGE / "launch" / "agent" / "slurm_task.py"
CONTROLLER_LEASE_S = 60
HOST = Host(address="@MASTER@", user="@USER@", launcher="@LAUNCHER@")


@dataclass(frozen=True)
class SlurmWork(Work):
    """An attempt as the nodes of a job get it; nodes that share a file system have a folder each.

    `token` makes its folder unique: what another job left there would be read as this one's.
    """

    token: str = ""

    @property
    def key(self) -> str:
        """Distinguishes the job's containers from those of another run with the same names."""
        return f"{super().key}-{self.token}"

    @property
    def home(self) -> str:
        """The attempt's folder on each node, with a folder for each node in it."""
        return super().folder

    @property
    def folder(self) -> str:
        """What a rank's files are written below."""
        return f"{self.home}/node-@NODE@/attempt"

    @property
    def messages(self) -> str:
        """Where the job's script keeps what its nodes send."""
        shared = self.cluster.shared_results
        return shared + self.home.removeprefix(self.cluster.work) if shared else self.home

    def orders(self) -> list[dict]:
        """What the agents of the nodes have to do, in the order of their ranks."""
        hosts = [HOST] * len(self.placement.nodes)
        own = {
            "code": f"{self.home}/node-@NODE@/code",
            "home": f"{self.home}/node-@NODE@",
            "lease_s": LEASE_S,
            "messages": f"{self.messages}/messages-@NODE@.jsonl",
        }
        return [{**self.order(index, hosts), **own} for index in range(len(hosts))]


def job_options(work: Work, minutes: int) -> list[str]:
    """What the job asks for: whole nodes, one task on each, and their GPUs if the attempt uses GPUs.

    The inventory's own options come last, where they win.
    """
    slurm = work.cluster.slurm
    options = [
        f"--job-name={re.sub(r'[^A-Za-z0-9_.-]', '_', f'reproduction-{work.unit}')}",
        f"--nodes={len(work.placement.nodes)}",
        "--ntasks-per-node=1",
        "--exclusive",
        "--mem=0",
        f"--time={minutes}",
        "--no-requeue",
        "--output=/dev/null",
    ]
    options += [f"--gres=gpu:{work.placement.per_node}"] if work.config["device"] == "cuda" else []
    options += [f"--partition={slurm.partition}"] if slurm.partition else []
    options += [f"--account={slurm.account}"] if slurm.account else []
    return [*options, *slurm.options]


def job_script(work: SlurmWork, code: Code, minutes: int, shown: bool = False) -> str:
    """The script, rendered; with `shown` it is without the text of the code, which takes many pages."""
    cluster: Cluster = work.cluster
    files = {name: f"({len(text)} characters)" if shown else text for name, text in code.files.items()}
    owner = {**holder(f"{work.unit}, {work.attempt}", work.run), "mark": work.token}
    order = {"work": cluster.work, "owner": owner, "nodes": work.orders(), "files": files}
    return _template("sbatch.sh.j2").render(
        options=job_options(work, minutes),
        title=f"{work.unit}, {work.attempt} of run {work.run}".replace("\n", " "),
        folder=work.messages,
        interface=cluster.interface,
        lease_s=CONTROLLER_LEASE_S,
        program=f"(the text of repro/launch/agent/{PROGRAM.name})" if shown else PROGRAM.read_text(encoding="utf-8"),
        order=json.dumps(order, indent=1),
        python=cluster.python,
        sweep=sweep(work),
    )


def sweep(work: SlurmWork) -> str:
    """A shell command that removes from a node what this attempt, and no other, may have left there."""
    remove = f"rm -rf -- {shlex.quote(work.home)}/node-*"
    if not work.cluster.containers:
        return remove
    match = f'--filter {shlex.quote(f"name=^/{work.name}-")} --filter "label={USER}=$(id -u)"'
    return f"docker ps --all --quiet {match} | xargs --no-run-if-empty docker rm --force --volumes; {remove}"


def _template(name: str) -> jinja2.Template:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["quote"] = lambda value: shlex.quote(str(value))
    return found.get_template(name)
