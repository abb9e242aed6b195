"""The tasks that show correctness: loss curves that agree in every layout, and models that learn real data."""

from collections.abc import Callable
from pathlib import Path

from invoke import Exit, task

from repro.cli.tasks import (
    BAD_INPUT,
    SETTINGS,
    bad_input,
    baseline_program_of,
    check_settings,
    chosen_model,
    create_run,
    fitted,
    on_this_machine,
    run_here,
    run_to_resume,
    setting,
    whole_number,
)


@task
def curves(c):
    """Loss curves of all layouts and precisions beside one device's in fp32 [MODEL= CASES= REPEATS= AT_ONCE= RUN=]."""
    from repro.planning.datasets import text_dataset
    from repro.planning.loss_curves import KIND, make_curve_plan

    def planned(gpus: int, repeats: int) -> tuple:
        text = text_dataset()
        plan = make_curve_plan(gpus, text.data, repeats, chosen_model(), setting("CASES"))
        return plan, {"corpora": [text.facts]}

    _show("curves", KIND, planned)


@task
def learn(c):
    """GPT learns a real text and ResNet50 handwritten digits, each to a stated loss [MODEL= REPEATS= AT_ONCE= RUN=]."""
    from repro.planning.convergence import KIND, make_convergence_plan
    from repro.planning.datasets import datasets_for

    def planned(gpus: int, repeats: int) -> tuple:
        datasets = datasets_for(chosen_model())
        plan, goals = make_convergence_plan(gpus, datasets, repeats)
        return plan, {"corpora": [each.facts for each in datasets.values()], "goals": goals}

    _show("learn", KIND, planned)


def _show(name: str, kind: str, make_plan: Callable[[int, int], tuple]) -> None:
    """Run what `make_plan` plans for a number of GPUs and of repeats, or go on with RUN; exit 1 if there is a problem.

    `name` is the task's, `kind` that of its runs.
    """
    from repro.launch.gpu_pool import GpuPool
    from repro.launch.host_environment import gpu_count, visible_gpus
    from repro.report.run.kinds import KINDS
    from repro.runs.record import RUNS, Run

    check_settings()
    runs, repeats = Path(setting("RUNS", RUNS)), whole_number("REPEATS", 1)
    at_once = whole_number("AT_ONCE", 1 if setting("PORT") else None)
    if setting("PORT") and at_once > 1:
        raise Exit(f"AT_ONCE={at_once}: PORT is the port of one attempt; leave one of the two out", BAD_INPUT)

    def gpu_pool(plan) -> GpuPool:
        """Speed is no matter here: `at_once` attempts at once, or as many as have GPUs of their own; on the CPU one."""
        return GpuPool((), at_once or 1) if plan.device == "cpu" else GpuPool(visible_gpus(), at_once)

    def new_run() -> Run:
        plan, more = make_plan(gpu_count(), repeats)
        plan, environment = on_this_machine(plan)
        return create_run(runs, plan, environment, name, **more)

    with bad_input():
        before = run_to_resume(name, kind, runs)
    run_here(before, new_run, name, lanes_of=gpu_pool if KINDS[kind].side_by_side else None)


SETTINGS |= {"CUPTI"}


@task
def profile(c):
    """Show which kernels an iteration consists of, beside PyTorch's [MODEL= CASES= PEER_PYTHON= PEERS= FIT= RUN=].

    PRECISION and CUPTI as well: all cases in this precision; the folder of the CUPTI that traces the kernels.
    """
    from repro.images.stack import build_forward, find_cupti
    from repro.launch.traced import traced
    from repro.planning.profiling import KIND
    from repro.runs.record import RUNS, Run

    check_settings()
    runs = Path(setting("RUNS", RUNS))
    with bad_input():
        before = run_to_resume("profile", KIND, runs)
        plan, more = (None, {}) if before else _planned()
        cupti, tracer = find_cupti(), build_forward("kernel_trace")

    def new_run() -> Run:
        here, environment = on_this_machine(plan, leave_out=True)
        return create_run(runs, here, environment, "profile", **more)

    run_here(before, new_run, "profile", lambda attempt_of: traced(attempt_of, tracer, cupti))


def _planned() -> tuple:
    """A new plan, and what its run keeps of the peers' program."""
    from repro.launch.host_environment import gpu_count
    from repro.planning.plan import PlanError
    from repro.planning.profiling import make_profile_plan
    from repro.published.cases import load_catalogue

    if setting("CLUSTER"):
        raise PlanError("make profile traces this machine's GPUs; leave CLUSTER out")
    gpus = gpu_count()
    baseline = baseline_program_of(gpus) if gpus else None
    chosen = load_catalogue().select(chosen_model(), setting("CASES"))
    plan = make_profile_plan(chosen, gpus, fitted(), baseline.variants if baseline else (), setting("PRECISION"))
    return plan, {"baseline": baseline.as_json()} if baseline else {}
