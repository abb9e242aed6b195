"""Waterfalls: bars from total to total, and no step left out."""

import pytest

from repro.report.charts.waterfall import Waterfall, WaterfallChart

PANEL = Waterfall("a", ("OneFlow", 70.69), (("softmax", -14.96), ("attention", 6.88)), ("pytorch", 62.61))


def test_each_step_begins_where_the_one_before_ended():
    axes = WaterfallChart("t", "ms", (PANEL,), ("less", "more")).draw().axes[0]
    softmax, attention = ((bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches)
    assert softmax == pytest.approx((55.73, 70.69)) and attention == pytest.approx((55.73, 62.61))
    low, high = axes.get_xlim()
    assert 0 < low < 55.73 and high > 70.69


def test_steps_that_do_not_lead_to_the_end_are_refused():
    with pytest.raises(ValueError, match=r"a: the steps lead to 55\.73\d*, not to 62\.61"):
        Waterfall("a", ("OneFlow", 70.69), (("softmax", -14.96),), ("pytorch", 62.61))


def test_the_description_has_totals_and_signed_steps():
    chart = WaterfallChart("t", "ms", (PANEL,), ("less", "more"))
    assert chart.described() == "t (ms): a OneFlow 70.69, softmax −14.96, attention +6.88, pytorch 62.61"
