"""Runs a task as `python -m repro` does, as if only the packages of the groups that it names were installed.

`TEST_LEFT_OUT` names the others, separated by commas. `tests.support.tasks` starts tasks by it, so that a task that needs a
package of a group which `repro.targets` does not give it fails here as it would on a fresh machine.
"""

import os
import runpy
import sys
from importlib import metadata

LEFT_OUT = frozenset(os.environ.pop("TEST_LEFT_OUT").split(","))


class NotInstalled:
    """A finder of modules that says of those of other groups that there are none."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in LEFT_OUT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def from_name(name):
    """The metadata of an installed package, unless it is of another group."""
    if name.lower().replace("_", "-") in LEFT_OUT:
        raise metadata.PackageNotFoundError(name)
    return of_any(name)


if __name__ == "__main__":
    of_any = metadata.Distribution.from_name
    metadata.Distribution.from_name = staticmethod(from_name)
    sys.meta_path.insert(0, NotInstalled)
    sys.path[0] = os.getcwd()
    runpy.run_module("repro", run_name="__main__", alter_sys=True)
