"""What git's history says of a run: whether its commit is there, and whether a list was only ever added to.

Without a whole history here, no git, no checkout, a shallow clone, the answer is that nobody can tell.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repro.utils.paths import ROOT

TIMEOUT_S = 60
UNREPLACED = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": os.devnull}
"""Lets git read commits as they are, not what a checkout puts in their place (git-replace(1))."""
FOREIGN = "which belongs to another account: `git config --global --add safe.directory {root}` allows it"


@dataclass(frozen=True)
class History:
    """The commits that a branch or tag leads to; `gap` says why some may be missing, empty if none is."""

    commits: frozenset[str]
    gap: str = ""

    def holds(self, commit: str) -> bool | None:
        """Whether a commit exists; None if this cannot be determined."""
        if commit in self.commits:
            return True
        return None if self.gap else False


def owned_by_another(root: Path) -> bool:
    """Whether a checkout belongs to another account, which git refuses to read unless it is told to."""
    return (root / ".git").exists() and root.stat().st_uid != os.geteuid()


@cache
def history(root: Path = ROOT) -> History:
    """The history of the checkout that is in this folder."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None and owned_by_another(root):
        return History(frozenset(), f"git does not read {root}, {FOREIGN.format(root=root)}")
    if top is None or Path(top.strip()) != root.resolve():
        return History(frozenset(), f"{root} is no git checkout, or git is not installed")
    every = git(root, "rev-list", "--all", "HEAD")
    if every is None:
        return History(frozenset(), "git cannot list the commits")
    shallow = (git(root, "rev-parse", "--is-shallow-repository") or "").strip() != "false"
    return History(frozenset(every.split()), "the clone is shallow: `git fetch --unshallow`" if shallow else "")


def lost_lines(path: Path, lines: Sequence[str], root: Path = ROOT) -> list[str] | None:
    """Lines of a file as any commit up to HEAD had it that are not among `lines` in that order; None without the history.

    Every version is read whole, of merges too: what git shows of a change depends on attributes and configuration.
    """
    if history(root).gap:
        return None
    lost: dict[str, None] = {}
    for content in versions(path, root):
        at = 0
        for line in content.decode("utf-8", "replace").split("\n"):
            try:
                at = lines.index(line, at) + 1 if line else at
            except ValueError:
                lost[line] = None
    return list(lost)


def versions(path: Path, root: Path = ROOT) -> Iterator[bytes]:
    """Every content that a file had at a commit up to HEAD, the newest first."""
    relative = path.absolute().relative_to(root.absolute()).as_posix()
    commits = (git(root, "rev-list", "HEAD") or "").split()
    asked = "".join(f"{commit}:{relative}\n" for commit in commits).encode()
    listed = (_printed(root, "cat-file", "--batch-check=%(objectname) %(objecttype)", given=asked) or b"").decode()
    objects = (line.split() for line in listed.splitlines())
    blobs = dict.fromkeys(fields[0] for fields in objects if fields[1:] == ["blob"])
    there = contents(frozenset(blobs), root)
    yield from (there[blob] for blob in blobs if blob in there)


def tree(commit: str, folders: Sequence[str], root: Path = ROOT) -> dict[str, str] | None:
    """The files in folders at a commit: git's name of each content, by path; None if git cannot tell."""
    listed = git(root, "ls-tree", "-r", "-z", commit, "--", *folders)
    if listed is None:
        return None
    entries = (entry.partition("\t") for entry in listed.split("\0") if entry)
    return {path: about.split()[2] for about, _, path in entries if about.split()[1] == "blob"}


@cache
def contents(blobs: frozenset[str], root: Path = ROOT) -> dict[str, bytes]:
    """The content that git has under each of these names of its own; what it does not have is left out."""
    given = "".join(f"{blob}\n" for blob in sorted(blobs)).encode()
    printed, content, at = _printed(root, "cat-file", "--batch", given=given) or b"", {}, 0
    while at < len(printed):
        end = printed.index(b"\n", at)
        about = printed[at:end].decode().split()
        at = end + 1
        if about[1] == "blob":
            content[about[0]] = printed[at : at + int(about[2])]
            at += int(about[2]) + 1
    return content


def folder_states(folders: Sequence[str], root: Path = ROOT) -> dict[tuple[str, ...], str]:
    """For each state that these folders had together at any commit of a branch or tag, the newest such commit."""
    commits = (git(root, "rev-list", "--all", "HEAD") or "").split()
    asked = "".join(f"{commit}:{folder}\n" for commit in commits for folder in folders).encode()
    listed = (_printed(root, "cat-file", "--batch-check=%(objectname)", given=asked) or b"").decode().splitlines()
    newest: dict[tuple[str, ...], str] = {}
    for number, commit in enumerate(commits):
        state = tuple(listed[number * len(folders) : (number + 1) * len(folders)])
        if not any(name.endswith("missing") for name in state):
            newest.setdefault(state, commit)
    return newest


def git(root: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails or is not there."""
    printed = _printed(root, *arguments)
    return None if printed is None else printed.decode("utf-8", "replace")


def _printed(root: Path, *arguments: str, given: bytes | None = None) -> bytes | None:
    """The same as bytes; `given` is what git reads, and no command writes the checkout's index.

    This module itself runs only plumbing commands, which no configuration changes.
    """
    command = ["git", "--no-optional-locks", "-c", "core.commitGraph=false", "-C", str(root), *arguments]
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=TIMEOUT_S, env=os.environ | UNREPLACED)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
