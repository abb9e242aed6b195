"""The matrix of coverage: a box per case, different for each level, and a legend that counts."""

from repro.report.charts.coverage import AS_PUBLISHED, AUDITED, DERIVED, NOTHING, CoverageChart, CoveredCase

CASES = (
    CoveredCase("BERT", 1, "bs 96", AS_PUBLISHED),
    CoveredCase("BERT", 1, "bs 64", DERIVED),
    CoveredCase("BERT", 8, "bs 96", AUDITED),
    CoveredCase("GPT", 8, "DP 8x1x1", AUDITED),
)
CHART = CoverageChart("t", "s", CASES, ("run", "derived", "audited", "neither"), {1: "1 GPU", 8: "8 GPUs"})


def test_every_case_has_a_box_and_its_label():
    figure = CHART.draw()
    texts = [text.get_text() for text in figure.texts]
    assert [texts.count(label) for label in ("bs 96", "bs 64", "DP 8x1x1")] == [2, 1, 1]
    boxes = [patch for patch in figure.get_children() if type(patch).__name__ == "Rectangle"]
    legend = 3
    assert len(boxes) - legend - 1 == len(CASES), "the figure's own background is one more"


def test_the_legend_counts_and_leaves_out_what_no_case_is():
    texts = [text.get_text() for text in CHART.draw().texts]
    assert {"run: 1", "derived: 1", "audited: 2"} <= set(texts)
    assert "neither: 0" not in texts
    assert CHART.counts == (1, 1, 2, 0) and CHART.counts[NOTHING] == 0


def test_the_description_counts_every_level():
    assert CHART.described() == "t (s): run 1; derived 1; audited 2; neither 0"
