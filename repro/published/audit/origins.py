"""Findings of the history that say what was measured at all: other data, other builds, figures that were withdrawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from repro.published.audit.findings import PROVENANCE, Finding, Findings, Place, slug
from repro.utils.i18n import N_, Message

if TYPE_CHECKING:
    from repro.published.audit.material import Material


def origins(material: Material) -> Findings:
    """Entries of the history that are marked as findings; the others explain."""
    for entry in material.history:
        if entry.finding:
            identity = slug(entry.reports[0], "origin", entry.slug)
            title, place = entry.title["en"], Place("history", entry.slug)
            yield Finding(
                identity, entry.reports[0], place=place, kind=PROVENANCE, printed="–", expected="", rule=Message(title)
            )


RULES = (("origin", N_("what was measured, by its sources"), origins),)
