"""Which Python files are the code of a training program, and the digest over them, in a folder or at any commit."""

from __future__ import annotations

import ast
import hashlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping

from repro.models.programs import TUNED
from repro.runs.program_versions import TRAINERS
from repro.utils.paths import PACKAGE

SHARED = "models"
"""The folder that all programs read."""
APART = {"checks": (), "tuning": (TUNED,)}
"""The trainers' folders that only some programs import, or none: the check of kernels is a run of its own."""
FINDING = ("registry.py", "extensions.py")
"""The shared modules that find and refuse models before one is trained: no training's speed or result is of them."""
BUILDER = "program"
"""The module of the tuned programs that all models share."""
TUNING = f"{PACKAGE.name}/{TRAINERS}/tuning/"
_PARSES = threading.Lock()
"""CPython 3.11 counts the depth of all threads' parsing in one place, and fails where two of them parse at once."""

Read = Callable[[str], bytes]


def folders_of_program(folder: str) -> tuple[str, str]:
    """The folders with the code of the programs in TRAINERS or BASELINES, as paths in a checkout."""
    return f"{PACKAGE.name}/{folder}", f"{PACKAGE.name}/{SHARED}"


def left_out(names: Iterable[str], folder: str, program: str, model: str, read: Read) -> tuple[str, ...]:
    """Beginnings of the names of files that are not of a program; `read` gives a file's content by its name.

    These are FINDING and what the program does not import. Of the tuned programs only the modules that the one of `model` imports count, so that tuning one model leaves runs of
    the others as new as they are; of a model from outside, or of none, all count.
    """
    finding = tuple(f"{PACKAGE.name}/{SHARED}/{name}" for name in FINDING)
    return finding + _not_imported(names, folder, program=program, model=model, read=read)


def _not_imported(names: Iterable[str], folder: str, program: str, model: str, read: Read) -> tuple[str, ...]:
    apart = tuple(f"{PACKAGE.name}/{TRAINERS}/{name}/" for name, programs in APART.items() if program not in programs)
    return apart + (_of_other_models(names, model, read) if (folder, program) == (TRAINERS, TUNED) and model else ())


def _of_other_models(names: Iterable[str], model: str, read: Read) -> tuple[str, ...]:
    """The files of the tuned programs that the one of a model does not import."""
    modules = {
        name.removeprefix(TUNING).removesuffix(".py"): name
        for name in names
        if name.startswith(TUNING) and "/" not in name.removeprefix(TUNING)
    }
    waiting, needed = [name for name in (BUILDER, model, "__init__") if name in modules], set[str]()
    if model not in modules:
        return ()
    while waiting:
        needed.add(name := waiting.pop())
        waiting += _imported(read(modules[name])) & modules.keys() - needed
    return tuple(f"{TUNING}{name}.py" for name in sorted(modules.keys() - needed))


def _imported(source: bytes) -> set[str]:
    """The modules of `repro.trainers.tuning` that a file imports by their names."""
    parent = f"{PACKAGE.name}.{TRAINERS}.tuning"
    with _PARSES:
        tree = ast.parse(source)
    imports = [statement for statement in ast.walk(tree) if isinstance(statement, ast.ImportFrom)]
    whole = {name.name for statement in imports if statement.module == parent for name in statement.names}
    return whole | {
        statement.module.rpartition(".")[2]
        for statement in imports
        if statement.module and statement.module.startswith(parent)
    }


def files_digest(files: Iterable[tuple[str, str]]) -> str:
    """SHA-256 over names and SHA-256 of files, in the order of the names."""
    digest = hashlib.sha256()
    for name, sha256 in sorted(files):
        digest.update(json.dumps([name, sha256]).encode())
    return digest.hexdigest()


def digests_of(files: Mapping[str, str], folder: str, program: str, model: str, read: Read) -> list[str]:
    """Every digest that a release may have recorded for a program with these files, SHA-256 by name, the newest first.

    Earlier releases left out less: only what is not imported, only folders, or nothing.
    """
    forms = (
        left_out(files, folder, program, model, read),
        _not_imported(files, folder, program=program, model=model, read=read),
        _not_imported(files, folder, program=program, model="", read=read),
        (),
    )
    return [
        files_digest((name, sha256) for name, sha256 in files.items() if not name.startswith(form)) for form in forms
    ]
