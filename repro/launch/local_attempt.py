"""One start of a trainer on this machine: its ranks are started here and watched until every process has ended."""

from __future__ import annotations

import ctypes
import hashlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from repro.images.attention_operator import LIBRARY
from repro.images.runtime import IMAGE_LAUNCHER, IMAGE_PYTHON, refusal
from repro.images.stack import TF32
from repro.launch.agent import rank_launcher
from repro.launch.agent.leftovers import mark
from repro.launch.agent.processes import end as end_processes
from repro.launch.agent.processes import end_group, of_session
from repro.launch.agent.ranks import Statuses, end_of, new_ranks
from repro.launch.attempt import (
    Interrupts,
    Limits,
    LossWatch,
    OnEvent,
    Outcome,
    StallDetector,
    ignore,
    interruptible,
)
from repro.launch.attempt_folder import AttemptFolder, rank_ended, rank_folder
from repro.launch.check_programs import CheckConfig, ProgramConfig, ProgramOf
from repro.launch.gpu_sampler import Sampler
from repro.launch.local_container import LocalContainer
from repro.launch.rank_command import launched
from repro.planning.program_data import STANDINS
from repro.runs.failures import Failure, explain_logs, last_lines
from repro.runs.record import write_json
from repro.runs.unit import Unit
from repro.utils.errors import ReproError
from repro.utils.i18n import N_
from repro.utils.paths import ROOT, TRAINER, TRAINER_PYTHON
from repro.utils.ports import free_port
from repro.utils.signals import as_of_a_process

POLL_S = 0.1
START_POLL_S = 0.02
GRACE_S = 5.0
NOT_INHERITED = (
    *("MAKEFLAGS", "MAKEOVERRIDES", "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    *TF32,
    *("NVIDIA_TF32_OVERRIDE", LIBRARY),
)
"""What ranks do not get of this process's own environment: variables of its launcher, and those that decide on TF32 and on operators of our own."""
PRCTL = ctypes.CDLL(None).prctl  # looked up here: the linker may be locked in a process that is forked off
PR_SET_PDEATHSIG = 1


def local_attempts(
    limits: Limits,
    port: int | None,
    trainer: tuple[str, ...] = (),
    baseline: tuple[str, ...] = (),
    environment: dict | None = None,
    container: LocalContainer | None = None,
    baseline_container: LocalContainer | None = None,
) -> Callable[[Unit, Path], LocalAttempt]:
    """What makes attempts on this machine.

    Parameters
    ----------
    trainer : replaces the trainer's command.
    baseline : the command of baselines.
    environment : what OneFlow needs on this machine's GPUs. Baselines get NCCL's settings of it alone, so that both
        frameworks communicate in the same way.
    container, baseline_container : the images that trainers and baselines run in.
    """
    trainer = trainer or (str(TRAINER_PYTHON), str(TRAINER))
    shared = {name: value for name, value in (environment or {}).items() if name.startswith("NCCL_")}

    def attempt_of(unit: Unit, folder: Path) -> LocalAttempt:
        if unit.baseline_of:
            return LocalAttempt(
                unit.config,
                folder,
                limits,
                port,
                trainer=baseline,
                is_baseline=True,
                environment=shared,
                container=baseline_container,
            )
        given = {**(environment or {}), **(TF32 if unit.tf32 else {})}
        return LocalAttempt(unit.config, folder, limits, port, trainer=trainer, environment=given, container=container)

    return attempt_of


def local_programs(
    program: Path,
    limits: Limits,
    environment: dict,
    python: str = str(TRAINER_PYTHON),
    container: LocalContainer | None = None,
) -> ProgramOf:
    """The maker of attempts of a check's program on this machine; `environment` is that of the stack."""

    def attempt_of(config: CheckConfig, folder: Path) -> LocalAttempt:
        given = {**environment, **(TF32 if config.tf32 else {})}
        command = (python, str(program))
        return LocalAttempt(config, folder.resolve(), limits, trainer=command, environment=given, container=container)

    return attempt_of


@dataclass
class LocalAttempt:
    """One start of a trainer in a folder of its own: configuration, command, logs and metrics stay there.

    Several ranks are started by the launcher of OneFlow in the trainer's environment, those of a baseline by one of
    ours. On CUDA they also get the variables in `environment`. With `container`, the trainer's script runs in that image,
    with its Python.
    """

    config: ProgramConfig
    folder: Path
    limits: Limits
    port: int | None = None
    trainer: tuple[str, ...] = (str(TRAINER_PYTHON), str(TRAINER))
    is_baseline: bool = False
    environment: dict = field(default_factory=dict)
    container: LocalContainer | None = None
    processes: dict[int, int] = field(default_factory=dict)
    _launched: int = 0
    _statuses: Statuses = field(default_factory=Statuses)

    @property
    def world_size(self) -> int:
        return self.config.layout.world_size

    def on(self, gpus: Sequence[str]) -> LocalAttempt:
        """The same on these GPUs, by their names in CUDA_VISIBLE_DEVICES; on the CPU nothing changes."""
        return replace(self, environment={**self.environment, "CUDA_VISIBLE_DEVICES": ",".join(gpus)})

    def run(self, on_event: OnEvent = ignore, stop: threading.Event | None = None) -> Outcome:
        """As `repro.launch.attempt.Attempt` says."""
        loss = LossWatch(on_event)
        files = self._prepare()
        argv = self.argv(str(self.port or free_port()))
        write_json(self.folder / "command.json", argv)
        started = time.monotonic()
        sampled = Sampler(self.folder, self.config.device == "cuda", self._visible(), _end_with_parent)
        with interruptible(stop) as interrupts, sampled as sampler:
            process = self._start(argv)
            try:
                failure = self._watch(process, files, loss, sampler, interrupts)
            finally:
                end_group(process, GRACE_S)
                process.wait()
                if self.container:
                    end_processes(of_session(process.pid))
                    self.container.end(self._name)
        _read_metrics(files, loss)
        failure = failure or loss.failure or self._unfinished(files, process.returncode)
        if failure is None:
            return Outcome(None, time.monotonic() - started)
        tail = files.log_tail(failure.values.get("rank", 0), self._launcher_log)
        explained = explain_logs(failure, files.log_files(), self.config.device)
        return Outcome(explained, time.monotonic() - started, tail)

    def _visible(self) -> str:
        return self.environment.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES", ""))

    @property
    def _launcher_log(self) -> Path:
        return self.folder / "launcher.log"

    def _prepare(self) -> AttemptFolder:
        files = AttemptFolder(self.folder, self.world_size, (self._launcher_log,))
        config = self.config.written(str(self.folder), str(STANDINS))
        write_json(self.folder / "config.json", config.as_json())
        return files

    def argv(self, port: str) -> list[str]:
        """The trainer itself for one rank; a launcher around it for several, which meet at `port`."""
        python = IMAGE_PYTHON if self.container else self.trainer[0]
        rank = [python, "-u", *self.trainer[1:], "--config", str(self.folder / "config.json")]
        outside: list[str] = []
        if self.container:
            given, script = self._variables(), Path(self.trainer[-1]).resolve()
            outside = self.container.command(self.folder, self.config, given, self._name, script)
        if self.world_size == 1:
            return [*outside, *rank]
        launcher = (python, self._launcher)
        return [*outside, *launched(launcher, rank, str(self.folder), ranks=self.world_size, port=port)]

    @property
    def _launcher(self) -> str:
        """The script that starts several ranks."""
        if self.is_baseline:
            return rank_launcher.__file__
        return IMAGE_LAUNCHER if self.container else str(_launcher_of_oneflow(Path(self.trainer[0])))

    @property
    def _name(self) -> str:
        """That of the attempt's container."""
        return f"reproduction-{hashlib.sha256(str(self.folder).encode()).hexdigest()[:10]}-{os.getpid()}"

    def _variables(self) -> dict[str, str]:
        """What the ranks get besides this process's own environment."""
        cuda, variables = self.config.device == "cuda", {}
        if cuda and self.world_size > 1:  # the log then says which network was used
            nccl_logging = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
            variables = {name: value for name, value in nccl_logging.items() if name not in os.environ}
        if self.world_size == 1:
            variables["GLOG_log_dir"] = str(rank_folder(self.folder, 0))
        return {**variables, **(self.environment if cuda else {})}

    def _start(self, argv: list[str]) -> subprocess.Popen:
        environment = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
        for name in NOT_INHERITED:
            environment.pop(name, None)
        environment |= mark(str(ROOT)) if self.container else self._variables()
        single, own = self.world_size == 1, rank_folder(self.folder, 0)
        out, err = (own / "stdout", own / "stderr") if single else (self._launcher_log, self._launcher_log)
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            return subprocess.Popen(
                argv,
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def _watch(
        self,
        process: subprocess.Popen,
        files: AttemptFolder,
        on_event: LossWatch,
        sampler: Sampler,
        interrupts: Interrupts,
    ) -> Failure | None:
        """Pass events on until the process ends; the failure if a rank fails, the loss is no
        number or a limit is exceeded before that."""
        poller = select.poll()
        handle = os.pidfd_open(process.pid)
        try:
            poller.register(handle, select.POLLIN)
            stall = StallDetector(self.limits)
            inside = self.container and self.container.launcher_of(process.pid, self._name, self._launcher)
            launcher = inside or (lambda: process.pid)
            while not self._has_ended(poller):
                interrupts.check()
                ended = self._ended_ranks(launcher)
                _read_metrics(files, on_event)
                for event in sampler.read():
                    on_event(event)
                failure = next((files.ended_early(*end) for end in ended if not files.finished(end[0])), None)
                failure = failure or on_event.failure or stall.check(files.bytes_on_disk())
                if failure:
                    return failure
        finally:
            os.close(handle)
        return None

    def _has_ended(self, poller: select.poll) -> bool:
        """Wait a short while, the shorter while not all ranks are known; whether the first process has ended."""
        seconds = POLL_S if self.world_size in (1, len(self.processes)) else START_POLL_S
        return bool(poller.poll(seconds * 1000))

    def _ended_ranks(self, launcher_of: Callable[[], int]) -> list[tuple[int, int]]:
        """(rank, exit status) of the ranks that have ended, as `Statuses` has it."""
        if self.world_size == 1:
            return []
        self._launched = self._launched or launcher_of()
        if self._launched:
            self.processes |= new_ranks(self._launched, self.world_size, self.processes)
        statuses = [(rank, self._statuses.of(pid)) for rank, pid in sorted(self.processes.items())]
        return [(rank, status) for rank, status in statuses if status is not None]

    def _unfinished(self, files: AttemptFolder, returncode: int) -> Failure | None:
        missing = files.unfinished()
        if returncode == 0 and (damaged := files.damage()):
            return damaged
        if returncode == 0 and not missing:
            return None
        if self.container and returncode in self.container.runtime.refusals:
            lines = last_lines(files.rank_folder(0) / "stderr") or last_lines(self._launcher_log)
            values = {"runtime": self.container.runtime.launched_by, "said": refusal(lines)}
            return Failure(N_("{runtime} did not start the container: {said}"), values)
        if self.world_size == 1:
            return files.ended_early(0, as_of_a_process(returncode) if self.container else returncode)
        if missing:
            pids = {rank: pid for rank, pid in self.processes.items() if rank in missing}
            failed = self._statuses.failed_first(pids, end_of(str(self._launcher_log))) if returncode else None
            return rank_ended(*failed or (missing[0], 0))
        return Failure("the launcher exited with status {status}", {"status": returncode})


def _read_metrics(files: AttemptFolder, on_event: OnEvent) -> None:
    for rank, tail in files.tails.items():
        for event in tail.read():
            on_event(event | {"rank": rank})


class NoLauncher(ReproError):
    """The trainers' environment is incomplete."""


def _launcher_of_oneflow(python: Path) -> Path:
    """OneFlow's launcher in a Python's environment; where it will be, if that is not installed: a dry run shows it."""
    environment = python.parent.parent
    launcher = next(environment.glob("lib/python3.*/site-packages/oneflow/distributed/launch.py"), None)
    if launcher is None and environment.exists():
        raise NoLauncher(f"no oneflow in {environment}; `make clean setup` builds it again")
    return launcher or environment / "lib/<python>/site-packages/oneflow/distributed/launch.py"


def _end_with_parent() -> None:
    """Lets the kernel end this process when its parent has ended."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM)
