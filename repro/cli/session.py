"""A run on this machine or on a cluster, from the options of its task: planned or opened, carried out, reported."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke import Exit

from repro.cli.settings import Invocation, exit_statuses
from repro.images.stack import Libraries
from repro.runs.record import RUNS
from repro.utils.errors import FAILED, INTERRUPTED

if TYPE_CHECKING:
    from repro.images.stack import Stack
    from repro.launch.gpu_pool import GpuPool
    from repro.launch.local import Limits
    from repro.planning.baselines import BaselineProgram
    from repro.planning.plan import Plan
    from repro.runs.record import Run

STALL_TIMEOUT_S = {"smoke": 120}
LONG_STALL_TIMEOUT_S = 900


@dataclass(frozen=True)
class Session:
    """What a task that trains was asked about where its run is kept and how its attempts are started."""

    invocation: Invocation
    runs: Path = RUNS
    run: str | None = None
    model: str = "all"
    port: int | None = None
    stall_timeout: int | None = None
    retries: int = 0
    stack: str | None = None
    libraries: Libraries = field(default_factory=Libraries)

    @property
    def task(self) -> str:
        return self.invocation.task

    def before(self, kind: str) -> Run | None:
        """The run to go on with, if one was named; PlanError if it is of another `kind`."""
        from repro.planning.plan import PlanError
        from repro.runs.record import Run

        if not self.run:
            return None
        run = Run.open(self.run, self.runs)
        if planned(run).kind != kind:
            raise PlanError(f"RUN={run.id} is no run of make {self.task}")
        return run

    def create(self, plan: Plan, environment: dict, **more: Any) -> Run:
        """Make the folder of a new run; `more` is kept in its description besides the plan."""
        from repro.runs.record import Run

        description = {
            "created": time.time(),
            "command": self.invocation.command,
            "environment": environment,
            "plan": plan.as_json(),
        }
        return Run.create(f"{self.model}-{plan.label}", description | more, self.runs)

    def run_here(
        self,
        before: Run | None,
        new_run: Callable[[], Run],
        changed: Callable = lambda attempt_of: attempt_of,
        pool_of: Callable[[Plan], GpuPool] | None = None,
    ) -> None:
        """Go on with a run, or with the one that `new_run()` makes, on this machine.

        `changed` may wrap what makes the attempts; `pool_of` gives the GPUs of a plan whose attempts may run
        concurrently.
        """
        from repro.launch.local import local_attempts

        signal.signal(signal.SIGTERM, signal.default_int_handler)
        check_port(self.port)
        run = before or new_run()
        plan = planned(run)
        baseline = _baseline_command(run.description())
        stack = self.stack_for(plan.device, run.description())
        if before and (kernels := _kernels(plan, stack)):
            kernels.refuse_wrong(plan)
        gpu_pool = pool_of(plan) if pool_of else None
        attempt_of = local_attempts(self.limits(plan), self.port, trainer_command(), baseline, stack.environment)
        self.carry_out(run, plan, changed(attempt_of), gpu_pool)

    def carry_out(self, run: Run, plan: Plan, attempt_of: Callable, gpu_pool: GpuPool | None = None) -> None:
        """Run what is left of a plan and write the reports; Exit if it was interrupted, or if something failed."""
        from repro.launch.progress import progress_display
        from repro.launch.runner import Bench
        from repro.report.run.page import render
        from repro.runs.manifest import record
        from repro.utils.signals import held

        again = f"make {self.task} RUN={run.id}"
        with held() as interrupts, exit_statuses(FAILED):
            progress = progress_display()
            with contextlib.closing(progress), contextlib.suppress(KeyboardInterrupt):
                Bench(run, plan, progress, attempt_of, self.retries, gpu_pool).run_all()
            rendered = render(run)
            record(run)
            for path in (*rendered.reports, rendered.results):
                print(path)
            if interrupts.came:
                raise Exit(f"interrupted; go on with: {again}", INTERRUPTED)
        if problems := "\n".join(rendered.findings.problems):
            raise Exit(f"{problems}; the reports say why. Try the failed ones again with: {again}", FAILED)
        print(rendered.findings.summary())

    def on_this_machine(self, plan: Plan, leave_out: bool = False) -> tuple[Plan, dict]:
        """A new plan, and what its run records of this machine.

        Models that this machine's GPUs compute wrongly are left out of the plan, or refused.
        """
        from repro.launch.host_environment import capture

        stack = self.stack_for(plan.device)
        environment = capture(stack)
        if kernels := _kernels(plan, stack):
            kernels.refuse_wrong(plan, all_of_it=leave_out)
            plan = kernels.without_wrong(plan)
            environment["kernels"] = kernels.record()
        return plan, environment

    def stack_for(self, device: str, description: dict | None = None) -> Stack:
        """What trainers need on this machine's GPUs: as asked, as the run to go on with had it, or by the GPU."""
        from repro.images.stack import stack_of
        from repro.launch.host_environment import gpus

        recorded = (description or {}).get("environment", {}).get("stack") or {}
        return stack_of(gpus() if device == "cuda" else [], self.stack or recorded.get("name"), self.libraries)

    def limits(self, plan: Plan) -> Limits:
        """How long an attempt of this plan may be silent."""
        from repro.launch.local import Limits

        return Limits(silence_s=self.stall_timeout or STALL_TIMEOUT_S.get(plan.scale, LONG_STALL_TIMEOUT_S))


def chosen_model(model: str) -> str | None:
    """The model of an option, None for all."""
    return None if model == "all" else model


def planned(run: Run) -> Plan:
    """The plan that a run was begun with."""
    from repro.planning.plan import Plan

    return Plan.from_json(run.description()["plan"])


def check_port(port: int | None) -> None:
    """PlanError if the port of a run on this machine cannot be had."""
    from repro.launch.agent.node import port_is_free
    from repro.planning.plan import PlanError

    if port is not None and (port > 65535 or not port_is_free(port)):
        raise PlanError(f"PORT={port} is taken or no port number; choose another, or leave it out to get a free one")


def trainer_command() -> tuple[str, ...]:
    """What replaces the trainer in tests: the environment variable REPRO_TRAINER_COMMAND."""
    return tuple(shlex.split(os.environ.get("REPRO_TRAINER_COMMAND", "")))


def baseline_command() -> tuple[str, ...]:
    """What replaces the baselines' program in tests: the environment variable REPRO_BASELINE_COMMAND."""
    return tuple(shlex.split(os.environ.get("REPRO_BASELINE_COMMAND", "")))


def baseline_program_of(python: str | None, variants: tuple[str, ...], gpus: int) -> BaselineProgram | None:
    """The baselines' program, if one is wanted."""
    command = baseline_command()
    if not (python or variants or command):
        return None
    from repro.planning.baselines import baseline_program

    return baseline_program(python, command, ",".join(variants), gpus)


def _baseline_command(description: dict) -> tuple[str, ...]:
    """The baselines' command of a run, also of one that is gone on with; empty if it has none."""
    if "baseline" not in description:
        return ()
    from repro.planning.baselines import recorded_command

    return recorded_command(description["baseline"])


def _kernels(plan: Plan, stack: Stack) -> Any:
    """How this machine's GPUs compute compared with the CPU; None without GPUs, or if the trainer is replaced."""
    if plan.device != "cuda" or trainer_command():
        return None
    from repro.launch.host_environment import gpus
    from repro.preflight.kernels import kernels_here

    return kernels_here(gpus(), stack)
