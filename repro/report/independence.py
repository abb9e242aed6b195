"""What pages say of how far repeats depend on each other, and what that does to the error of verdicts."""

from __future__ import annotations

from operator import itemgetter

from repro.analysis.independence import Dependence, error_of_looks
from repro.report.document import Table
from repro.report.tables import Field, share, table
from repro.utils.i18n import Translate
from repro.utils.sequential import Looks, error

CORRELATIONS, SHARES = (0.3, 0.5), (0.5,)
"""Dependences whose error is stated besides that of the measured ones."""
MOST = 0.99
"""The largest dependence that is simulated: at 1 all repeats are one."""


def error_table(_: Translate, looks: Looks, correlation: Dependence | None, shared: Dependence | None = None) -> Table:
    """How often the intervals of these looks miss if repeats are independent, as dependent as measured, and more so."""
    rows = [(_("none: repeats are independent"), "0", error(looks))]
    title = _("correlation of a repeat with the next one")
    for value, text in _values(_, correlation, CORRELATIONS):
        rows.append((title, text, error_of_looks(looks, correlation=value)))
    title = _("share of the variance that the repeats of a session have in common")
    for value, text in _values(_, shared, SHARES):
        rows.append((title, text, error_of_looks(looks, shared=value)))
    caption = _(
        "How often the interval of at least one check misses the true median. For independent repeats this is exact, "
        "whatever their distribution; otherwise it is simulated with normally distributed repeats."
    )
    fields = (
        Field(_("Dependence of the repeats"), itemgetter(0)),
        Field(_("Size"), itemgetter(1), numeric=True),
        Field(_("Intervals that miss"), itemgetter(2), share),
    )
    return table("dependence", rows, fields, caption)


def _values(_: Translate, dependence: Dependence | None, others: tuple[float, ...]) -> list[tuple[float, str]]:
    measured = (
        [(min(MOST, max(0.0, dependence.value)), _("{value} (measured)").format(value=size(dependence.value)))]
        if dependence
        else []
    )
    return [*measured, *((value, size(value)) for value in others)]


def seen(_: Translate, dependence: Dependence) -> str:
    """A measured dependence beside what the same repeats give in random order."""
    more = (
        _(
            "{value}, which is more than chance explains ({low} to {high} with the same {repeats} repeats in random order)"
        )
        if dependence.seen
        else _("{value}, which chance explains ({low} to {high} with the same {repeats} repeats in random order)")
    )
    return more.format(
        value=size(dependence.value), low=size(dependence.low), high=size(dependence.high), repeats=dependence.repeats
    )


def size(value: float) -> str:
    """A correlation or a share of a variance."""
    return f"{value:.2f}".replace("-", "−")
