"""Tables that fit their terminal: whole cells, columns left out by importance, numbers to the right."""

import pytest

from repro.utils.output import TerminalColumn, cut, table_lines

COLUMNS = [
    TerminalColumn("case"),
    TerminalColumn("steps", number=True, spare=2),
    TerminalColumn("global batch", number=True, spare=1),
    TerminalColumn("samples/s", number=True),
    TerminalColumn("why", wraps=True),
]
ROWS = [["resnet50_bs128", "1", "4096", "11548.451", "gradient reduction 11%; memory nearly full"]]


def test_numbers_are_right_aligned_and_a_wide_table_is_whole():
    lines = table_lines(COLUMNS, [*ROWS, ["short", "12", "8", "4.92", ""]], 200)
    assert [line.split("  ")[0] for line in lines] == ["case", "-" * 14, "resnet50_bs128", "short"]
    assert "11548.451" in lines[2] and lines[3].index("4.92") + 4 == lines[2].index("11548.451") + 9
    assert lines[2].endswith("gradient reduction 11%; memory nearly full")


@pytest.mark.parametrize(
    ("width", "left_out"), [(80, ""), (58, "steps"), (52, "steps, global batch"), (30, "steps, global batch")]
)
def test_the_least_important_columns_go_first_and_are_named(width, left_out):
    lines = table_lines(COLUMNS, ROWS, width)
    named = " ".join(lines).partition("columns wide: ")[2]
    assert named == left_out
    assert max(map(len, lines)) <= max(width, 51), lines
    for whole in ("resnet50_bs128", "11548.451"):
        assert any(whole in line for line in lines)


def test_titles_are_wrapped_before_a_column_is_left_out():
    columns, rows = [TerminalColumn("case"), TerminalColumn("micro-batch", number=True, spare=1)], [["a" * 20, "128"]]
    assert table_lines(columns, rows, 28) == [
        "                      micro-",
        "case                   batch",
        "--------------------  ------",
        "aaaaaaaaaaaaaaaaaaaa     128",
    ]


def test_a_column_without_texts_is_not_shown():
    assert table_lines(COLUMNS, [["a", "", "2", "3", ""]], 80)[0].split() == ["case", "global", "batch", "samples/s"]


def test_a_table_without_rows_has_its_titles():
    assert table_lines(COLUMNS[:2], [], 80)[0] == "case  steps"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("12345", "12345"), ("123456", "1234…"), ("12  56", "12…"), ("中文字", "中文…"), ("中文a", "中文a")],
)
def test_a_text_is_cut_by_the_columns_that_it_takes(text, shown):
    assert cut(text, 5) == shown
