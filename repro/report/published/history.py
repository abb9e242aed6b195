"""Findings from the sources of the published reports: all in the overview, and those on a report in its page."""

from __future__ import annotations

import re
from collections.abc import Sequence

from repro.published.history import HistoryEntry, HistorySource
from repro.report.document import Block, Cell, Code, Column, Items, Section, Table, Text
from repro.utils.i18n import N_, Translate

COMMIT = re.compile(r"(@[0-9a-f]{12})[0-9a-f]{28}")
"""A commit in a place; its first digits are enough for the words of a link, whose target has them all."""
STATES = {"settled": N_("settled"), "open": N_("open")}


def sections(_: Translate, language: str, history: Sequence[HistoryEntry]) -> list[Section]:
    """What each entry means for comparisons, settled points before open questions; then the entries, folded."""
    if not history:
        return []
    entries = [entry for state in STATES for entry in history if entry.state == state]
    lead = _(
        "An audit of the figures only finds contradictions. The points below are beyond its reach: programs, logs "
        "and earlier versions of the reports settle some of them (each cited by commit and line); for the rest there "
        "is no source. Every number in the texts below is in a quoted source or follows from quoted numbers by "
        "the calculation shown."
    )
    blocks = (Text(lead), _table(_, language, entries, with_reports=True))
    section = Section("history", _("What the figures alone do not show"), blocks, anchored=True)
    return [section, *(_entry(_, language, entry) for entry in entries)]


def _entry(_: Translate, language: str, entry: HistoryEntry) -> Section:
    concerned = _(", ").join([*entry.reports, *entry.cases])
    blocks: list[Block] = [
        Text(_("Concerns: {reports}").format(reports=concerned)),
        Text(entry.text[language]),
        Text(_("Consequence for comparisons: {meaning}").format(meaning=entry.meaning[language])),
        Items(tuple(_place(_, source) for source in entry.sources)),
        Code("\n".join(source.quote for source in entry.sources)),
    ]
    if entry.derived:
        blocks.append(Items(tuple(f"{value} = `{by}`" for value, by in entry.derived)))
    return Section(entry.slug, entry.title[language], tuple(blocks), level=3, folded=True)


def _place(_: Translate, source: HistorySource) -> str:
    words = COMMIT.sub(r"\1", source.at)
    place = f"[{words}]({source.link})" if source.link != source.at else f"`{source.at}`"
    return _("{place} ({date})").format(place=place, date=source.date) if source.date else place


def beside(_: Translate, language: str, history: Sequence[HistoryEntry], report: str, overview: str) -> Section | None:
    """The entries on one report, whose titles lead to `overview`, the file that has their texts."""
    own = [entry for entry in history if report in entry.reports]
    if not own:
        return None
    text = _(
        "Taken from programs, logs and earlier versions of this report. The titles lead to the full texts and sources."
    )
    title = _("What the figures alone do not show")
    return Section("history", title, (Text(text), _table(_, language, own, overview)))


def _table(
    _: Translate, language: str, history: Sequence[HistoryEntry], overview: str = "", with_reports: bool = False
) -> Table:
    """A row per entry, with what it means for a comparison."""
    rows = tuple(
        (
            Cell(f"[{entry.title[language]}]({overview}#{entry.slug})"),
            *((Cell(_(", ").join(entry.reports)),) if with_reports else ()),
            Cell(_(STATES[entry.state])),
            Cell(entry.meaning[language]),
        )
        for entry in history
    )
    columns = (
        Column(_("Issue")),
        *((Column(_("Reports")),) if with_reports else ()),
        Column(_("State")),
        Column(_("Consequence for comparisons")),
    )
    return Table("history", columns, rows)
