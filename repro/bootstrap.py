"""Set-up: the locked environments, built from nothing but a Python 3 and a package index.

`make` has each task begin with what `python3 -m repro.bootstrap --for TASK` does, where that is not done yet.
It uses the standard library only and runs under any Python from 3.8 on. Every package is installed by hash, and each
step can be interrupted: what is there already is kept, and the marker is written last. The controller has dependency
groups (see pyproject.toml), of which only those that a task needs are installed; once installed, a group stays.
"""

from __future__ import annotations

import argparse
import fcntl
import glob
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from repro.targets import (
    ENVIRONMENT,
    GROUPS,
    OF_OTHER_PYTHONS,
    PINNED_BASELINES,
    groups_of,
    make_variables,
    needs_trainers,
    pinned_baseline,
)

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"
CONTROLLER, TRAINER = ROOT / ".venv", ROOT / ".venv-trainer"
BASELINE, BASELINE_CU102 = (ROOT / f".venv-{name}" for name in PINNED_BASELINES)
"""PyTorch with Megatron-Core for today's drivers, and the PyTorch of CUDA 10.2."""
BASELINES = dict(zip(PINNED_BASELINES, (BASELINE, BASELINE_CU102)))
INPUTS = {
    CONTROLLER: [ROOT / "uv.lock", ROOT / "docker" / "tools.lock"],
    TRAINER: [ROOT / "docker" / "trainer.lock", ROOT / "docker" / "tools.lock"],
    BASELINE: [ROOT / "docker" / "baseline.lock", ROOT / "docker" / "tools.lock"],
    BASELINE_CU102: [ROOT / "docker" / "baseline-cu102.lock", ROOT / "docker" / "tools.lock"],
}
"""What each environment is made from; the first file is its lock."""
BASELINE_PYTHONS = dict(zip(PINNED_BASELINES, (("3.11", "3.12", "3.13", "3.14"), ("3.10",))))
"""The Pythons that the wheels of each lock are for and that `repro/baselines` runs on."""
BAD_INPUT = 2
TRAINER_PYTHONS = ("3.10", "3.9")
DOWNLOADS = "https://github.com/astral-sh/python-build-standalone/releases/download"
"""Where uv downloads interpreters from, unless UV_PYTHON_INSTALL_MIRROR names another place."""
NO_PYTHON = (
    "the trainers need CPython 3.10 or 3.9 on Linux x86-64, because oneflow 0.8.0 has wheels for no newer one; none was "
    "found on PATH, under pyenv, or among uv's. A package index has no interpreters."
)
NO_PYTHON_OF_CU102 = (
    "docker/baseline-cu102.lock needs CPython 3.10 on Linux x86-64, as PyTorch 1.12.1 has wheels for no newer one and the "
    "baselines run on no older one; none was found on PATH, under pyenv, or among uv's."
)
REMEDIES = """Install one, then run the same command again:
  Debian 11: apt-get install python3 python3-venv
  Ubuntu 22.04: apt-get install python3.10 python3.10-venv; 24.04: add-apt-repository ppa:deadsnakes/ppa first
  RHEL, Rocky, Alma 9: python3 is 3.9; 8: dnf install python39
  Debian 12 and 13: that of Debian 11, without root, by the commands under "Interpreters" in docs/reference.md
  others: pyenv install 3.10, which compiles it and needs build-essential libssl-dev zlib1g-dev libffi-dev libbz2-dev
    liblzma-dev libsqlite3-dev
or name one: make setup TRAINER_PYTHON=/path/to/python3.10, or a mirror of uv's: UV_PYTHON_INSTALL_MIRROR=https://…
(set in the environment); RUNTIME=docker trains in the image, which has its own."""
NEEDED_MIB: dict[Any, int] = {
    CONTROLLER: 220,
    "cluster": 13,
    "export": 3,
    "image": 128,
    "mutation": 32,
    "test": 331,
    TRAINER: 2100,
    BASELINE: 6950,
    BASELINE_CU102: 1650,
}
DOWNLOAD_MB: dict[Any, int] = {
    CONTROLLER: 66,
    "cluster": 3,
    "export": 1,
    "image": 37,
    "mutation": 8,
    "test": 112,
    TRAINER: 860,
    BASELINE: 4150,
    BASELINE_CU102: 800,
}
"""Of an environment, for the controller without any group, and of each group besides. Without bytecode."""


class SetupError(Exception):
    """Set-up cannot continue; the message says what is missing and what to do."""


def say(text: str) -> None:
    """Print a progress line at once, on standard error."""
    print(f"set-up: {text}", file=sys.stderr, flush=True)


def run(command: Sequence[object], what: str, **options: Any) -> None:
    """Run a command that may take long; its own progress goes to the terminal."""
    started = time.monotonic()
    if subprocess.run([str(part) for part in command], **options).returncode:
        raise SetupError(f"{what} failed; its output above says why. Run the same command again to go on.")
    say(f"{what}: {time.monotonic() - started:.1f} s")


def answer(command: Sequence[object]) -> str | None:
    """Output of a short command, or None if it cannot run or fails."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def find_uv() -> str:
    """The pinned uv: installed by hash into `.tools/` unless it is there already."""
    pinned = (ROOT / "docker" / "tools.lock").read_text().split("==", 1)[1].split()[0]
    ours = TOOLS / "bin" / "uv"
    for candidate in (str(ours), shutil.which("uv")):
        if candidate and (answer([candidate, "--version"]) or "").split()[1:2] == [pinned]:
            return candidate
    say(f"installing uv {pinned}")
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", TOOLS], capture_output=True, text=True)
    if made.returncode:
        raise SetupError(
            f"{sys.executable} cannot make a virtual environment. On Debian or Ubuntu: "
            "`apt-get install python3-venv`; or put uv "
            f"{pinned} on PATH.\n{made.stdout.strip()}"
        )
    run(
        [
            TOOLS / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "-r",
            ROOT / "docker" / "tools.lock",
        ],
        f"uv {pinned}",
    )
    return str(ours)


def index_environment() -> dict[str, str]:
    """The environment for uv: it does not read pip's settings, so an index set for pip is passed on."""
    environment = dict(os.environ, UV_LINK_MODE=os.environ.get("UV_LINK_MODE", "hardlink"))
    environment.pop("VIRTUAL_ENV", None)
    index = answer([sys.executable, "-m", "pip", "config", "get", "global.index-url"])
    if index and "UV_DEFAULT_INDEX" not in environment:
        environment["UV_DEFAULT_INDEX"] = index
    return environment


def older_python_candidates(uv: str, versions: Sequence[str] = TRAINER_PYTHONS) -> Iterator[tuple[str, str]]:
    """Yield (where, command or path) for every place in which a Python of these versions may be."""
    given = os.environ.get("TRAINER_PYTHON")
    if given:
        yield "TRAINER_PYTHON", given
        return
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for version in versions:
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            yield "PATH", os.path.join(folder, f"python{version}")
        for path in sorted(glob.glob(str(pyenv / "versions" / f"{version}.*" / "bin" / "python"))):
            yield "pyenv", path
    for version in versions:
        python = answer([uv, "python", "find", "--no-project", "--managed-python", "--no-python-downloads", version])
        if python:
            yield "uv", python


def usable(path: str, versions: Sequence[str] = TRAINER_PYTHONS) -> bool:
    """Whether this is such a CPython on Linux x86-64 that runs, with the parts that distributions package alone."""
    printed = answer(
        [
            path,
            "-c",
            "import ctypes, distutils.util, platform, sys; print(sys.implementation.name, "
            "'%d.%d' % sys.version_info[:2], platform.system(), platform.machine())",
        ]
    )
    return printed is not None and printed.split() in [["cpython", v, "Linux", "x86_64"] for v in versions]


def check_trainer_python() -> None:
    """SetupError, before anything is installed, if there is no Python for the trainers and none can be downloaded."""
    if is_ready(TRAINER) or answer([str(TRAINER / "bin" / "python"), "-c", "pass"]) is not None:
        return
    uv = next(
        (
            candidate
            for candidate in (str(TOOLS / "bin" / "uv"), shutil.which("uv"))
            if candidate and os.path.exists(candidate)
        ),
        "",
    )
    candidates = older_python_candidates(uv or "/nonexistent/uv")
    for where, path in candidates:
        if where == "TRAINER_PYTHON" or (os.path.exists(path) and usable(path)):
            return  # a wrong TRAINER_PYTHON is named where it would be used
    source = os.environ.get("UV_PYTHON_INSTALL_MIRROR", DOWNLOADS)
    if not answers(source):
        raise SetupError(f"{NO_PYTHON} One could not be downloaded either: {source} does not answer.\n{REMEDIES}")


def answers(address: str) -> bool:
    """Whether anything answers at an address of the web; other addresses, such as file:, are taken to."""
    if not address.startswith("http"):
        return True
    try:
        urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=10)
    except urllib.error.HTTPError:
        return True
    except (OSError, ValueError):
        return False
    return True


def find_older_python(uv: str, versions: Sequence[str] = TRAINER_PYTHONS, missing: str = NO_PYTHON) -> str:
    """A Python older than the controller's, by default for the trainers; uv downloads one if the machine has none."""
    wanted = " or ".join(versions)
    for where, path in older_python_candidates(uv, versions):
        if (os.path.exists(path) or where == "TRAINER_PYTHON") and usable(path, versions):
            say(f"Python {wanted}: {path} (found through {where})")
            return path
        if where == "TRAINER_PYTHON":
            raise SetupError(
                f"TRAINER_PYTHON={path} is not a CPython {wanted} for Linux x86-64 that runs and has ctypes and distutils "
                "(Debian and Ubuntu: pythonX.Y-venv brings them)."
            )
    say(f"no Python {wanted} found; asking uv to download one")
    if subprocess.run([uv, "python", "install", versions[0]]).returncode == 0:
        python = answer([uv, "python", "find", "--no-project", "--managed-python", versions[0]])
        if python and usable(python, versions):
            return python
    raise SetupError(f"{missing} uv could not download one either.\n{REMEDIES}")


def python_for(environment: Path, uv: str) -> str:
    """The Python that an environment is made with: a path, or versions among which uv chooses."""
    if environment == TRAINER:
        return find_older_python(uv)
    if environment == BASELINE_CU102:
        return find_older_python(uv, BASELINE_PYTHONS[PINNED_BASELINES[1]], NO_PYTHON_OF_CU102)
    if environment == BASELINE:
        oldest, *_, newest = BASELINE_PYTHONS[PINNED_BASELINES[0]]
        return f">={oldest},<3.{int(newest.removeprefix('3.')) + 1}"
    return ">=3.11"


def controller_requirements(uv: str, folder: Path, groups: Iterable[str]) -> Path:
    """The controller's locked requirements with these groups, in the format that works with any index or mirror."""
    target = folder / "controller.txt"
    chosen = [word for group in sorted(groups) for word in ("--group", group)]
    run(
        [
            uv,
            "export",
            "--quiet",
            "--frozen",
            "--no-emit-project",
            "--no-default-groups",
            *chosen,
            "--output-file",
            target,
        ],
        "reading uv.lock",
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    return target


def fingerprint(environment: Path) -> str:
    """SHA-256 over the inputs of an environment, so that a touched but unchanged lock costs nothing."""
    digest = hashlib.sha256()
    for path in INPUTS[environment]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_marker(environment: Path) -> tuple[str | None, set[str]]:
    """The fingerprint of the locks that the environment was completed from, and its groups; None and none if it was not.

    A marker without a line of groups is from before there was a choice: everything was installed.
    """
    try:
        lines = (environment / "ready").read_text().splitlines()
    except OSError:
        return None, set()
    groups = lines[1].split()[1:] if len(lines) > 1 else GROUPS
    return lines[0].strip() if lines else None, set(groups) & set(GROUPS)


def marker(environment: Path, groups: Iterable[str]) -> str:
    """What records that the environment is complete, with these groups."""
    lines = [fingerprint(environment)]
    if environment == CONTROLLER:
        lines.append(" ".join(["groups:", *sorted(groups)]))
    return "\n".join(lines) + "\n"


def write_marker(environment: Path, groups: Iterable[str]) -> None:
    """Record that the environment is complete."""
    (environment / "ready").write_text(marker(environment, groups))


def is_complete(environment: Path, groups: Iterable[str] = ()) -> bool:
    """Whether the environment was completed from the present locks with these groups."""
    digest, installed = read_marker(environment)
    return digest == fingerprint(environment) and (environment != CONTROLLER or installed >= set(groups))


def is_ready(environment: Path, groups: Iterable[str] = ()) -> bool:
    """Whether the environment is complete and its interpreter still runs."""
    return is_complete(environment, groups) and answer([environment / "bin" / "python", "-c", "pass"]) is not None


def needed(sizes: Mapping[Any, int], environment: Path, groups: Iterable[str]) -> int:
    """The sum for an environment and its groups."""
    return sizes[environment] + sum(sizes[group] for group in groups)


def check_space(environment: Path, groups: Iterable[str]) -> None:
    """Refuse to start a download that does not fit; installed parts count as free space."""
    free = shutil.disk_usage(ROOT).free // 2**20
    there = [environment] if (environment / "ready").exists() else []
    missing = needed(NEEDED_MIB, environment, groups) - sum(NEEDED_MIB[installed] for installed in there)
    if free < missing:
        raise SetupError(f"{ROOT} has {free} MiB free, and {environment.name} needs {missing} MiB.")


def announcement(environment: Path, groups: Iterable[str]) -> str:
    """The installed packages, and how much may have to be downloaded for the rest."""
    with_groups = f" with {', '.join(sorted(groups))}" if groups else ""
    return f"{environment.name}{with_groups} by hash (about {needed(DOWNLOAD_MB, environment, groups)} MB to download unless cached)"


def build(environment: Path, groups: Iterable[str]) -> None:
    """Build one environment, or complete one left by an interrupted set-up."""
    check_space(environment, groups)
    uv = find_uv()
    settings = index_environment()
    python = environment / "bin" / "python"
    if answer([python, "-c", "pass"]) is None:
        version = python_for(environment, uv)
        run(
            [uv, "venv", "--quiet", "--clear", "--no-project", "--python", version, environment],
            f"{environment.name} with Python {version}",
            env=settings,
        )
    say(f"installing {announcement(environment, groups)}")
    # Of the controller's modules a task imports a tenth, and Python keeps what it compiled of them. Ranks start together.
    bytecode = ["--compile-bytecode"] if environment != CONTROLLER else []
    with tempfile.TemporaryDirectory() as scratch:
        if environment == CONTROLLER:
            lock = controller_requirements(uv, Path(scratch), groups)
        else:
            lock = INPUTS[environment][0]
        run(
            [uv, "pip", "sync", "--require-hashes", *bytecode, "--python", python, lock],
            f"{environment.name}",
            env=settings,
            cwd=ROOT,
        )
    write_marker(environment, groups)


def ready(environment: Path, groups: Iterable[str] = ()) -> None:
    """Make one environment ready, the controller's with these groups besides its present ones.

    Two set-ups at once take turns.
    """
    if is_ready(environment, groups):
        return
    if not os.access(ROOT, os.W_OK):
        raise SetupError(f"{ROOT} cannot be written to, and {environment.name} belongs there; set up where it can be.")
    TOOLS.mkdir(exist_ok=True)
    with open(ROOT / ".setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(environment, groups):
            controller = environment == CONTROLLER
            build(environment, set(groups) | read_marker(environment)[1] if controller else set())


def needs_of(task: str, variables: Mapping[str, str]) -> list[tuple[Path, set[str]]]:
    """The environments that a task needs when it is given these variables; pairs with groups."""
    needs: list[tuple[Path, set[str]]] = [(CONTROLLER, groups_of(task, variables))]
    if needs_trainers(task, variables):
        needs.append((TRAINER, set()))
    baseline = pinned_baseline(task, variables)
    return [*needs, (BASELINES[baseline], set())] if baseline else needs


def check(task: str) -> bool:
    """Leave with the status of the task if it refuses its variables; False where no Python here can say so.

    That takes Python 3.11 and none of our packages, so that it comes before anything is installed.
    """
    newer = (shutil.which(f"python3.{minor}") for minor in range(11, 20))
    enough = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (str(CONTROLLER / "bin" / "python"), sys.executable, *newer):
        if python and answer([python, "-c", enough]) is not None:
            command = [python, "-m", "repro", "--check", task]
            done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
            if done.returncode == BAD_INPUT:
                print(done.stderr, end="", file=sys.stderr)
                sys.exit(BAD_INPUT)
            return True
    return False


def environment_argument(text: str) -> tuple[Path, set[str]]:
    """`controller`, `controller:GROUP+GROUP` or the name of another environment on the command line."""
    name, _, given = text.partition(":")
    groups = {group for group in given.split("+") if group}
    others = {"trainer": TRAINER, **BASELINES}
    if name not in ("controller", *others) or not groups <= set(GROUPS) or (name in others and groups):
        raise argparse.ArgumentTypeError(
            f"{text}: it is controller, controller:GROUP+GROUP, {', '.join(others)}; groups: {', '.join(GROUPS)}"
        )
    return others.get(name, CONTROLLER), groups


def main() -> None:
    """Command line: `python3 -m repro.bootstrap --for bench`, or `controller:image+test trainer`."""
    parser = argparse.ArgumentParser(prog="python3 -m repro.bootstrap", description=__doc__.splitlines()[0])
    parser.add_argument(
        "environment", nargs="*", type=environment_argument, metavar="controller[:GROUP+GROUP] | trainer | baseline"
    )
    parser.add_argument("--for", dest="task", metavar="TASK", help="what this task needs, by the variables of make")
    given = parser.parse_args()
    for name in OF_OTHER_PYTHONS:
        os.environ.pop(name, None)
    variables = dict(make_variables(os.environ.get("MAKEFLAGS", ""))) if given.task else {}
    os.environ.update((name, value) for name, value in variables.items() if name in ENVIRONMENT)
    try:
        every = given.environment + (needs_of(given.task, variables) if given.task else [])
        checked = given.task in (None, "setup") or check(given.task)
        if any(environment == TRAINER for environment, _ in every):
            check_trainer_python()
        for environment, groups in every:
            checked = checked or (environment != CONTROLLER and check(given.task))
            ready(environment, groups)
    except SetupError as error:
        sys.exit(f"set-up: {error}")
    except KeyboardInterrupt:
        sys.exit("set-up: interrupted; run the same command again to go on where it stopped.")


if __name__ == "__main__":
    main()
