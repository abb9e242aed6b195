"""A run on this machine or on a cluster, from the options of its task: planned or opened, carried out, reported."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from repro.cli.options import LibraryOptions, RunOptions, RuntimeOptions, cluster_of
from repro.cli.settings import Exit, Invocation, exit_statuses
from repro.targets import command_line
from repro.utils.errors import FAILED, INTERRUPTED, PlanError
from repro.utils.printable import one_line
from repro.utils.signals import heed_signals

if TYPE_CHECKING:
    from repro.launch.attempt import Limits
    from repro.launch.base import AttemptOf, Launcher, LaunchSession, Places
    from repro.launch.local import LocalLauncher
    from repro.planning.datasets import Dataset
    from repro.published.cases import Case
    from repro.runs.description import BaselineProgram, PlannedRun
    from repro.runs.environment import Environment
    from repro.runs.plan import Plan
    from repro.runs.record import Run

SMOKE_STALL_TIMEOUT_S, STALL_TIMEOUT_S = 120, 900
OF_ANY_RUN = {
    *(option.name.upper() for group in (RunOptions, LibraryOptions, RuntimeOptions) for option in fields(group)),
    *("MODEL", "JOBS", "CUPTI", "BASELINE_PYTHON", "DRY_RUN"),
}
"""Options that a run which goes on reads as well; all others are of its plan."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A training task with its options; all from `libraries` on are for what runs on this machine."""

    invocation: Invocation
    options: RunOptions = field(default_factory=RunOptions)
    model: str = "all"
    libraries: LibraryOptions = field(default_factory=LibraryOptions)
    cupti: str | None = None
    baseline_python: str | None = None
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)

    @property
    def task(self) -> str:
        return self.invocation.task

    def begin(self, kind: str) -> tuple[Run | None, str | None, Launcher]:
        """The run to go on with, if one was named; the cluster, None for this machine; and its launcher."""
        before = self.before(kind)
        cluster = cluster_of(before, self.options.cluster)
        return before, cluster, self.launcher(cluster, before)

    def at_once(self, jobs: int | None) -> int | None:
        """How many attempts may run at a time on one machine; None for as many as fit. A named port is of one attempt."""
        return jobs or (1 if self.options.port else None)

    def before(self, kind: str) -> Run | None:
        """The run to go on with, if one was named.

        PlanError if it is of another `kind` or model or ran other code, RecordError if it was kept or is in use.
        """
        from repro.launch.program_code import refuse_other_code
        from repro.runs.manifest import check_recordable
        from repro.runs.occupied import occupied
        from repro.runs.record import Run

        if not self.options.run:
            return None
        run = Run.open(self.options.run, self.options.runs, option="RUN")
        check_recordable(run)
        plan = run.description().plan
        if plan.kind != kind:
            raise PlanError(f"RUN={run.id} is no run of make {self.task}")
        models = {unit.model for unit in plan.units}
        if chosen_model(self.model) not in (None, *models):
            raise PlanError(f"RUN={run.id} trains {', '.join(sorted(models))}: leave MODEL={self.model} out")
        refuse_other_code(run, trainer_command())
        with occupied(run):
            pass  # refused before anything starts; `carry_out` holds it
        if unread := [name for name in self.invocation.texts if name not in OF_ANY_RUN]:
            print(f"RUN={run.id} goes on as it was planned, without {', '.join(unread)}", file=sys.stderr)
        return run

    def create(self, planned: PlannedRun, environment: Environment) -> Run:
        """Make the folder of a new run."""
        from repro.runs.description import RunDescription
        from repro.runs.record import Run

        description = RunDescription(
            **vars(planned), created=time.time(), command=self.invocation.command, environment=environment
        )
        return Run.create(f"{self.model}-{planned.plan.label}", description, self.options.runs)

    def run_here(
        self,
        before: Run | None,
        new_run: Callable[[], Run],
        changed: Callable[[AttemptOf], AttemptOf] = lambda attempt_of: attempt_of,
        pool_of: Callable[[Plan], Places] | None = None,
    ) -> None:
        """Go on with a run, or with the one that `new_run()` makes, on this machine.

        `changed` may wrap what makes the attempts; `pool_of` gives the GPUs or processors of a plan whose attempts may
        run concurrently.
        """
        from repro.launch.host_environment import gpu_count

        heed_signals()
        run = before or new_run()
        description = run.description()
        plan = description.plan
        if before and plan.device == "cuda":
            needed, present = max((unit.world_size for unit in plan.units), default=0), gpu_count()
            if needed > present:
                raise PlanError(
                    f"RUN={run.id} was planned for {needed} GPUs, and {present} are here: go on with it where there are "
                    f"{needed}, or begin a new run"
                )
        pool = pool_of(plan) if pool_of else None
        with self.launcher_here().open(self.invocation.command) as session:
            if before:
                _compared(session, plan, description.environment)
            self.carry_out(run, plan, changed(session.attempts(run, plan, self.limits(plan))), pool)

    def run_on_cluster(
        self,
        before: Run | None,
        launcher: Launcher,
        new_plan: Callable[[], PlannedRun],
        datasets: Sequence[Dataset] = (),
        changed: Callable[[AttemptOf], AttemptOf] = lambda attempt_of: attempt_of,
    ) -> None:
        """Go on with a run, or with a new one, where a cluster's launcher opens.

        `datasets` are brought to where ranks find them; `changed` may wrap what makes the attempts.
        """
        heed_signals()
        description = before.description() if before else None
        planned = description or new_plan()
        plan, recorded = planned.plan, description.environment if description else None
        with launcher.open(self.invocation.command) as session:
            if recorded:
                session.check_unchanged(recorded)
            read = [
                dataset
                for dataset in datasets
                if any(unit.config.data.is_in(launcher.dataset_folder(dataset)) for unit in plan.units)
            ]
            session.bring(plan, read)
            if missing := session.missing_data(plan):
                raise PlanError("\n".join(missing))
            plan, kernels = _compared(session, plan, recorded, leave_out=not before)
            baseline = session.baselines(plan) if plan.variants else planned.baseline
            places = self._places(session, plan)
            run = before or self.create(
                replace(planned, plan=plan, baseline=baseline), replace(session.environment(plan), kernels=kernels)
            )
            limits = self.limits(plan, launcher.patience)
            self.carry_out(run, plan, changed(session.attempts(run, plan, limits)), places)

    def _places(self, session: LaunchSession, plan: Plan) -> Places | None:
        """The places of attempts that run side by side; None for one at a time.

        PlanError if side by side is asked for where it cannot be.
        """
        if self.options.side_by_side is False:
            return None
        try:
            return session.side_by_side(plan)
        except PlanError as error:
            if self.options.side_by_side:
                raise PlanError(f"SIDE_BY_SIDE=1: {error}") from error
            print(error, file=sys.stderr)
            return None

    def launcher(self, cluster: str | None, before: Run | None = None) -> Launcher:
        """The launcher of a cluster, the one that was named or the inventory's own; without a cluster this machine's.

        `before` is a run that goes on, which keeps its runtime.
        PlanError or ClusterError if it cannot work with the session's options.
        """
        from repro.launch.base import LaunchOptions
        from repro.launch.select import select

        if cluster is None:
            return self.launcher_here()
        from repro.cluster.cluster import load_cluster, with_runtime

        options, described = self.options, load_cluster(cluster)
        recorded = (before and before.description().environment.cluster) or {}
        described = with_runtime(described, self.runtime.runtime or recorded.get("runtime"), options.launcher)
        launch = LaunchOptions(
            described,
            options.port,
            trainer_command(),
            attempt_s=_attempt_s(options, described.patience),
            baseline=baseline_command(),
        )
        return select(launch, options.launcher or None)

    def launcher_here(self) -> LocalLauncher:
        """This machine's launcher with the session's options; PlanError if it cannot work with them."""
        from repro.launch.base import LaunchOptions
        from repro.launch.local import LocalLauncher

        return LocalLauncher.of(
            LaunchOptions(
                None,
                self.options.port,
                trainer_command(),
                self.libraries.stack or None,
                baseline=baseline_command(),
                libraries=self.libraries.libraries(self.cupti, self.baseline_python),
                runtime=self.runtime.runtime or None,
                image=self.runtime.image or None,
                runs=self.options.runs,
            )
        )

    def carry_out(self, run: Run, plan: Plan, attempt_of: Callable, places: Places | None = None) -> None:
        """Run the rest of a plan and write the reports; Exit if it was interrupted, or if something failed."""
        from repro.launch.progress import Progress
        from repro.launch.runner import Bench
        from repro.runs.occupied import occupied
        from repro.utils.signals import held

        place = {name: text for name, text in self.invocation.texts.items() if name == "RUNS"}
        again = command_line(self.task, {"RUN": run.id, **place})
        with held() as interrupts, exit_statuses(FAILED), occupied(run):
            threading.Thread(target=_import_report, args=(plan,)).start()
            progress = Progress()
            with contextlib.closing(progress), contextlib.suppress(KeyboardInterrupt):
                Bench(
                    run,
                    plan,
                    progress=progress,
                    attempt_of=attempt_of,
                    retries=self.options.retries,
                    places=places,
                    replaced=trainer_command(),
                ).run_all()
            run.check_there()
            from repro.report.run.page import render
            from repro.runs.manifest import record

            rendered = render(run)
            record(run)
            for path in (*rendered.reports, rendered.results):
                print(path)
            if interrupts.came:
                print(f"interrupted; go on with: {again}", file=sys.stderr)  # now: the next signal may end all the rest
                raise Exit("", INTERRUPTED)
        if problems := "\n".join(rendered.findings.problems):
            raise Exit(f"{problems}; the reports say why. Try the failed ones again with: {again}", FAILED)
        print(rendered.findings.summary())

    def create_here(self, planned: PlannedRun, leave_out: bool = False) -> Run:
        """Make the folder of a new run on this machine."""
        plan, environment = self.on_this_machine(planned.plan, leave_out)
        return self.create(replace(planned, plan=plan), environment)

    def on_this_machine(self, plan: Plan, leave_out: bool = False) -> tuple[Plan, Environment]:
        """A new plan, and what its run records of this machine.

        Models that this machine's GPUs compute wrongly are left out of the plan, or refused.
        """
        with self.launcher_here().open(self.invocation.command) as session:
            environment = session.environment(plan)
            plan, kernels = _compared(session, plan, None, leave_out)
        return plan, replace(environment, kernels=kernels)

    def limits(self, plan: Plan, patience: float = 1.0) -> Limits:
        """How long an attempt of this plan may take, and be silent; without an option, a cluster's `patience` times as long."""
        from repro.launch.attempt import Limits
        from repro.runs.plan import SMOKE

        timeout_s = SMOKE_STALL_TIMEOUT_S if plan.scale == SMOKE else STALL_TIMEOUT_S
        return Limits(self.options.stall_timeout or timeout_s * patience, _attempt_s(self.options, patience))


def _attempt_s(options: RunOptions, patience: float) -> float:
    """How long an attempt may take; without an option, a cluster's `patience` times as long as elsewhere."""
    from repro.launch.attempt import Limits

    return options.attempt_timeout or Limits.total_s * patience


def chosen_model(model: str) -> str | None:
    """The model of an option, None for all."""
    return None if model == "all" else model


def chosen_cases(model: str, cases: str | None) -> tuple[Case, ...]:
    """The published cases of the options `model` and `cases`; CaseError if there are none."""
    from repro.published.cases import load_catalogue

    return load_catalogue().select(chosen_model(model), cases or None)


def trainer_command() -> tuple[str, ...]:
    """What replaces the trainer in tests: the environment variable REPRO_TRAINER_COMMAND."""
    return _command("REPRO_TRAINER_COMMAND")


def baseline_command() -> tuple[str, ...]:
    """What replaces the baselines' program in tests: the environment variable REPRO_BASELINE_COMMAND."""
    return _command("REPRO_BASELINE_COMMAND")


def _command(name: str) -> tuple[str, ...]:
    """The words of a command in an environment variable; PlanError for one that no shell could read."""
    text = os.environ.get(name, "")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise PlanError(f"{name}={one_line(text)}: no shell reads this command: {error}") from None


def baseline_program_of(
    python: str | None,
    variants: tuple[str, ...],
    gpus: int,
    precision: str | None = None,
    launcher: LocalLauncher | None = None,
) -> BaselineProgram | None:
    """The baselines' program, if any are asked for; in an image where the ranks of `launcher` run in one."""
    command = baseline_command()
    if not (python or variants or command):
        return None
    from repro.planning.baselines import baseline_program

    image = launcher.baseline_image if launcher else lambda: None
    return baseline_program(python, command, ",".join(variants), gpus, precision=precision, image=image)


def check_wanted(values: Mapping[str, Any]) -> None:
    """Refuse baselines, a scale and a precision that there are not, before anything is installed for them."""
    from repro.planning.baselines import variants_of
    from repro.planning.plan import Wanted

    variants_of(values["baselines"] or ())
    Wanted(scale=values.get("scale") or None, precision=values["precision"] or None).check()


def _import_report(plan: Plan) -> None:
    """Import the modules for this plan's report.

    In a thread while the ranks run: importing pandas alone would delay a short run as much as everything else.
    """
    from repro.report.run import page

    page.kind_of(plan)


def _compared(
    session: LaunchSession, plan: Plan, recorded: Environment | None, leave_out: bool = False
) -> tuple[Plan, dict | None]:
    """The plan that may begin or go on, and what a new run records of how its GPUs compute.

    Models that they compute wrongly are refused or, with `leave_out`, skipped unless no other is left (KernelError).
    Nothing is compared where the trainer is replaced.
    """
    kernels = None if trainer_command() else session.kernels(plan, recorded)
    if kernels is None:
        return plan, None
    kernels.refuse_wrong(plan, all_of_it=leave_out)
    return kernels.without_wrong(plan), kernels.record()
