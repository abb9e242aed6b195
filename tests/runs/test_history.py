"""What git can tell of commits and of a list, and that it says so where it cannot tell."""

import hashlib
import subprocess

import pytest

from repro.runs.history import committed, history, removed_lines

ABSENT = "0" * 40


def git(folder, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    """A checkout with two commits, and a list in it."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    for text in ("one\n", "one\ntwo\n"):
        (folder / "list").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-qm", text)
    return folder


def test_a_commit_of_any_branch_is_there_and_a_dropped_one_is_not(checkout):
    git(checkout, "checkout", "-qb", "other")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "on a branch")
    on_branch = git(checkout, "rev-parse", "HEAD")
    git(checkout, "checkout", "-q", "-")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "dropped")
    dropped = git(checkout, "rev-parse", "HEAD")
    git(checkout, "reset", "-q", "--hard", "HEAD~1")
    past = history(checkout)
    assert past.holds(on_branch) is True and past.gap == ""
    assert past.holds(dropped) is False, "its object is still there, but nothing leads to it"
    assert past.holds(ABSENT) is False


def test_a_shallow_clone_does_not_pass_silently(checkout, tmp_path):
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{checkout}", "shallow")
    past = history(tmp_path / "shallow")
    assert past.holds(git(checkout, "rev-parse", "HEAD")) is True
    assert past.holds(git(checkout, "rev-parse", "HEAD~1")) is None and "--unshallow" in past.gap
    assert removed_lines(tmp_path / "shallow" / "list", tmp_path / "shallow") is None


def test_a_folder_that_is_no_checkout_of_its_own_does_not_pass_silently(checkout, tmp_path, monkeypatch):
    (checkout / "unpacked").mkdir()
    for folder in (tmp_path, checkout / "unpacked"):
        past = history(folder)
        assert past.holds(ABSENT) is None and "is no git checkout" in past.gap
    monkeypatch.setenv("PATH", "")
    history.cache_clear()
    assert "git is not installed" in history(checkout).gap
    history.cache_clear()


def test_a_list_that_only_grew_and_one_that_did_not(checkout):
    listed = checkout / "list"
    assert removed_lines(listed, checkout) == []
    listed.write_text("one\ntwo\nthree\n")
    assert removed_lines(listed, checkout) == [], "a line that is added is no removed one"
    listed.write_text("one\nzwei\n")
    assert removed_lines(listed, checkout) == ["two"]
    git(checkout, "commit", "-qam", "translate")
    assert removed_lines(listed, checkout) == ["two"]
    listed.write_text("one\ntwo\n")
    git(checkout, "commit", "-qam", "and back")
    assert removed_lines(listed, checkout) == ["zwei", "two"]


def test_the_history_has_a_file_that_is_gone(checkout):
    """Also one that came with a branch, and was removed there."""
    binary = checkout / "runs" / "a.zip"
    git(checkout, "checkout", "-qb", "other")
    binary.parent.mkdir()
    for content in (b"\xff\x00kept", b"again"):
        binary.write_bytes(content)
        git(checkout, "add", ".")
        git(checkout, "commit", "-qm", "Keep")
    git(checkout, "rm", "-q", "runs/a.zip")
    git(checkout, "commit", "-qm", "Withdraw")
    git(checkout, "checkout", "-q", "-")
    first, last = (hashlib.sha256(each).hexdigest() for each in (b"\xff\x00kept", b"again"))
    assert committed(binary, last, checkout) is None, "nothing leads to it from here"
    git(checkout, "merge", "-q", "--no-ff", "-m", "Merge", "other")
    assert committed(binary, first, checkout) == b"\xff\x00kept"
    assert committed(binary, last, checkout) == b"again"
    assert committed(binary, "0" * 64, checkout) is None
    assert committed(checkout / "runs" / "b.zip", last, checkout) is None
