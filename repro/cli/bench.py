"""The task that measures: cases on this machine or on a cluster, with a report of what holds."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from repro.cli.session import Session, baseline_program_of, chosen_model, planned, trainer_command
from repro.cli.settings import Invocation, task
from repro.images.stack import Libraries
from repro.runs.record import RUNS

if TYPE_CHECKING:
    from repro.runs.record import Run


@task(
    run="go on with this run as it was planned, by its name; failed cases are tried again",
    port="rendezvous port (default: a free one; with a cluster, the inventory's)",
)
def bench(
    invocation: Invocation,
    model: str = "all",
    cases: str | None = None,
    scale: str | None = None,
    max_gpus: tuple[int, ...] = (),
    precision: str | None = None,
    iterations: int | None = None,
    repeats: int | None = None,
    baseline_python: str | None = None,
    baselines: tuple[str, ...] = (),
    run: str | None = None,
    runs: Path = RUNS,
    retries: int = 0,
    stall_timeout: int | None = None,
    port: int | None = None,
    stack: str | None = None,
    cublas: str | None = None,
    cudnn: str | None = None,
    cluster: str | None = None,
    launcher: str | None = None,
    dry_run: bool = False,
) -> None:
    """Run published cases and report on them.

    Ends with the paths of the reports. Exit status: 0 all cases ran; 1 a case failed, or a layout's losses are not
    those of its reference; 2 wrong input, nothing was started; 130 interrupted, and RUN= goes on with the run.
    """
    from repro.planning.plan import BENCH, PlanError

    libraries = Libraries(cublas, cudnn, None, baseline_python)
    session = Session(invocation, runs, run, model, port, stall_timeout, retries, stack, libraries)
    before = session.before(BENCH)
    name = _cluster_of(before, cluster)
    if name:
        local = {"BASELINES": baselines, "BASELINE_PYTHON": baseline_python, "CUBLAS": cublas, "CUDNN": cudnn}
        if wrong := [each for each, value in (local | {"STACK": stack}).items() if value]:
            raise PlanError(f"{', '.join(wrong)}: for runs on one machine; leave it out with CLUSTER")
        _on_cluster(session, before, name, launcher, cases, scale, repeats, max_gpus, iterations, precision, dry_run)
        return
    if wrong := [each for each, value in {"LAUNCHER": launcher, "DRY_RUN": dry_run}.items() if value]:
        raise PlanError(f"{', '.join(wrong)}: for runs on the nodes of a cluster; name it with CLUSTER")

    def new_run() -> Run:
        from repro.launch.host_environment import gpu_count
        from repro.planning.plan import make_plan
        from repro.published.cases import load_catalogue

        chosen, gpus = load_catalogue().select(chosen_model(model), cases or None), gpu_count()
        program = baseline_program_of(baseline_python, baselines, 0 if scale == "smoke" else gpus)
        variants = program.variants if program else ()
        plan = make_plan(
            chosen,
            gpus,
            scale or None,
            repeats,
            max_gpus,
            variants,
            precision=precision or None,
            iterations=iterations,
        )
        more = {"baseline": program.as_json()} if program else {}
        plan, environment = session.on_this_machine(plan, leave_out=True)
        return session.create(plan, environment, **more)

    session.run_here(before, new_run)


def _cluster_of(before: Run | None, cluster: str | None) -> str | None:
    """The cluster that was named, or that of the run to go on with, which must be the same."""
    from repro.planning.plan import PlanError

    if before is None:
        return cluster
    recorded = before.description()["environment"].get("cluster", {})
    if cluster and Path(cluster).name != recorded.get("name"):
        where = f"on cluster {recorded['name']}" if recorded else "on one machine"
        raise PlanError(f"RUN={before.id} was begun {where}; go on with it there, or leave RUN out")
    return cluster or recorded.get("folder")


def _on_cluster(
    session: Session,
    before: Run | None,
    cluster: str,
    launcher: str | None,
    cases: str | None,
    scale: str | None,
    repeats: int | None,
    max_gpus: tuple[int, ...],
    iterations: int | None,
    precision: str | None,
    dry_run: bool,
) -> None:
    from repro.launch.host_environment import capture
    from repro.launch.ssh.site import SshLauncher
    from repro.published.cases import load_catalogue

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    site = SshLauncher.of(cluster, session.port, trainer_command(), launcher or None)
    if before:
        plan = planned(before)
    else:
        chosen = load_catalogue().select(chosen_model(session.model), cases or None)
        plan = site.plan(chosen, scale or None, repeats, max_gpus, iterations, precision or None)
    if dry_run:
        print("\n".join(site.dry(plan)))
        return
    with site.opened(session.invocation.command) as nodes:
        if before:
            nodes.check_unchanged(before.description()["environment"])
        run = before or session.create(plan, capture() | nodes.environment())
        session.carry_out(run, plan, nodes.attempts(run, plan, session.limits(plan)))
