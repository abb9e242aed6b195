"""The task that shows where a GPU's time goes in one iteration of a training."""

from pathlib import Path

from invoke import task

from repro.fabfile import (
    SETTINGS,
    bad_input,
    check_settings,
    chosen_model,
    create_run,
    fitted,
    on_this_machine,
    peer_program_of,
    run_here,
    setting,
)

SETTINGS |= {"CUPTI"}


@task
def profile(c):
    """Show which kernels an iteration consists of, beside PyTorch's [MODEL= CASES= PEER_PYTHON= PEERS= FIT= RUN=].

    PRECISION and CUPTI as well: all cases in this precision; the folder of the CUPTI that traces the kernels.
    """
    from repro.plan import PlanError
    from repro.profile_attempt import traced
    from repro.profile_plan import SCALE
    from repro.record import RUNS, Run
    from repro.stack import build_forward, find_cupti

    check_settings()
    runs = Path(setting("RUNS", RUNS))
    with bad_input():
        before = Run.open(setting("RUN"), runs) if setting("RUN") else None
        if before and before.description()["plan"]["scale"] != SCALE:
            raise PlanError(f"RUN={before.id} is no run of make profile")
        plan, more = (None, {}) if before else _planned()
        cupti, tracer = find_cupti(), build_forward("kernel_trace")

    def new_run() -> Run:
        here, environment = on_this_machine(plan, leave_out=True)
        return create_run(runs, here, environment, "profile", **more)

    run_here(before, new_run, "profile", lambda attempt_of: traced(attempt_of, tracer, cupti))


def _planned() -> tuple:
    """A new plan, and what its run keeps of the peers' program."""
    from repro.cases import load_catalogue
    from repro.environment import gpu_count
    from repro.plan import PlanError
    from repro.profile_plan import make_profile_plan

    if setting("CLUSTER"):
        raise PlanError("make profile traces this machine's GPUs; leave CLUSTER out")
    gpus = gpu_count()
    peer = peer_program_of(gpus) if gpus else None
    chosen = load_catalogue().select(chosen_model(), setting("CASES"))
    plan = make_profile_plan(chosen, gpus, fitted(), peer.variants if peer else (), setting("PRECISION"))
    return plan, {"peer": peer.as_json()} if peer else {}
