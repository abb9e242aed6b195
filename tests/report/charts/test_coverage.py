"""The matrix of coverage: a box per case, different for each level, and a legend that counts."""

from itertools import pairwise

from repro.report.charts.canvas import WIDTH
from repro.report.charts.coverage import AS_PUBLISHED, AUDITED, DERIVED, NOTHING, STEP, CoverageChart, CoveredCase

CASES = (
    CoveredCase("BERT", "bs 96", 1, AS_PUBLISHED),
    CoveredCase("BERT", "bs 64", 1, DERIVED),
    CoveredCase("BERT", "bs 96", 8, AUDITED),
    *(CoveredCase("GPT", "2D", 8, level) for level in (AUDITED, DERIVED, AUDITED, AUDITED)),
    CoveredCase("GPT", "2D", 16, AUDITED),
)
CHART = CoverageChart("t", "s", CASES, ("run", "derived", "audited", "neither"), "GPUs")
LEGEND = 3


def boxes(figure):
    """Left end and height of every box, in points, below the legend."""
    drawn = [patch for patch in figure.get_children() if type(patch).__name__ == "Rectangle"]
    _background, *shown = sorted(drawn, key=lambda patch: patch is not figure.patch)
    return [(round(WIDTH * box.get_x(), 2), box.get_y()) for box in shown[LEGEND:]]


def test_every_case_has_a_box_of_its_own_in_the_line_of_its_label():
    figure = CHART.draw()
    assert len(set(boxes(figure))) == len(CASES), "none covers another"
    assert len({y for _x, y in boxes(figure)}) == 3
    texts = [text.get_text() for text in figure.texts]
    assert [texts.count(label) for label in ("BERT", "bs 96", "bs 64", "GPT", "2D")] == [1, 1, 1, 1, 1]


def test_boxes_of_one_number_of_gpus_stand_side_by_side_and_below_each_other():
    shown = boxes(CHART.draw())
    lines = {}
    for x, y in shown:
        lines.setdefault(y, []).append(x)
    first, second, third = (lines[y] for y in sorted(lines, reverse=True))
    assert second == first[:1] and third[0] == first[1], "the columns are those of all reports"
    assert [round(b - a, 2) for a, b in pairwise(third[:4])] == [STEP] * 3
    assert third[4] - third[3] > STEP, "those of the next number of GPUs begin apart"
    assert max(x for x, _y in shown) + STEP <= WIDTH


def test_the_legend_counts_and_leaves_out_what_no_case_is():
    texts = [text.get_text() for text in CHART.draw().texts]
    assert {"run: 1", "derived: 2", "audited: 5"} <= set(texts)
    assert "neither: 0" not in texts
    assert CHART.counts == (1, 2, 5, 0) and CHART.counts[NOTHING] == 0


def test_the_description_counts_every_level():
    assert CHART.described() == "t (s): run 1; derived 2; audited 5; neither 0"
