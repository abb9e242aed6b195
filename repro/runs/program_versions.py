"""The code of the training programs behind a run, to distinguish runs with equal code from others.

An attempt records the digest of its program's files (`repro.launch.program_code`). Earlier runs are looked up in
`reports/reproduced/code.toml`, which has the git names of the programs' folders at their commits; `make verify HOST=`
checks it against the history. Code found in neither only equals that of runs of the same commit without changed files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

Versions = Mapping[str, Mapping[str, str]]
"""By commit, and by TRAINERS or BASELINES: what git calls that program's folder, 40 hexadecimal digits."""


def read(reproduced: Path) -> Versions:
    """The versions of the kept runs' commits, empty without a file; RecordError if it is not of that form."""
    file = reproduced / NAME
    versions = read_toml(file)
    for commit, folders in versions.items():
        if not isinstance(folders, dict) or folders.keys() != {TRAINERS, BASELINES}:
            raise RecordError(f"{file}: {commit}: a commit has {TRAINERS} and {BASELINES}, and no more")
    return versions


def faults(reproduced: Path, root: Path = ROOT) -> list[str]:
    """A line for each version of the file that is not the one in the history of the checkout `root`."""
    return [
        f"{reproduced / NAME}: {commit}: {name} is {recorded}, in the history {FOLDERS[name]} is {there or 'not there'}"
        for commit, folders in read(reproduced).items()
        for name, recorded in folders.items()
        if (there := folder(commit, FOLDERS[name], root)) != recorded
    ]


def version(
    run_id: str, environment: Environment, attempts: Iterable[AttemptRecord], program: str, versions: Versions
) -> str:
    """A name of the code that a unit's attempts ran, equal for equal code; `program` is TRAINERS or BASELINES."""
    recorded = [attempt.code or {} for attempt in attempts]
    if recorded and all("sha256" in code for code in recorded):
        return ", ".join(sorted({" ".join((code["sha256"], code.get("replaced", ""))).strip() for code in recorded}))
    commit = environment.git_commit
    if not commit or environment.git_changed_files:
        return f"run {run_id}"
    return versions[commit][program] if commit in versions else f"commit {commit}"
