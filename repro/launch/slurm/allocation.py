"""The nodes of one job: submitted and waited for, given orders step by step, followed, and given back."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

from repro.cluster.cluster import Node
from repro.cluster.fingerprint import Fingerprint
from repro.cluster.local_shell import LocalShell
from repro.cluster.ssh import Remote, RemoteError, on_all
from repro.launch.attempt import Interrupts, OnEvent
from repro.launch.nodes.attempt import NotStarted
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.failure_causes import QUIET_S
from repro.launch.nodes.work import LEASE_S
from repro.launch.slurm.batch_script import JobRequest
from repro.launch.slurm.client import FIRST_POLL_S, Backoff, SlurmClient, SlurmError, SlurmJob, login
from repro.launch.slurm.reader import Reader
from repro.runs.failures import Failure
from repro.runs.record import write_text
from repro.utils.i18n import N_

DRAIN_S = 1.5
UNHEARD_S = 10.0
END_S = 60.0
FOLDER_S = 60.0
NO_FOLDER = 75
TELLING = frozenset({"rank", "end", "error", "gone", "lost", "held", "others"})
"""What a message has that tells of an end: Slurm may know why."""
LOG = "slurm.log"
STEP_ENDED = N_("step {step} of job {job} ended with status {status}")
WRITE_ORDER = f"""
[ -d "$1" ] || exit {NO_FOLDER}
echo "$3" > "$1/nodes-$2" && cat > "$1/.order-$2" && mv -- "$1/.order-$2" "$1/order-$2"
"""


class Sink(Protocol):
    """What takes the messages of a step, as `repro.launch.nodes.follower.AttemptFollower` does."""

    def put(self, index: int, message: dict) -> None: ...

    def end(self, failure: Failure | None, secondary: bool = False) -> None: ...


class SlurmStep:
    """One order that is carried out on some nodes of a job; `ended` is set once its tasks are gone."""

    def __init__(self, number: int, names: list[str], sink: Sink):
        self.number, self.names, self.sink = number, names, sink
        self.heard: dict[int, float] = {}
        self.ended = threading.Event()


class Allocation:
    """A job's nodes, from its submission to its end. `names` are those of its nodes, the first one's script first.

    Attributes
    ----------
    facts, fingerprints : what its nodes are, by their names, once they have been asked.
    """

    def __init__(self, request: JobRequest):
        self.request = request
        self.names: list[str] = []
        self.facts: dict[str, dict] = {}
        self.fingerprints: dict[str, Fingerprint] = {}
        self._connection = contextlib.ExitStack()
        self._client: SlurmClient
        self._job: SlurmJob
        self._backoff = Backoff(request.cluster.slurm.poll_seconds)
        self._readers: list[Reader] = []
        self._running: dict[int, SlurmStep] = {}
        self._steps = 0
        self._on_node: dict[int, int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()

    @property
    def number(self) -> int:
        """The job's."""
        return self._job.number

    @property
    def usable(self) -> bool:
        """Whether the job still has its nodes, as far as is known."""
        return bool(self.names) and not self._job.ended and not self._over.is_set()

    def ask_whether_usable(self) -> bool:
        """The same as Slurm says now, which may have ended the job since it was asked last."""
        with contextlib.suppress(SlurmError, RemoteError):
            self._job = self._client.job(self._job.number)
        return self.usable

    def nodes(self, count: int | None = None) -> tuple[Node, ...]:
        """The first nodes, as the inventory has those that it lists."""
        cluster = self.request.cluster
        nodes_by_name = {node.name: node for node in cluster.nodes}
        return tuple(
            nodes_by_name.get(name) or Node(name, name, port=22, user="", gpus=cluster.gpus_per_node)
            for name in self.names[:count]
        )

    def submit(self, on_event: OnEvent, interrupts: Interrupts) -> None:
        """Submit the job, and wait until Slurm starts it; while it waits, `on_event` gets the reason.

        NotStarted says why it does not start. However this ends without nodes, the job is ended too.
        """
        try:
            with contextlib.ExitStack() as undo:
                undo.callback(self._connection.close)
                place = login(self.request.cluster)
                self._connection.callback(place.close)
                self._client = SlurmClient(place.run)
                self._job = SlurmJob(self._client.submit(self.request.script()), "PENDING")
                undo.callback(self.cancel)
                self._wait_in_queue(on_event, interrupts)
                self.names = self._client.hosts(self._job.nodes)
                self._check_granted()
                undo.pop_all()
        except (SlurmError, RemoteError) as error:
            raise NotStarted(Failure(N_("Slurm: {said}"), {"said": str(error)})) from error
        for place_of, indices in self._places():
            interpreter, folder = self.request.cluster.interpreter, self.request.messages
            self._readers.append(Reader(place_of, interpreter, folder, indices, self._take, self._step_ended))
        threading.Thread(target=self._follow, daemon=True, name=f"state of job {self.number}").start()

    def start(self, owner: dict[str, str], orders: Mapping[str, dict], code: UploadedCode, sink: Sink) -> SlurmStep:
        """Give these nodes their orders; their messages go to `sink`, by the place of each node among them.

        `owner` is shown to whoever else wants one of the nodes, as `JobRequest.owner` gives it. NotStarted if the
        order cannot be delivered, or the job is over.
        """
        with self._lock:
            self._steps += 1
            step = SlurmStep(self._steps, list(orders), sink)
            self._running[step.number] = step
        positions = {name: index for index, name in enumerate(self.names)}
        text = self.request.order(step.number, owner, code, orders, positions)
        argv = [
            "sh",
            "-c",
            WRITE_ORDER,
            "sh",
            self.request.messages,
            str(step.number),
            f"{len(orders)} {','.join(orders)}",
        ]
        deadline = time.monotonic() + FOLDER_S
        while True:
            try:
                with next(self._places())[0]() as place:
                    done = place.run(argv, stdin=text, check=False, timeout=END_S)
            except (SlurmError, RemoteError) as error:
                raise NotStarted(Failure(N_("Slurm: {said}"), {"said": str(error)})) from error
            if done.status == 0 and self.usable:
                return step
            if not self.usable:
                raise NotStarted(self._why_ended() or Failure(N_("Slurm: {said}"), {"said": self._job.text()}))
            if done.status != NO_FOLDER or time.monotonic() > deadline:
                reason = done.stderr.strip() or f"there is no {self.request.messages} on {self.names[0]}"
                raise NotStarted(Failure(N_("Slurm: {said}"), {"said": f"job {self.number}: {reason}"}))
            self._backoff.reset()
            time.sleep(FIRST_POLL_S)

    def send(self, names: Iterable[str], files: Sequence[Path], folder: str) -> None:
        """Copy files of this machine into a folder in `messages`, where these nodes see it; it goes with the job.

        NotStarted says where that fails.
        """
        wanted = {self.names.index(name) for name in names}
        target = f"{self.request.messages}/{folder}"

        def copy(place_of: Callable[[], LocalShell | Remote]) -> None:
            with place_of() as place:
                place.run(["mkdir", "-p", "--", target])
                for path in files:
                    place.put(path, f"{target}/{path.name}")

        places = [place_of for place_of, indices in self._places() if wanted & set(indices)]
        try:
            with ThreadPoolExecutor() as pool:
                list(pool.map(copy, places))
        except (SlurmError, RemoteError) as error:
            raise NotStarted(Failure(N_("Slurm: {said}"), {"said": str(error)})) from error

    def stop(self, step: SlurmStep) -> bool:
        """Ask a step's tasks to end what they started, and wait for that and what they still send; whether they have."""
        if not step.ended.is_set():
            path = f"{self.request.messages}/stop-{step.number}"
            with contextlib.suppress(SlurmError, RemoteError), next(self._places())[0]() as place:
                place.run(["touch", "--", path], check=False, timeout=END_S)
        return self.wait(step, self._wait_for_all)

    def wait(self, step: SlurmStep, then: Callable[[], object] = bool) -> bool:
        """Wait until a step has ended; whether it has, and the job goes on. `then` is called before it is forgotten."""
        deadline = time.monotonic() + END_S
        while not step.ended.wait(FIRST_POLL_S) and self.usable and time.monotonic() < deadline:
            pass
        if step.ended.is_set():
            then()
        with self._lock:
            self._running.pop(step.number, None)
        return step.ended.is_set() and self.usable

    def silences(self, step: SlurmStep) -> dict[int, float] | None:
        """For how many seconds nothing has come from each node of a step; None while nothing can be read at all.

        That says nothing of the nodes, until the job's lease is over. 0 for a node before its first message: the step
        may still be starting there.
        """
        now = time.monotonic()
        alive = max(reader.alive for reader in self._readers)
        if now - alive > self.request.cluster.slurm.lease_seconds:
            return dict.fromkeys(range(len(step.names)), now - alive)
        if now - alive > LEASE_S * self.request.cluster.patience:
            return None
        return {index: max(0.0, alive - step.heard.get(index, alive)) for index in range(len(step.names))}

    def keep_log(self, folder: Path) -> None:
        """Write what the job's script has printed into a folder."""
        with contextlib.suppress(SlurmError, RemoteError), next(self._places())[0]() as place:
            printed = place.run(["cat", f"{self.request.messages}/{LOG}"], check=False, timeout=END_S).stdout
            write_text(folder / LOG, printed)

    def release(self) -> None:
        """Let the job end: its script does when its folder is gone."""
        self._close()
        self._remove_folders()
        self._end_job(END_S)
        self._connection.close()

    def cancel(self) -> None:
        """End the job at once, and remove what it may have left on those of its nodes that SSH reaches."""
        self._close()
        self._end_job(0.0)
        self._remove_folders()
        listed = [node for node in self.nodes() if node in self.request.cluster.nodes]
        sweep = ["bash", "-c", self.request.sweep()]
        on_all(self.request.cluster, lambda remote: remote.run(sweep, timeout=END_S), listed)
        self._connection.close()

    def _close(self) -> None:
        self._over.set()
        for reader in self._readers:
            reader.close()

    def _wait_in_queue(self, on_event: OnEvent, interrupts: Interrupts) -> None:
        """Until the job has nodes; NotStarted if it ends before that."""
        seen = self._job.reason
        while self._job.waits:
            on_event({"event": "state", "text": self._job.text()})
            interrupts.sleep(self._backoff.wait())
            self._job = self._client.job(self._job.number)
            if self._job.reason != seen:
                seen = self._job.reason
                self._backoff.reset()
        self._backoff.reset()
        if self._job.ended and not self._job.nodes:
            raise NotStarted(self._why_ended() or Failure(N_("Slurm: {said}"), {"said": self._job.text()}))

    def _check_granted(self) -> None:
        """SlurmError without a shared folder if a node is not in the inventory, for it is read there."""
        cluster = self.request.cluster
        strange = sorted(set(self.names) - {node.name for node in cluster.nodes})
        if strange and not cluster.shared_results:
            raise SlurmError(
                f"the nodes {', '.join(strange)} were granted and cannot be read: add them to "
                f"{cluster.folder / 'hosts.yml'}, or set cluster_shared_results"
            )

    def _places(self) -> Iterator[tuple[Callable[[], LocalShell | Remote], list[int]]]:
        """Where the nodes' messages are: all in one folder if it is shared, else on each node its own.

        The first place is where the script takes orders.
        """
        cluster = self.request.cluster
        if cluster.shared_results:
            yield partial(login, cluster), list(range(len(self.names)))
            return
        for index, node in enumerate(self.nodes()):
            yield partial(Remote, cluster, node), [index]

    def _take(self, index: int, message: dict) -> None:
        """Hand a message on to the step that the node at this position is at."""
        if "step" in message:
            self._on_node[index] = message["step"]
            return
        with self._lock:
            step = self._running.get(self._on_node.get(index, 0))
        if step and self.names[index] in step.names:
            place = step.names.index(self.names[index])
            step.heard[place] = time.monotonic()
            if TELLING & message.keys():
                self._backoff.reset()
            step.sink.put(place, message)

    def _step_ended(self, number: int, status: int) -> None:
        with self._lock:
            step = self._running.get(number)
        if step and not step.ended.is_set():
            step.ended.set()
            values = {"step": number, "job": self.number, "status": status}
            failure = Failure(STEP_ENDED, values) if status else None

            def pass_on() -> None:
                self._wait_for_all()
                step.sink.end(failure, secondary=True)

            threading.Thread(target=pass_on, daemon=True, name=f"end of step {number}").start()

    def _wait_for_all(self) -> None:
        """Until all that nodes have sent was read, or nothing more of it comes."""
        time.sleep(DRAIN_S)
        for reader in self._readers:
            reader.wait_for_all(UNHEARD_S)

    def _follow(self) -> None:
        """Ask for the job's state until it is over; then pass that on, after what its nodes sent has come."""
        while not self._over.wait(FIRST_POLL_S):
            with self._lock:
                running = list(self._running.values())
            if any(silence > QUIET_S for step in running for silence in (self.silences(step) or {}).values()):
                self._backoff.reset()
            if not self._backoff.due:
                continue
            try:
                self._job = self._client.job(self._job.number)
            except (SlurmError, RemoteError):
                continue
            if self._job.ended:
                self._wait_for_all()
                with self._lock:
                    running = list(self._running.values())
                for step in running:
                    step.sink.end(self._why_ended(), secondary=self._job.state == "FAILED")
                return

    def _why_ended(self) -> Failure | None:
        return self._job.failure(self.request.minutes)

    def _end_job(self, patience: float) -> None:
        """Wait for the job to end by itself, then cancel it and wait again."""
        for seconds in (patience, END_S):
            deadline, backoff = time.monotonic() + seconds, Backoff(self.request.cluster.slurm.poll_seconds)
            with contextlib.suppress(SlurmError, RemoteError):  # where Slurm does not answer, the lease ends the job
                while not (job := self._client.job(self._job.number)).ended and time.monotonic() < deadline:
                    time.sleep(min(backoff.wait(), max(0.0, deadline - time.monotonic())))
                self._job = job
                if job.ended:
                    return
                self._client.cancel(job.number)

    def _remove_folders(self) -> None:
        """Remove what nodes sent, on the first node last: the job's script waits for that."""
        for place_of, _ in reversed(list(self._places())) if self.names else ():
            with contextlib.suppress(SlurmError, RemoteError), place_of() as place:
                place.run(["rm", "-rf", "--", self.request.messages], check=False, timeout=END_S)
