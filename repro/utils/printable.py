"""Makes text that comes from programs, nodes and logs fit to be shown: plain characters, in lines of bounded length."""

from __future__ import annotations

import re

LINE = 500
"""The longest line of a log that is shown, in characters."""
MESSAGE = 4000
"""The longest line of a message or a document's code: commands are long, a line of 30 MB is none."""
ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
"""Escape sequences of terminals (ECMA-48): CSI, strings such as OSC, and two-character ones."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "＝", "＋", "－", "＠")
"""What a formula begins with in a spreadsheet (OWASP, CSV injection)."""
HIDDEN = "�"
HIDING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters but line ends and tabs, separators of lines, halves of pairs, and overrides and isolates of the
direction, by which text is shown in another order than it has."""


def printable(text: str, width: int = MESSAGE) -> str:
    """Text without escape sequences and control characters, its lines cut after `width` characters.

    Of a line that overwrote itself, as progress bars do, what was last is kept.
    """
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in ESCAPE.sub("", text).split("\n"))
    return "\n".join(_cut(visible(line), width) for line in lines)


def spreadsheet_cell(value: object) -> object:
    """A value for a cell of a CSV file: a text that a spreadsheet would take for a formula gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def one_line(text: str, width: int = LINE) -> str:
    """`printable` text as one line."""
    return _cut(" ".join(printable(text).split()), width)


def visible(text: str) -> str:
    """Text in which each control character, other than line ends and tabs, is replaced by U+FFFD."""
    return HIDING.sub(HIDDEN, text)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[:width]} … ({len(line) - width} more characters)"
