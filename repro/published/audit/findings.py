"""The findings of an audit: a discrepancy with its place, the printed and the correct value, and the rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from repro.published.claim_ids import claim_concerned
from repro.published.figures import PrintedNumber
from repro.utils.i18n import Message, Translate

if TYPE_CHECKING:
    from repro.published.cases import Case


PROVENANCE, TYPING = "provenance", "typing"
KINDS = (PROVENANCE, "arithmetic", "inconsistency", "editorial", "stray", "missing", TYPING)
SEVERITIES = ("error", "warning", "note")
RESULTS, PEERS = "results", "peers"
"""The name of a report's table of results, and the name that findings on other frameworks have in place of a report's."""
HOLDS = None
"""Yielded by a rule for a comparison without discrepancy."""
Findings = Iterator["Finding | None"]
P = ParamSpec("P")


@dataclass(frozen=True)
class Place:
    """Where in a report: a table or section, a row (often a case's name) and a column, each by its key."""

    table: str
    row: str = ""
    column: str = ""

    def __str__(self) -> str:
        return ", ".join(part for part in (self.table, self.row, self.column) if part)


@dataclass(frozen=True, eq=False)
class Finding:
    """One discrepancy in one published report.

    `id` consists of report, rule and subject only, so that it is stable when other findings come and go. `expected` is
    the correct value, empty if unknown: it follows from the report's own figures and text, unless `source` names
    another origin. `rule` is the comparison in words with its numbers, `evidence` is further support. `severity` is
    "error" if a figure or statement is wrong, "warning" if the report contradicts itself or another source and may
    mislead, "note" if it only needs care. `note` is short enough to be shown after a figure.
    """

    id: str
    report: str
    place: Place
    kind: str
    printed: str
    expected: str
    rule: Message
    evidence: Message | None = None
    severity: str = "error"
    note: Message | None = None
    source: Message | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.severity not in SEVERITIES:
            raise ValueError(f"finding {self.id}: kind {self.kind!r} or severity {self.severity!r} is unknown")

    @property
    def recomputed(self) -> str:
        """The value recomputed from the report's own figures, empty if there is none."""
        return "" if self.source else self.expected

    @property
    def elsewhere(self) -> str:
        """The value from another source, empty if there is none."""
        return self.expected if self.source else ""

    @property
    def hint(self) -> bool:
        """Whether it is a typing error, which concerns how something is written and not what was measured."""
        return self.kind == TYPING

    @property
    def rank(self) -> int:
        """Its place in a list: what was measured at all comes first, typing errors last."""
        return 0 if self.kind == PROVENANCE else 2 if self.hint else 1

    @property
    def claim(self) -> str:
        """The published figure of a case that it is about; empty for figures of other tables, versions and frameworks."""
        own = self.place.table == RESULTS and self.report != PEERS
        return claim_concerned(self.place.row, self.place.column) if own else ""

    def remark(self, translate: Translate = lambda message: message) -> str:
        """The note to show after the figure."""
        if self.note:
            return self.note.text(translate)
        note = Message("audit: {value}", value=self.recomputed)
        if self.source:
            note = Message("another source: {value}", value=self.elsewhere)
        return note.text(translate) if self.expected else translate("see the audit")

    def as_json(self) -> dict:
        """The entry of `audit.json`, in English."""
        return {
            "id": self.id,
            "report": self.report,
            "place": {"table": self.place.table, "row": self.place.row, "column": self.place.column},
            "kind": self.kind,
            "severity": self.severity,
            "printed": self.printed,
            "recomputed": self.recomputed or None,
            "elsewhere": {"value": self.elsewhere, "source": self.source.text()}
            if self.source and self.expected
            else None,
            "rule": self.rule.text(),
            "evidence": self.evidence.text() if self.evidence else None,
        }


def finding(
    check: str,
    report: str,
    place: Place,
    *,
    kind: str = "inconsistency",
    printed: object,
    rule: Message,
    expected: object = "",
    evidence: Message | None = None,
    severity: str = "error",
    note: Message | None = None,
    source: Message | None = None,
) -> Finding:
    """A finding with the identifier of its report, rule and subject, which is a row and a column.

    `expected` is left out where nothing is recomputed.
    """
    identity = slug(report, check, place.row, place.column)
    return Finding(
        identity,
        report,
        place=place,
        kind=kind,
        printed=str(printed),
        expected=str(expected),
        rule=rule,
        evidence=evidence,
        severity=severity,
        note=note,
        source=source,
    )


def slug(*parts: str) -> str:
    """Join the non-empty parts with "/", replacing all characters except letters, digits, ".", "=", "+", "-" and "_"
    with hyphens.
    """
    return "/".join(re.sub(r"[^\w.=+-]+", "-", part).strip("-") for part in parts if part)


def _if_wrong(make: Callable[P, Finding]) -> Callable[Concatenate[bool, P], Finding | None]:
    def checked(right: bool, /, *subject: P.args, **details: P.kwargs) -> Finding | None:
        return HOLDS if right else make(*subject, **details)

    return checked


unless = _if_wrong(finding)
"""HOLDS if its first argument is true, otherwise the `finding` with the other arguments."""


def compare(
    check: str,
    case: Case,
    column: str,
    *,
    printed: PrintedNumber,
    value: float,
    rule: Message,
    evidence: Message | None = None,
    table: str = "results",
    report: str = "",
    reach: tuple[float, float] | None = None,
    source: Message | None = None,
) -> Finding | None:
    """HOLDS if a printed figure of a case is `value` to its last digit, otherwise an arithmetic finding.

    `reach` is the range that `value` may have if its inputs were rounded. If this explains the printed figure, the
    finding is a warning and says so.
    """
    if printed.agrees(value):
        return HOLDS
    severity = "error"
    if reach and reach[0] <= printed + printed.half_unit and printed - printed.half_unit <= reach[1]:
        low, high = (at_precision(end, printed.decimals) for end in reach)
        severity = "warning"
        evidence = Message(
            "unrounded inputs may have led to {low} to {high}; the printed inputs lead to {value}",
            low=low,
            high=high,
            value=at_precision(value, printed.decimals),
        )
    return finding(
        check,
        report or case.report,
        Place(table, case.name, column),
        kind="arithmetic",
        printed=printed,
        expected=at_precision(value, printed.decimals),
        rule=rule,
        evidence=evidence,
        severity=severity,
        source=source,
    )


def ratio_reach(above: PrintedNumber, below: PrintedNumber, scale: float = 1.0) -> tuple[float, float]:
    """Smallest and largest scale x above / below, given the rounding of the two printed figures."""
    low = scale * (above - above.half_unit) / (below + below.half_unit)
    return low, scale * (above + above.half_unit) / (below - below.half_unit)


def at_precision(value: float, decimals: int) -> str:
    """A recomputed value with as many decimals as the printed one."""
    return f"{value:.{decimals}f}"


def as_figure(value: object, decimals: int = 0) -> PrintedNumber:
    """A printed value with at least this many decimals: tables that drop trailing zeros print 41 for 41.00."""
    figure = value if isinstance(value, PrintedNumber) else PrintedNumber(str(value))
    return figure if figure.decimals >= decimals else PrintedNumber(f"{figure:.{decimals}f}")
