"""What `make test` runs: every check and then the tests, to the end, and the status says whether all passed."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.cli import develop
from repro.cli.settings import Exit
from tests.e2e.vm import conftest as machine_tests
from tests.support.paths import ROOT


@pytest.fixture
def commands(monkeypatch):
    """Records what is started; programs that a test puts into `failing` fail."""
    started, failing = [], set()

    def run(argv, **options):
        started.append((Path(argv[0]).name, *argv[1:]))
        return subprocess.CompletedProcess(argv, int(any(word in failing for word in started[-1])))

    monkeypatch.setattr(develop.subprocess, "run", run)
    return started, failing


def test_lint_types_and_imports_come_before_the_tests(commands):
    started, _ = commands
    develop.test()
    assert [command[0] for command in started] == ["ruff", "ruff", "lint-imports", "deptry", "mypy", "pytest"]
    assert {"--dist=loadfile", "--no-loadscope-reorder"} < set(started[-1])
    assert any("numprocesses" in word for word in started[-1])


def test_what_tests_import_is_compiled_once(commands, monkeypatch):
    """Container images set the variable, with which each process compiles all that it imports."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    develop.test()
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ


def test_the_files_that_begin_first_are_there(request):
    """A name of none would let the longest file begin last."""
    conftest = request.config.pluginmanager.get_plugin(str(ROOT / "tests/conftest.py"))
    assert [name for name in conftest.FIRST if not (conftest.HERE / name).is_file()] == []


def test_a_failed_check_stops_nothing_and_is_named(commands):
    started, failing = commands
    failing.add("lint-imports")
    with pytest.raises(Exit) as caught:
        develop.test()
    assert len(started) == len(develop.CHECKS) + 1
    assert (caught.value.status, caught.value.message) == (1, "failed: lint-imports")


def test_simulated_nodes_are_tested_by_modules_at_a_time_unless_a_few_tests_are_named(monkeypatch):
    """What a module's tests share is brought up once, and the longest modules begin first."""
    monkeypatch.setattr(develop.os, "chdir", lambda folder: None)
    monkeypatch.setattr(develop.os, "execv", lambda program, argv: started.append(argv[1:]))
    started = []
    develop.e2e()
    develop.e2e(only="link", long=True)
    develop.e2e(kind="vm")
    with pytest.raises(Exit, match="--kind metal: it is container or vm"):
        develop.e2e(kind="metal")
    several, few, machines = started
    assert machines[2] == "tests/e2e/vm" and "--ignore=tests/e2e/vm" in several
    assert several[:3] == few[:3] == ["-m", "pytest", "tests/e2e"]
    assert {"--dist=loadscope", "--no-loadscope-reorder", "not long"} < set(several)
    assert any(word.startswith("--numprocesses=") for word in several)
    assert few[-2:] == ["-k", "link"] and not any("numprocesses" in word or "not long" in word for word in few)


def test_what_is_checked_is_installed():
    for program, *_ in develop.CHECKS:
        assert Path(sys.executable).with_name(program).exists()


def test_only_what_sets_virtual_machines_up_ends_their_tests_by_failing():
    files = {path.stem for path in machine_tests.HERE.glob("test_*.py")}
    assert {machine_tests.SET_UP, *machine_tests.REST} == files

    def ended_by(module: str) -> str | bool:
        item = SimpleNamespace(
            name="test_it", path=machine_tests.HERE / f"{module}.py", session=SimpleNamespace(shouldfail=False)
        )
        hook = machine_tests.pytest_runtest_makereport(item, None)
        next(hook)
        with contextlib.suppress(StopIteration):
            hook.send(SimpleNamespace(failed=True))
        return item.session.shouldfail

    assert ended_by(machine_tests.SET_UP) == "test_it failed, which all that follows needs"
    assert not any(map(ended_by, machine_tests.REST))
