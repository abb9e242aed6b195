"""What a run of `make curves` or `make learn` shows, and the section and figures that tell of it."""

from repro import curve_plan, learning
from repro.curves import Curves, compare
from repro.document import Section
from repro.learning import Learning, learned
from repro.locales import N_
from repro.plan import Plan
from repro.record import Run

SCALES = {
    curve_plan.SCALE: N_("curves: loss curves of every layout and precision, compared with one device's"),
    learning.SCALE: N_("learn: real data, learned to a stated loss on one device"),
}


def shown(run: Run, plan: Plan, attempts: list[dict]) -> Curves | Learning | None:
    """What a run shows about correctness; None for a run that measures speed."""
    if plan.scale == curve_plan.SCALE:
        return compare(plan, attempts, run.folder)
    if plan.scale == learning.SCALE:
        return learned(plan, attempts, run.folder, run.description()["goals"])
    return None


def correctness_section(_, found: Curves | Learning, description: dict) -> Section:
    """The section of the report; figures follow it."""
    if isinstance(found, Curves):
        from repro.curve_section import curve_section

        return curve_section(_, found, description)
    from repro.learning_section import learning_section

    return learning_section(_, found, description)


def correctness_plates(found: Curves | Learning) -> list:
    """The figures, in their order."""
    if isinstance(found, Curves):
        from repro.curve_section import curve_plates

        return curve_plates(found)
    from repro.learning_section import learning_plates

    return learning_plates(found)
