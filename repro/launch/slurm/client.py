"""Jobs of Slurm: the script that is submitted, what becomes of it, and how it is cancelled."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from repro.cluster.cluster import Cluster
from repro.cluster.local_shell import LocalShell
from repro.cluster.ssh import CommandResult, Remote
from repro.runs.failures import Failure
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import N_

COMMAND_S = 60
FIRST_POLL_S = 0.5
WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT", "COMPLETING"}
ENDED = {
    "TIMEOUT": N_("job {job} reached its time limit of {minutes} minutes; raise cluster_slurm.time_minutes"),
    "NODE_FAIL": N_("job {job} ended because a node of it failed: {nodes}"),
    "OUT_OF_MEMORY": N_("job {job} ran out of memory on {nodes}"),
    "PREEMPTED": N_("job {job} was preempted by another job"),
    "CANCELLED": N_("job {job} was cancelled by someone else"),
    "BOOT_FAIL": N_("job {job} ended because a node of it failed: {nodes}"),
}
OTHERWISE = N_("job {job} ended as {state} with status {status}")
UNKNOWN_JOB = re.compile(r"invalid job id", re.IGNORECASE)


class SlurmError(ReproError):
    """Slurm refuses a command or does not answer; the message has its words."""

    status = FAILED


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm reports of a job: state and reason, its nodes as Slurm writes them, exit status and signal."""

    number: int
    state: str
    reason: str = ""
    nodes: str = ""
    status: int = 0
    signal: int = 0

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def ended(self) -> bool:
        return self.state not in WAITING | RUNNING

    def text(self) -> str:
        """The state as a sentence, with the reason for which a job waits."""
        if self.waits and self.reason not in ("", "None"):
            return f"job {self.number} waits in Slurm's queue: {self.reason}"
        return f"job {self.number}: {self.state.lower()}"

    def failure(self, minutes: int) -> Failure | None:
        """Why it ended, None if in order; `minutes` is its time limit."""
        if self.state == "COMPLETED":
            return None
        values = {
            "job": self.number,
            "minutes": minutes,
            "nodes": self.nodes or "?",
            "state": self.state,
            "status": self.status,
        }
        return Failure(ENDED.get(self.state, OTHERWISE), values)


class Backoff:
    """When to ask Slurm again: soon at first, then after twice as long each time, up to `longest` seconds."""

    def __init__(self, longest: float):
        self._longest, self._asked = longest, time.monotonic()
        self.reset()

    def reset(self) -> None:
        """Something has happened: ask soon after the last time."""
        self._patience = min(FIRST_POLL_S, self._longest)

    def wait(self) -> float:
        """Seconds until the next question, after which the wait is longer."""
        patience, self._patience = self._patience, min(2 * self._patience, self._longest)
        self._asked = time.monotonic()
        return patience

    @property
    def due(self) -> bool:
        """Whether it is time for the next question; then the wait for the one after it begins."""
        if time.monotonic() - self._asked < self._patience:
            return False
        self.wait()
        return True


class SlurmClient:
    """Slurm's commands on one machine: this one, or a login node through SSH.

    `run` runs a command with an input and gives what it printed, as `Remote.run` does.
    """

    def __init__(self, run: Callable[..., CommandResult]):
        self._run = run

    def submit(self, script: str) -> int:
        """Submit a script; the job's number."""
        output = self._ask(["sbatch", "--parsable"], stdin=script)
        number = output.strip().splitlines()[-1].partition(";")[0] if output.strip() else ""
        if not number.isdigit():
            raise SlurmError(f"sbatch printed no job number: {output.strip()!r}")
        return int(number)

    def job(self, number: int) -> SlurmJob:
        """A job as Slurm sees it now; one that is over and forgotten is looked up in the accounting."""
        done = self._run(["scontrol", "--oneliner", "show", "job", str(number)], timeout=COMMAND_S, check=False)
        if done.status == 0:
            return parse_job(number, done.stdout)
        if not UNKNOWN_JOB.search(done.stderr):
            raise SlurmError(f"scontrol: {_reason(done)}")
        argv = ["sacct", "--allocations", "--noheader", "--parsable2", "--format=State,ExitCode,NodeList"]
        return parse_account(number, self._ask([*argv, f"--jobs={number}"]))

    def hosts(self, nodes: str) -> list[str]:
        """The names in a list such as node[1-2], in the order of the job's nodes."""
        return self._ask(["scontrol", "show", "hostnames", nodes]).split()

    def cancel(self, number: int) -> None:
        """End a job; one that has ended is left alone."""
        done = self._run(["scancel", str(number)], timeout=COMMAND_S, check=False)
        if done.status and not UNKNOWN_JOB.search(done.stderr):
            raise SlurmError(f"scancel: {_reason(done)}")

    def _ask(self, argv: list[str], stdin: str | None = None) -> str:
        done = self._run(argv, timeout=COMMAND_S, check=False, stdin=stdin)
        if done.status:
            raise SlurmError(f"{argv[0]}: {_reason(done)}")
        return done.stdout


def login(cluster: Cluster) -> LocalShell | Remote:
    """Where Slurm's commands run: here if they are here, else on the login node or, without one, the first node."""
    if shutil.which("sbatch"):
        return LocalShell()
    return Remote(cluster, cluster.login or cluster.nodes[0])


def parse_job(number: int, line: str) -> SlurmJob:
    """A job as `scontrol --oneliner show job` prints it."""
    fields = dict(re.findall(r"(?:^|\s)(JobState|Reason|NodeList|ExitCode)=(\S*)", line))
    if "JobState" not in fields:
        raise SlurmError(f"scontrol says nothing of the state of job {number}: {line.strip()!r}")
    nodes = "" if fields.get("NodeList") in (None, "(null)") else fields["NodeList"]
    return SlurmJob(
        number, fields["JobState"], fields.get("Reason", ""), nodes, *_exit_code(fields.get("ExitCode", "0:0"))
    )


def parse_account(number: int, lines: str) -> SlurmJob:
    """A job as `sacct --parsable2` prints it: State|ExitCode|NodeList."""
    first = next(iter(lines.splitlines()), "")
    if first.count("|") != 2:
        raise SlurmError(f"Slurm no longer knows job {number}, and there is no account of it: {first!r}")
    state, code, nodes = first.split("|")
    return SlurmJob(number, state.split()[0], "", "" if nodes == "None assigned" else nodes, *_exit_code(code))


def _exit_code(text: str) -> tuple[int, int]:
    status, _, signal = text.partition(":")
    return int(status or 0), int(signal or 0)


def _reason(done: CommandResult) -> str:
    return (done.stderr.strip() or done.stdout.strip() or f"status {done.status}").splitlines()[-1]
