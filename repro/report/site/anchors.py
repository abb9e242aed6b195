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

    def cell(plain: Cell) -> Cell:
        if plain.claim not in claims:
            return plain
        target = f"{CLAIMS_PAGE}#{anchor(plain.claim)}"
        if plain.claim in seen:
            return replace(plain, link=target)
        seen.add(plain.claim)
        return replace(plain, link=target, anchor=anchor(plain.claim))

    def table(plain: Table) -> Table:
        return replace(plain, rows=tuple(tuple(map(cell, row)) for row in plain.rows))

    return replace(
        document,
        sections=tuple(
            replace(
                section, blocks=tuple(table(block) if isinstance(block, Table) else block for block in section.blocks)
            )
            for section in document.sections
        ),
    )
