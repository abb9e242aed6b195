"""Runs a task as `python -m repro` does, as if only the packages of the groups that it names were installed.

`TEST_LEFT_OUT` names the others, separated by commas. `tests.support.tasks` starts tasks by it, so that a task that needs a
package of a group which `repro.targets` does not give it fails here as it would on a fresh machine.
"""

import os
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

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


class OwnPrograms(subprocess.Popen):
    """A process, unless its program is of a package of another group."""

    def __init__(self, args, *more, **options):
        words = [args] if isinstance(args, str | os.PathLike) else [*args]
        program = Path(words[0])
        if program.parent == Path(sys.executable).parent and f"bin/{program.name}" in LEFT_OUT:
            raise FileNotFoundError(2, "No such file or directory", str(program))
        if words[0] == sys.executable and words[1:2] == ["-m"] and words[2] in LEFT_OUT:
            raise ModuleNotFoundError(f"No module named {words[2]!r}", name=words[2])
        super().__init__(args, *more, **options)


if __name__ == "__main__":
    subprocess.Popen = OwnPrograms
    of_any = metadata.Distribution.from_name
    metadata.Distribution.from_name = staticmethod(from_name)
    sys.meta_path.insert(0, NotInstalled)
    sys.path[0] = os.getcwd()
    runpy.run_module("repro", run_name="__main__", alter_sys=True)
