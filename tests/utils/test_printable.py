"""Text of programs as it is shown: without what steers a terminal, and not without end."""

import pytest

from repro.utils.printable import one_line, printable, spreadsheet_cell, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 中文 and é", "plain, 中文 and é"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r0m\x1b\\after", "after"),
        ("\x1b(Bcharset", "charset"),
        ("bell\x07 back\x08 nul\x00 c1\x9b", "bell\ufffd back\ufffd nul\ufffd c1\ufffd"),
        ("10%\r50%\r100%", "100%"),
        ("windows\r\nline", "windows\nline"),
        ("user\u202egpj.exe", "user\ufffdgpj.exe"),
        ("half\ud800 a pair", "half\ufffd a pair"),
        ("tab\tand\nline", "tab\tand\nline"),
    ],
)
def test_only_characters_that_show_are_left(text, shown):
    assert printable(text) == shown
    assert visible(printable(text)) == shown
    shown.encode()


def test_a_line_of_30_mb_is_cut():
    text = printable("x" * 30_000_000 + "\nshort", 500)
    assert text == "x" * 500 + " … (29999500 more characters)\nshort"


def test_a_message_is_one_line():
    assert one_line("first\n\tsecond  third\n") == "first second third"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "＝1"])
def test_no_cell_of_a_table_is_a_formula(text):
    assert spreadsheet_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["plain", "a=b", "", -1.5, 7, None])
def test_other_cells_stay_as_they_are(value):
    assert spreadsheet_cell(value) == value
