"""Which version of its program a unit runs: a hash of the program's files, and those that differ from the commit."""

from __future__ import annotations

import ast
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

from repro.models.extensions import folders_of
from repro.models.programs import TUNED
from repro.planning.plan import PlanError
from repro.runs.program_versions import BASELINES, TRAINERS
from repro.runs.record import Run
from repro.utils.paths import PACKAGE, ROOT

SHARED = "models"
"""The folder that all programs read."""
APART = {"checks": (), "tuning": (TUNED,)}
"""The trainers' folders that only some programs import, or none: the check of kernels is a run of its own."""
BUILDER = "program"
"""The module of the tuned programs that all models share."""
GIT_S = 30
_PARSES = threading.Lock()
"""CPython 3.11 counts the depth of all threads' parsing in one place, and fails where two of them parse at once."""


def program_code(folder: str, program: str, replaced: Sequence[str] = (), root: Path = ROOT, model: str = "") -> dict:
    """What an attempt records of its code: that of `program`, PUBLISHED or TUNED, in TRAINERS or BASELINES.

    Of the tuned programs only the modules that the one of `model` imports count, so that tuning one model leaves runs of
    the others as new as they are; of a model from outside, or of none, all count.
    `sha256` is over names and contents of its Python files, also of those of models from outside; `changed` the files
    of the checkout that are not as in the commit, None without git; `replaced` the command that runs in its place.
    """
    package, folders = root / PACKAGE.name, (folder, SHARED)
    left_out = tuple(
        f"{PACKAGE.name}/{TRAINERS}/{name}/" for name, programs in APART.items() if program not in programs
    )
    if folder == TRAINERS and program == TUNED and model:
        left_out += _of_other_models(package / TRAINERS / "tuning", model)
    own = [path for each in folders for path in sorted((package / each).rglob("*.py"))]
    outside = [path for each in folders for extra in folders_of(each) for path in sorted(Path(extra).rglob("*.py"))]
    named = {path.relative_to(root).as_posix(): path for path in own} | {str(path): path for path in outside}
    named = {name: path for name, path in named.items() if not name.startswith(left_out)}
    contents = {name: path.read_bytes() for name, path in named.items()}
    found = {
        "sha256": files_digest((name, hashlib.sha256(content).hexdigest()) for name, content in contents.items()),
        "changed": _changed(root, [f"{PACKAGE.name}/{each}" for each in folders], left_out, contents),
    }
    return found | ({"replaced": " ".join(replaced)} if replaced else {})


def _of_other_models(tuning: Path, model: str) -> tuple[str, ...]:
    """The files of `tuning` that the tuned program of a model does not import."""
    modules = {path.stem: path for path in tuning.glob("*.py")}
    waiting, needed = [name for name in (BUILDER, model, "__init__") if name in modules], set[str]()
    if model not in modules:
        return ()
    while waiting:
        needed.add(name := waiting.pop())
        waiting += _imported(modules[name]) & modules.keys() - needed
    return tuple(f"{PACKAGE.name}/{TRAINERS}/tuning/{name}.py" for name in sorted(modules.keys() - needed))


def _imported(path: Path) -> set[str]:
    """The modules of `repro.trainers.tuning` that a file imports by their names."""
    parent = f"{PACKAGE.name}.{TRAINERS}.tuning"
    with _PARSES:
        tree = ast.parse(path.read_text())
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    whole = {name.name for each in imports if each.module == parent for name in each.names}
    return whole | {
        each.module.rpartition(".")[2] for each in imports if each.module and each.module.startswith(parent)
    }


def files_digest(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over names and SHA-256 of files, in the order of the names."""
    digest = hashlib.sha256()
    for name, sha256 in sorted(files):
        digest.update(json.dumps([name, sha256]).encode())
    return digest.hexdigest()


def refuse_other_code(run: Run, replaced: Sequence[str] = ()) -> None:
    """PlanError unless the programs of a run's successful attempts are what they would be now."""
    units = run.description()["plan"]["units"]
    programs = {
        unit["name"]: (BASELINES if unit.get("baseline_of") else TRAINERS, unit["program"], unit.get("model", ""))
        for unit in units
    }
    now: dict[tuple[str, str, str], dict] = {}
    for attempt in run.attempts():
        if attempt["status"] != "ok":
            continue
        folder, program, model = programs[attempt["unit"]]
        if (folder, program, model) not in now:
            given = replaced if folder == TRAINERS else ()
            now[folder, program, model] = program_code(folder, program, given, model=model)
        current = now[folder, program, model]
        recorded = attempt.get("code")
        if recorded is None:
            raise PlanError(f"RUN={run.id} does not record which code of the {folder} it ran; begin a new run")
        if recorded.get("replaced") != current.get("replaced"):
            began, here = (each.get("replaced") or "the project's own program" for each in (recorded, current))
            raise PlanError(
                f"RUN={run.id} was begun with {began} as its trainer, and now it would go on with {here}: "
                "give it the same TRAINER_COMMAND, or begin a new run"
            )
        if recorded["sha256"] != current["sha256"]:
            raise PlanError(
                f"RUN={run.id} was begun with other code of the {folder} than is here (SHA-256 {recorded['sha256'][:12]}, "
                f"now {current['sha256'][:12]}): check out what it was begun with, or begin a new run"
            )


def _changed(root: Path, folders: list[str], left_out: tuple[str, ...], contents: dict[str, bytes]) -> list[str] | None:
    """Files that the commit has not or has otherwise, and those of it that are missing here.

    Contents are compared, not what git's index says of them, which can be told to pass over changes.
    """
    try:
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-tree", "-r", "-z", "HEAD", "--", *folders],
            capture_output=True,
            text=True,
            timeout=GIT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    entries = (entry.split("\t", 1) for entry in listed.split("\0") if entry)
    committed = {
        name: about.split()[2] for about, name in entries if name.endswith(".py") and not name.startswith(left_out)
    }
    here = {name: _blob(content) for name, content in contents.items() if not Path(name).is_absolute()}
    return sorted(name for name in committed.keys() | here.keys() if committed.get(name) != here.get(name))


def _blob(content: bytes) -> str:
    """The name that git gives to a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
