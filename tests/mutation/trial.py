"""Runs tests over a module whose text is replaced, in a process forked for it, and says whether any test failed.

What tests import from elsewhere is loaded once, before the fork; the project's own modules and the tests are loaded in
each process, so that all of them see the replaced module. Nothing is written to the tree.
"""

from __future__ import annotations

import contextlib
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
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

OWN = ("repro", "tests")
STARTING = {"task", "standin"}
"""Fixtures of tests that start other processes, which do not see a replaced module; these tests do not run."""
MEMORY_BYTES = 8 << 30
PASSED, NONE_COLLECTED = 0, 5


class Replaced(importlib.machinery.SourceFileLoader, importlib.abc.MetaPathFinder):
    """Finds and loads one module from a text instead of its file."""

    def __init__(self, module: str, source: str):
        super().__init__(module.removesuffix(".py").replace("/", "."), str(ROOT / module))
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
    imported: list[str] = field(default_factory=list)

    def tests_of(self, lines: range) -> list[str]:
        """The tests that reach any of the lines; none for what is executed at import only."""
        return sorted({name for line in lines for name in self.reached.get(line, ())})


def measure(module: str, tests: Sequence[str], without: Sequence[str]) -> Baseline:
    """Run the tests of a module as it is, in a process of its own, and load what they import here."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "baseline.json")

        def work() -> int:
            import coverage

            measured = coverage.Coverage(
                data_file=None, include=[str(ROOT / module)], config_file=False, messages=False
            )
            selected = Selected()
            measured.start()
            status = _pytest(tests, without, (selected, Contexts(measured)))
            measured.stop()
            data = measured.get_data()
            reached = data.contexts_by_lineno(str(ROOT / module))
            imported = [name for name in sys.modules if name.partition(".")[0] not in OWN]
            lines = {line: [name for name in names if name] for line, names in reached.items()}
            kept.write_text(json.dumps([selected.took, lines, imported]))
            return status

        pid, output = start(work)
        status = wait(pid, 600)
        text = Path(output).read_text(errors="replace")
        os.unlink(output)
        if status != PASSED or not kept.is_file():
            return Baseline(text, False)
        seconds, lines, imported = json.loads(kept.read_text())
    preload(imported)
    return Baseline(text, True, seconds, {int(line): names for line, names in lines.items()}, imported)


def keep_bytecode(folder: str) -> None:
    """Compile what does not change only once, into this folder."""
    sys.dont_write_bytecode, sys.pycache_prefix = False, folder


def preload(names: Sequence[str]) -> None:
    """Import modules from elsewhere, so that forked processes have them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            if name != "__main__" and name not in sys.modules:
                try:
                    importlib.import_module(name)
                except Exception:
                    continue


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
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = sys.stderr = os.fdopen(1, "w")
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = work()
        sys.stdout.flush()
    finally:
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
