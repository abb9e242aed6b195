"""Records the SHA-256 of every file of a run, and finds files that were changed, added or removed later.

The record is `manifest-sha256.txt`, which `sha256sum -c` reads too. Measured files are recorded once; derived files are
recorded again whenever they are rewritten.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from repro.runs.digests import is_kept
from repro.runs.files import KEPT, SIGNATURE, RecordError, RunPath, content, digest, names
from repro.runs.record import ATTEMPT, Run, write_text
from repro.runs.ro_crate import METADATA
from repro.utils.paths import sha256

MANIFEST = "manifest-sha256.txt"
OWN = (MANIFEST, MANIFEST + SIGNATURE)
"""The record and its signature, which it does not name."""
TAKEN_AWAY = f"no {MANIFEST}: it is a kept run whose record was taken away"
DERIVED = re.compile(r"(report|results)\.[^/]+|verdicts\.json|figures/.+|" + re.escape(METADATA))
LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


@dataclass(frozen=True)
class Verification:
    """What differs from the record; `faults` are flaws of the record itself. All empty: nothing was touched."""

    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    files: int = 0
    digest: str = ""

    @property
    def holds(self) -> bool:
        """Whether everything is as recorded."""
        return not (self.changed or self.removed or self.added or self.faults)

    def lines(self) -> list[str]:
        """A line for each difference, with the file's path."""
        kinds = (("changed", self.changed), ("removed", self.removed), ("added", self.added))
        lines = [*self.faults, *(f"{kind}: {path}" for kind, paths in kinds for path in paths)]
        return [line.encode("utf-8", "backslashreplace").decode() for line in lines]


def record(run: Run) -> None:
    """Write the manifest after a run or a rendering.

    Derived files, files of attempts that have no record yet and lines appended to `attempts.jsonl` are added; the links
    that glog leaves beside its logs, a second name for each, are removed. Anything else that differs from an earlier
    record keeps its recorded hash, so that `verify` goes on naming it. RecordError if the earlier manifest cannot be
    read, or if the run may not be recorded again (`check_recordable`).
    """
    check_recordable(run)
    run.drop_half_line()
    old = read_manifest(run.folder) if (run.folder / MANIFEST).exists() else {}
    renewable = _renewable(run.folder, old)
    _remove_second_names(run.folder, renewable)
    new = {path: checksum for path in renewable if (checksum := sha256(run.folder / path))}
    remaining = {path: checksum for path, checksum in old.items() if path not in new and not DERIVED.fullmatch(path)}
    write_text(run.folder / MANIFEST, manifest_text(new | remaining))


def check_recordable(run: Run) -> None:
    """RecordError for a run whose record is never written again: an archive, a kept run, a signed one."""
    folder = run.folder
    unpacked = (folder / KEPT).is_file()
    if unpacked or (not (folder / MANIFEST).is_file() and is_kept(run.description().id)):
        what = "is a kept run that was unpacked" if unpacked else f"is a kept run that has lost its {MANIFEST}"
        raise RecordError(f"{folder} {what}: a kept run is never recorded anew; RUN=<its archive> makes its report")
    if (folder / OWN[1]).is_file():
        raise RecordError(
            f"{folder} is signed: what is recorded anew is no longer what was signed. Remove {OWN[1]} and sign again."
        )


def discard_derived(folder: Path) -> None:
    """Remove derived files before they are rewritten; one left over would reflect an earlier state."""
    for path in names(folder):
        if DERIVED.fullmatch(path):
            (folder / path).unlink()


def verify(root: RunPath) -> Verification:
    """Compare the files of a run, in a folder or an archive, with its record.

    RecordError if there is no run or no record.
    """
    if not (root / "run.json").is_file():
        raise RecordError(f"{root}: no run.json there, so it is no run's folder or archive")
    if not (root / MANIFEST).is_file():
        if (root / KEPT).is_file():
            raise RecordError(f"{root} has {TAKEN_AWAY}")
        lacking = f"{str(root).removesuffix('/')} has no {MANIFEST}"
        if not isinstance(root, Path):
            raise RecordError(f"{lacking}, which `make archive` packs with every run: pack the run's folder again")
        raise RecordError(f"{lacking}: its run never ended. `make report RUN={root}` writes one.")
    text = content(root / MANIFEST)
    entries = read_manifest(root)
    faults = [] if text == manifest_text(entries).encode() else [f"changed: {MANIFEST} (not as it was written)"]
    return replace(
        _differences(root, entries),
        faults=tuple(faults),
        files=len(entries),
        digest=hashlib.sha256(text).hexdigest(),
    )


def alterations(root: RunPath) -> list[str]:
    """One line per measured (not derived) file that differs from the record; [] without a record, unless the run is kept.

    Attempts without a record, as a killed run leaves them, do not count as changes.
    """
    if not (root / MANIFEST).is_file():
        return [TAKEN_AWAY] if (root / KEPT).is_file() else []
    old = read_manifest(root)
    renewable = _renewable(root, old)
    verification = _differences(root, old)

    def measured(paths: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for path in paths if path not in renewable and not DERIVED.fullmatch(path))

    return Verification(
        measured(verification.changed), measured(verification.removed), measured(verification.added)
    ).lines()


def _differences(root: RunPath, entries: dict[str, str]) -> Verification:
    present = set(names(root)) - set(OWN)
    changed = [path for path in sorted(present & entries.keys()) if digest(root / path) != entries[path]]
    removed, added = entries.keys() - present, present - entries.keys()
    return Verification(tuple(changed), tuple(sorted(removed)), tuple(sorted(added)))


def read_manifest(root: RunPath) -> dict[str, str]:
    """Path to SHA-256, as recorded; RecordError names the line that is none."""
    entries: dict[str, str] = {}
    for number, line in enumerate(content(root / MANIFEST).decode("utf-8", "replace").splitlines(), 1):
        match = LINE.fullmatch(line)
        if not match or match[2] in entries:
            raise RecordError(f"{root / MANIFEST} was changed: line {number} records no file, or one again")
        entries[match[2]] = match[1]
    return entries


def manifest_text(entries: dict[str, str]) -> str:
    """The manifest of these files, sorted by path."""
    return "".join(f"{digest}  {path}\n" for path, digest in sorted(entries.items()))


def _renewable(root: RunPath, old: dict[str, str]) -> set[str]:
    """The files that a record may add or renew."""
    recorded_attempts = {match[0] for path in old if (match := ATTEMPT.match(path))}

    def belongs(path: str) -> bool:
        if path == "attempts.jsonl":
            return path not in old or _starts_with(root / path, old[path])
        attempt = ATTEMPT.match(path)
        return not old or bool(DERIVED.fullmatch(path)) or (attempt is not None and attempt[0] not in recorded_attempts)

    return {path for path in names(root) if path not in OWN and belongs(path)}


def _remove_second_names(folder: Path, paths: set[str]) -> None:
    for path in paths:
        link = folder / path
        if link.is_symlink() and link.readlink().name == str(link.readlink()) and link.is_file():
            link.unlink()


def _starts_with(path: RunPath, expected: str) -> bool:
    """Whether the first lines of a file have this SHA-256: whether lines were appended and nothing else."""
    running = hashlib.sha256()
    for line in content(path).splitlines(keepends=True):
        running.update(line)
        if running.hexdigest() == expected:
            return True
    return False
