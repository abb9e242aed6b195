"""What a run of `make curves`, `make convergence` or `make profile` shows, and the section and figures that tell of it."""

from repro.analysis import convergence as learning
from repro.analysis.convergence import Convergence, learned
from repro.analysis.loss_curves import Curves, compare
from repro.analysis.profiles import Profiles, profiles
from repro.planning import loss_curves as curve_plan
from repro.planning import profiling as profile_plan
from repro.planning.plan import Plan
from repro.report.document import Section
from repro.runs.record import Run
from repro.utils.i18n import N_

SCALES = {
    curve_plan.SCALE: N_("curves: loss curves of every layout and precision, compared with one device's"),
    learning.SCALE: N_("learn: real data, learned to a stated loss on one device"),
    profile_plan.SCALE: N_("profile: the published shapes on this machine's GPUs, a few iterations of each traced"),
}
Shown = Curves | Convergence | Profiles


def shown(run: Run, plan: Plan, attempts: list[dict]) -> Shown | None:
    """What a run shows about correctness or a GPU's time; None for a run that measures speed."""
    if plan.scale == curve_plan.SCALE:
        return compare(plan, attempts, run.folder)
    if plan.scale == learning.SCALE:
        return learned(plan, attempts, run.folder, run.description()["goals"])
    if plan.scale == profile_plan.SCALE:
        return profiles(plan, attempts, run.folder)
    return None


def correctness_section(_, found: Shown, description: dict) -> Section:
    """The section of the report; figures follow it."""
    if isinstance(found, Curves):
        from repro.report.run.loss_curves import curve_section

        return curve_section(_, found, description)
    if isinstance(found, Profiles):
        from repro.report.run.profile import profile_section

        return profile_section(_, found)
    from repro.report.run.learning import learning_section

    return learning_section(_, found, description)


def correctness_figures(found: Shown) -> list:
    """The figures, in their order."""
    if isinstance(found, Curves):
        from repro.report.run.loss_curves import curve_figures

        return curve_figures(found)
    if isinstance(found, Profiles):
        from repro.report.run.profile import profile_figures

        return profile_figures(found)
    from repro.report.run.learning import learning_figures

    return learning_figures(found)
