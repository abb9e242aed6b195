"""Finds committed files that are no longer what the data gives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

Contents = dict[Path, bytes]
"""The content of files by their path within a folder."""


def contents(folder: Path, files: Iterable[Path] | None = None) -> Contents:
    """What is in a folder: in these files of it, or in all below it."""
    paths = folder.rglob("*") if files is None else files
    return {path.relative_to(folder): path.read_bytes() for path in paths if path.is_file()}


def differences(folder: Path, due: Contents, there: Contents) -> list[Path]:
    """The files of a folder that differ from what is due, are missing, or should not exist."""
    return sorted(folder / name for name in due.keys() | there.keys() if due.get(name) != there.get(name))
