"""What a bundle and a kit have in common: a new folder with READMEs and checksums, which appears once it is whole."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repro.runs.record import check_creatable
from repro.utils.errors import BAD_INPUT, FAILED, ReproError
from repro.utils.i18n import LANGUAGES
from repro.utils.paths import sha256
from repro.utils.printable import one_line

SUMS = "SHA256SUMS"
TEMPLATES = Path(__file__).with_name("templates")


class OfflineError(ReproError):
    """A bundle or kit cannot be made; the message says why and what to do."""

    status = FAILED


class FolderTaken(OfflineError):
    """There is something already where a new folder is to be."""

    status = BAD_INPUT


def check_new(folder: Path, variable: str) -> Path:
    """Where a new folder is filled before it gets its name; FolderTaken if anything is there or has that name.

    `variable` is the option that names another. RecordError where no folder can be made.
    """
    own = folder.absolute()
    partial = own.parent / f"{own.name}.partial"
    for path, what in ((folder, "it"), (partial, f"{partial}, where it is written first,")):
        if os.path.lexists(path):
            shown = one_line(str(folder))
            raise FolderTaken(f"{variable}={shown}: {what} exists already; remove it or name another folder")
    check_creatable(folder, variable)
    return partial


@contextlib.contextmanager
def new_folder(folder: Path, variable: str) -> Iterator[Path]:
    """A folder to fill, which gets its checksums and its name at the end, or is removed; errors are those of `check_new`."""
    partial = check_new(folder, variable)
    partial.mkdir(parents=True)
    try:
        yield partial
        (partial / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in sums(partial).items()))
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def readme(template: str, language: str, **values: Any) -> str:
    """A README in one language from the template of this name."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template(f"{template}.{language}.md.j2").render(**values, sums=SUMS)


def write_readmes(folder: Path, template: str, **values: Any) -> None:
    """The READMEs of a folder in both languages."""
    for language in LANGUAGES:
        name = "README.md" if language == "en" else f"README.{language}.md"
        (folder / name).write_text(readme(template, language, **values), encoding="utf-8")


def sums(folder: Path) -> dict[str, str | None]:
    """The SHA-256 of each file of a folder by its name; None for a link, which does not belong there."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SUMS)
    return {path.relative_to(folder).as_posix(): sha256(path) for path in files}


def sum_faults(folder: Path) -> list[str]:
    """A sentence for each file that is missing, does not belong there, or was changed, by the folder's checksums."""
    lines = (folder / SUMS).read_text().splitlines()
    recorded = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    present = sums(folder)
    faults = [f"{name} is missing" for name in sorted(recorded.keys() - present.keys())]
    faults += [f"{name} does not belong to it" for name in sorted(present.keys() - recorded.keys())]
    return faults + [
        f"{name} was changed: its SHA-256 is {present[name]}, recorded is {recorded[name]}"
        for name in sorted(recorded.keys() & present.keys())
        if recorded[name] != present[name]
    ]
