"""The tasks that show correctness: loss curves that agree in every layout, models that learn, and kernel profiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from repro.cli.session import Session, baseline_program_of, chosen_model, planned, refuse_options
from repro.cli.settings import Invocation, OptionError, task
from repro.images.stack import Libraries
from repro.planning.programs import DEFAULT_PROGRAMS, Programs
from repro.runs.record import RUNS

if TYPE_CHECKING:
    from repro.launch.gpu_pool import GpuPool
    from repro.planning.datasets import Dataset
    from repro.planning.plan import Plan
    from repro.runs.record import Run

RUN = "go on with this run as it was planned, by its name; failed attempts are tried again"
REPEATS = "runs of each configuration"


@task(run=RUN, repeats=REPEATS)
def curves(
    invocation: Invocation,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    repeats: int = 1,
    jobs: int | None = None,
    run: str | None = None,
    runs: Path = RUNS,
    retries: int = 0,
    stall_timeout: int | None = None,
    attempt_timeout: int | None = None,
    port: int | None = None,
    stack: str | None = None,
    cublas: str | None = None,
    cudnn: str | None = None,
    cluster: str | None = None,
    launcher: str | None = None,
    side_by_side: bool | None = None,
) -> None:
    """Compare the loss curves of all layouts and precisions with one device's in fp32.

    Exit status: 0 all curves agree and all injected errors were found; 1 they do not; 2 wrong input; 130 interrupted.
    """
    from repro.planning.datasets import text_dataset
    from repro.planning.loss_curves import KIND, make_curve_plan

    def make_plan(gpus: int, datasets: dict[str, Dataset]) -> tuple[Plan, dict]:
        text = datasets["text"]
        plan = make_curve_plan(gpus, text.data, repeats, chosen_model(model), cases or None, program)
        return plan, {"datasets": [text.facts]}

    session = Session(
        invocation,
        runs,
        run,
        model,
        port,
        stall_timeout,
        retries,
        stack,
        Libraries(cublas, cudnn),
        attempt_timeout,
        side_by_side,
    )
    _run_trainings(session, KIND, make_plan, lambda: {"text": text_dataset()}, jobs, cluster, launcher)


@task(run=RUN, repeats=REPEATS)
def convergence(
    invocation: Invocation,
    model: str = "all",
    program: Programs = DEFAULT_PROGRAMS,
    repeats: int = 1,
    jobs: int | None = None,
    run: str | None = None,
    runs: Path = RUNS,
    retries: int = 0,
    stall_timeout: int | None = None,
    attempt_timeout: int | None = None,
    port: int | None = None,
    stack: str | None = None,
    cublas: str | None = None,
    cudnn: str | None = None,
    cluster: str | None = None,
    launcher: str | None = None,
    side_by_side: bool | None = None,
) -> None:
    """Train on real data to a loss that follows from its entropy: GPT on a text, ResNet50 on handwritten digits.

    Exit status: 0 every model reached its loss; 1 one did not; 2 wrong input; 130 interrupted.
    """
    from repro.planning.convergence import KIND, make_convergence_plan
    from repro.planning.datasets import datasets_for

    def make_plan(gpus: int, datasets: dict[str, Dataset]) -> tuple[Plan, dict]:
        plan, goals = make_convergence_plan(gpus, datasets, repeats, programs=program)
        return plan, {"datasets": [each.facts for each in datasets.values()], "goals": goals}

    session = Session(
        invocation,
        runs,
        run,
        model,
        port,
        stall_timeout,
        retries,
        stack,
        Libraries(cublas, cudnn),
        attempt_timeout,
        side_by_side,
    )
    _run_trainings(session, KIND, make_plan, lambda: datasets_for(chosen_model(model)), jobs, cluster, launcher)


def _run_trainings(
    session: Session,
    kind: str,
    make_plan: Callable[[int, dict[str, Dataset]], tuple[Plan, dict]],
    datasets: Callable[[], dict[str, Dataset]],
    jobs: int | None,
    cluster: str | None,
    launcher: str | None,
) -> None:
    """Run what `make_plan` plans for this number of GPUs and these data sets, or resume a run of this kind.

    On one machine at most `jobs` attempts run concurrently, if the kind allows it; by default, as many as fit without
    sharing GPUs, and one on the CPU.
    """
    from repro.launch.gpu_pool import GpuPool
    from repro.launch.host_environment import gpu_count, visible_gpus
    from repro.report.run.kinds import find

    if session.port and jobs and jobs > 1:
        raise OptionError(f"JOBS={jobs}: PORT is the port of one attempt; leave one of the two out")
    before = session.before(kind)
    name = session.cluster_of(before, cluster)
    libraries = {"CUBLAS": session.libraries.cublas, "CUDNN": session.libraries.cudnn}
    remote = {"LAUNCHER": launcher, "SIDE_BY_SIDE": session.side_by_side}
    refuse_options(name, {"JOBS": jobs, "STACK": session.stack, **libraries}, remote)
    if name:
        chosen, made = session.launcher(name, launcher), datasets()

        def new_plan() -> tuple[Plan, dict]:
            there = {each: replace(found, folder=Path(chosen.dataset_folder(found))) for each, found in made.items()}
            return make_plan(chosen.gpus, there)

        session.run_on_cluster(before, chosen, new_plan, list(made.values()))
        return
    most = jobs or (1 if session.port else None)

    def pool_of(plan: Plan) -> GpuPool:
        return GpuPool((), most or 1) if plan.device == "cpu" else GpuPool(visible_gpus(), most)

    def new_run() -> Run:
        return session.create_here(*make_plan(gpu_count(), datasets()))

    session.run_here(before, new_run, pool_of=pool_of if find(kind).side_by_side else None)


@task(run=RUN)
def profile(
    invocation: Invocation,
    model: str = "all",
    cases: str | None = None,
    program: Programs = DEFAULT_PROGRAMS,
    max_gpus: tuple[int, ...] = (),
    precision: str | None = None,
    baseline_python: str | None = None,
    baselines: tuple[str, ...] = (),
    run: str | None = None,
    runs: Path = RUNS,
    retries: int = 0,
    stall_timeout: int | None = None,
    attempt_timeout: int | None = None,
    port: int | None = None,
    stack: str | None = None,
    cublas: str | None = None,
    cudnn: str | None = None,
    cupti: str | None = None,
) -> None:
    """Show which kernels an iteration consists of, compared with PyTorch's, on this machine's GPUs.

    Exit status: 0 every attempt was traced; 1 one was not; 2 wrong input, or no GPU; 130 interrupted.
    """
    from repro.images.stack import build_forward, find_cupti
    from repro.launch.host_environment import gpu_count
    from repro.launch.traced import traced
    from repro.planning.profiling import KIND, make_profile_plan
    from repro.published.cases import load_catalogue

    libraries = Libraries(cublas, cudnn, cupti, baseline_python)
    session = Session(invocation, runs, run, model, port, stall_timeout, retries, stack, libraries, attempt_timeout)
    before = session.before(KIND)
    baseline = None
    if before:
        plan = planned(before)
    else:
        gpus = gpu_count()
        baseline = baseline_program_of(baseline_python, baselines, gpus) if gpus else None
        chosen = load_catalogue().select(chosen_model(model), cases or None)
        variants = baseline.variants if baseline else ()
        plan = make_profile_plan(chosen, gpus, max_gpus, variants, precision or None, program)
    cupti_here, tracer = find_cupti(libraries), build_forward("kernel_trace")

    def new_run() -> Run:
        return session.create_here(plan, {"baseline": baseline.as_json()} if baseline else {}, leave_out=True)

    session.run_here(before, new_run, lambda attempt_of: traced(attempt_of, tracer, cupti_here))
