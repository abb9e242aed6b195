"""The one table of series: each has a look of its own, which all figures take from it."""

import pytest

from repro.models.programs import KINDS
from repro.models.variants import VARIANTS
from repro.report.charts import canvas
from repro.report.charts.series import AS_PUBLISHED, NAMES, OTHER, PORT, SAME, STYLES_BY_NAME, sharded, style


@pytest.mark.parametrize("name", [*VARIANTS, *NAMES.values(), AS_PUBLISHED])
def test_every_program_and_every_baseline_is_in_the_table(name):
    assert style(name) is not OTHER


def test_no_two_series_look_the_same_in_colour_or_in_grey():
    styles = [*STYLES_BY_NAME.values(), OTHER]
    for look in ("ink", "marker"):
        assert len({getattr(one, look) for one in styles}) == len(styles), look
    assert {one.ink for one in styles} <= set(canvas.INKS), "pages have their dark counterparts"


def test_names_of_one_series_share_its_look():
    assert set(NAMES) == set(KINDS) and style(PORT) is not style("tuned")
    for name, other in SAME.items():
        assert name not in STYLES_BY_NAME and style(name) is style(other)
    assert style("DeepSpeed") is style("some other framework") is OTHER


def test_a_sharded_optimizer_changes_line_and_hatch_and_not_the_colour():
    for name in ("OneFlow", "DeepSpeed"):
        plain, other = style(name), sharded(name)
        assert plain.ink == other.ink and plain.line != other.line
    four = [of(name) for name in ("OneFlow", "DeepSpeed") for of in (style, sharded)]
    assert len({one.marker for one in four}) == len({one.hatch for one in four}) == 4, "they share a figure"
