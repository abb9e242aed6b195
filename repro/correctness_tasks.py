"""The tasks that show correctness: loss curves that agree in every layout, and models that learn real data."""

from collections.abc import Callable
from pathlib import Path

from invoke import Exit, task

from repro.fabfile import (
    BAD_INPUT,
    bad_input,
    check_settings,
    chosen_model,
    create_run,
    on_this_machine,
    run_here,
    setting,
    whole_number,
)


@task
def curves(c):
    """Loss curves of all layouts and precisions beside one device's in fp32 [MODEL= CASES= REPEATS= AT_ONCE= RUN=]."""
    from repro.corpus import text_corpus
    from repro.curve_plan import make_curve_plan

    def planned(gpus: int, repeats: int) -> tuple:
        text = text_corpus()
        plan = make_curve_plan(gpus, text.data, repeats, chosen_model(), setting("CASES"))
        return plan, {"corpora": [text.facts]}

    _show("curves", planned)


@task
def learn(c):
    """GPT learns a real text and ResNet50 handwritten digits, each to a stated loss [MODEL= REPEATS= AT_ONCE= RUN=]."""
    from repro.corpus import corpora_for
    from repro.learning import make_learning_plan

    def planned(gpus: int, repeats: int) -> tuple:
        corpora = corpora_for(chosen_model())
        plan, goals = make_learning_plan(gpus, corpora, repeats)
        return plan, {"corpora": [each.facts for each in corpora.values()], "goals": goals}

    _show("learn", planned)


def _show(name: str, make_plan: Callable[[int, int], tuple]) -> None:
    """Run what `make_plan` plans for so many GPUs and repeats, or go on with RUN; exit 1 unless all of it holds."""
    from repro.environment import gpu_count, visible_gpus
    from repro.lanes import Lanes
    from repro.plan import PlanError
    from repro.record import RUNS, Run

    check_settings()
    runs, repeats = Path(setting("RUNS", RUNS)), whole_number("REPEATS", 1)
    at_once = whole_number("AT_ONCE", 1 if setting("PORT") else None)
    if setting("PORT") and at_once > 1:
        raise Exit(f"AT_ONCE={at_once}: PORT is the port of one attempt; leave one of the two out", BAD_INPUT)

    def lanes(plan) -> Lanes:
        """Speed is no matter here: `at_once` attempts at once, or as many as have GPUs of their own; on the CPU one."""
        return Lanes((), at_once or 1) if plan.device == "cpu" else Lanes(visible_gpus(), at_once)

    def new_run() -> Run:
        plan, more = make_plan(gpu_count(), repeats)
        plan, environment = on_this_machine(plan)
        return create_run(runs, plan, environment, name, **more)

    with bad_input():
        before = Run.open(setting("RUN"), runs) if setting("RUN") else None
        if before and before.description()["plan"]["scale"] != name:
            raise PlanError(f"RUN={before.id} is no run of make {name}")
    run_here(before, new_run, name, lanes_of=lanes)
