"""Charts of loss curves: every deviation drawn, and losses that cover each other drawn once."""

from repro.report.charts.loss_curves import CurveChart, Group, distinct

REFERENCE = tuple(4.0 - i / 10 for i in range(30))
SAME = tuple(loss + 1e-6 for loss in REFERENCE)
OFF = tuple(loss + 0.5 for loss in REFERENCE)


def test_a_curve_that_covers_another_is_drawn_once_and_its_deviation_always():
    groups = (Group("layouts", ((REFERENCE, REFERENCE), (SAME, REFERENCE), (OFF, REFERENCE))),)
    above, below = CurveChart("t", "s", "iteration", "reference", groups, (REFERENCE,), (), 10).draw().axes
    assert [line.get_ydata()[0] for line in above.lines] == [4.0, 4.5, 4.0], "two of the group, then the reference"
    assert len(below.lines) == 3


def test_curves_that_differ_anywhere_are_distinct():
    last = (*REFERENCE[:-1], REFERENCE[-1] + 0.2)
    assert distinct([REFERENCE, SAME, last, REFERENCE[:-1]], 0.1) == [REFERENCE, last, REFERENCE[:-1]]
