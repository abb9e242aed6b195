"""Bars and dots: as long and where their values are."""

from repro.report.charts.rows import BarChart, DotChart, Panel


def test_bars_are_as_long_as_their_values():
    panel = Panel("", ((5603, 3849), (11301, None)))
    axes = BarChart("t", "MiB", ("a", "b"), (panel,), ("off", "on"), limit=("16 GiB", 16384)).draw().axes[0]
    assert [bar.get_width() for bar in axes.patches] == [5603, 3849, 11301]
    assert [text.get_text() for text in axes.texts] == ["5603", "3849", "11301", "16 GiB"]
    assert axes.get_xlim()[1] > 16384


def test_panels_of_one_scale_have_it():
    panels = (Panel("1 GPU", ((384.9,), (350.0,))), Panel("32 GPUs", ((366.0,), (200.0,))))
    apart, together = (BarChart("t", "s", ("a", "b"), panels, one_scale=one).draw().axes for one in (False, True))
    assert len({axes.get_xlim() for axes in apart}) == 2 and len({axes.get_xlim() for axes in together}) == 1


def test_dots_are_where_their_values_are():
    axes = DotChart("t", "s", ("a", "b"), ((1.0, 2.0), (30.0, 20.0)), ("one", "other")).draw().axes[0]
    dots = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_marker() in "os"]
    assert dots == [(1, 0), (2, 0), (30, 1), (20, 1)]
    assert axes.get_xlim()[0] == 0


def test_notes_stand_at_the_right_end_of_their_rows():
    figure = DotChart("t", "s", ("a", "b"), ((1.0, 2.0), (3.0, 4.0)), ("x", "y"), notes=("+15.2%", "−0.3%")).draw()
    notes = [text for text in figure.texts if text.get_text() in ("+15.2%", "−0.3%")]
    assert notes[0].get_position()[1] > notes[1].get_position()[1] and {each.get_ha() for each in notes} == {"right"}
    assert figure.axes[0].get_position().x1 < 0.93
