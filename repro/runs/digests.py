"""The list of the digests of all kept runs, `reports/reproduced/SHA256SUMS`, to which lines are only added.

`sha256sum -c` reads it too. It reveals archives that differ from their line, have no line, or are missing; changed
lines are found if the history of the list is available (`repro.runs.history`).
"""

from __future__ import annotations

import re
from pathlib import Path

from repro.runs.files import RecordError
from repro.runs.record import disk_error
from repro.utils.paths import REPORTS, sha256

REPRODUCED = REPORTS / "reproduced"
NAME = "SHA256SUMS"
LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
LOST = re.compile(r"# no commit ([0-9a-f]{40}): \S.*")
"""A comment on runs of a commit that is not in the repository, with the reason."""


def list_of(archive: Path) -> Path | None:
    """The list that an archive belongs in, as a host's kept run; None if it lies anywhere else."""
    folder = archive.absolute().parent
    return folder.parent.parent / NAME if folder.name == "runs" else None


def read(listed: Path) -> dict[str, str]:
    """Maps paths below the list's folder to SHA-256; empty without a list. RecordError names an invalid line."""
    found: dict[str, str] = {}
    for number, line in enumerate(_lines(listed), 1):
        entry = LINE.fullmatch(line)
        if entry and entry[2] not in found:
            found[entry[2]] = entry[1]
        elif entry or not LOST.fullmatch(line):
            raise RecordError(f"{listed}: line {number} is no digest of a kept run, or one again: {line}")
    return found


def lost_commits(listed: Path) -> frozenset[str]:
    """The commits that are not in the repository according to the list."""
    return frozenset(found[1] for line in _lines(listed) if (found := LOST.fullmatch(line)))


def entered(archive: Path, listed: Path) -> str | None:
    """The digest under which a host's archive was kept; None if it never was."""
    return read(listed).get(_path(archive, listed))


def faults(host: Path) -> list[str]:
    """A line for each archive of a host, by its folder, that is not the one that was kept, or that is gone."""
    listed = host.absolute().parent / NAME
    entries = {path: digest for path, digest in read(listed).items() if path.startswith(f"{host.name}/")}
    there = {_path(path, listed): path for path in host.glob("runs/*.zip")}
    gone = [f"{listed.parent / path} was kept and is gone" for path in entries if path not in there]
    return [fault for path in sorted(there) if (fault := fault_of(there[path], listed))] + gone


def in_order(host: Path) -> list[Path]:
    """The archives of a host, by its folder, in the order in which they were kept."""
    listed = host.absolute().parent / NAME
    return [listed.parent / path for path in read(listed) if path.startswith(f"{host.name}/")]


def fault_of(archive: Path, listed: Path) -> str | None:
    """What is wrong with an archive according to the list; None if it is unchanged."""
    expected, found = entered(archive, listed), sha256(archive)
    if expected is None:
        return f"{archive} has no line in {listed}: it was never kept (`make archive RUN=<id> HOST=<name>` keeps a run)"
    if found != expected:
        return f"{archive} is not the archive that was kept: its SHA-256 is {found}, {listed} has {expected}"
    return None


def enter(archive: Path, listed: Path) -> None:
    """Append an archive that was just written; RecordError if one of its name was kept before."""
    if before := entered(archive, listed):
        raise RecordError(kept_before(archive, before))
    try:
        with open(listed, "a", encoding="utf-8") as file:
            file.write(f"{sha256(archive)}  {_path(archive, listed)}\n")
    except OSError as error:
        raise disk_error(error, listed) from error


def kept_before(archive: Path, digest: str) -> str:
    """Why an archive is not written: one of its name was kept, with this digest."""
    return (
        f"{archive.stem} was kept already, as an archive with the SHA-256 {digest}: a kept run is never recorded anew"
    )


def is_kept(run_id: str) -> bool:
    """Whether a run of this id is among those that this checkout keeps."""
    return any(Path(path).stem == run_id for path in read(REPRODUCED / NAME))


def _path(archive: Path, listed: Path) -> str:
    return archive.absolute().relative_to(listed.absolute().parent).as_posix()


def _lines(listed: Path) -> list[str]:
    return listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
