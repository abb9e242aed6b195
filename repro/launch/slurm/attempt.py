"""How an attempt gets to its nodes as a job of Slurm: submitted, waited for, read, and ended with nothing left behind."""

from __future__ import annotations

import contextlib
import math
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

from repro.cluster.cluster import Cluster, Node
from repro.cluster.local_shell import LocalShell
from repro.cluster.ssh import Remote, RemoteError, on_all
from repro.launch.attempt import Interrupts, Limits, OnEvent
from repro.launch.nodes.attempt import NodesAttempt, NotStarted
from repro.launch.nodes.code_upload import Code
from repro.launch.nodes.follower import AttemptFollower
from repro.launch.nodes.work import work_of
from repro.launch.placement import Placement
from repro.launch.slurm.batch_script import SlurmWork, job_script, sweep
from repro.launch.slurm.client import Job, SlurmClient, SlurmError, login
from repro.launch.slurm.reader import Reader
from repro.planning.plan import Unit
from repro.runs.failures import Failure
from repro.runs.record import write_json, write_text
from repro.utils.i18n import N_

POLL_S = 2.0
FIRST_POLLS_S = 0.5
DRAIN_S = 1.5
UNHEARD_S = 10.0
END_S = 60.0
SPARE_MINUTES = 2


class SlurmTransport:
    """The job of one attempt, on as many nodes as the work has; see `repro.launch.nodes.attempt.Transport`."""

    ends_ranks_by = frozenset({int(signal.SIGTERM)})
    log = "slurm.log"

    def __init__(self, work: SlurmWork, folder: Path, code: Code, limits: Limits):
        self._work, self._folder, self._code = work, folder, code
        self._minutes = minutes_of(work.cluster, limits)
        self._connection = contextlib.ExitStack()
        self._client: SlurmClient
        self._job: Job
        self._readers: list[Reader] = []
        self._heard: dict[int, float] = {}
        self._over = threading.Event()

    def prepare(self, on_event: OnEvent, interrupts: Interrupts) -> SlurmWork:
        """Submit the job, and wait until Slurm starts it; while it waits, `on_event` gets the reason."""
        script = job_script(self._work, self._code, self._minutes)
        write_text(self._folder / "job.sh", job_script(self._work, self._code, self._minutes, shown=True))
        try:
            with contextlib.ExitStack() as undo:
                undo.callback(self._connection.close)
                place = login(self._work.cluster)
                self._connection.callback(place.close)
                self._client = SlurmClient(place.run)
                self._job = Job(self._client.submit(script), "PENDING")
                undo.callback(self._abandon)
                self._wait_in_queue(on_event, interrupts)
                self._work = replace(self._work, placement=self._granted())
                undo.pop_all()
        except (SlurmError, RemoteError) as error:
            raise NotStarted(Failure(N_("Slurm: {said}"), {"said": str(error)})) from error
        return self._work

    def start(self, follower: AttemptFollower) -> None:
        """Read the messages of the job's nodes, and follow its state."""

        def take(index: int, message: dict) -> None:
            self._heard[index] = time.monotonic()
            follower.put(index, message)

        for place_of, indices in self._places():
            self._readers.append(Reader(place_of, self._work.cluster.python, self._work.messages, indices, take))
        threading.Thread(target=self._follow_job, args=(follower,), daemon=True, name="state of a job").start()

    def silences(self) -> dict[int, float]:
        """0 for a node before its first message: the job may still be starting there."""
        now = time.monotonic()
        return {index: now - self._heard.get(index, now) for index in range(len(self._work.placement.nodes))}

    def answers(self, index: int) -> bool:
        """Nothing is known of a node but what its agent sends."""
        return False

    def stop(self, follower: AttemptFollower) -> None:
        """End the job, take its own log, and remove what is left of it."""
        self._over.set()
        for reader in self._readers:
            reader.close()
        if follower.succeeded:
            self._clean_up()
            self._end_job(END_S)
        else:
            self._abandon()
        self._connection.close()

    def _wait_in_queue(self, on_event: OnEvent, interrupts: Interrupts) -> None:
        """Until the job has nodes; NotStarted if it ends before that."""
        patience = FIRST_POLLS_S
        while self._job.waits:
            on_event({"event": "state", "text": self._job.text()})
            interrupts.sleep(patience)
            patience = min(2 * patience, POLL_S)
            self._job = self._client.job(self._job.number)
        if self._job.ended and not self._job.nodes:
            failure = self._job.failure(self._minutes)
            raise NotStarted(failure or Failure(N_("Slurm: {said}"), {"said": self._job.text()}))

    def _granted(self) -> Placement:
        """The nodes of the job; without a shared folder each must be in the inventory, for it is read there."""
        cluster, names = self._work.cluster, self._client.hosts(self._job.nodes)
        content = {"job": self._job.number, "nodes": names, "script": "job.sh"}
        write_json(self._folder / "command.json", content)
        known = {node.name: node for node in cluster.nodes}
        strange = [name for name in names if name not in known]
        if strange and not cluster.shared_results:
            raise SlurmError(
                f"the nodes {', '.join(strange)} were granted and cannot be read: add them to "
                f"{cluster.folder / 'hosts.yml'}, or set cluster_shared_results"
            )
        nodes = tuple(known.get(name) or Node(name, name, 22, "", cluster.gpus_per_node) for name in names)
        return Placement(nodes, self._work.placement.per_node)

    def _places(self) -> Iterator[tuple[Callable[[], LocalShell | Remote], list[int]]]:
        """Where the messages of which nodes can be read: in a shared folder all of them, else on each node its own."""
        cluster = self._work.cluster
        if cluster.shared_results:
            yield partial(login, cluster), list(range(len(self._work.placement.nodes)))
            return
        for index, node in enumerate(self._work.placement.nodes):
            yield partial(Remote, cluster, node), [index]

    def _follow_job(self, follower: AttemptFollower) -> None:
        """Ask for the job's state until it is over; then pass that on, after what its nodes sent has come."""
        while not self._over.wait(POLL_S):
            try:
                self._job = self._client.job(self._job.number)
            except (SlurmError, RemoteError):
                continue
            if self._job.ended:
                time.sleep(DRAIN_S)
                for reader in self._readers:
                    reader.wait_for_all(UNHEARD_S)
                follower.end(self._job.failure(self._minutes), secondary=self._job.state == "FAILED")
                return

    def _abandon(self) -> None:
        """End a job that has not ended well."""
        self._end_job(0.0)
        self._clean_up()
        self._sweep()

    def _end_job(self, patience: float) -> None:
        """Wait for the job to end by itself, then cancel it and wait again."""
        for seconds in (patience, END_S):
            deadline = time.monotonic() + seconds
            with contextlib.suppress(SlurmError, RemoteError):  # where Slurm does not answer, the lease ends the job
                while not (job := self._client.job(self._job.number)).ended and time.monotonic() < deadline:
                    time.sleep(FIRST_POLLS_S / 2)
                self._job = job
                if job.ended:
                    return
                self._client.cancel(job.number)

    def _clean_up(self) -> None:
        """Keep the script's log, and remove what nodes sent, on the first node last: its script waits for that."""
        for place_of, indices in reversed(list(self._places())) if self._job.nodes else ():
            with contextlib.suppress(SlurmError, RemoteError), place_of() as place:
                if 0 in indices:
                    printed = place.run(["cat", f"{self._work.messages}/slurm.log"], check=False).stdout
                    write_text(self._folder / self.log, printed)
                place.run(["rm", "-rf", "--", self._work.messages], check=False)

    def _sweep(self) -> None:
        """Remove what a killed job may have left on those of its nodes that SSH reaches."""
        work = self._work
        granted = [node for node in work.placement.nodes if node in work.cluster.nodes] if self._job.nodes else []
        on_all(work.cluster, lambda remote: remote.run(["bash", "-c", sweep(work)], timeout=END_S), granted)


def slurm_work(cluster: Cluster, code: Code, unit: Unit, spread: bool, port: int, run: str, attempt: str) -> SlurmWork:
    """An attempt as the nodes of a job get it; their names in it are those of the inventory."""
    work = work_of(cluster, code, unit, spread, port, run, attempt)
    made = SlurmWork(**{field.name: getattr(work, field.name) for field in fields(work)})
    made = replace(made, token=secrets.token_hex(4))
    return replace(made, trainers=f"{made.home}/node-@NODE@/code/repro/trainers")


def slurm_attempts(
    cluster: Cluster, code: Code, limits: Limits, spread: bool, port: int, run: str
) -> Callable[[Unit, Path], NodesAttempt]:
    """What makes a run's attempts as jobs of Slurm."""

    def attempt_of(unit: Unit, folder: Path) -> NodesAttempt:
        work = slurm_work(cluster, code, unit, spread, port, run, folder.name)
        return NodesAttempt(SlurmTransport(work, folder, code, limits), folder, limits)

    return attempt_of


def minutes_of(cluster: Cluster, limits: Limits) -> int:
    """The time that a job is given."""
    return cluster.slurm.time_minutes or math.ceil(limits.total_s / 60) + SPARE_MINUTES
