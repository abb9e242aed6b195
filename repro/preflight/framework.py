"""Small checks of the machines before a run: what each found, its impact on a run, and how to fix it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from repro.cluster.cluster import Cluster, Node
from repro.cluster.local_shell import NAME, NOT_FOUND, LocalShell
from repro.cluster.ssh import Remote, RemoteError, Result, Shell
from repro.utils.errors import ReproError

OK, WARNING, FAILED, UNAVAILABLE = "ok", "warning", "failed", "not available"
COMMAND_S = 60.0


class PreflightError(ReproError):
    """The checks cannot be made as asked; the message says why."""


@dataclass(frozen=True)
class Finding:
    """The outcome of a check: one of the four results, the facts, their impact on a run, and how to fix them.

    `fixed` says that FIX=1 has done so.
    """

    result: str
    found: str
    impact: str = ""
    fix: str = ""
    fixed: bool = False


class CheckAborted(ReproError):
    """Ends a check early with its finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.found)
        self.finding = finding


def ok(found: str) -> Finding:
    return Finding(OK, found)


def warning(found: str, impact: str, fix: str) -> Finding:
    return Finding(WARNING, found, impact, fix)


def failed(found: str, impact: str, fix: str) -> Finding:
    return Finding(FAILED, found, impact, fix)


def unavailable(reason: str, fix: str = "") -> Finding:
    return Finding(UNAVAILABLE, reason, fix=fix)


@dataclass(frozen=True)
class Expected:
    """What a machine should be. `gpu` is None for any and "" for none; `gpus` is 0 for any number."""

    gpu: str | None = None
    gpus: int = 0
    interface: str = ""
    hca: str = ""
    network_gbits: float = 0.0
    work: str = "."
    port: int = 0
    containers: bool = False
    image: str = ""
    gid_index: int | None = None


@dataclass
class Machine:
    """A machine to check: `runner` runs commands on it, `other_nodes` names the other machines of its cluster."""

    name: str
    runner: Shell
    expected: Expected = field(default_factory=Expected)
    other_nodes: tuple[str, ...] = ()

    def run(self, argv: Sequence[str], *, timeout: float = COMMAND_S, sudo: bool = False) -> Result:
        """The result of a command, whatever its status; CheckAborted if it is not installed."""
        done = self.runner.run(argv, timeout=timeout, check=False, sudo=sudo)
        if done.status == NOT_FOUND or (sudo and f"{argv[0]}: command not found" in done.stderr):
            raise CheckAborted(
                unavailable(f"{argv[0]} is not installed", f"install it ({PACKAGES.get(argv[0], argv[0])})")
            )
        return done

    def text(self, argv: Sequence[str], *, timeout: float = COMMAND_S, sudo: bool = False) -> str:
        """The output of a command; CheckAborted with the last line of its errors if it fails."""
        done = self.run(argv, timeout=timeout, sudo=sudo)
        if done.status:
            raise CheckAborted(unavailable(f"`{shlex.join(argv[:3])}`: {last_line(done)}"))
        return done.stdout

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        """The contents of those of these one-line files that exist, by path."""
        lines = self.run(["grep", "-sH", "", *paths]).stdout.splitlines()
        return {path: value for path, _, value in (line.partition(":") for line in lines)}


def last_line(done: Result) -> str:
    """Why a command failed: the last line that it printed, or its status."""
    return (done.stderr.strip() or done.stdout.strip() or f"status {done.status}").splitlines()[-1]


PACKAGES = {
    "nvidia-smi": "the NVIDIA driver; `make provision` does it",
    "docker": "Docker engine; `make provision` does it",
    "iperf3": "apt-get install iperf3",
    "ib_write_bw": "apt-get install perftest",
    "ss": "apt-get install iproute2",
    "ip": "apt-get install iproute2",
    "ssh": "apt-get install openssh-client",
}


@dataclass(frozen=True)
class Check:
    """One check, named `what` in a few words.

    Attributes
    ----------
    check : gets one machine, or all of them where `together`, and gives a finding; CheckAborted ends it early.
    fix : what FIX=1 does about a warning or failure, where that is safe.
    """

    name: str
    what: str
    check: Callable[..., Finding]
    fix: Callable[[Machine], None] | None = None
    together: bool = False


@dataclass(frozen=True)
class Entry:
    """A finding with its check and machine; `seconds` is the duration of the check."""

    check: str
    what: str
    machine: str
    finding: Finding
    seconds: float

    def as_json(self) -> dict:
        head = {"check": self.check, "what": self.what, "machine": self.machine}
        return {**head, **asdict(self.finding), "seconds": round(self.seconds, 3)}


def run_checks(checks: Sequence[Check], machines: Sequence[Machine], fix: bool = False) -> Iterator[list[Entry]]:
    """The entries of one check after the other, each on all machines in parallel; with `fix`, also fix what is safe."""
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        for check in checks:
            if check.together:
                name = machines[0].name if len(machines) == 1 else "all"
                yield [_entry(check, machines, name)]
            else:
                yield list(pool.map(lambda machine, check=check: _on_one(check, machine, fix), machines))


def _on_one(check: Check, machine: Machine, fix: bool) -> Entry:
    entry = _entry(check, machine, machine.name)
    if not fix or check.fix is None or entry.finding.result not in (WARNING, FAILED):
        return entry
    try:
        check.fix(machine)
    except CheckAborted as aborted:
        tried = f"{entry.finding.fix} (FIX=1 tried: {aborted.finding.found})"
        return replace(entry, finding=replace(entry.finding, fix=tried))
    after = _entry(check, machine, machine.name)
    return replace(after, finding=replace(after.finding, fixed=after.finding.result == OK))


def _entry(check: Check, subject: Machine | Sequence[Machine], name: str) -> Entry:
    started = time.monotonic()
    try:
        finding = check.check(subject)
    except CheckAborted as aborted:
        finding = aborted.finding
    except RemoteError as error:
        finding = failed(
            str(error), "Commands do not run on this machine as they should.", "log in by hand and see why"
        )
    return Entry(check.name, check.what, name, finding, time.monotonic() - started)


def choose(checks: Sequence[Check], only: str | None) -> list[Check]:
    """The checks whose names are in a comma-separated list, or all; PreflightError names those there are."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    known = [check.name for check in checks]
    for name in names:
        if name not in known:
            raise PreflightError(f"ONLY={name}: no such check; there are {', '.join(known)}")
    return [check for check in checks if not names or check.name in names]


def this_machine(port: int = 0, work: Path = Path()) -> Machine:
    """The machine that the controller runs on, with no particular expectation."""
    return Machine(NAME, LocalShell(), Expected(port=port, work=str(work)))


def of_cluster(cluster: Cluster) -> tuple[list[Machine], dict[str, RemoteError]]:
    """The nodes of a cluster that accept a connection, and the errors of the others; the caller closes them."""

    def connect(node: Node) -> Remote | RemoteError:
        try:
            return Remote(cluster, node)
        except RemoteError as error:
            return error

    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        found = dict(zip(cluster.nodes, pool.map(connect, cluster.nodes), strict=True))
    expected = Expected(
        cluster.gpu,
        cluster.gpus_per_node,
        cluster.interface,
        cluster.hca,
        cluster.network_gbits,
        cluster.work,
        cluster.port,
        cluster.containers,
        cluster.image.digest or cluster.image.name,
        cluster.gid_index,
    )
    names = [node.name for node in cluster.nodes]
    machines = [
        Machine(node.name, runner, expected, tuple(name for name in names if name != node.name))
        for node, runner in found.items()
        if isinstance(runner, Remote)
    ]
    return machines, {node.name: error for node, error in found.items() if isinstance(error, RemoteError)}
