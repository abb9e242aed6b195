"""What git's history says of a run: whether its commit is there, and whether a list was only ever added to.

Without a whole history here, no git, no checkout, a shallow clone, the answer is that nobody can tell.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from repro.utils.paths import ROOT, sha256_of

TIMEOUT_S = 60
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
    top = _git(root, "rev-parse", "--show-toplevel")
    if top is None and owned_by_another(root):
        return History(frozenset(), f"git does not read {root}, {FOREIGN.format(root=root)}")
    if top is None or Path(top.strip()) != root.resolve():
        return History(frozenset(), f"{root} is no git checkout, or git is not installed")
    every = _git(root, "rev-list", "--all", "HEAD")
    if every is None:
        return History(frozenset(), "git cannot list the commits")
    shallow = (_git(root, "rev-parse", "--is-shallow-repository") or "").strip() != "false"
    return History(frozenset(every.split()), "the clone is shallow: `git fetch --unshallow`" if shallow else "")


def removed_lines(path: Path, root: Path = ROOT) -> list[str] | None:
    """Lines that any commit, or a change not committed yet, took out of a file; None without the whole history.

    A merge is compared with each of its parents' merge base by git itself: lines of both sides stay.
    """
    if history(root).gap:
        return None
    relative = path.absolute().relative_to(root).as_posix()
    committed = _git(root, "log", "--format=", "-p", "--unified=0", "HEAD", "--", relative)
    pending = _git(root, "diff", "--unified=0", "HEAD", "--", relative)
    if committed is None or pending is None:
        return None
    lines = (committed + pending).splitlines()
    return [line[1:] for line in lines if line.startswith("-") and not line.startswith("---")]


def folder(commit: str, path: str, root: Path = ROOT) -> str | None:
    """What git calls the content of a folder at a commit, 40 hexadecimal digits; None if it cannot tell."""
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{commit}:{path}")
    return found.strip() if found else None


def committed(path: Path, digest: str, root: Path = ROOT) -> bytes | None:
    """The content with this SHA-256 that a file had at a commit before HEAD, even if it is gone now; None if it had none."""
    relative = path.absolute().relative_to(root.absolute()).as_posix()
    changed = ("log", "--full-history", "--no-renames", "--diff-filter=AM", "--format=%H", "HEAD", "--", relative)
    for commit in (_git(root, *changed) or "").split():
        content = _printed(root, "cat-file", "blob", f"{commit}:{relative}")
        if content is not None and sha256_of(content) == digest:
            return content
    return None


def _git(root: Path, *arguments: str) -> str | None:
    """What git prints; None if it fails or is not there."""
    printed = _printed(root, *arguments)
    return None if printed is None else printed.decode("utf-8", "replace")


def _printed(root: Path, *arguments: str) -> bytes | None:
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
