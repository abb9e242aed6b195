"""The tasks of those who work on the project: checks and tests, and the lock files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from repro.cli.settings import Exit, Invocation, task
from repro.cli.simulation import Kind
from repro.utils import last_lines
from repro.utils.errors import FAILED
from repro.utils.paths import ROOT

CHECKS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("lint-imports",),
    ("deptry", "."),
    ("mypy",),
)
"""Checks besides the tests, in this order: programs of the controller's environment, with arguments."""

MOST_WORKERS, MOST_CLUSTERS = 10, 4
MACHINES = "tests/e2e/vm"
ONLY = "only the tests that match this expression, as pytest's -k"


LONG = "also the tests that take minutes"


@task()
def test(invocation: Invocation) -> None:
    """Lint, check imports and types, and run the tests, several files at a time.

    Exit status: 0 all passed; 1 something failed, named in the last line.
    """
    _keep_bytecode()
    tests = ("pytest", _at_once(MOST_WORKERS), "--dist=loadfile", "--no-loadscope-reorder")
    failed = [command for command in (*CHECKS, tests) if not _passes(command)]
    if failed:
        raise Exit(f"failed: {', '.join(map(' '.join, failed))}", FAILED)
    print(last_lines.TESTED)


def _at_once(most: int) -> str:
    """pytest's option for a process per processor: with more, trainings take longer in all, as their ranks wait in loops."""
    return f"--numprocesses={min(len(os.sched_getaffinity(0)), most)}"


def _keep_bytecode() -> None:
    """Let what is started keep what it compiles; container images forbid it, and then each of thousands compiles all."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _passes(command: tuple[str, ...]) -> bool:
    print("==", *command, flush=True)
    program = Path(sys.executable).with_name(command[0])
    if not program.exists():
        print(f"{program} is missing: `make setup` installs it", file=sys.stderr)
        return False
    return subprocess.run([program, *command[1:]], cwd=ROOT).returncode == 0


@task(only=ONLY, long=LONG)
def image_test(
    invocation: Invocation,
    only: str | None = None,
    long: bool = False,
    debian: str | None = None,
    debian_security: str | None = None,
) -> None:
    """The tests that need root and a Docker engine; they start one of their own.

    Exit status: pytest's; 0 all passed, 1 some failed.
    """
    _replace_by_pytest("tests/docker", only, long, debian, debian_security)


@task(only=ONLY, long=LONG, kind="container, or vm for virtual machines")
def e2e(
    invocation: Invocation,
    only: str | None = None,
    long: bool = False,
    kind: Kind = "container",
    debian: str | None = None,
    debian_security: str | None = None,
) -> None:
    """The tests over simulated nodes, several modules at a time; they need root and start an engine of their own.

    KIND=vm runs those over virtual machines in their place. Exit status: pytest's; 0 all passed, 1 some failed; 2 wrong
    input.
    """
    folder, how = MACHINES, ()
    if kind == "container":
        several = () if only else (_at_once(MOST_CLUSTERS), "--dist=loadscope", "--no-loadscope-reorder")
        folder, how = "tests/e2e", (f"--ignore={MACHINES}", *several)
    _replace_by_pytest(folder, only, long, debian, debian_security, *how)


def _replace_by_pytest(
    folder: str, only: str | None, long: bool, debian: str | None, debian_security: str | None, *more: str
) -> None:
    """Go on as pytest in this process; the mirrors of Debian are in the environment of the tests."""
    mirrors = {"DEBIAN": debian, "DEBIAN_SECURITY": debian_security}
    os.environ.update({name: mirror for name, mirror in mirrors.items() if mirror})
    _keep_bytecode()
    chosen = [*(("-k", only) if only else ()), *(() if long else ("-m", "not long"))]
    arguments = ["-m", "pytest", folder, "--timeout=1800", "--durations=12", *more, *chosen]
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, *arguments])


@task(
    module="only this module, by its path or name, or this group of modules",
    survivors="only the changes that no test noticed so far, of modules that are as they were then",
    jobs="mutants at a time (default: 1)",
)
def mutation(invocation: Invocation, module: str | None = None, survivors: bool = False, jobs: int = 1) -> None:
    """Change the modules of tests/mutation/targets.toml in small ways, and record how many changes their tests notice.

    Exit status: 0 every group is killed to 90 % and every survivor has a reason; 1 not so, or the tests of a module fail;
    2 no such module.
    """
    only = [*(("--module", module) if module else ()), *(["--survivors"] if survivors else [])]
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "tests.mutation", "--jobs", str(jobs), *only])


@task()
def lock(invocation: Invocation) -> None:
    """Write the lock files again from their inputs; nothing else changes a version.

    Exit status: 0 written; 1 uv failed.
    """
    from repro.bootstrap import find_uv

    uv = find_uv()
    options = ["--upgrade", "--no-header", "--generate-hashes"]
    anywhere, linux = (
        ["--universal", "--python-version"],
        ["--python-platform=x86_64-manylinux_2_28", "--python-version"],
    )
    compiled = [
        [uv, "pip", "compile", *options, *places, f"docker/{name}.in", "-o", f"docker/{name}.lock"]
        for name, places in {
            "trainer": [*anywhere, "3.9"],
            "tools": [*anywhere, "3.9"],
            "baseline": [*linux, "3.11"],
            "baseline-cu102": [*linux, "3.9"],
        }.items()
    ]
    for command in ([uv, "lock", "--upgrade"], *compiled):
        if subprocess.run(command, cwd=ROOT).returncode:
            raise Exit(f"failed: {' '.join(map(str, command))}", FAILED)
    print("every lock file was written")
