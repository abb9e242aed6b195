"""Runs tests over a module whose text is replaced, in a process forked for it, and says whether any test failed.

What does not import the replaced module is loaded once, before the fork; that module, what imports it, and the tests
are loaded in each process. Nothing is written to the tree.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

OWN = ("repro.", "tests.")
STARTING = {"task", "standin", "refused"}
"""Fixtures of tests of whole tasks: what other processes do is not changed by a replaced module. These do not run."""
MEMORY_BYTES = 8 << 30
PASSED, USAGE_ERROR, NONE_COLLECTED = 0, 4, 5
BASELINE_S = 600.0
PR_SET_PDEATHSIG = 1
"""From linux/prctl.h: a process is ended with the one that started it."""


class Replaced(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):
    """Finds and loads one module from a text instead of its file."""

    def __init__(self, module: str, source: str):
        super().__init__(module_name(module), str(ROOT / module))
        self._source = source

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)

    def get_code(self, fullname: str) -> Any:
        return compile(self._source, self.path, "exec")


class Selected:
    """Keeps the tests that are asked for, the quickest first; all if none is named. Notes how long each took."""

    def __init__(self, names: Sequence[str] = (), seconds: dict[str, float] | None = None):
        self._names, self._seconds = set(names), seconds or {}
        self.took: dict[str, float] = {}

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = [item for item in items if not STARTING.intersection(item.fixturenames)]
        if self._names:
            items[:] = [item for item in items if item.nodeid in self._names]
        items.sort(key=lambda item: self._seconds.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration


class Contexts:
    """Tells coverage which test runs."""

    def __init__(self, measured: Any):
        self._measured = measured

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._measured.switch_context(nodeid)


@dataclass
class Baseline:
    """The tests of a module as it is: how long each takes, and which of them reach each line."""

    output: str
    passed: bool
    seconds: dict[str, float] = field(default_factory=dict)
    reached: dict[int, list[str]] = field(default_factory=dict)

    def tests_of(self, lines: range) -> list[str]:
        """The tests that reach any of the lines; none if they are executed at import only, or not at all."""
        return sorted({name for line in lines for name in self.reached.get(line, ())})


def measure(
    module: str | None, tests: Sequence[str], without: Sequence[str], selected: Selected | None = None
) -> Baseline:
    """Run tests with every module as it is, in a process of their own, and load what they import here.

    Which tests reach which line of `module` is measured if one is given.
    """
    with tempfile.TemporaryDirectory() as folder:
        kept, selected = Path(folder, "baseline.json"), selected or Selected()

        def work() -> int:
            lines: dict[int, list[str]] = {}
            if module is None:
                status = _pytest(tests, without, (selected,))
            else:
                status, lines = _reaching(str(ROOT / module), tests, without, selected)
            imported = list(sys.modules)
            kept.write_text(json.dumps([selected.took, lines, imported]))
            return status

        pid, output = start(work)
        status = wait(pid, BASELINE_S)
        text = Path(output).read_text(errors="replace")
        os.unlink(output)
        if status != PASSED or not kept.is_file():
            return Baseline(text, False)
        seconds, lines, imported = json.loads(kept.read_text())
    preload(imported, module)
    return Baseline(text, True, seconds, {int(line): names for line, names in lines.items()})


def _reaching(
    path: str, tests: Sequence[str], without: Sequence[str], selected: Selected
) -> tuple[int, dict[int, list[str]]]:
    """Run tests; pytest's exit status, and the tests that reach each line of a file."""
    import coverage

    measured = coverage.Coverage(data_file=None, include=[path], config_file=False, messages=False)
    measured.start()
    status = _pytest(tests, without, (selected, Contexts(measured)))
    measured.stop()
    reached = measured.get_data().contexts_by_lineno(path)
    return status, {line: [name for name in names if name] for line, names in reached.items()}


def keep_bytecode(folder: str) -> None:
    """Compile what does not change only once, into this folder."""
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder


def preload(names: Sequence[str], module: str | None) -> None:
    """Import what tests imported, but for the tests and for what imports `module`; without one, nothing of our own."""
    files = {name: ROOT / (name.replace(".", "/") + ".py") for name in names if name.startswith(OWN)}
    own = {name: file for name, file in files.items() if file.is_file() and name.rpartition(".")[2][:5] != "test_"}
    spared = set(files) if module is None else set(files) - set(own) | importing(module_name(module), own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if name not in spared and name != "__main__" and name not in sys.modules:
                try:
                    importlib.import_module(name)
                except Exception:
                    continue
    if module is not None and module_name(module) in sys.modules:
        raise AssertionError(f"{module} was imported by what does not name it, and so cannot be replaced")


def importing(module: str, files: Mapping[str, Path]) -> set[str]:
    """The modules of these that import a module, directly or not, and itself."""
    named = {name: set(imports(file.read_text())) for name, file in files.items()}
    found, before = {module}, set()
    while found != before:
        before = set(found)
        found |= {name for name, each in named.items() if each & found}
    return found


def imports(source: str) -> Iterator[str]:
    """The names of all modules that a text may import."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def module_name(path: str) -> str:
    """With dots, of a file in the tree."""
    return path.removesuffix(".py").replace("/", ".")


def start_trial(
    module: str, source: str, tests: Sequence[str], without: Sequence[str], selected: Selected, cpu_s: float
) -> int:
    """Start the tests over a replaced module; returns the process, which exits as pytest does.

    A signal ends it after so many seconds of CPU time, so that other load on the machine does not matter.
    """

    def work() -> int:
        seconds = math.ceil(cpu_s)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        sys.meta_path.insert(0, Replaced(module, source))
        return _pytest(tests, without, (selected,), "-x")

    pid, output = start(work)
    os.unlink(output)
    return pid


def start(work: Callable[[], int]) -> tuple[int, str]:
    """Fork a process that does some work and exits with what it returns; its output goes to a file."""
    handle, output = tempfile.mkstemp(prefix="mutation-")
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        os.close(handle)
        return pid, output
    status = 99
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def wait(pid: int, seconds: float) -> int | None:
    """The exit status of a process; it is ended, with what it started, after so many seconds, and None returned."""
    deadline = time.monotonic() + seconds
    while (status := poll(pid)) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    end(pid)
    return status


def poll(pid: int) -> int | None:
    """The exit status of a process, negative if a signal ended it; None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if done else None


def end(pid: int) -> None:
    """End a process, if it still runs, and whatever it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _pytest(tests: Sequence[str], without: Sequence[str], plugins: Sequence[object], *more: str) -> int:
    import pytest

    gc.disable()
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    with tempfile.TemporaryDirectory(prefix="mutation-", ignore_cleanup_errors=True) as folder:
        options = ["--noconftest", "-p", "pytest_timeout", "--timeout=0", "-p", "no:cacheprovider", "--tb=short"]
        options.append(f"--basetemp={folder}/t")
        deselected = [f"--deselect={name}" for name in without]
        return int(pytest.main([*options, *more, *deselected, *tests], plugins=list(plugins)))
