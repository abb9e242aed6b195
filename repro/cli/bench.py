"""The bench task: measures cases on this machine or on a cluster and writes a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from repro.cli.options import LibraryOptions, RunOptions, RuntimeOptions
from repro.cli.session import Session, baseline_program_of, check_wanted, chosen_cases
from repro.cli.settings import Invocation, task
from repro.planning.programs import DEFAULT_PROGRAMS, Programs

if TYPE_CHECKING:
    from repro.runs.description import PlannedRun


@task(
    data="files for the published programs: a path, 'synthetic', or several such as resnet50=/imagenet,bert=/features "
    "(default: a stand-in, written once)",
    run="go on with this run as it was planned, by its name; failed cases are tried again",
    port="rendezvous port (default: a free one; with a cluster, the inventory's)",
)
def bench(
    invocation: Invocation,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    scale: str | None = None,
    max_gpus: tuple[int, ...] = (),
    precision: str | None = None,
    iterations: int | None = None,
    repeats: int | None = None,
    baseline_python: str | None = None,
    baselines: tuple[str, ...] = (),
    data: tuple[str, ...] = (),
    dry_run: bool = False,
    *,
    options: RunOptions,
    libraries: LibraryOptions,
    runtime: RuntimeOptions,
) -> None:
    """Run published cases and report on them.

    Ends with the paths of the reports. Exit status: 0 all cases ran; 1 a case failed, or a layout's losses are not
    those of its reference; 2 wrong input, nothing was started; 130 interrupted, and RUN= goes on with the run.
    """
    from repro.launch.host_environment import gpu_count
    from repro.planning.baselines import variants_of
    from repro.planning.plan import Wanted
    from repro.planning.program_data import with_data
    from repro.runs.description import PlannedRun
    from repro.runs.plan import BENCH, SMOKE

    session = Session(
        invocation=invocation,
        options=options,
        model=model,
        libraries=libraries,
        baseline_python=baseline_python,
        runtime=runtime,
    )
    before, name, chosen_launcher = session.begin(BENCH)

    def new_plan() -> PlannedRun:
        chosen = chosen_cases(model, cases)
        if name:
            baseline = None
        else:
            gpus, here = 0 if scale == SMOKE else gpu_count(), session.launcher_here()
            baseline = baseline_program_of(baseline_python, baselines, gpus, precision=precision, launcher=here)
        variants = baseline.variants if baseline else variants_of(baselines)
        wanted = Wanted(
            scale=scale or None,
            repeats=repeats,
            max_gpus=max_gpus,
            iterations=iterations,
            precision=precision or None,
            baselines=variants,
            named=bool(baselines),
            programs=program,
        )
        plan = chosen_launcher.plan(chosen, wanted)
        plan = with_data(plan, data, chosen_launcher.sees_this_machine, chosen_launcher.data_refusal)
        return PlannedRun(plan=plan, baseline=baseline)

    if dry_run:
        print("\n".join(chosen_launcher.dry_run(before.description().plan if before else new_plan().plan)))
    elif name:
        session.run_on_cluster(before, chosen_launcher, new_plan)
    else:
        session.run_here(before, lambda: session.create_here(new_plan(), leave_out=True))


bench.checks(check_wanted)


@bench.checks
def _check_data(values: Mapping[str, Any]) -> None:
    """Refuse files that are not there, before anything is installed; those of nodes are theirs."""
    from repro.planning.program_data import check_choices

    here = not (values["cluster"] or values["run"])
    check_choices(values["data"] or (), values["scale"] or None, here)
