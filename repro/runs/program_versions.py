"""The code of the training programs behind a run, to distinguish runs with equal code from others.

An attempt records the digest of its program's files (`repro.launch.program_code`). `reports/reproduced/code.toml` has,
for digests of earlier releases, which counted files that are not the program's, what this release computes for the same
commit; `make verify HOST=` checks it against the history. The code of a run that recorded no digest only equals that of runs
of the same commit without changed files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro.runs.attempts import AttemptRecord
from repro.runs.environment import Environment
from repro.runs.files import RecordError, read_toml

NAME = "code.toml"
TRAINERS, BASELINES = "trainers", "baselines"
"""The folders of the package that programs are in."""


@dataclass(frozen=True)
class Versions:
    """By commit, the digests that were recorded then, each with that of this release, 64 hexadecimal digits."""

    digests: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def of_this_release(self, digest: str) -> str:
        """What this release computes for the files of a recorded digest; the digest itself if it is not listed."""
        return next((listed[digest] for listed in self.digests.values() if digest in listed), digest)


def read(reproduced: Path) -> Versions:
    """The versions of the kept runs' commits, empty without a file; RecordError if it is not of that form."""
    file = reproduced / NAME
    listed = read_toml(file)
    for commit, entry in listed.items():
        if not (isinstance(entry, dict) and all(isinstance(digest, str) for digest in entry.values())):
            raise RecordError(f"{file}: {commit}: a commit has a table of digests, each a text, and no more")
    return Versions(listed)


def version(run_id: str, environment: Environment, attempts: Iterable[AttemptRecord], versions: Versions) -> str:
    """A name of the code that a unit's attempts ran, equal for equal code."""
    recorded = [attempt.code or {} for attempt in attempts]
    if recorded and all("sha256" in code for code in recorded):
        ran = {f"{versions.of_this_release(code['sha256'])} {code.get('replaced', '')}".strip() for code in recorded}
        return ", ".join(sorted(ran))
    commit = environment.git_commit
    return f"run {run_id}" if not commit or environment.git_changed_files else f"commit {commit}"
