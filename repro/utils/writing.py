"""Writes files whole or not at all, and never through a link that somebody placed where the file belongs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def new_file(path: Path) -> BinaryIO:
    """A file that this call makes, to write and read; FileExistsError if anything has its name, be it a broken link."""
    return os.fdopen(os.open(path, NEW, 0o666), "w+b")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file beside `path` that takes its place when the block ends; of a block that fails nothing is left."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with new_file(partial) as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    with replacing(path) as file:
        file.write(content)
