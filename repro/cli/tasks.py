"""All tasks in one collection: what `fab --list` shows, and what make's targets run."""

from __future__ import annotations

import difflib

from invoke import Collection

from repro.cli import bench, cluster, correctness, develop, host, image, plan, preflight, published, report
from repro.cli.settings import OptionError, OptionTask

MODULES = (bench, correctness, report, published, plan, cluster, preflight, image, host, develop)

namespace = Collection()
TASKS: dict[str, OptionTask] = {}
for module in MODULES:
    for member in vars(module).values():
        if isinstance(member, OptionTask) and member.target not in TASKS:
            namespace.add_task(member)
            TASKS[member.target] = member


def find(name: str) -> OptionTask:
    """The task of this name; OptionError names the nearest for one that there is not."""
    if name not in TASKS:
        (nearest,) = difflib.get_close_matches(name, TASKS, 1, cutoff=0.0)
        raise OptionError(f"{name}: no such task; the nearest is {nearest}")
    return TASKS[name]
