"""Dry runs: what a run downloads and compiles before it starts is only said."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_said: ContextVar[list[str] | None] = ContextVar("said", default=None)


@contextmanager
def dry_run() -> Iterator[list[str]]:
    """Within it, `only_said` holds; the list gets what would have been done."""
    steps: list[str] = []
    token = _said.set(steps)
    try:
        yield steps
    finally:
        _said.reset(token)


def only_said(step: str) -> bool:
    """Whether this is a dry run, which says this step and leaves it out."""
    steps = _said.get()
    if steps is not None:
        steps.append(step)
    return steps is not None
