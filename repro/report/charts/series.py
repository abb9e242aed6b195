"""How each series is drawn: a program, a baseline or what was published looks the same on all pages and in all figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from repro.models.programs import PUBLISHED, TUNED
from repro.report.charts.canvas import SERIES, Style
from repro.runs.unit import Unit

PORT, AS_PUBLISHED = "port", "as published"
"""The series of the port of the published program, and of what was published of OneFlow."""
NAMES = {PUBLISHED: PORT, TUNED: TUNED}
"""The series of each program."""
# Hatches are of straight lines: those of dots make a figure many times as large.
STYLES_BY_NAME = {
    PORT: Style(SERIES[0], "-", "o", ""),
    TUNED: Style(SERIES[2], "-", "^", "----"),
    AS_PUBLISHED: Style(SERIES[4], "--", "D", ""),
    "pytorch": Style(SERIES[1], "--", "s", "////"),
    "pytorch-tf32": Style(SERIES[10], "--", "*", "--"),
    "pytorch-unfused": Style(SERIES[5], "-.", "<", "xxxx"),
    "pytorch-compiled": Style(SERIES[6], ":", "v", "\\\\\\\\"),
    "pytorch-channels-last": Style(SERIES[8], ":", ">", "||||"),
    "megatron": Style(SERIES[3], "-.", "P", "++++"),
    "megatron-unfused": Style(SERIES[7], ":", "X", "//"),
}
OTHER = Style(SERIES[9], "-.", "p", "xx")
"""The style of any other framework in a published report, such as DeepSpeed."""
SAME = {"Megatron-LM": "megatron-unfused", "OneFlow": AS_PUBLISHED}
"""Names of the same series: Megatron-LM as it was published, and OneFlow in a published report."""


def style(name: str) -> Style:
    """The style of a program (`PORT`, "tuned"), of a baseline's variant, or of a framework in a published report."""
    return STYLES_BY_NAME.get(SAME.get(name, name), OTHER)


def styles(names: Iterable[str]) -> tuple[Style, ...]:
    """The style of each."""
    return tuple(map(style, names))


def style_of(unit: Unit) -> Style:
    """The style of what a unit runs: its program, or the variant of a baseline."""
    return style(unit.variant or NAMES[unit.program])


def sharded(name: str) -> Style:
    """The style of a framework with a sharded optimizer, beside that without."""
    own = style(name)
    marker, hatch = ("^", "\\\\\\\\") if own.hatch else ("s", "////")
    return replace(own, line="-", marker=marker, hatch=hatch)
