"""This machine as a launcher: its GPUs or processors, the libraries and the runtime that ranks get here."""

from __future__ import annotations

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from repro.images.recipes import BASELINE
from repro.images.runtime import Venv
from repro.images.stack import Stack, stack_of, tf32_refusal
from repro.launch.agent.gpus import failure
from repro.launch.agent.leftovers import sweep, sweep_processes
from repro.launch.agent.node import port_is_free
from repro.launch.attempt import Limits
from repro.launch.base import AttemptOf, Launcher, LaunchOptions, LaunchSession
from repro.launch.host_environment import capture, check_threads, gpu_count, usable_gpus, visible_gpus
from repro.launch.local_attempt import local_attempts, local_programs
from repro.launch.local_container import LocalContainer
from repro.launch.rank_pool import free_mib
from repro.launch.select import register
from repro.planning.baselines import SCRIPT, PinnedImage, recorded_command
from repro.planning.plan import Wanted, make_plan
from repro.planning.profiling import FOR_GPUS
from repro.planning.rehearsal import memory_mib
from repro.published.cases import Case
from repro.published.trainer_config import TrainerConfig
from repro.runs.description import BaselineProgram
from repro.runs.environment import Environment
from repro.runs.failures import Failure
from repro.runs.plan import Plan
from repro.runs.record import Run
from repro.utils.dry_run import dry_run
from repro.utils.errors import PlanError
from repro.utils.i18n import N_
from repro.utils.paths import ROOT

if TYPE_CHECKING:
    from repro.launch.kernels import Kernels

VENV = Venv.name
MEMORY = N_(
    "its ranks need about {needed:.0f} GiB of memory, {free:.0f} are free here; CLUSTER= spreads them over nodes, MAX_RANKS= "
    "shrinks the layout"
)


@register
@dataclass(frozen=True)
class LocalLauncher(Launcher):
    """This machine, with the GPUs that it shows, or its processors where it has none."""

    options: LaunchOptions
    name = "local"
    sees_this_machine = True

    @classmethod
    def of(cls, options: LaunchOptions) -> LocalLauncher:
        """PlanError if a cluster is named, the port is taken, or OMP_NUM_THREADS is no number."""
        port = options.port
        if options.cluster:
            raise PlanError("LAUNCHER=local starts ranks on this machine; leave CLUSTER out")
        if port is not None and (port > 65535 or not port_is_free(port)):
            raise PlanError(
                f"PORT={port} is taken or no port number; choose another, or leave it out to get a free one"
            )
        check_threads()
        return cls(options)

    @property
    def gpus(self) -> int:
        return gpu_count()

    def plan(self, cases: Sequence[Case], wanted: Wanted) -> Plan:
        return make_plan(cases, self.gpus, wanted)

    def misfit(self, report: str, config: TrainerConfig) -> Failure | None:
        needed, free = memory_mib(report, config), free_mib()
        if needed <= free:
            return None
        return Failure(MEMORY, {"needed": needed / 1024, "free": free / 1024})

    def trace_refusal(self) -> str | None:
        return None if self.gpus else f"{FOR_GPUS}, and nvidia-smi shows none here"

    def dry_run(self, plan: Plan) -> Iterator[str]:
        """A command per unit, with the variables that it gets; what is only known in a run is in angle brackets.

        What a run would download and compile for them comes first.
        """
        _note_gpus(plan)
        with dry_run() as steps:
            stack = self.stack(plan)
        yield from (f"# before the first run: {step}" for step in steps)
        python = ("<python of the baselines>", str(SCRIPT))
        container = self.container(stack, ask=False)
        attempt_of = local_attempts(
            Limits(),
            self.options.port,
            trainer=self.options.trainer,
            baseline=python,
            environment=stack.environment,
            container=container,
        )
        for unit in plan.units:
            attempt = attempt_of(unit, Path("<attempt>"))
            variables = [f"{name}={value}" for name, value in attempt.environment.items()]
            argv = attempt.argv(str(self.options.port or "<a free port>"))
            yield f"# {unit.name}: {unit.world_size} ranks"
            here = unit.config.device == "cuda" and variables and not attempt.container
            yield shlex.join(["env", *variables, *argv] if here else argv)

    @contextmanager
    def open(self, command: str) -> Iterator[LocalSession]:
        """Nothing is held: runs on one machine may share it. What dead runs left in images is removed.

        GpuError if CUDA_VISIBLE_DEVICES names what is not here.
        """
        visible_gpus()
        if self.runtime() != VENV:
            sweep_processes(str(ROOT))
            sweep(str(ROOT))
        yield LocalSession(self)

    def stack(self, plan: Plan, recorded: Environment | None = None) -> Stack:
        """The libraries that trainers need on this machine's GPUs; StackError or PlanError if they are not available.

        `recorded` is the environment of a run that is continued: it keeps its stack unless another one is asked for.
        """
        name = self.options.stack or (recorded.stack_name if recorded else None) or None
        if plan.tf32 and (refusal := tf32_refusal(usable_gpus(), name)):
            raise PlanError(refusal)
        return stack_of(
            usable_gpus() if plan.device == "cuda" else [],
            name,
            self.options.libraries,
            in_image=self.runtime(recorded) != VENV,
        )

    def runtime(self, recorded: Environment | None = None) -> str:
        """What ranks run with; a run that is continued keeps its own. PlanError if another one is asked for."""
        before = (recorded.runtime or {}).get("name", VENV) if recorded else None
        if before and self.options.runtime and self.options.runtime != before:
            raise PlanError(f"RUNTIME={self.options.runtime}: the run was begun with {before}; leave it out")
        return before or self.options.runtime or VENV

    def baseline_image(self) -> PinnedImage | None:
        """The image of the baselines, None where ranks run in none; RuntimeUnavailable if it is not here."""
        if self.runtime() == VENV:
            return None
        container = LocalContainer.of(self.runtime(), Stack(BASELINE, {}))
        return PinnedImage(container.image, tuple(container.probe_command(self.gpus > 0)))

    def baseline_container(
        self, baseline: BaselineProgram | None, recorded: Environment | None
    ) -> LocalContainer | None:
        """The image that a run's baselines run in, by its record; None if they run in none."""
        if not baseline or not baseline.image:
            return None
        return LocalContainer.of(self.runtime(recorded), Stack(BASELINE, {}), baseline.image)

    def container(self, stack: Stack, recorded: Environment | None = None, ask: bool = True) -> LocalContainer | None:
        """The image that ranks run in, None for the venv; PlanError if it is not the one that a run was begun in.

        Without `ask` it is not looked for.
        """
        name = self.runtime(recorded)
        if name == VENV:
            if self.options.image:
                raise PlanError("IMAGE: for RUNTIME=docker or apptainer, which run an image")
            return None
        before = (recorded and recorded.runtime) or {}
        container = LocalContainer.of(name, stack, self.options.image or before.get("image"), ask)
        for key in ("id", "sha256"):
            if before.get(key, "") != container.record().get(key, "") and before:
                raise PlanError(
                    f"{container.name} is not the image that the run was begun in, whose {key} is {before[key]}"
                )
        return container


def _note_gpus(plan: Plan) -> None:
    """Say what GPUs of several models, and ones that nvidia-smi cannot tell of, mean for a run, before it starts."""
    if plan.device == "cpu" and (reason := failure()):
        print(f"note: nvidia-smi fails here, so no GPU is used: {reason}", file=sys.stderr)
    models = Counter(gpu["name"] for gpu in usable_gpus()) if plan.device == "cuda" else {}
    if len(models) > 1:
        print(
            f"note: GPUs of several models: {', '.join(f'{count} x {name}' for name, count in models.items())}. The slowest "
            "determines the speed of a run, the first the libraries of all; CUDA_VISIBLE_DEVICES=<UUIDs> (`nvidia-smi -L`) "
            "hides the others",
            file=sys.stderr,
        )


@dataclass(frozen=True)
class LocalSession(LaunchSession):
    """This machine during a run."""

    launcher: LocalLauncher

    def attempts(self, run: Run, plan: Plan, limits: Limits) -> AttemptOf:
        """With the stack and the baselines' command that the run recorded."""
        options, description = self.launcher.options, run.description()
        described, recorded = description.baseline, description.environment
        baseline = recorded_command(described, options.baseline) if described else ()
        stack = self.launcher.stack(plan, recorded)
        container = self._container(plan, stack, recorded)
        return local_attempts(
            limits,
            options.port,
            trainer=options.trainer,
            baseline=baseline,
            environment=stack.environment,
            container=container,
            baseline_container=self.launcher.baseline_container(described, recorded),
        )

    def environment(self, plan: Plan) -> Environment:
        _note_gpus(plan)
        stack = self.launcher.stack(plan)
        container = self._container(plan, stack)
        return replace(capture(stack), runtime=container.record() if container else None)

    def _container(self, plan: Plan, stack: Stack, recorded: Environment | None = None) -> LocalContainer | None:
        """The image of the ranks; PlanError if a path that they need cannot be mounted."""
        container = self.launcher.container(stack, recorded)
        if container:
            container.check_mounts(self.launcher.options.runs, [unit.config for unit in plan.units])
        return container

    def kernels(self, plan: Plan, recorded: Environment | None) -> Kernels | None:
        """One GPU is enough: they share driver and libraries."""
        if plan.device != "cuda":
            return None
        from repro.launch.kernels import LIMITS, PROGRAM, kernels_here, precisions_of

        stack = self.launcher.stack(plan, recorded)
        container = self._container(plan, stack, recorded)
        programs = local_programs(PROGRAM, LIMITS, stack.environment, container=container)
        image = container.record() if container else None
        return kernels_here(usable_gpus(), stack, programs, precisions_of(plan), image=image)

    def check_unchanged(self, environment: Environment) -> None:
        """Nothing is refused: reports compare what each attempt's processes recorded of themselves."""
