"""One attempt of a case as a job of Slurm: submitted, waited for, followed, and ended with nothing left behind."""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

from repro.cluster.cluster import Cluster, Node
from repro.cluster.local_shell import LocalShell
from repro.cluster.ssh import Remote, RemoteError, on_all
from repro.launch.local import Limits, Outcome
from repro.launch.placement import Placement
from repro.launch.slurm.batch_script import SlurmWork, job_script, sweep
from repro.launch.slurm.client import Job, SlurmClient, SlurmError, login
from repro.launch.slurm.reader import JobNode, Reader
from repro.launch.ssh.attempt import ClusterAttempt
from repro.launch.ssh.code_upload import Code
from repro.launch.ssh.work import work_of
from repro.planning.plan import Unit
from repro.runs.failures import Failure, last_lines
from repro.runs.record import write_json, write_text
from repro.utils.i18n import N_
from repro.utils.signals import let_through

POLL_S = 2.0
FIRST_POLLS_S = 0.5
DRAIN_S = 1.5
END_S = 60.0
SPARE_MINUTES = 2


class SlurmAttempt(ClusterAttempt):
    """A job on as many nodes as the work has; which they are, Slurm decides."""

    def __init__(self, work: SlurmWork, folder: Path, code: Code, limits: Limits):
        super().__init__(work, folder, None, limits)
        self._code, self._minutes = code, minutes_of(work.cluster, limits)
        self._job: Job | None = None
        self._refused: Failure | None = None
        self._readers: list[Reader] = []
        self._over = threading.Event()

    def run(self, on_event: Callable[[dict], None] = lambda event: None) -> Outcome:
        """Submit the job, wait until Slurm starts it, and follow it as `ClusterAttempt.run` does.

        While it waits, `on_event` is told why. The time in the queue is not in the outcome's `trainer_s`.
        """
        script = job_script(self._work, self._code, self._minutes)
        write_text(self._folder / "job.sh", job_script(self._work, self._code, self._minutes, shown=True))
        try:
            with login(self._work.cluster) as place:
                self._queue = SlurmClient(place.run)
                self._refused = self._submit(script, on_event)
                return super().run(on_event)
        except (SlurmError, RemoteError) as error:
            self._refused = Failure(N_("Slurm: {said}"), {"said": str(error)})
            return Outcome(self._refused, 0.0)

    def _submit(self, script: str, on_event) -> Failure | None:
        """Until the job runs; why it does not."""
        self._job = Job(self._queue.submit(script), "PENDING")
        try:
            patience = FIRST_POLLS_S
            with let_through():
                while self._job.waits:
                    on_event({"event": "state", "text": self._job.text()})
                    time.sleep(patience)
                    patience = min(2 * patience, POLL_S)
                    self._job = self._queue.job(self._job.number)
            if self._job.ended and not self._job.nodes:
                return self._job.failure(self._minutes)
            names = self._queue.hosts(self._job.nodes)
            write_json(self._folder / "command.json", {"job": self._job.number, "nodes": names, "script": "job.sh"})
            self._work = replace(self._work, placement=Placement(self._nodes(names), self._work.placement.per_node))
        except BaseException:
            self._stop()
            raise
        return None

    def _nodes(self, names: list[str]) -> tuple[Node, ...]:
        """The nodes that Slurm granted; without a shared folder each must be in the inventory, for it is read there."""
        cluster = self._work.cluster
        known = {node.name: node for node in cluster.nodes}
        strange = [name for name in names if name not in known]
        if strange and not cluster.shared_results:
            raise SlurmError(
                f"the nodes {', '.join(strange)} were granted and cannot be read: add them to "
                f"{cluster.folder / 'hosts.yml'}, or set cluster_shared_results"
            )
        return tuple(known.get(name) or Node(name, name, 22, "", cluster.gpus_per_node) for name in names)

    def _recover(self, on_event) -> Failure | None:
        return self._refused

    def _start(self) -> None:
        work = self._work
        self._clients = {index: JobNode() for index in range(len(work.placement.nodes))}
        for place_of, indices in self._places():
            self._readers.append(Reader(place_of, work.cluster.python, work.messages, indices, self._hear))
        threading.Thread(target=self._follow_job, daemon=True, name="state of a job").start()

    def _places(self) -> list[tuple[Callable[[], LocalShell | Remote], list[int]]]:
        """Where the messages of which nodes can be read: in a shared folder all of them, else on each node its own."""
        cluster, nodes = self._work.cluster, self._work.placement.nodes
        if cluster.shared_results:
            return [(lambda: login(cluster), list(range(len(nodes))))]
        return [(lambda node=node: Remote(cluster, node), [index]) for index, node in enumerate(nodes)]

    def _hear(self, index: int, message: dict) -> None:
        self._clients[index].heard = time.monotonic()
        self._inbox.put((index, message))

    def _follow_job(self) -> None:
        """Ask for the job's state until it is over; then say so, after what its nodes sent has come."""
        while not self._over.wait(POLL_S):
            try:
                self._job = self._queue.job(self._job.number)
            except (SlurmError, RemoteError):
                continue
            if self._job.ended:
                time.sleep(DRAIN_S)
                self._inbox.put((0, {"job": self._job}))
                return

    def _take(self, index: int, message: dict) -> Iterator[dict]:
        if "job" not in message:
            yield from super()._take(index, message)
        elif len(self._ended) < len(self._clients):
            failure = message["job"].failure(self._minutes)
            if failure:
                self._failures.add(failure, secondary=message["job"].state == "FAILED")
            for missing in range(len(self._clients)):
                self._ended.setdefault(missing, {})

    def _rank_ended(self, rank: int, status: int) -> None:
        """Slurm ends a job's ranks by SIGTERM; why it does is told by the job's state."""
        if status == -signal.SIGTERM:
            self._failed.add(rank)
        else:
            super()._rank_ended(rank, status)

    def _stop(self) -> None:
        """End the job, take its own log, and remove what is left of it."""
        self._over.set()
        for reader in self._readers:
            reader.close()
        if len(self._ended) == len(self._clients) > 0 and not self._failures:
            self._clean_up()
            self._end_job(END_S)
        else:
            self._end_job(0.0)
            self._clean_up()
            self._sweep()

    def _end_job(self, patience: float) -> None:
        """Wait for the job to end by itself, then cancel it and wait again."""
        for seconds in (patience, END_S):
            deadline = time.monotonic() + seconds
            with contextlib.suppress(SlurmError, RemoteError):  # where Slurm does not answer, the lease ends the job
                while not (job := self._queue.job(self._job.number)).ended and time.monotonic() < deadline:
                    time.sleep(FIRST_POLLS_S / 2)
                self._job = job
                if job.ended:
                    return
                self._queue.cancel(job.number)

    def _clean_up(self) -> None:
        """Keep what the script said, and remove what nodes sent, on the first node last: its script waits for that."""
        for place_of, indices in reversed(self._places()) if self._job.nodes else ():
            with contextlib.suppress(SlurmError, RemoteError), place_of() as place:
                if 0 in indices:
                    said = place.run(["cat", f"{self._work.messages}/slurm.log"], check=False).stdout
                    write_text(self._folder / "slurm.log", said)
                place.run(["rm", "-rf", "--", self._work.messages], check=False)

    def _sweep(self) -> None:
        """Remove what a killed job may have left on those of its nodes that SSH reaches."""
        work = self._work
        granted = [node for node in work.placement.nodes if node in work.cluster.nodes] if self._job.nodes else []
        on_all(work.cluster, lambda remote: remote.run(["bash", "-c", sweep(work)], timeout=END_S), granted)

    def _explained(self, failure: Failure) -> Failure:
        return failure if "job" in failure.values else super()._explained(failure)

    def _log_tail(self, failure: Failure) -> str:
        return super()._log_tail(failure) or "\n".join(last_lines(self._folder / "slurm.log"))


def slurm_work(cluster: Cluster, code: Code, unit: Unit, spread: bool, port: int, run: str, attempt: str) -> SlurmWork:
    """An attempt as the nodes of a job are told of it; their names in it are those of the inventory."""
    work = work_of(cluster, code, unit, spread, port, run, attempt)
    made = SlurmWork(**{field.name: getattr(work, field.name) for field in fields(work)})
    made = replace(made, token=secrets.token_hex(4))
    return replace(made, trainers=f"{made.home}/node-@NODE@/code/repro/trainers")


def slurm_attempts(
    cluster: Cluster, code: Code, limits: Limits, spread: bool, port: int, run: str
) -> Callable[[Unit, Path], SlurmAttempt]:
    """What `Bench` needs to start its attempts as jobs of Slurm, as `repro.launch.ssh.attempt.cluster_attempts` does."""

    def attempt_of(unit: Unit, folder: Path) -> SlurmAttempt:
        work = slurm_work(cluster, code, unit, spread, port, run, folder.name)
        return SlurmAttempt(work, folder, code, limits)

    return attempt_of


def minutes_of(cluster: Cluster, limits: Limits) -> int:
    """The time that a job is given."""
    return cluster.slurm.time_minutes or math.ceil(limits.total_s / 60) + SPARE_MINUTES
