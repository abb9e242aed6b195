"""What a run of `make curves`, `make learn` or `make profile` shows, and the section and figures that tell of it."""

from repro import curve_plan, learning, profile_plan
from repro.curves import Curves, compare
from repro.document import Section
from repro.learning import Learning, learned
from repro.locales import N_
from repro.plan import Plan
from repro.profile import Profiles, profiles
from repro.record import Run

SCALES = {
    curve_plan.SCALE: N_("curves: loss curves of every layout and precision, compared with one device's"),
    learning.SCALE: N_("learn: real data, learned to a stated loss on one device"),
    profile_plan.SCALE: N_("profile: the published shapes on this machine's GPUs, a few iterations of each traced"),
}
Shown = Curves | Learning | Profiles


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
        from repro.curve_section import curve_section

        return curve_section(_, found, description)
    if isinstance(found, Profiles):
        from repro.profile_section import profile_section

        return profile_section(_, found)
    from repro.learning_section import learning_section

    return learning_section(_, found, description)


def correctness_plates(found: Shown) -> list:
    """The figures, in their order."""
    if isinstance(found, Curves):
        from repro.curve_section import curve_plates

        return curve_plates(found)
    if isinstance(found, Profiles):
        from repro.profile_section import profile_plates

        return profile_plates(found)
    from repro.learning_section import learning_plates

    return learning_plates(found)
