"""Small checks of the machines before a run: what each found, what that means, and what mends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from repro.utils.errors import ReproError

OK, WARNING, FAILED, UNAVAILABLE = "ok", "warning", "failed", "not available"
COMMAND_S = 60.0
NOT_FOUND = 127


class PreflightError(ReproError):
    """The checks cannot be made as asked; the message says why."""


@dataclass(frozen=True)
class Finding:
    """What a check found: one of the four results, the facts, what they mean for a run, and what to do about it."""

    result: str
    found: str
    means: str = ""
    fix: str = ""
    mended: bool = False


class CheckAborted(ReproError):
    """Ends a check early with its finding."""

    def __init__(self, finding: Finding):
        super().__init__(finding.found)
        self.finding = finding


def ok(found: str) -> Finding:
    return Finding(OK, found)


def warning(found: str, means: str, fix: str) -> Finding:
    return Finding(WARNING, found, means, fix)


def failed(found: str, means: str, fix: str) -> Finding:
    return Finding(FAILED, found, means, fix)


def unavailable(why: str, fix: str = "") -> Finding:
    return Finding(UNAVAILABLE, why, fix=fix)


@dataclass(frozen=True)
class Wanted:
    """What a machine should be. `gpu` is None where any will do and "" where there is none; `gpus` is 0 for any."""

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
    """A machine that is checked: `runner` runs words there as `Remote.run` does, `other_nodes` names the other machines."""

    name: str
    runner: object
    wanted: Wanted = field(default_factory=Wanted)
    other_nodes: tuple[str, ...] = ()

    def run(self, words: Sequence[str], *, timeout: float = COMMAND_S, sudo: bool = False):
        """The result of a command, whatever its status; Stop if it is not installed."""
        done = self.runner.run(words, timeout=timeout, check=False, sudo=sudo)
        if done.status == NOT_FOUND or (sudo and f"{words[0]}: command not found" in done.stderr):
            raise CheckAborted(
                unavailable(f"{words[0]} is not installed", f"install it ({PACKAGES.get(words[0], words[0])})")
            )
        return done

    def text(self, words: Sequence[str], **options) -> str:
        """What a command prints; Stop with the failure it told if it does not end with 0."""
        done = self.run(words, **options)
        if done.status:
            said = (done.stderr.strip() or done.stdout.strip() or f"status {done.status}").splitlines()[-1]
            raise CheckAborted(unavailable(f"`{' '.join(words[:3])}`: {said}"))
        return done.stdout

    def read(self, paths: Sequence[str]) -> dict[str, str]:
        """The one-line files of these that exist, by path."""
        lines = self.run(["grep", "-sH", "", *paths]).stdout.splitlines()
        return {path: value for path, _, value in (line.partition(":") for line in lines)}


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
    """One check. `look` gets one machine, or all of them where `together`; `mend` is what FIX=1 does, if that is safe.

    `what` says in a few words what is looked at.
    """

    name: str
    what: str
    look: Callable[..., Finding]
    mend: Callable[[Machine], None] | None = None
    together: bool = False


@dataclass(frozen=True)
class Entry:
    """A finding with its check and machine; `seconds` is what looking took."""

    check: str
    what: str
    machine: str
    finding: Finding
    seconds: float

    def as_json(self) -> dict:
        head = {"check": self.check, "what": self.what, "machine": self.machine}
        return {**head, **asdict(self.finding), "seconds": round(self.seconds, 3)}


def run_checks(checks: Sequence[Check], machines: Sequence[Machine], mend: bool = False) -> Iterator[list[Entry]]:
    """The entries of one check after the other, each on all machines at once."""
    with ThreadPoolExecutor(max(1, len(machines))) as pool:
        for check in checks:
            if check.together:
                name = machines[0].name if len(machines) == 1 else "all"
                yield [_look(check, machines, name)]
            else:
                yield list(pool.map(lambda machine, check=check: _on_one(check, machine, mend), machines))


def _on_one(check: Check, machine: Machine, mend: bool) -> Entry:
    entry = _look(check, machine, machine.name)
    if not mend or check.mend is None or entry.finding.result not in (WARNING, FAILED):
        return entry
    try:
        check.mend(machine)
    except CheckAborted as stop:
        tried = f"{entry.finding.fix} (FIX=1 tried: {stop.finding.found})"
        return replace(entry, finding=replace(entry.finding, fix=tried))
    after = _look(check, machine, machine.name)
    return replace(after, finding=replace(after.finding, mended=after.finding.result == OK))


def _look(check: Check, subject, name: str) -> Entry:
    from repro.cluster.ssh import RemoteError

    started = time.monotonic()
    try:
        finding = check.look(subject)
    except CheckAborted as stop:
        finding = stop.finding
    except RemoteError as error:
        finding = failed(str(error), "The machine does not do as it is told.", "log in by hand and see why")
    return Entry(check.name, check.what, name, finding, time.monotonic() - started)


def choose(checks: Sequence[Check], only: str | None) -> list[Check]:
    """The checks whose names are in a comma-separated list, or all; PreflightError names those there are."""
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    known = [check.name for check in checks]
    for name in names:
        if name not in known:
            raise PreflightError(f"ONLY={name}: no such check; there are {', '.join(known)}")
    return [check for check in checks if not names or check.name in names]


class Local:
    """Runs words on this machine, with the interface of `repro.cluster.ssh.Remote.run`."""

    def run(
        self,
        words: Sequence[str],
        *,
        timeout: float | None = None,
        check: bool = True,
        stdin: str | None = None,
        sudo: bool = False,
    ):
        from repro.cluster.ssh import RemoteError, Result

        command = [*(("sudo", "-n", "--") if sudo and os.geteuid() else ()), *words]
        if shutil.which(command[0]) is None:
            return Result("", f"{command[0]}: command not found", NOT_FOUND)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, input=stdin or "")
        except subprocess.TimeoutExpired as error:
            raise RemoteError("this machine", f"`{' '.join(words[:3])}` took longer than {timeout:.0f} s") from error
        if check and done.returncode:
            raise RemoteError("this machine", f"`{' '.join(words[:3])}`: {done.stderr.strip()}")
        return Result(done.stdout, done.stderr, done.returncode)

    def close(self) -> None:
        """Nothing is open."""


def this_machine(port: int = 0, work: Path = Path()) -> Machine:
    """The machine that the controller runs on, of which nothing special is wanted."""
    return Machine("this machine", Local(), Wanted(port=port, work=str(work)))


def of_cluster(cluster) -> tuple[list[Machine], dict[str, Exception]]:
    """The nodes of a cluster that can be connected to, and why each of the others cannot; the caller closes them."""
    from repro.cluster.ssh import Remote, RemoteError

    def connect(node) -> Remote | RemoteError:
        try:
            return Remote(cluster, node)
        except RemoteError as error:
            return error

    with ThreadPoolExecutor(len(cluster.nodes)) as pool:
        found = dict(zip(cluster.nodes, pool.map(connect, cluster.nodes), strict=True))
    wanted = Wanted(
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
        Machine(node.name, runner, wanted, tuple(name for name in names if name != node.name))
        for node, runner in found.items()
        if isinstance(runner, Remote)
    ]
    return machines, {node.name: error for node, error in found.items() if isinstance(error, RemoteError)}
