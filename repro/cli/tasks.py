"""All tasks by their names."""

from __future__ import annotations

import difflib
from importlib import import_module

from repro.cli.settings import OptionError, OptionTask

MODULES = (
    "bench",
    "rehearse",
    "correctness",
    "report",
    "published",
    "plan",
    "cluster",
    "simulation",
    "preflight",
    "effects",
    "image",
    "host",
    "site",
    "develop",
)


def every() -> dict[str, OptionTask]:
    """Every task by its name, in the order of the modules."""
    return {name: task for module in MODULES for name, task in _tasks_of(module).items()}


def find(name: str) -> OptionTask:
    """The task of this name; OptionError names the nearest for one that there is not.

    The modules behind the task's own are not imported: a short run would wait for them.
    """
    for module in MODULES:
        if task := _tasks_of(module).get(name):
            return task
    (nearest,) = difflib.get_close_matches(name, every(), 1, cutoff=0.0)
    raise OptionError(f"{name}: no such task; the nearest is {nearest}")


def _tasks_of(module: str) -> dict[str, OptionTask]:
    members = vars(import_module(f"repro.cli.{module}")).values()
    return {member.target: member for member in members if isinstance(member, OptionTask)}
