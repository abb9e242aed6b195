"""What tasks print: a table for a terminal, or JSON for programs."""

from __future__ import annotations

import json
import sys
from typing import Any

WIDTH = 400
"""Of a table that no terminal shows, in characters: as wide as it needs."""


def print_table(columns: list[str], rows: list[list[str]], below: str = "") -> None:
    """A table, and a line below it."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None, header_style="bold")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    console.print(table)
    if below:
        console.print(below, highlight=False)


def print_json(content: Any) -> None:
    """One JSON value, and nothing else."""
    print(json.dumps(content, ensure_ascii=False, indent=1))
