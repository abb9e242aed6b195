"""The rehearse task: every published training at its full world size and length, before GPUs are rented or queued for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.cli.options import RunOptions, RuntimeOptions
from repro.cli.session import Session, chosen_cases
from repro.cli.settings import Invocation, task
from repro.planning.programs import DEFAULT_PROGRAMS, Programs

if TYPE_CHECKING:
    from repro.runs.description import PlannedRun


@task(
    run="go on with this run as it was planned, by its name; failed cases are tried again",
    max_ranks="shrink layouts that need more ranks to this number (default: every layout at its full world size)",
    iterations="iterations of each training (default: the published number)",
    jobs="maximum number of attempts at a time (default: as many as this machine's processors and memory hold)",
    side_by_side="0 runs one attempt at a time on a cluster, 1 insists on several (default: several over SSH)",
)
def rehearse(
    invocation: Invocation,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    max_ranks: int | None = None,
    iterations: int | None = None,
    jobs: int | None = None,
    dry_run: bool = False,
    *,
    options: RunOptions,
    runtime: RuntimeOptions,
) -> None:
    """Run published cases on processors: full layouts, data path and length, tiny widths; what would fail on GPUs fails here.

    Cases whose training is the same are run once. Exit status: 0 every case ran to its end, with the losses of one
    process where that can be compared; 1 one did not; 2 wrong input, nothing was started; 130 interrupted, and RUN= goes
    on with the run.
    """
    from repro.launch.rank_pool import RankPool
    from repro.planning.rehearsal import KIND, make_rehearsal_plan
    from repro.runs.description import PlannedRun

    session = Session(invocation=invocation, options=options, model=model, runtime=runtime)
    before, name, chosen_launcher = session.begin(KIND)

    def new_plan() -> PlannedRun:
        chosen = chosen_cases(model, cases)
        plan = make_rehearsal_plan(
            chosen, program, most_ranks=max_ranks, iterations=iterations, misfit=chosen_launcher.misfit
        )
        return PlannedRun(plan=plan)

    if dry_run:
        print("\n".join(chosen_launcher.dry_run(before.description().plan if before else new_plan().plan)))
    elif name:
        session.run_on_cluster(before, chosen_launcher, new_plan)
    else:
        session.run_here(
            before,
            lambda: session.create_here(new_plan()),
            pool_of=lambda plan: RankPool.of_this_machine(plan, session.at_once(jobs)),
        )
