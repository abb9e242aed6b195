"""The tasks that show correctness: loss curves that agree in every layout, models that learn, and kernel profiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.cli.options import LibraryOptions, RunOptions
from repro.cli.session import Session, baseline_program_of, check_wanted, chosen_cases, chosen_model
from repro.cli.settings import MOST, Invocation, task
from repro.planning.datasets import learned_by
from repro.planning.programs import DEFAULT_PROGRAMS, Programs
from repro.utils.errors import PlanError

if TYPE_CHECKING:
    from repro.launch.gpu_pool import GpuPool
    from repro.planning.datasets import Dataset
    from repro.runs.description import PlannedRun
    from repro.runs.plan import Plan
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
    *,
    options: RunOptions,
    libraries: LibraryOptions,
) -> None:
    """Compare the loss curves of all layouts and precisions with one device's in fp32.

    Exit status: 0 all curves agree and all injected errors were found; 1 they do not; 2 wrong input; 130 interrupted.
    """
    from repro.planning.datasets import text_dataset
    from repro.planning.loss_curves import KIND, make_curve_plan
    from repro.runs.description import PlannedRun

    def make_plan(gpus: int, datasets: dict[str, Dataset]) -> PlannedRun:
        text = datasets["text"]
        plan = make_curve_plan(
            gpus, text.data, repeats=repeats, model=chosen_model(model), names=cases or None, programs=program
        )
        return PlannedRun(plan=plan, datasets=(text.facts,))

    session = Session(invocation=invocation, options=options, model=model, libraries=libraries)
    _run_trainings(session, KIND, make_plan=make_plan, datasets=lambda: {"text": text_dataset()}, jobs=jobs)


@curves.checks
def _check_layouts(values: Mapping[str, Any]) -> None:
    """Refuse layouts that there are not; of a cluster, whose GPUs its inventory tells, any may be meant."""
    from repro.launch.host_environment import gpu_count
    from repro.planning.loss_curves import make_curve_plan
    from repro.published.trainer_config import SYNTHETIC, TrainingData

    if not values["run"]:
        gpus = gpu_count() if values["cases"] and not values["cluster"] else MOST["MAX_GPUS"]
        make_curve_plan(
            gpus, TrainingData(SYNTHETIC), model=chosen_model(values["model"]), names=values["cases"] or None
        )


@task(run=RUN, repeats=REPEATS)
def convergence(
    invocation: Invocation,
    model: str = "all",
    program: Programs = DEFAULT_PROGRAMS,
    repeats: int = 1,
    jobs: int | None = None,
    *,
    options: RunOptions,
    libraries: LibraryOptions,
) -> None:
    """Train on real data to a loss that follows from its entropy: GPT on a text, ResNet50 on handwritten digits.

    Exit status: 0 every model reached its loss; 1 one did not; 2 wrong input; 130 interrupted.
    """
    from repro.planning.convergence import KIND, make_convergence_plan
    from repro.planning.datasets import datasets_for

    def make_plan(gpus: int, datasets: dict[str, Dataset]) -> PlannedRun:
        return make_convergence_plan(gpus, datasets, repeats, programs=program)

    session = Session(invocation=invocation, options=options, model=model, libraries=libraries)
    _run_trainings(session, KIND, make_plan=make_plan, datasets=lambda: datasets_for(chosen_model(model)), jobs=jobs)


convergence.checks(lambda values: learned_by(chosen_model(values["model"])))


def _run_trainings(
    session: Session,
    kind: str,
    make_plan: Callable[[int, dict[str, Dataset]], PlannedRun],
    datasets: Callable[[], dict[str, Dataset]],
    jobs: int | None,
) -> None:
    """Run what `make_plan` plans for this number of GPUs and these data sets, or resume a run of this kind.

    On one machine at most `jobs` attempts run concurrently, if the kind allows it; by default, as many as fit without
    sharing GPUs, and one on the CPU.
    """
    from repro.launch.gpu_pool import GpuPool
    from repro.launch.host_environment import gpu_count, visible_gpus
    from repro.report.run.kinds import find

    before, name, chosen = session.begin(kind)
    if name:
        made = datasets()

        def new_plan() -> PlannedRun:
            there = {
                name: replace(dataset, folder=Path(chosen.dataset_folder(dataset))) for name, dataset in made.items()
            }
            return make_plan(chosen.gpus, there)

        session.run_on_cluster(before, chosen, new_plan, list(made.values()))
        return
    most = session.at_once(jobs)

    def pool_of(plan: Plan) -> GpuPool:
        return GpuPool((), most or 1) if plan.device == "cpu" else GpuPool(visible_gpus(), most)

    def new_run() -> Run:
        return session.create_here(make_plan(gpu_count(), datasets()))

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
    cupti: str | None = None,
    *,
    options: RunOptions,
    libraries: LibraryOptions,
) -> None:
    """Show which kernels an iteration consists of, compared with PyTorch's, on the GPUs of this machine or a cluster.

    Exit status: 0 every attempt was traced; 1 one was not; 2 wrong input, or no GPU; 130 interrupted.
    """
    from repro.images.stack import TRACER, build_forward, find_cupti
    from repro.launch.traced import traced_here, traced_on_nodes
    from repro.planning.baselines import variants_of
    from repro.planning.plan import Wanted
    from repro.planning.profiling import KIND, as_profile
    from repro.runs.description import PlannedRun
    from repro.runs.plan import PUBLISHED

    session = Session(
        invocation=invocation,
        options=options,
        model=model,
        libraries=libraries,
        cupti=cupti,
        baseline_python=baseline_python,
    )
    before, name, chosen_launcher = session.begin(KIND)
    if refusal := chosen_launcher.trace_refusal():
        raise PlanError(refusal)

    def new_plan() -> PlannedRun:
        chosen = chosen_cases(model, cases)
        gpus = chosen_launcher.gpus
        baseline = None if name else baseline_program_of(baseline_python, baselines, gpus, precision)
        variants = baseline.variants if baseline else variants_of(baselines)
        wanted = Wanted(
            scale=PUBLISHED,
            repeats=1,
            max_gpus=max_gpus,
            precision=precision or None,
            baselines=variants,
            named=bool(baselines),
            programs=program,
        )
        return PlannedRun(plan=as_profile(chosen_launcher.plan(chosen, wanted)), baseline=baseline)

    if name:
        from repro.launch.nodes.tracing import Tracing

        tracing = Tracing(cupti or "")
        session.run_on_cluster(
            before, chosen_launcher, new_plan=new_plan, datasets=(), changed=lambda made: traced_on_nodes(made, tracing)
        )
        return
    planned = before.description() if before else new_plan()
    cupti_here, tracer = find_cupti(libraries.libraries(cupti, baseline_python)), build_forward(TRACER)

    def new_run() -> Run:
        return session.create_here(planned, leave_out=True)

    session.run_here(before, new_run, lambda made: traced_here(made, tracer, cupti_here))


profile.checks(check_wanted)
