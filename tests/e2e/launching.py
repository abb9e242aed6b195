"""What tests of launches over simulated nodes share: a cluster to load, trainers that go wrong, attempts, a table."""

import contextlib
import fcntl
import functools
import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from repro.cluster.cluster import Cluster, load_cluster
from repro.launch.attempt import Limits, Outcome
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import OWN
from repro.launch.ssh.attempt import ssh_attempts
from repro.launch.ssh.nodes import NodePool
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import Layout, load_catalogue
from repro.runs.unit import Unit
from repro.simulation.places import HOME
from tests.support import patience, tasks
from tests.support.paths import ROOT, STANDIN
from tests.support.simulated import containers_asked_for

TABLE = ROOT / "tests" / "output" / "fault_times.json"
WORK = "/var/lib/oneflow-reproduction"
LOST = r"nothing was heard from node2 for 1[5-9] s: it is down, cut off, or stopped|node2 was lost: .+"
"""The message about a node that has stopped answering."""
WRAPPER = """
import os, runpy, sys
os.environ["STANDIN"] = {faults!r}
os.environ["STANDIN_WAIT"] = {wait!r}
{first}
runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin.py"), run_name="__main__")
"""


def prepare(nodes, folder: Path, **variables) -> Path:
    """An inventory folder of shared nodes for one module's tests, and the folder on the nodes that runs write to."""
    import yaml

    inventory = folder / "inventory"
    shutil.copytree(nodes.inventory, inventory, dirs_exist_ok=True)
    file = inventory / "group_vars" / "all.yml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **variables}, sort_keys=False))
    for node in nodes.names:
        nodes.root(node, "install", "-d", "-o", "runner", "-g", "runner", WORK)
    return inventory


def trainer(folder: Path, faults: str = "", wait: str = "", first: str = "") -> Path:
    """The stand-in trainer as a script that asks for faults by itself; `first` is code that runs before it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(STANDIN, folder / "standin.py")
    script = folder / "trainer.py"
    script.write_text(WRAPPER.format(faults=faults, wait=wait, first=first))
    return script


def smoke_units(model: str = "bert", processes: int = 4) -> list[Unit]:
    return list(
        make_plan(load_catalogue().select(model, None), 0, Wanted(scale="smoke", repeats=1), processes=processes).units
    )


def unit_of(ranks: int, name: str | None = None) -> Unit:
    """A BERT unit on so many data parallel ranks, as the stand-in trainer runs it."""
    from dataclasses import replace

    unit = smoke_units("bert", 1)[0]
    return replace(unit, name=name or f"bert {ranks}", config=replace(unit.config, layout=Layout(ranks)))


def containers(nodes, node: str) -> list[str]:
    """The containers of runs that a node's engine has, in whatever state."""
    return nodes.root(node, "docker", "ps", "--all", "--quiet", "--filter", f"label={OWN}").split()


def attempts_left(nodes, node: str) -> set[str]:
    """The folders of attempts that there are on a node."""
    return set(nodes.root(node, "find", f"{WORK}/runs", "-mindepth", 2, "-maxdepth", 2, check=False).splitlines())


def trainers(nodes, node: str, since: float) -> list[list[str]]:
    """The trainers that containers of a node have started since a time; the programs of checks are none."""
    asked = [each["args"] for each in containers_asked_for(nodes, node) if each["time"] >= since]
    return [argv for argv in asked if any(word.endswith("/run.py") for word in argv)]


def wait_until(holds, seconds: float = 30.0) -> float:
    """Wait until a condition holds and return the seconds that took; the time limit is that of an idle machine."""
    started = time.monotonic()
    patience.wait_until(holds, "it did not come to hold", seconds, every_s=0.5)
    return time.monotonic() - started


@dataclass
class Attempted:
    """An attempt, what it said, and how long after the fault it ended."""

    outcome: Outcome
    seconds: float
    folder: Path
    events: list = field(default_factory=list)


class Launcher:
    """Makes attempts on a fleet that stays open from test to test."""

    def __init__(self, cluster: Cluster, folder: Path):
        self.cluster, self._folder, self._number = cluster, folder, 0
        self._run = f"test run {secrets.token_hex(4)}"  # a killed agent leaves the folder of its attempt on its node
        self.pool = NodePool(cluster, UploadedCode(trainer(folder / "none")), "tests")

    def attempt(
        self,
        script: Path,
        ranks: int = 2,
        inject=None,
        limits: Limits | None = None,
        name=None,
        alone=False,
    ) -> Attempted:
        """One attempt; `inject` is called once all ranks have begun, and the time is taken from its return.

        `alone`: while other processes make none. Nodes share one kernel, which counts for all of them together how many
        processes it has killed for lack of memory.
        """
        self._number += 1
        folder = self._folder / f"attempt {self._number} 'quoted'"
        folder.mkdir(parents=True)
        for member in self.pool.members.values():
            if not member.lost:
                self._bring(member, script)
        attempted = Attempted(None, 0.0, folder)
        begun, fault = set(), [time.monotonic()]

        def on_event(event):
            attempted.events.append(event)
            if event["event"] == "start":
                begun.add(event["rank"])
                fault[0] = time.monotonic()
                if inject and len(begun) == ranks:
                    inject()
                    fault[0] = time.monotonic()

        limits = limits or Limits(Limits.stall_timeout_s * self.cluster.patience)
        unit = unit_of(ranks, name)
        made = ssh_attempts(self.pool, self._run, limits, True)(unit, folder)
        with locked(HOME / "kernel.lock", fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            attempted.outcome = made.run(on_event)
        attempted.seconds = time.monotonic() - fault[0]
        return attempted

    def _bring(self, member, script: Path) -> None:
        """Give a node that is open another trainer."""
        from repro.launch.nodes.code_upload import deliver

        self.pool.code = UploadedCode(script)
        deliver(member.remote, self.pool.code)


@functools.cache
def cluster_of(inventory: Path) -> Cluster:
    """The cluster of an inventory that `prepare` made, read once: each time takes Ansible a second of a processor."""
    return load_cluster(str(inventory))


def launcher_of(inventory: Path, folder: Path) -> Launcher:
    return Launcher(cluster_of(inventory), folder)


def note(fault: str, attempted_or_seconds, message: str) -> None:
    """Keep a fault's detection time for the table of all."""
    TABLE.parent.mkdir(exist_ok=True)
    seconds = getattr(attempted_or_seconds, "seconds", attempted_or_seconds)
    with locked(TABLE.with_suffix(".lock")):
        table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
        table[fault] = {"seconds": round(seconds, 1), "message": message}
        TABLE.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n")


@contextlib.contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock against the tests of other processes."""
    with open(path, "w") as file:
        fcntl.flock(file, how)
        yield


def bench(folder: Path, inventory: Path, **settings) -> tuple[subprocess.CompletedProcess, Path | None]:
    """`make bench` as a process; the completed process and the run's folder."""
    done = tasks.run("bench", 600, **{"CLUSTER": inventory, "RUNS": folder / "runs", "REPEATS": 1, **settings})
    return done, next(iter((folder / "runs").glob("*/")), None)
