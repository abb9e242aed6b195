"""A run's record: the plan, and one line per finished attempt; nothing is ever rewritten."""

import errno
import json
import os
import re
import secrets
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from repro.runs.attempts import AttemptRecord, parse, serialise
from repro.runs.description import FORM, RunDescription
from repro.runs.files import RecordError, RunPath, is_archive, lines, names, open_files, read_json, reading
from repro.utils.printable import one_line
from repro.utils.writing import write_bytes

RUNS = Path("runs")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
STAMPED = re.compile(r"\d{8}-\d{6}-")
"""How the names of run folders begin."""
ATTEMPTS = "attempts.jsonl"
ATTEMPT = re.compile(r"units/([^/]+)/repeat-(\d+)\.attempt-(\d+)")
"""The folder of an attempt: unit, repeat, and which attempt at it."""
SHOWN = 200
"""How much of a name is shown that no run has, in characters."""
LAST_LOSSES = 5
"""How many losses an attempt records of its end; of its beginning it records twice as many."""


@dataclass(frozen=True)
class Run:
    """One run, in its folder or in an archive (`path`).

    `run.json` is written once, `attempts.jsonl` only grows, the rest is derived from them. An archive is never changed.
    """

    path: Path

    @property
    def id(self) -> str:
        return self.path.stem if self.archived else self.path.name

    @property
    def archived(self) -> bool:
        return is_archive(self.path)

    @cached_property
    def files(self) -> RunPath:
        """The root of the run's files, to read them; RecordError if an archive cannot be opened."""
        return open_files(self.path)

    @property
    def folder(self) -> Path:
        """The run's folder, to write into it; RecordError for an archive."""
        if self.archived:
            raise RecordError(f"{self.path} is an archive, which is never changed; unpack it and name its folder")
        return self.path

    @property
    def attempts_file(self) -> Path:
        return self.folder / ATTEMPTS

    @classmethod
    def create(cls, label: str, description: RunDescription, runs: Path = RUNS) -> "Run":
        """Make the folder of a new run; its `run.json` is the description with the folder's name as its id."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = runs / f"{stamp}-{label}"
        try:
            runs.mkdir(parents=True, exist_ok=True)
            while True:
                try:
                    folder.mkdir()
                    break
                except FileExistsError:
                    folder = runs / f"{stamp}-{label}-{secrets.token_hex(2)}"
            write_json(folder / "run.json", replace(description, id=folder.name).as_json())
        except OSError as error:
            if not runs.is_dir():
                raise RecordError(f"RUNS={runs}: no folder can be made there: {error.strerror}") from error
            raise disk_error(error, folder) from error
        return cls(folder)

    @classmethod
    def open(cls, run_id: str, runs: Path = RUNS, option: str = "") -> "Run":
        """The folder of an existing run, or an error that names those there are, and the option that named this one."""
        folder = runs / run_id[:SHOWN]
        if is_archive(folder):
            raise RecordError(
                f"{_given(run_id, option)}: an archive is never changed, so no run goes on in it; unpack it into a "
                f"folder of {runs}/, and name that folder"
            )
        if not ID.fullmatch(run_id) or not (folder / "run.json").is_file():
            present = cls.latest(runs)
            if not run_id and not present:
                elsewhere = f"; {option}= names one that is elsewhere" if option else ""
                raise RecordError(f"there is no run in {runs}/{elsewhere}")
            hint = f"the latest: {', '.join(present)}" if present else f"there is none in {runs}/"
            raise RecordError(f"{_given(run_id, option)}: no such run; {hint}")
        return cls(folder)

    @classmethod
    def find(cls, name: str | None, runs: Path = RUNS, option: str = "") -> "Run":
        """The run with this name in `runs`, or with this folder or archive anywhere; without a name, the latest.

        RecordError if there is no such run, or if an archive cannot be read or has none. It names the `option` of a
        task that was given the name; without one, only the name.
        """
        if name and (any(len(os.fsencode(part)) > 255 for part in name.split("/")) or "\0" in name):
            return cls.open(name, runs, option)
        if name and is_archive(Path(name)):
            file = next((path for path in (Path(name), runs / name) if path.is_file()), None)
            if file is None:
                raise RecordError(f"{_given(name, option)}: no such archive, neither here nor in {runs}/")
            run = cls(_named(file.resolve(), option))
            if not (run.files / "run.json").is_file():
                raise RecordError(
                    f"{_given(name, option)}: there is no run.json in it; name an archive that `make archive` wrote"
                )
            return run
        if name and ("/" in name or not (runs / name).is_dir()) and (Path(name) / "run.json").is_file():
            return cls(_named(Path(name).resolve(), option))
        return cls.open(name or next(iter(cls.latest(runs)), ""), runs, option)

    @staticmethod
    def latest(runs: Path = RUNS) -> list[str]:
        """The names of the last five runs in a folder, the latest first."""
        return sorted((path.parent.name for path in runs.glob("*/run.json") if path.is_file()), reverse=True)[:5]

    def description(self) -> RunDescription:
        """The plan and the machine, as written when the run was created, in the terms of today.

        RecordError names a value that no run records, or one that is missing.
        """
        content = read_json(self.files / "run.json")
        if fault := FORM(content):
            raise RecordError(f"{self.path}: run.json: {one_line(fault)}")
        with reading(self.path):
            return RunDescription.from_json(content)

    def attempts(self) -> list[AttemptRecord]:
        """Every attempt that ended, in order. A last line cut off by a crash is passed over.

        RecordError names a line that no run records (`repro.runs.attempts`).
        """
        return [self._attempt(number, line) for number, line in enumerate(lines(self.files / ATTEMPTS), 1)]

    def _attempt(self, number: int, line: str) -> AttemptRecord:
        try:
            return parse(line)
        except ValueError as error:
            raise RecordError(f"{self.path}: {ATTEMPTS}, line {number}: {one_line(str(error))}") from error

    def unrecorded(self) -> list[str]:
        """The folders of attempts that no line records, sorted: they are running, were killed, or lost their line."""
        folders = {match[0] for path in names(self.files) if (match := ATTEMPT.match(path))}
        if not self.archived:
            folders |= {
                path.relative_to(self.folder).as_posix() for path in self.folder.glob("units/*/repeat-*.attempt-*")
            }
        return sorted(folders - {attempt.folder for attempt in self.attempts()})

    def add_attempt(self, attempt: AttemptRecord) -> None:
        """Record an attempt that ended; it is on the disk when this returns."""
        line = serialise(attempt)
        self.check_there()
        try:
            with open(self.attempts_file, "ab+") as file:
                self._drop_half_line(file)
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise disk_error(error, self.attempts_file) from error

    def check_there(self) -> None:
        """RecordError if the run's folder was deleted: what is written there now would be no run."""
        if not (self.folder / "run.json").is_file():
            raise folder_gone(self.folder)

    def drop_half_line(self) -> None:
        """Cut off a last line that a crash or a full disk left unfinished."""
        if self.attempts_file.exists():
            with open(self.attempts_file, "rb+") as file:
                self._drop_half_line(file)

    @staticmethod
    def _drop_half_line(file: IO[bytes]) -> None:
        """A line truncated by a full disk or a crash is not a record: its attempt is run again."""
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(0)
            whole = file.read().rfind(b"\n") + 1
            if whole != end:
                file.truncate(whole)

    def attempt_folder(self, unit: str, repeat: int) -> Path:
        """A new folder for the next attempt at this repeat of a unit; earlier ones stay as they are."""
        self.check_there()
        number = 1
        while (folder := self.folder / "units" / unit / f"repeat-{repeat}.attempt-{number}").exists():
            number += 1
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise disk_error(error, folder) from error
        return folder


def _given(name: str, option: str) -> str:
    """How a message names a run that it is about: by the option of a task if that had it."""
    shown = one_line(name, SHOWN)
    return f"{option}={shown}" if option else shown or "no name"


def _named(path: Path, option: str) -> Path:
    """A run's folder or archive; RecordError if its name is none that a run's report could be filed under."""
    name = path.stem if is_archive(path) else path.name
    if not ID.fullmatch(name):
        raise RecordError(
            f"{_given(str(path), option)}: a run's name has letters, digits, '_', '.' and '-', and begins with a letter "
            "or a digit; rename it"
        )
    return path


def is_full(error: OSError) -> bool:
    """Whether an error means that a disk or a quota is full."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def disk_error(error: OSError, path: Path) -> Exception:
    """A full disk, a read-only folder or a run's folder that was deleted, as an error that says what to do."""
    folder = _run_folder(path)
    if is_full(error):
        again = f"resume the run with RUN={folder.name}" if folder else "start again"
        return RecordError(
            f"the disk is full: {path} could not be written. What had ended is recorded; free some space and {again}."
        )
    if folder and isinstance(error, FileNotFoundError) and not (folder / "run.json").is_file():
        return folder_gone(folder)
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return RecordError(f"{path} cannot be written: {error.strerror}. RUNS=<folder> puts runs elsewhere.")
    return error


def folder_gone(folder: Path) -> RecordError:
    """A run whose folder was deleted or moved under way."""
    return RecordError(
        f"{folder} was deleted or moved while the run went on, so that nothing more can be recorded in it; start the run again"
    )


def _run_folder(path: Path) -> Path | None:
    """The folder of the run that a path belongs to, there or deleted, by the names that run folders have."""
    return next((candidate for candidate in (path, *path.parents) if STAMPED.match(candidate.name)), None)


def check_creatable(folder: Path, option: str = "RUNS") -> None:
    """RecordError, which names the option, where a folder cannot be made or written to.

    A folder is made in it, or in the nearest one that is there, and removed.
    """
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        probe = place / f".{secrets.token_hex(4)}"
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        shown = one_line(str(folder), SHOWN)
        raise RecordError(f"{option}={shown}: no folder can be made there: {error.strerror}") from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    try:
        write_bytes(path, text.encode("utf-8"))
    except OSError as error:
        raise disk_error(error, path) from error
