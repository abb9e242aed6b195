"""The page of findings from the sources of the published reports, and the part of it in each report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.published.history import HistoryEntry, HistorySource
from repro.report.document import Attachment, Block, Cell, Code, Column, Document, Items, Section, Table, Text
from repro.utils.i18n import N_, Translate, catalogue

STATES = {"settled": N_("settled"), "open": N_("open")}


def page(language: str) -> str:
    """The file of the page in one language."""
    return f"history.{language}.md"


def build(history: Sequence[HistoryEntry], language: str) -> Document:
    """The page in one language: settled points, then open questions."""
    _ = catalogue(language).gettext
    sections = [Section("contents", _("At a glance"), (table(_, language, history, with_reports=True),))]
    titles = {
        "settled": _("Settled by the sources"),
        "open": _("Open questions"),
    }
    for state, title in titles.items():
        sections.append(Section(state, title))
        sections += [_entry(_, language, entry) for entry in history if entry.state == state]
    lead = _(
        "An audit of the figures only finds contradictions. The points below are beyond its reach: programs, logs "
        "and earlier versions of the reports settle some of them (each cited by commit and line); for the rest there "
        "is no source. Every number on this page is in a quoted source or follows from quoted numbers by the "
        "calculation shown."
    )
    return Document(language, _("What the figures alone do not show"), lead, tuple(sections))


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
    return Section(entry.slug, entry.title[language], tuple(blocks), level=3)


def _place(_: Translate, source: HistorySource) -> str:
    link = source.link if source.link != source.at else f"`{source.at}`"
    return _("{place} ({date})").format(place=link, date=source.date) if source.date else link


def beside(_: Translate, language: str, history: Sequence[HistoryEntry], report: str) -> Section | None:
    """The page's entries on one report."""
    own = [entry for entry in history if report in entry.reports]
    if not own:
        return None
    text = _(
        "Taken from programs, logs and earlier versions of this report. `{page}` in the same folder has the full "
        "texts and sources."
    ).format(page=page(language))
    return Section("history", _("What the figures alone do not show"), (Text(text), table(_, language, own)))


def contents(_: Translate, language: str, history: Sequence[HistoryEntry], folder: Path) -> Section | None:
    """The titles of all entries, with a link to the page."""
    if not history:
        return None
    link = Attachment("history-page", folder / page(language), _("Full texts and sources"))
    return Section(
        "history",
        _("What the figures alone do not show"),
        (table(_, language, history, with_reports=True), link),
    )


def table(_: Translate, language: str, history: Sequence[HistoryEntry], with_reports: bool = False) -> Table:
    """A row per entry, with what it means for a comparison."""
    rows = tuple(
        (
            Cell(entry.title[language]),
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
