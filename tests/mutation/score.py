"""What is mutated and how it fared: `targets.toml`, which people write, and `score.json`, which `make mutation` writes.

Renders both as the table of `tests/README.md`. Needs nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "mutation"
TARGETS, SCORE, README = FOLDER / "targets.toml", FOLDER / "score.json", ROOT / "tests" / "README.md"
LEAST = 0.9
"""The share of each group's mutants that tests have to kill."""
BEGIN, END = "<!-- mutation:begin -->", "<!-- mutation:end -->"


@dataclass(frozen=True)
class Target:
    """A module that is mutated: its path, its group, the tests that concern it, and which of them can kill nothing.

    `without` are tests that only start other processes, which do not see a mutant, or that take long.
    """

    module: str
    group: str
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return Path(self.module).stem


@dataclass(frozen=True)
class Known:
    """A mutant that once survived: a change of text, and the test that has to fail for it."""

    what: str
    module: str
    before: str
    after: str
    test: str


@dataclass(frozen=True)
class Accepted:
    """A mutant that may survive, and why: it is equivalent, or no test could reasonably tell."""

    module: str
    before: str
    after: str
    reason: str


@dataclass(frozen=True)
class Survivor:
    """A mutant that no test noticed: where it is, and its first changed line before and after."""

    function: str
    before: str
    after: str


@dataclass(frozen=True)
class Score:
    """How a module's mutants fared; `sha256` is that of its text, `commit` and `date` say when."""

    module: str
    sha256: str
    commit: str
    date: str
    mutants: int
    killed: int
    survivors: tuple[Survivor, ...]


@dataclass(frozen=True)
class Targets:
    """The content of `targets.toml`."""

    modules: tuple[Target, ...]
    known: tuple[Known, ...]
    accepted: tuple[Accepted, ...]

    @property
    def groups(self) -> list[str]:
        return list(dict.fromkeys(each.group for each in self.modules))

    def chosen(self, name: str | None) -> list[Target]:
        """The modules of this group, else of this name or path; all without a name."""
        group = [each for each in self.modules if name in (None, each.group)]
        return group or [each for each in self.modules if name in (each.module, each.name)]

    def only(self, modules: Sequence[Target]) -> Targets:
        """The same for these modules alone."""
        paths = {each.module for each in modules}
        chosen = ([each for each in part if each.module in paths] for part in (self.known, self.accepted))
        return Targets(tuple(modules), *map(tuple, chosen))

    def reason(self, module: str, survivor: Survivor) -> str | None:
        """Why a survivor is accepted; None if nobody said."""
        for each in self.accepted:
            if (each.module, each.before, each.after) == (module, survivor.before, survivor.after):
                return each.reason
        return None


def load_targets(file: Path = TARGETS) -> Targets:
    """Read what is mutated."""
    content = tomllib.loads(file.read_text())
    modules = [
        Target(each["path"], each["group"], tuple(each["tests"]), tuple(each.get("without", ())))
        for each in content["module"]
    ]
    known = tuple(Known(**each) for each in content.get("known", ()))
    accepted = tuple(
        Accepted(each["module"], each["before"], after, each["reason"])
        for each in content.get("accepted", ())
        for after in each["after"]
    )
    return Targets(tuple(modules), known, accepted)


def load_score(file: Path = SCORE) -> dict[str, Score]:
    """The recorded scores by module."""
    found = {}
    for each in json.loads(file.read_text()) if file.exists() else []:
        survivors = tuple(Survivor(**survivor) for survivor in each.pop("survivors"))
        found[each["module"]] = Score(**each, survivors=survivors)
    return found


def save_score(scores: dict[str, Score], targets: Targets, file: Path = SCORE) -> None:
    """Write the scores in the order of the targets; those of modules that are no longer listed are dropped."""
    kept = [asdict(scores[each.module]) for each in targets.modules if each.module in scores]
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def sha256(module: str) -> str:
    """That of a module's text."""
    return hashlib.sha256((ROOT / module).read_bytes()).hexdigest()


def changed(scores: dict[str, Score]) -> list[str]:
    """Modules whose text is another than when they were scored."""
    return [module for module, each in scores.items() if (ROOT / module).exists() and sha256(module) != each.sha256]


def survivors_as_is(module: str, scores: dict[str, Score]) -> tuple[Survivor, ...] | None:
    """What survived of a module that is as it was scored; None of any other."""
    return scores[module].survivors if module in scores and sha256(module) == scores[module].sha256 else None


def commit_of(paths: Sequence[str]) -> str | None:
    """HEAD, if these paths are as in it; None if one is modified, or without git."""
    try:
        status = _git("status", "--porcelain", "--", *paths)
        return None if status else _git("rev-parse", "--short=10", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def totals(targets: Targets, scores: dict[str, Score]) -> Iterator[tuple[str, int, int]]:
    """Each group that was scored as a whole, with its number of mutants and of those that were killed."""
    for group in targets.groups:
        modules = [each.module for each in targets.chosen(group)]
        if all(module in scores for module in modules):
            own = [scores[module] for module in modules]
            yield group, sum(each.mutants for each in own), sum(each.killed for each in own)


def render(targets: Targets, scores: dict[str, Score]) -> str:
    """The scores and survivors in Markdown."""
    groups = {group: (mutants, killed) for group, mutants, killed in totals(targets, scores)}
    lines = ["| Group | Module | Mutants | Killed | Score | Scored at |", "|---|---|--:|--:|--:|---|"]
    for group in targets.groups:
        for target in targets.chosen(group):
            each = scores.get(target.module)
            cells = (each.mutants, each.killed, _share(each), f"commit {each.commit}, {each.date}") if each else "––––"
            lines.append(f"| {group} | `{target.module}` | {' | '.join(map(str, cells))} |")
        if group in groups:
            mutants, killed = groups[group]
            lines.append(f"| **{group}** | | {mutants} | {killed} | **{killed / mutants:.1%}** | |")
    mutants, killed = (sum(column) for column in zip(*groups.values(), strict=True)) if groups else (0, 0)
    if mutants:
        lines.append(f"| **all** | | {mutants} | {killed} | **{killed / mutants:.1%}** | |")
    lines += ["", "### Survivors", "", "| Module | In | Before | After | Why it survives |", "|---|---|---|---|---|"]
    for target in targets.modules:
        for survivor in scores[target.module].survivors if target.module in scores else ():
            reason = targets.reason(target.module, survivor) or "no reason yet"
            cells = (
                f"`{target.name}`",
                _code(survivor.function),
                _code(survivor.before),
                _code(survivor.after),
                reason,
            )
            lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "### Mutants that survived once", "", "| Change | Module | Killed by |", "|---|---|---|"]
    lines += [f"| {each.what} | `{each.module}` | `{each.test}` |" for each in targets.known]
    return "\n".join(lines)


def _share(score: Score) -> str:
    return f"{score.killed / score.mutants:.1%}" if score.mutants else "–"


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`" if text else ""


def rewritten(readme: str, table: str) -> str:
    """The README with this between its marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def write_readme(targets: Targets, scores: dict[str, Score]) -> None:
    """Bring the README up to date."""
    README.write_text(rewritten(README.read_text(), render(targets, scores)))


def faults(targets: Targets, scores: dict[str, Score]) -> list[str]:
    """What keeps the scores of modules from being as they must be: a sentence each."""
    found = [f"{each.module}: no such file" for each in targets.modules if not (ROOT / each.module).is_file()]
    found += [f"{each.module} was never scored" for each in targets.modules if each.module not in scores]
    for target in targets.modules:
        named = [test.partition("::")[0] for test in (*target.tests, *target.without)]
        found += [f"{target.module}: its tests {each} do not exist" for each in named if not (ROOT / each).exists()]
        for survivor in scores[target.module].survivors if target.module in scores else ():
            if targets.reason(target.module, survivor) is None:
                found.append(f"{target.module}: {survivor.before!r} -> {survivor.after!r} survives without a reason")
    for each in targets.known:
        text = (ROOT / each.module).read_text() if (ROOT / each.module).is_file() else ""
        if text.count(each.before) != 1:
            found.append(f"known mutant {each.what!r}: {each.before!r} is not once in {each.module}")
    survivors = {(module, s.before, s.after) for module, each in scores.items() for s in each.survivors}
    found += [
        f"{each.module}: {each.before!r} -> {each.after!r} has a reason, and does not survive"
        for each in targets.accepted
        if (each.module, each.before, each.after) not in survivors
    ]
    return found


def weak_groups(targets: Targets, scores: dict[str, Score]) -> list[str]:
    """A sentence for each group that was scored as a whole and is below its share."""
    return [
        f"group {group}: {killed} of {mutants} killed, below {LEAST:.0%}"
        for group, mutants, killed in totals(targets, scores)
        if killed < LEAST * mutants
    ]


def mutated(known: Known) -> str:
    """The module's text with a known mutant's change."""
    return (ROOT / known.module).read_text().replace(known.before, known.after, 1)


def scored(module: str, mutants: int, survivors: Sequence[Survivor], commit: str, date: str) -> Score:
    """The score of a module as it is now."""
    killed = mutants - len(survivors)
    return Score(module, sha256(module), commit, date, mutants, killed, tuple(survivors))


if __name__ == "__main__":
    write_readme(load_targets(), load_score())
    sys.exit("\n".join(faults(load_targets(), load_score())) or 0)
