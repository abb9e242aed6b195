"""The list of the digests of all kept runs, `reports/reproduced/SHA256SUMS`: a chain, to which lines are only added.

Whatever is added is followed by a line with the SHA-256 of all above it, `# chain …`, so that a line cannot be changed,
removed or put in without changing every chain line below: `head -n <lines above> SHA256SUMS | sha256sum` gives one again.
A host's page shows the chain line below the host's last run, so whoever has an earlier page can tell whether anything
above was changed. `sha256sum -c --ignore-missing` reads the list too. Besides digests it has, as comments: commits that
are lost, runs whose archives were removed, and which key signs a host's archives from there on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

from repro.runs.files import ARCHIVE, SIGNATURE, RecordError
from repro.runs.record import disk_error
from repro.utils.paths import REPORTS, sha256, sha256_of

REPRODUCED = REPORTS / "reproduced"
NAME = "SHA256SUMS"
HOST = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
LINE = re.compile(r"([0-9a-f]{64})  (\S+)")
LOST = re.compile(r"# no commit ([0-9a-f]{40}): \S.*")
"""A comment on runs of a commit that is not in the repository, with the reason."""
REMOVED = re.compile(r"# (?:removed|withdrawn) ([\w./-]+\.zip)(?: \([^)]*\))?: (\S.*)", re.ASCII)
"""A comment on a run whose archive was removed, with the reason; earlier ones say withdrawn, and name the run's units."""
CHAIN = re.compile(r"# chain ([0-9a-f]{64})")
"""The SHA-256 of all lines above."""
SIGNER = re.compile(r"# signer ([a-z0-9-]+) (none|SHA256:[A-Za-z0-9+/]{43})")
"""From here on, the archives of this host are signed by the key of this fingerprint, or no longer."""
UNSIGNED = "none"


def runs_of(host: str, reproduced: Path = REPRODUCED) -> Path:
    """The folder of a host's kept runs; RecordError unless the host's name can name one."""
    if not HOST.fullmatch(host):
        raise RecordError(f"HOST={host}: a name of small letters, digits and dashes, such as h200")
    return reproduced / host / "runs"


def hosts() -> list[str]:
    """The names of the hosts that have kept runs."""
    return sorted(path.name for path in REPRODUCED.glob("*") if HOST.fullmatch(path.name) and any(path.glob("runs/*")))


def archives_of(host: str) -> list[Path]:
    """The archives of a host's kept runs; RecordError if there are none."""
    folder = runs_of(host)
    if not (archives := sorted(folder.glob(f"*{ARCHIVE}"))):
        raise RecordError(
            f"HOST={host}: no run is kept in {folder}; there are those of {', '.join(hosts()) or 'no host'}"
        )
    return archives


def list_of(archive: Path) -> Path | None:
    """The list that an archive belongs in, as a host's kept run; None if it lies anywhere else."""
    folder = archive.absolute().parent
    return folder.parent.parent / NAME if folder.name == "runs" else None


def read(listed: Path) -> dict[str, str]:
    """Maps paths below the list's folder to SHA-256; empty without a list. RecordError names an invalid line."""
    by_path: dict[str, str] = {}
    gone: set[str] = set()
    for number, line in enumerate(lines(listed), 1):
        entry, gone_now = LINE.fullmatch(line), REMOVED.fullmatch(line)
        if entry and entry[2] not in by_path:
            by_path[entry[2]] = entry[1]
        elif gone_now and gone_now[1] in by_path.keys() - gone:
            gone.add(gone_now[1])
        elif gone_now:
            raise RecordError(f"{listed}: line {number} removes a run that was never kept, or one again: {line}")
        elif entry or not any(form.fullmatch(line) for form in (LOST, CHAIN, SIGNER)):
            raise RecordError(f"{listed}: line {number} is no digest of a kept run, or one again: {line}")
    return by_path


def removed(host: Path) -> dict[str, str]:
    """The paths of a host's archives, by its folder, that were removed, each with the reason that the list has."""
    matches = filter(None, map(REMOVED.fullmatch, lines(host.absolute().parent / NAME)))
    return {match[1]: match[2] for match in matches if _of(host, match[1])}


def chain_faults(listed: Path) -> list[str]:
    """A line for each chain line that is not right, and one for what no chain line covers; none without a list."""
    content = listed.read_bytes() if listed.is_file() else b""
    above, faults, uncovered = hashlib.sha256(), [], 0
    for number, line in enumerate(content.splitlines(keepends=True), 1):
        chain = CHAIN.fullmatch(line.decode("utf-8", "replace").removesuffix("\n"))
        if chain and chain[1] != above.hexdigest():
            faults.append(f"{listed}: line {number} is not the SHA-256 of the lines above it: one of them was changed")
        uncovered = 0 if chain and line.endswith(b"\n") else uncovered or number
        above.update(line)
    if uncovered:
        faults.append(
            f"{listed}: no chain line covers the lines from {uncovered} on: they were not written by `make archive`, or a "
            f"merge put them together. If they are right, append the line `# chain {above.hexdigest()}`"
        )
    return faults


def head(host: Path) -> tuple[int, str] | None:
    """The first chain line below a host's last line, by the host's folder: its number, and its SHA-256; None without."""
    every = lines(host.absolute().parent / NAME)
    own = [at for at, line in enumerate(every) if (entry := LINE.fullmatch(line)) and _of(host, entry[2])]
    below = range(own[-1], len(every)) if own else ()
    return next(((at + 1, chain[1]) for at in below if (chain := CHAIN.fullmatch(every[at]))), None)


def _of(host: Path, path: str) -> bool:
    return path.startswith(f"{host.name}/")


def signer(host: str, listed: Path, archive: Path | None = None) -> str | None:
    """The fingerprint of the key that signs a host's archives, UNSIGNED, or None if nothing was said of it.

    What held when `archive` was kept, or holds now.
    """
    key = None
    for line in lines(listed):
        entry, said = LINE.fullmatch(line), SIGNER.fullmatch(line)
        if archive and entry and entry[2] == _path(archive, listed):
            break
        key = said[2] if said and said[1] == host else key
    return key


def signers(host: Path) -> list[tuple[str, str]]:
    """Each key that was named for a host, by the host's folder, or UNSIGNED, with the first archive that it holds for."""
    keys: list[tuple[str, str]] = []
    waiting = ""
    for line in lines(host.absolute().parent / NAME):
        entry, said = LINE.fullmatch(line), SIGNER.fullmatch(line)
        if said and said[1] == host.name:
            waiting = said[2]
        elif waiting and entry and _of(host, entry[2]):
            keys.append((waiting, Path(entry[2]).stem))
            waiting = ""
    return keys


def lines(listed: Path) -> list[str]:
    """Every line of the list; none without a list."""
    if not listed.is_file() or not (text := listed.read_text(encoding="utf-8")):
        return []
    return text.removesuffix("\n").split("\n")


def lost_commits(listed: Path) -> frozenset[str]:
    """The commits that are not in the repository according to the list."""
    return frozenset(match[1] for line in lines(listed) if (match := LOST.fullmatch(line)))


def entered(archive: Path, listed: Path) -> str | None:
    """The digest under which a host's archive was kept; None if it never was."""
    return read(listed).get(_path(archive, listed))


def faults(host: Path) -> list[str]:
    """A line for each archive of a host, by its folder, that is not the one that was kept, or that is gone.

    The archive of a removed run must be gone.
    """
    listed = host.absolute().parent / NAME
    entries = {path: digest for path, digest in read(listed).items() if _of(host, path)}
    there = {_path(path, listed): path for path in host.glob("runs/*.zip")}
    old = removed(host)
    gone = [f"{listed.parent / path} was kept and is gone" for path in entries if path not in there and path not in old]
    left = [
        f"{there[path]} was removed according to {listed} and is still there: remove it"
        for path in sorted(old.keys() & there.keys())
    ]
    return [fault for path in sorted(there) if (fault := fault_of(there[path], listed))] + gone + left


def in_order(host: Path) -> list[Path]:
    """The archives of a host, by its folder, in the order in which they were kept, removed ones too."""
    listed = host.absolute().parent / NAME
    return [listed.parent / path for path in read(listed) if _of(host, path)]


def fault_of(archive: Path, listed: Path) -> str | None:
    """What is wrong with an archive according to the list; None if it is unchanged."""
    expected, actual = entered(archive, listed), sha256(archive)
    if expected is None:
        return f"{archive} has no line in {listed}: it was never kept (`make archive RUN=<id> HOST=<name>` keeps a run)"
    if actual != expected:
        return f"{archive} is not the archive that was kept: its SHA-256 is {actual}, {listed} has {expected}"
    return None


def enter(archive: Path, listed: Path, key: str | None = None) -> None:
    """Append an archive that was just written; `key`, if the host's archives are signed by another from here on.

    RecordError if one of its name was kept before, or if the list is not as it was written.
    """
    if before := entered(archive, listed):
        raise RecordError(kept_before(archive, before))
    said = [f"# signer {archive.absolute().parent.parent.name} {key}"] if key else []
    _append(listed, [*said, f"{sha256(archive)}  {_path(archive, listed)}"])


def remove(host: Path, archives: Iterable[Path], reason: str) -> None:
    """Remove archives of a host, by its folder, once the list says so with the reason, in one line."""
    listed = host.absolute().parent / NAME
    every = list(archives)
    _append(listed, [f"# removed {_path(archive, listed)}: {reason}" for archive in every])
    for archive in every:
        archive.unlink()
        archive.with_name(f"{archive.name}{SIGNATURE}").unlink(missing_ok=True)


def _append(listed: Path, said: Iterable[str]) -> None:
    """Append lines, and the chain line that covers them; RecordError if the chain is broken before."""
    if faults := chain_faults(listed):
        raise RecordError("\n".join(faults))
    before = listed.read_bytes() if listed.is_file() else b""
    added = "".join(f"{line}\n" for line in said)
    chain = f"# chain {sha256_of(before + added.encode())}\n"
    try:
        with open(listed, "a", encoding="utf-8") as file:
            file.write(added + chain)
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
