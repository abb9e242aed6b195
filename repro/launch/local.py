"""Starts one attempt of a case on this machine and watches it until every process of it has ended."""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro.launch.agent.ranks import exit_status, new_ranks
from repro.launch.gpu_sampler import Sampler
from repro.runs.failures import Failure, explain_logs, last_lines
from repro.runs.record import write_json
from repro.utils.paths import TRAINER, TRAINER_PYTHON
from repro.utils.signals import held, let_through

POLL_S = 0.1
START_POLL_S = 0.02
GRACE_S = 5.0
LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. `trainer_s` is the time from the first process's start to the last one's end."""

    failure: Failure | None
    trainer_s: float
    log_tail: str = ""


@dataclass(frozen=True)
class Limits:
    """When to give up: seconds without a byte from any rank, and seconds in all."""

    silence_s: float = 120.0
    total_s: float = 3600.0


def local_attempts(
    limits: Limits,
    port: int | None,
    trainer: tuple[str, ...] | None,
    baseline: tuple[str, ...] = (),
    environment: dict | None = None,
) -> Callable:
    """What `Bench` needs to start its attempts on this machine.

    `trainer` replaces the trainer's command; `peer` is that of units whose program is not OneFlow. `environment` is
    what OneFlow needs on this machine's GPUs; of it peers get NCCL's settings alone, so that both go the same way
    between GPUs.
    """
    trainer = trainer or (str(TRAINER_PYTHON), str(TRAINER))
    shared = {name: value for name, value in (environment or {}).items() if name.startswith("NCCL_")}

    def attempt_of(unit, folder: Path) -> Attempt:
        if unit.baseline_of:
            return Attempt(unit.config, folder, limits, port, baseline, trainer[0], shared)
        return Attempt(unit.config, folder, limits, port, trainer, environment=environment or {})

    return attempt_of


@dataclass
class Attempt:
    """One start of a trainer in a folder of its own: configuration, command, logs and metrics stay there.

    Several ranks are started by the launcher of OneFlow in the environment of interpreter `launcher`; without it, of
    the trainer's own. On CUDA they also get the variables in `environment`.
    """

    config: dict
    folder: Path
    limits: Limits
    port: int | None = None
    trainer: tuple[str, ...] = (str(TRAINER_PYTHON), str(TRAINER))
    launcher: str | None = None
    environment: dict = field(default_factory=dict)
    metrics: dict[int, "Tail"] = field(default_factory=dict)
    processes: dict[int, int] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        layout = self.config["layout"]
        return layout["data"] * layout["tensor"] * layout["pipeline"]

    def on(self, gpus: tuple[str, ...]) -> "Attempt":
        """The same on these GPUs, by their names in CUDA_VISIBLE_DEVICES; on the CPU nothing changes."""
        return replace(self, environment={**self.environment, "CUDA_VISIBLE_DEVICES": ",".join(gpus)})

    def run(self, on_event: Callable[[dict], None] = lambda event: None) -> Outcome:
        """Start the trainer, hand the metrics events of all ranks to `on_event`, and wait for the end.

        Each event of a rank has its `rank`; samples of the GPUs stand among them. One thread calls `on_event`.
        Whatever happens, also an interrupt, no process of the attempt is left when this returns.
        """
        return result_of(self.steps(on_event))

    def steps(self, on_event: Callable[[dict], None]) -> Generator[None, None, Outcome]:
        """The same bit by bit: between the steps, a short wait each, one may look after other attempts."""
        self._prepare()
        command = self._command()
        write_json(self.folder / "command.json", command)
        started = time.monotonic()
        sampled = Sampler(self.folder, self.config.get("device") == "cuda", self._visible(), _end_with_parent)
        with held(), sampled as sampler:
            process = self._start(command)
            try:
                failure = yield from self._watch(process, on_event, started, sampler)
            finally:
                _end_group(process)
        self._read_metrics(on_event)
        if failure is None:
            failure = self._unfinished(process.returncode)
        tail = self._log_tail(failure) if failure else ""
        if failure:
            failure = explain_logs(failure, self.log_files(), self.config.get("device", "cpu"))
        return Outcome(failure, time.monotonic() - started, tail)

    def _visible(self) -> str:
        return self.environment.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    def log_files(self) -> list[Path]:
        """Everything the ranks and the launcher printed, rank 0's standard output first."""
        ranks = [self._rank_folder(rank) / name for rank in range(self.world_size) for name in ("stdout", "stderr")]
        return [path for path in [*ranks, self.folder / "launcher.log"] if path.exists()]

    def _prepare(self) -> None:
        for rank in range(self.world_size):
            self._rank_folder(rank).mkdir(parents=True)
            self.metrics[rank] = Tail(self.folder / f"metrics-rank{rank}.jsonl")
        write_json(self.folder / "config.json", {**self.config, "output": str(self.folder)})

    def _rank_folder(self, rank: int) -> Path:
        return self.folder / "logs" / f"local_rank_{rank}"

    def _command(self) -> list[str]:
        """The trainer itself for one rank; oneflow.distributed.launch around it for several.

        The launcher is started by its path: as a module it would import oneflow first, 0.4 s for nothing.
        """
        rank = [self.trainer[0], "-u", *self.trainer[1:], "--config", str(self.folder / "config.json")]
        if self.world_size == 1:
            return rank
        python = self.launcher or self.trainer[0]
        return [
            python,
            str(_launcher(Path(python))),
            "--nproc_per_node",
            str(self.world_size),
            "--master_port",
            str(self.port or free_port()),
            "--redirect_stdout_and_stderr",
            "--logdir",
            str(self.folder / "logs"),
            "--no_python",
            *rank,
        ]

    def _start(self, command: list[str]) -> subprocess.Popen:
        environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
        for name in ("MAKEFLAGS", "MAKEOVERRIDES", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
            environment.pop(name, None)
        if self.config.get("device") == "cuda":
            environment |= self.environment
        single = self.world_size == 1
        if self.config.get("device") == "cuda" and not single:
            environment.setdefault("NCCL_DEBUG", "INFO")  # the log then says which network was used
            environment.setdefault("NCCL_DEBUG_SUBSYS", "INIT,NET")
        out = self._rank_folder(0) / "stdout" if single else self.folder / "launcher.log"
        err = self._rank_folder(0) / "stderr" if single else self.folder / "launcher.log"
        if single:
            environment["GLOG_log_dir"] = str(self._rank_folder(0))
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            return subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def _watch(
        self, process: subprocess.Popen, on_event, started: float, sampler: Sampler
    ) -> Generator[None, None, Failure | None]:
        """Until the process ends: pass events on, and say which rank failed if one does."""
        poller = select.poll()
        handle = os.pidfd_open(process.pid)
        try:
            poller.register(handle, select.POLLIN)
            silence = Silence(started)
            while not _wait(poller, POLL_S if self.world_size in (1, len(self.processes)) else START_POLL_S):
                ended = self._ended_ranks(process.pid)
                self._read_metrics(on_event)
                for event in sampler.read():
                    on_event(event)
                failure = next((_rank_failure(*end) for end in ended if not self._finished(end[0])), None)
                failure = failure or silence.check(self._bytes_written(), self.limits)
                if failure is None and time.monotonic() - started > self.limits.total_s:
                    failure = Failure(
                        "no end after {seconds:.0f} s, the limit for one run", {"seconds": self.limits.total_s}
                    )
                if failure:
                    return failure
                yield
        finally:
            os.close(handle)
        return None

    def _read_metrics(self, on_event) -> None:
        for rank, tail in self.metrics.items():
            for event in tail.read():
                on_event(event | {"rank": rank})

    def _finished(self, rank: int) -> bool:
        return self.metrics[rank].last.get("event") == "end"

    def _ended_ranks(self, launcher: int) -> list[tuple[int, int]]:
        """(rank, exit status) of the ranks that have ended, seen before the launcher sees it.

        One that the launcher has waited for already ended with status 0: any other makes it end them all.
        """
        if self.world_size == 1:
            return []
        self.processes |= new_ranks(launcher, self.world_size, self.processes)
        found = [(rank, exit_status(pid)) for rank, pid in sorted(self.processes.items())]
        return [(rank, status) for rank, status in found if status is not None]

    def _bytes_written(self) -> int:
        return sum(
            path.stat().st_size
            for path in [*self.log_files(), *(t.path for t in self.metrics.values())]
            if path.exists()
        )

    def _unfinished(self, returncode: int) -> Failure | None:
        missing = [rank for rank in self.metrics if not self._finished(rank)]
        if returncode == 0 and not missing:
            return None
        if self.world_size == 1:
            return _rank_failure(0, returncode)
        if missing:
            return Failure("rank {rank} ended before its work was done", {"rank": missing[0]})
        return Failure("the launcher exited with status {status}", {"status": returncode})

    def _log_tail(self, failure: Failure) -> str:
        rank = failure.values.get("rank", 0)
        logs = [self._rank_folder(rank) / "stderr", self._rank_folder(rank) / "stdout", self.folder / "launcher.log"]
        return "\n".join(next(filter(None, map(last_lines, logs)), []))


def result_of(steps: Generator):
    """Go through all steps of a generator; what it gives at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


class Tail:
    """Reads the whole lines that were added to a JSON Lines file since the last look."""

    def __init__(self, path: Path):
        self.path = path
        self.last: dict = {}
        self._offset = 0

    def read(self) -> list[dict]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = [json.loads(line) for line in whole.splitlines()]
        if events:
            self.last = events[-1]
        return events


class Silence:
    """Notices that no rank has written anything for too long: the sign of a rank that hangs."""

    def __init__(self, started: float):
        self._written = -1
        self._since = started

    def check(self, written: int, limits: Limits) -> Failure | None:
        now = time.monotonic()
        if written != self._written:
            self._written, self._since = written, now
        if now - self._since > limits.silence_s:
            return Failure(
                "no rank has printed anything for {seconds:.0f} s: at least one hangs", {"seconds": limits.silence_s}
            )
        return None


def free_port() -> int:
    """A TCP port that is free on the loopback address now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _launcher(python: Path) -> Path:
    found = next(python.parent.parent.glob("lib/python3.*/site-packages/oneflow/distributed/launch.py"), None)
    if found is None:
        raise FileNotFoundError(f"no oneflow in {python.parent.parent}; `make clean setup` builds it anew")
    return found


def _end_with_parent() -> None:
    """Lets the kernel end this process when its parent has ended."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _rank_failure(rank: int, status: int) -> Failure:
    if status < 0:
        return Failure("rank {rank} was killed by {signal}", {"rank": rank, "signal": signal.Signals(-status).name})
    if status == 0:
        return Failure("rank {rank} ended before its work was done", {"rank": rank})
    return Failure("rank {rank} exited with status {status}", {"rank": rank, "status": status})


def _wait(poller: select.poll, seconds: float) -> bool:
    """Whether something happened in a short while; here, and nowhere else, an interrupt ends an attempt."""
    with let_through():
        return bool(poller.poll(seconds * 1000))


def _end_group(process: subprocess.Popen) -> None:
    """End every process of the attempt: first politely, then for good."""
    for kind, patience in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        deadline = time.monotonic() + patience
        while _signal_group(process.pid, kind) and time.monotonic() < deadline:
            process.poll()
            time.sleep(0.02)
            kind = 0
    process.wait()


def _signal_group(group: int, kind: int) -> bool:
    """Signal a process group; False once it has no member left."""
    try:
        os.killpg(group, kind)
    except ProcessLookupError:
        return False
    return True
