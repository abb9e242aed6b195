"""The code of the training programs behind a run, to distinguish runs with equal code from others.

An attempt records the digest of its program's files (`repro.launch.program_code`). `reports/reproduced/code.toml` has,
for digests of earlier releases, which counted files that are not the program's, what this release computes for the same
commit, and for runs without digests the git names of the programs' folders; `make verify HOST=` checks it against the
history. Code found in neither only equals that of runs of the same commit without changed files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro.runs.attempts import AttemptRecord
from repro.runs.environment import Environment
from repro.runs.files import RecordError, read_toml
from repro.runs.history import folder
from repro.utils.paths import ROOT

NAME = "code.toml"
TRAINERS, BASELINES = "trainers", "baselines"
"""The folders of the package that programs are in."""
FOLDERS = {TRAINERS: "repro/trainers", BASELINES: "repro/peers"}
"""Where the programs were at the commits of runs that record no digest."""

DIGESTS = "digests"
"""The key of a commit's digests in the file."""


@dataclass(frozen=True)
class Versions:
    """What the file says of the kept runs' commits.

    Attributes
    ----------
    folders : by commit, and by TRAINERS or BASELINES: what git calls that program's folder, 40 hexadecimal digits.
    digests : by commit, the digests that were recorded then, each with that of this release, 64 hexadecimal digits.
    """

    folders: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of_this_release(self, digest: str) -> str:
        """What this release computes for the files of a recorded digest; the digest itself if it is not listed."""
        return next((listed[digest] for listed in self.digests.values() if digest in listed), digest)


def read(reproduced: Path) -> Versions:
    """The versions of the kept runs' commits, empty without a file; RecordError if it is not of that form."""
    file = reproduced / NAME
    folders, listed = {}, {}
    for commit, entry in read_toml(file).items():
        if isinstance(entry, dict) and entry.keys() == {DIGESTS} and isinstance(entry[DIGESTS], dict):
            listed[commit] = entry[DIGESTS]
        elif isinstance(entry, dict) and entry.keys() == {TRAINERS, BASELINES}:
            folders[commit] = entry
        else:
            raise RecordError(
                f"{file}: {commit}: a commit has {TRAINERS} and {BASELINES}, or a table {DIGESTS}, and no more"
            )
    return Versions(folders, listed)


def faults(reproduced: Path, root: Path = ROOT) -> list[str]:
    """A line for each folder of the file that is not the one in the history of the checkout `root`."""
    return [
        f"{reproduced / NAME}: {commit}: {name} is {recorded}, in the history {FOLDERS[name]} is {there or 'not there'}"
        for commit, folders in read(reproduced).folders.items()
        for name, recorded in folders.items()
        if (there := folder(commit, FOLDERS[name], root)) != recorded
    ]


def version(
    run_id: str, environment: Environment, attempts: Iterable[AttemptRecord], program: str, versions: Versions
) -> str:
    """A name of the code that a unit's attempts ran, equal for equal code; `program` is TRAINERS or BASELINES."""
    recorded = [attempt.code or {} for attempt in attempts]
    if recorded and all("sha256" in code for code in recorded):
        ran = {f"{versions.of_this_release(code['sha256'])} {code.get('replaced', '')}".strip() for code in recorded}
        return ", ".join(sorted(ran))
    commit = environment.git_commit
    if not commit or environment.git_changed_files:
        return f"run {run_id}"
    return versions.folders[commit][program] if commit in versions.folders else f"commit {commit}"
