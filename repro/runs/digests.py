"""The list of the digests of all kept runs, `reports/reproduced/SHA256SUMS`, to which lines are only added.

`sha256sum -c --ignore-missing` reads it too: the lines of withdrawn archives stay. It reveals archives that differ from their line, have no line, or are missing; changed
lines are found if the history of the list is available (`repro.runs.history`). A run that was withdrawn, since all that
it measured was measured again, keeps its line and gets a second one, a comment that names the runs that supersede it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.runs.files import SIGNATURE, RecordError
from repro.runs.record import disk_error
from repro.utils.paths import REPORTS, sha256

REPRODUCED = REPORTS / "reproduced"
NAME = "SHA256SUMS"
HOST = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
LOST = re.compile(r"# no commit ([0-9a-f]{40}): \S.*")
"""A comment on runs of a commit that is not in the repository, with the reason."""
UNIT = r"[\w.-]+(?: as [\w.-]+)?"
WITHDRAWN = re.compile(
    rf"# withdrawn ([\w./-]+\.zip) \(({UNIT}(?:, {UNIT})*)\): superseded by ([\w.-]+(?:, [\w.-]+)*)", re.ASCII
)
"""A comment on a run whose archive was removed: its units, and the runs that measured these again."""


@dataclass(frozen=True)
class Withdrawal:
    """A run that was withdrawn: the path of its archive below the list's folder, and the ids of those that supersede it.

    `units` are the run's units that gave a figure or failed, each with the name that it has in a superseding run.
    """

    path: str
    units: Mapping[str, str]
    successors: tuple[str, ...]

    @classmethod
    def of(cls, line: str) -> Withdrawal | None:
        """What a line of the list says; None if it is of another form."""
        found = WITHDRAWN.fullmatch(line)
        if not found:
            return None
        units = (each.partition(" as ") for each in found[2].split(", "))
        return cls(found[1], {name: other or name for name, _as, other in units}, tuple(found[3].split(", ")))

    def __str__(self) -> str:
        units = ", ".join(name if name == other else f"{name} as {other}" for name, other in self.units.items())
        return f"# withdrawn {self.path} ({units}): superseded by {', '.join(self.successors)}"


def runs_of(host: str, reproduced: Path = REPRODUCED) -> Path:
    """The folder of a host's kept runs; RecordError unless the host's name can name one."""
    if not HOST.fullmatch(host):
        raise RecordError(f"HOST={host}: a name of small letters, digits and dashes, such as h200")
    return reproduced / host / "runs"


def list_of(archive: Path) -> Path | None:
    """The list that an archive belongs in, as a host's kept run; None if it lies anywhere else."""
    folder = archive.absolute().parent
    return folder.parent.parent / NAME if folder.name == "runs" else None


def read(listed: Path) -> dict[str, str]:
    """Maps paths below the list's folder to SHA-256; empty without a list. RecordError names an invalid line."""
    found: dict[str, str] = {}
    withdrawn: set[str] = set()
    for number, line in enumerate(_lines(listed), 1):
        entry, withdrawal = LINE.fullmatch(line), Withdrawal.of(line)
        if entry and entry[2] not in found:
            found[entry[2]] = entry[1]
        elif withdrawal and withdrawal.path in found.keys() - withdrawn:
            withdrawn.add(withdrawal.path)
        elif withdrawal:
            raise RecordError(f"{listed}: line {number} withdraws a run that was never kept, or one again: {line}")
        elif entry or not LOST.fullmatch(line):
            raise RecordError(f"{listed}: line {number} is no digest of a kept run, or one again: {line}")
    return found


def withdrawn(host: Path) -> dict[str, Withdrawal]:
    """The withdrawn runs of a host, by its folder, by their ids in the order of their withdrawal."""
    found = filter(None, map(Withdrawal.of, _lines(host.absolute().parent / NAME)))
    return {Path(each.path).stem: each for each in found if each.path.startswith(f"{host.name}/")}


def lost_commits(listed: Path) -> frozenset[str]:
    """The commits that are not in the repository according to the list."""
    return frozenset(found[1] for line in _lines(listed) if (found := LOST.fullmatch(line)))


def entered(archive: Path, listed: Path) -> str | None:
    """The digest under which a host's archive was kept; None if it never was."""
    return read(listed).get(_path(archive, listed))


def faults(host: Path) -> list[str]:
    """A line for each archive of a host, by its folder, that is not the one that was kept, or that is gone.

    The archive of a withdrawn run must be gone, and the list must have the runs that its line names. Whether these
    measured the same is for `repro.analysis.withdrawn` to say.
    """
    listed = host.absolute().parent / NAME
    entries = {path: digest for path, digest in read(listed).items() if path.startswith(f"{host.name}/")}
    there = {_path(path, listed): path for path in host.glob("runs/*.zip")}
    old = {each.path: each for each in withdrawn(host).values()}
    gone = [f"{listed.parent / path} was kept and is gone" for path in entries if path not in there and path not in old]
    left = [f"{there[path]} was withdrawn and is still there: remove it" for path in old if path in there]
    unknown = [
        f"{listed}: {path} is superseded by {name}, which is no kept run of {host.name}"
        for path, each in old.items()
        for name in each.successors
        if f"{host.name}/runs/{name}.zip" not in entries
    ]
    return [fault for path in sorted(there) if (fault := fault_of(there[path], listed))] + gone + left + unknown


def in_order(host: Path) -> list[Path]:
    """The archives of a host, by its folder, in the order in which they were kept, withdrawn ones too."""
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


def withdraw(host: Path, withdrawals: Iterable[Withdrawal]) -> None:
    """Append a line for each of a host's runs, by its folder, to the list, then remove their archives."""
    listed = host.absolute().parent / NAME
    every = list(withdrawals)
    try:
        with open(listed, "a", encoding="utf-8") as file:
            file.writelines(f"{each}\n" for each in every)
    except OSError as error:
        raise disk_error(error, listed) from error
    for each in every:
        archive = listed.parent / each.path
        archive.unlink()
        archive.with_name(f"{archive.name}{SIGNATURE}").unlink(missing_ok=True)


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
