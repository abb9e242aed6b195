"""Checks of the machines before a run: what each found, its impact on a run, and how to fix it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro.cluster.cluster import Cluster, Node
from repro.cluster.local_shell import NAME, NOT_FOUND, LocalShell
from repro.cluster.ssh import AT_ONCE, CommandResult, Remote, RemoteError
from repro.utils.errors import ReproError
from repro.utils.i18n import N_, Message

OK, WARNING, FAILED, UNAVAILABLE = N_("ok"), N_("warning"), N_("failed"), N_("not available")
COMMAND_S = 60.0


class PreflightError(ReproError):
    """The requested checks cannot be run; the message says why."""


@dataclass(frozen=True)
class CheckResult:
    """The outcome of a check: one of the four results, the facts, their impact on a run, and how to fix them.

    `facts` is a `Message` unless it is another program's output. `fixed` means that FIX=1 fixed it.
    """

    result: str
    facts: str
    impact: str = ""
    fix: str = ""
    fixed: bool = False

    def as_json(self) -> dict:
        result = {"result": self.result, "found": self.facts}
        return {**result, "impact": self.impact, "fix": self.fix, "fixed": self.fixed}


class CheckAborted(ReproError):
    """Raised to end a check early, with its finding."""

    def __init__(self, finding: CheckResult) -> None:
        super().__init__(finding.facts)
        self.finding = finding


def ok(message: str) -> CheckResult:
    return CheckResult(OK, message)


def warning(message: str, impact: str, fix: str) -> CheckResult:
    return CheckResult(WARNING, message, impact, fix)


def failed(message: str, impact: str, fix: str) -> CheckResult:
    return CheckResult(FAILED, message, impact, fix)


def unavailable(reason: str, fix: str = "") -> CheckResult:
    return CheckResult(UNAVAILABLE, reason, fix=fix)


@dataclass(frozen=True)
class Expected:
    """What a machine should have. `gpu` is None for any and "" for none; `gpus` is 0 for any number.

    `image` is the trainer image by its ID or name, `manifest` the ID that it has in an engine with a containerd store.
    `patience` is the cluster's.
    """

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
    manifest: str = ""
    patience: float = 1.0


@dataclass
class Machine:
    """A machine to check: `runner` runs commands on it, `other_nodes` names the other machines of its cluster."""

    name: str
    runner: Remote | LocalShell
    expected: Expected = field(default_factory=Expected)
    other_nodes: tuple[str, ...] = ()

    def run(self, argv: Sequence[str], *, timeout: float = COMMAND_S, sudo: bool = False) -> CommandResult:
        """The result of a command, whatever its status; CheckAborted if it is not installed."""
        done = self.runner.run(argv, timeout=timeout, check=False, sudo=sudo)
        if done.status == NOT_FOUND or (sudo and f"{argv[0]}: command not found" in done.stderr):
            raise CheckAborted(
                unavailable(
                    Message("{tool} is not installed", tool=argv[0]), f"install it ({PACKAGES.get(argv[0], argv[0])})"
                )
            )
        return done

    def text(self, argv: Sequence[str], *, timeout: float = COMMAND_S, sudo: bool = False) -> str:
        """The output of a command; CheckAborted with the last line of its errors if it fails."""
        done = self.run(argv, timeout=timeout, sudo=sudo)
        if done.status:
            raise CheckAborted(unavailable(f"`{shlex.join(argv[:3])}`: {last_line(done)}"))
        return done.stdout

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        """The contents of one-line files by path, without those that do not exist."""
        lines = self.run(["grep", "-sH", "", *paths]).stdout.splitlines()
        return {path: value for path, _, value in (line.partition(":") for line in lines)}


def last_line(done: CommandResult) -> str:
    """Why a command failed: its last line of output, or its status."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return lines[-1] if lines else Message("status {status}", status=done.status)


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
class PreflightCheck:
    """One check, named `what` in a few words.

    Attributes
    ----------
    check : called with one machine, or with all if `together`; returns a finding or raises CheckAborted.
    fix : what FIX=1 does about a warning or failure, if that is safe.
    """

    name: str
    what: str
    check: Callable[..., CheckResult]
    fix: Callable[[Machine], None] | None = None
    together: bool = False


@dataclass(frozen=True)
class ChecklistEntry:
    """A finding with its check and machine; `seconds` is the duration of the check."""

    check: str
    what: str
    machine: str
    finding: CheckResult
    seconds: float

    def as_json(self) -> dict:
        head = {"check": self.check, "what": self.what, "machine": self.machine}
        facts = self.finding.facts
        message = facts.as_json() if isinstance(facts, Message) else {}
        return {**head, **self.finding.as_json(), **message, "seconds": round(self.seconds, 3)}


def run_checks(
    checks: Sequence[PreflightCheck], machines: Sequence[Machine], fix: bool = False
) -> Iterator[list[ChecklistEntry]]:
    """Run the checks one after the other, each on all machines in parallel; with `fix`, also fix what is safe."""
    with ThreadPoolExecutor(min(max(1, len(machines)), AT_ONCE)) as pool:
        for check in checks:
            if check.together:
                name = machines[0].name if len(machines) == 1 else "all"
                yield [_entry(check, machines, name)]
            else:
                yield list(pool.map(lambda machine, check=check: _on_one(check, machine, fix), machines))


def _on_one(check: PreflightCheck, machine: Machine, fix: bool) -> ChecklistEntry:
    entry = _entry(check, machine, machine.name)
    if not fix or check.fix is None or entry.finding.result not in (WARNING, FAILED):
        return entry
    try:
        check.fix(machine)
    except CheckAborted as aborted:
        tried = f"{entry.finding.fix} (FIX=1 tried: {aborted.finding.facts})"
        return replace(entry, finding=replace(entry.finding, fix=tried))
    after = _entry(check, machine, machine.name)
    return replace(after, finding=replace(after.finding, fixed=after.finding.result == OK))


def _entry(check: PreflightCheck, subject: Machine | Sequence[Machine], name: str) -> ChecklistEntry:
    started = time.monotonic()
    try:
        finding = check.check(subject)
    except CheckAborted as aborted:
        finding = aborted.finding
    except RemoteError as error:
        finding = failed(str(error), "Commands fail on this machine.", "log in by hand and find out why")
    return ChecklistEntry(check.name, check.what, machine=name, finding=finding, seconds=time.monotonic() - started)


def choose(checks: Sequence[PreflightCheck], only: str | None) -> list[PreflightCheck]:
    """The checks named in a comma-separated list, or all; PreflightError for an unknown name lists the known ones."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    known_names = [check.name for check in checks]
    if only and not names:
        raise PreflightError(f"ONLY={only}: name a check, or leave it out; known checks: {', '.join(known_names)}")
    for name in names:
        if name not in known_names:
            raise PreflightError(f"ONLY={name}: no such check; known checks: {', '.join(known_names)}")
    return [check for check in checks if not names or check.name in names]


def this_machine(port: int = 0, work: Path = Path()) -> Machine:
    """The controller's machine, without specific expectations."""
    return Machine(NAME, LocalShell(), Expected(port=port, work=str(work)))


def of_cluster(cluster: Cluster, only: Collection[str] | None = None) -> tuple[list[Machine], dict[str, RemoteError]]:
    """The nodes of a cluster that accept a connection, and the errors of the others; the caller closes the connections.

    `only` names the nodes to connect to, all if None.
    """
    chosen = [node for node in cluster.nodes if only is None or node.name in only]

    def connect(node: Node) -> Remote | RemoteError:
        try:
            return Remote(cluster, node)
        except RemoteError as error:
            return error

    with ThreadPoolExecutor(min(max(1, len(chosen)), AT_ONCE)) as pool:
        connections = dict(zip(chosen, pool.map(connect, chosen), strict=True))
    expected = Expected(
        cluster.gpu,
        cluster.gpus_per_node,
        interface=cluster.interface,
        hca=cluster.hca,
        network_gbits=cluster.network_gbits,
        work=cluster.work,
        port=cluster.port,
        containers=cluster.runtime.engine,
        image=(*cluster.image.ids, cluster.image.name)[0],
        gid_index=cluster.gid_index,
        manifest=cluster.image.manifest,
        patience=cluster.patience,
    )
    names = [node.name for node in cluster.nodes]
    machines = [
        Machine(node.name, runner, expected, tuple(name for name in names if name != node.name))
        for node, runner in connections.items()
        if isinstance(runner, Remote)
    ]
    return machines, {node.name: error for node, error in connections.items() if isinstance(error, RemoteError)}
