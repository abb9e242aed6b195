"""Which version of its program a unit runs: a hash of the program's files, and those that differ from the commit."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from repro.models.extensions import folders_of
from repro.runs.history import tree
from repro.runs.program_files import SHARED, files_digest, folders_of_program, left_out
from repro.runs.program_versions import BASELINES, TRAINERS
from repro.runs.record import Run
from repro.utils.errors import PlanError
from repro.utils.paths import PACKAGE, ROOT, sha256_of


def program_code(folder: str, program: str, replaced: Sequence[str] = (), root: Path = ROOT, model: str = "") -> dict:
    """What an attempt records of its code: that of `program`, PUBLISHED or TUNED, in TRAINERS or BASELINES.

    `sha256` is over names and contents of its Python files, also of those of models from outside; `changed` the files
    of the checkout that are not as in the commit, None without git; `replaced` the command that runs in its place.
    """
    package, names = root / PACKAGE.name, (folder, SHARED)
    own = [path for subfolder in names for path in sorted((package / subfolder).rglob("*.py"))]
    outside = [
        path for subfolder in names for extra in folders_of(subfolder) for path in sorted(Path(extra).rglob("*.py"))
    ]
    named = {path.relative_to(root).as_posix(): path for path in own} | {str(path): path for path in outside}
    passed_over = left_out(named, folder, program=program, model=model, read=lambda name: named[name].read_bytes())
    contents = {name: path.read_bytes() for name, path in named.items() if not name.startswith(passed_over)}
    record = {
        "sha256": files_digest((name, sha256_of(content)) for name, content in contents.items()),
        "changed": _changed(root, folders_of_program(folder), passed_over, contents),
    }
    return record | ({"replaced": " ".join(replaced)} if replaced else {})


def refuse_other_code(run: Run, replaced: Sequence[str] = ()) -> None:
    """PlanError unless the programs of a run's successful attempts are what they would be now."""
    programs = {
        unit.name: (BASELINES if unit.baseline_of else TRAINERS, unit.program, unit.model)
        for unit in run.description().plan.units
    }
    now: dict[tuple[str, str, str], dict] = {}
    for attempt in run.attempts():
        if attempt.status != "ok":
            continue
        folder, program, model = programs[attempt.unit]
        if (folder, program, model) not in now:
            given = replaced if folder == TRAINERS else ()
            now[folder, program, model] = program_code(folder, program, given, model=model)
        current = now[folder, program, model]
        recorded = attempt.code
        if recorded is None:
            raise PlanError(f"RUN={run.id} does not record which code of the {folder} it ran; begin a new run")
        if recorded.get("replaced") != current.get("replaced"):
            began, here = (code.get("replaced") or "the project's own program" for code in (recorded, current))
            raise PlanError(
                f"RUN={run.id} was begun with {began} as its trainer, and now it would go on with {here}: "
                "give it the same TRAINER_COMMAND, or begin a new run"
            )
        if recorded["sha256"] != current["sha256"]:
            raise PlanError(
                f"RUN={run.id} was begun with other code of the {folder} than is here (SHA-256 {recorded['sha256'][:12]}, "
                f"now {current['sha256'][:12]}): check out what it was begun with, or begin a new run"
            )


def _changed(
    root: Path, folders: Sequence[str], passed_over: tuple[str, ...], contents: dict[str, bytes]
) -> list[str] | None:
    """Files that the commit has not or has otherwise, and those of it that are missing here.

    Contents are compared, not what git's index says of them, which can be told to pass over changes.
    """
    there = tree("HEAD", folders, root)
    if there is None:
        return None
    committed = {
        name: blob for name, blob in there.items() if name.endswith(".py") and not name.startswith(passed_over)
    }
    here = {name: _blob(content) for name, content in contents.items() if not Path(name).is_absolute()}
    return sorted(name for name in committed.keys() | here.keys() if committed.get(name) != here.get(name))


def _blob(content: bytes) -> str:
    """The name that git gives to a file of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
