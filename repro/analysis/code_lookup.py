"""Computes the digests of programs again from the repository, and holds those that a run recorded against them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repro.analysis import what_ran
from repro.models.programs import KINDS, PUBLISHED
from repro.models.registry import names
from repro.runs.attempts import INTERRUPTED, AttemptRecord
from repro.runs.history import History, contents, folder_states, tree
from repro.runs.program_files import SHARED, digests_of, folders_of_program
from repro.runs.program_versions import BASELINES, NAME, TRAINERS, read
from repro.runs.record import Run
from repro.runs.unit import Unit
from repro.utils.paths import PACKAGE, ROOT, sha256_of

SHORT = 12
CODE = "digest of the code"
OF_TRAINER, OF_BASELINE = (f"{PACKAGE.name}/{folder}/train.py" for folder in (TRAINERS, BASELINES))
WRITTEN = {
    what_ran.FRAMEWORK: (OF_TRAINER, b'"versions":'),
    what_ran.DATA: (OF_TRAINER, b'"data":'),
    what_ran.TF32: (OF_TRAINER, b'"tf32":'),
    what_ran.OPERATORS: (OF_TRAINER, b'"census"'),
    what_ran.SETTINGS: (OF_BASELINE, b'"settings":'),
    what_ran.AMP: (OF_BASELINE, b'"amp":'),
    CODE: (f"{PACKAGE.name}/launch/runner.py", b'"code":'),
}
"""The file that records a fact, and what it has in it if it does; a test finds each in the present one."""


@dataclass(frozen=True)
class Program:
    """What the digest of a unit's code depends on besides the files: their folder, the program, and the model."""

    folder: str
    name: str
    model: str

    @classmethod
    def of(cls, unit: Unit) -> Program:
        """A baseline has one program for all models."""
        return cls(BASELINES, unit.program, "") if unit.baseline_of else cls(TRAINERS, unit.program, unit.model)


def sentences(run: Run, past: History, root: Path = ROOT) -> list[tuple[bool, str]]:
    """What can be said of the code of a run's attempts, each after whether it holds; `past` must be a whole history.

    If the run's commit is lost, the newest commit of the history that has the same code is named.
    """
    description = run.description()
    commit = description.environment.git_commit or ""
    units = {unit.name: unit for unit in description.plan.units}
    said: Counter[tuple[bool, str]] = Counter()
    attempts = [attempt for attempt in run.attempts() if attempt.unit in units]
    for attempt in attempts:
        said[_of_attempt(attempt, units[attempt.unit], commit, past, root)] += 1
    return [(good, f"code of {count} of {len(attempts)} attempts: {text}") for (good, text), count in said.items()]


def _of_attempt(attempt: AttemptRecord, unit: Unit, commit: str, past: History, root: Path) -> tuple[bool, str]:
    code = attempt.code
    if not code or "sha256" not in code:
        return True, "no digest recorded, so that only the commit says which it was"
    if code.get("replaced"):
        return True, f"NOT checked: {code['replaced']} ran in place of the project's program"
    if code.get("changed"):
        return True, f"NOT checked: {len(code['changed'])} files differed from the commit, and nobody has them"
    program, digest = Program.of(unit), str(code["sha256"])
    if past.holds(commit):
        digests = _digests_at(commit, program, root)
        if digests is None and not (PACKAGE / SHARED / f"{unit.model}.py").is_file():
            return True, f"NOT checked: the project has no model {unit.model}, which was from outside"
        if digests is None:
            return False, f"{digest[:SHORT]} was recorded, but commit {commit[:SHORT]} has no program of {unit.model}"
        if digest in digests:
            return True, f"that of commit {commit[:SHORT]}, computed again from the repository"
        return False, f"{digest[:SHORT]} was recorded, which is not that of commit {commit[:SHORT]} in the repository"
    if same := _commit_with(digest, program, root):
        return True, f"that of commit {same[:SHORT]}, which has the same; the run's own commit is lost"
    return False, f"{digest[:SHORT]} was recorded, which no commit of the history has"


def digest_faults(reproduced: Path, root: Path = ROOT) -> list[str]:
    """A line for each digest in code.toml that no program had at its commit, or that is another now than the file says."""
    programs = [
        Program(BASELINES, PUBLISHED, ""),
        *(Program(TRAINERS, kind, name) for kind in KINDS for name in names()),
    ]
    faults = []
    for commit, listed in read(reproduced).digests.items():
        computed = {
            digest: digests[0]
            for program in programs
            if (digests := _digests_at(commit, program, root))
            for digest in digests
        }
        faults += [
            f"{reproduced / NAME}: {commit}: {recorded} is {present} now, computed from the history it is "
            f"{computed.get(recorded, 'of no program there')}"
            for recorded, present in listed.items()
            if computed.get(recorded) != present
        ]
    return faults


def withheld(run: Run, unproven: Iterable[str], past: History, root: Path = ROOT) -> list[str]:
    """A line for each fact that attempts do not record although the programs of the run's commit record it.

    What a program in place of the project's recorded is not known.
    """
    commit = run.description().environment.git_commit or ""
    if not past.holds(commit):
        return []
    replaced = any((attempt.code or {}).get("replaced") for attempt in run.attempts())
    without_code = any(not attempt.code for attempt in _recorded(run))
    facts = [*([] if replaced else unproven), *([CODE] if without_code else [])]
    return [
        f"{fact}: not recorded, although the programs of commit {commit[:SHORT]} record it: it was taken out"
        for fact in facts
        if _records(commit, *WRITTEN[fact], root)
    ]


def _recorded(run: Run) -> Iterator[AttemptRecord]:
    """Attempts that the process that ran them recorded: those of a killed one are recorded without their code."""
    return (attempt for attempt in run.attempts() if attempt.status != INTERRUPTED)


@cache
def _records(commit: str, file: str, text: bytes, root: Path) -> bool:
    """Whether a file at a commit has the text by which it records a fact."""
    blobs = frozenset((tree(commit, [file], root) or {}).values())
    return any(text in content for content in contents(blobs, root).values())


@cache
def _digests_at(commit: str, program: Program, root: Path) -> list[str] | None:
    """The digests that releases may have recorded for a program at a commit, the newest first; None without the model."""
    there = tree(commit, folders_of_program(program.folder), root) or {}
    files = {name: blob for name, blob in there.items() if name.endswith(".py")}
    if not files or (program.model and f"{PACKAGE.name}/{SHARED}/{program.model}.py" not in files):
        return None
    content = contents(frozenset(files.values()), root)
    return digests_of(
        {name: sha256_of(content[blob]) for name, blob in files.items()},
        program.folder,
        program=program.name,
        model=program.model,
        read=lambda name: content[files[name]],
    )


@cache
def _commit_with(digest: str, program: Program, root: Path) -> str | None:
    """The newest commit at which a program has this digest; None if it has it at none."""
    for commit in folder_states(folders_of_program(program.folder), root).values():
        if digest in (_digests_at(commit, program, root) or ()):
            return commit
    return None
