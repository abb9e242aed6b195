"""Gives the figures of claims their anchors on a page, and links them to the claims table."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from repro.published.claim_ids import anchor
from repro.report.document import Cell, Document, Table

CLAIMS_PAGE = "claims.html"


def anchored(document: Document, claims: Collection[str]) -> Document:
    """The page with a link from each figure of a claim to the claims table; the first of a claim has its anchor.

    `claims` are the names of all claims; a cell that names another one, such as the speed-up of one GPU, is left as it is.
    """
    seen: set[str] = set()

    def cell(each: Cell) -> Cell:
        if each.claim not in claims:
            return each
        target = f"{CLAIMS_PAGE}#{anchor(each.claim)}"
        if each.claim in seen:
            return replace(each, link=target)
        seen.add(each.claim)
        return replace(each, link=target, anchor=anchor(each.claim))

    def table(each: Table) -> Table:
        return replace(each, rows=tuple(tuple(map(cell, row)) for row in each.rows))

    return replace(
        document,
        sections=tuple(
            replace(section, blocks=tuple(table(each) if isinstance(each, Table) else each for each in section.blocks))
            for section in document.sections
        ),
    )
