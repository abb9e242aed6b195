"""What git can tell of commits and of a list, and that it says so where it cannot tell."""

import subprocess

import pytest

from repro.runs.history import contents, folder_states, history, lost_lines, tree, versions

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
    assert lost_lines(tmp_path / "shallow" / "list", [], tmp_path / "shallow") is None


def test_a_folder_that_is_no_checkout_of_its_own_does_not_pass_silently(checkout, tmp_path, monkeypatch):
    (checkout / "unpacked").mkdir()
    for folder in (tmp_path, checkout / "unpacked"):
        past = history(folder)
        assert past.holds(ABSENT) is None and "is no git checkout" in past.gap
    monkeypatch.setenv("PATH", "")
    history.cache_clear()
    assert "git is not installed" in history(checkout).gap
    history.cache_clear()


def lost(checkout):
    listed = checkout / "list"
    return lost_lines(listed, listed.read_text().splitlines(), checkout)


def test_a_list_that_only_grew_and_one_that_did_not(checkout):
    listed = checkout / "list"
    assert lost(checkout) == []
    listed.write_text("one\ntwo\nthree\n")
    assert lost(checkout) == [], "a line that is added is no removed one"
    listed.write_text("one\nzwei\n")
    assert lost(checkout) == ["two"]
    git(checkout, "commit", "-qam", "translate")
    assert lost(checkout) == ["two"]
    listed.write_text("one\ntwo\n")
    git(checkout, "commit", "-qam", "and back")
    assert lost(checkout) == ["zwei"]
    listed.write_text("one\nzwei\ntwo\n")
    assert lost(checkout) == [], "a line put between others is for the chain to find"
    listed.write_text("two\nzwei\none\n")
    assert lost(checkout) == ["two", "zwei"], "lines keep their order"


def test_a_change_within_a_merge_is_found(checkout):
    """What `git log -p` does not show: the merge's own content differs from both parents'."""
    listed = checkout / "list"
    git(checkout, "checkout", "-qb", "other")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "on a branch")
    git(checkout, "checkout", "-q", "-")
    git(checkout, "merge", "-q", "--no-ff", "--no-commit", "other")
    listed.write_text("eins\ntwo\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "Merge")
    assert "-one" not in git(checkout, "log", "-p", "--format=")
    assert lost(checkout) == ["one"]


def test_no_attribute_and_no_configuration_hides_a_change(checkout, monkeypatch, tmp_path):
    (checkout / "list").write_text("eins\ntwo\n")
    (checkout / ".gitattributes").write_text("* -diff\n")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "translate")
    for setting in ("color.ui=always", "diff.external=true", "log.showSignature=true", "core.quotePath=true"):
        git(checkout, "config", *setting.split("="))
    assert "-one" not in git(checkout, "log", "-p", "--format=")
    assert lost(checkout) == ["one"] and history(checkout).gap == ""


def test_no_replacement_of_a_commit_hides_a_change(checkout):
    """git replace and grafts show another history than there is."""
    (checkout / "list").write_text("eins\ntwo\n")
    git(checkout, "commit", "-qam", "translate")
    changed, before = git(checkout, "rev-parse", "HEAD"), git(checkout, "rev-parse", "HEAD~1")
    orphan = git(checkout, "commit-tree", "-m", "as if from the beginning", f"{changed}^{{tree}}")
    git(checkout, "replace", changed, orphan)
    assert before not in git(checkout, "rev-list", "HEAD")
    assert lost(checkout) == ["one"]
    git(checkout, "replace", "-d", changed)
    (checkout / ".git" / "info").mkdir(exist_ok=True)
    (checkout / ".git" / "info" / "grafts").write_text(f"{changed}\n")
    assert before not in git(checkout, "rev-list", "HEAD")
    assert lost(checkout) == ["one"]


def test_a_file_without_history_lost_nothing(checkout):
    assert lost_lines(checkout / "another", [], checkout) == []


def test_files_and_contents_of_a_commit(checkout):
    (checkout / "folder").mkdir()
    (checkout / "folder" / "ä b.py").write_bytes(b"\xff\nblob 3\n")
    (checkout / "folder" / "empty.py").write_bytes(b"")
    git(checkout, "add", ".")
    git(checkout, "commit", "-qm", "Add")
    there = tree("HEAD", ["folder"], checkout)
    assert set(there) == {"folder/ä b.py", "folder/empty.py"}
    found = contents(frozenset({*there.values(), ABSENT}), checkout)
    assert {name: found[blob] for name, blob in there.items()} == {
        "folder/ä b.py": b"\xff\nblob 3\n",
        "folder/empty.py": b"",
    }
    assert tree(ABSENT, ["folder"], checkout) is None and contents(frozenset(), checkout) == {}


def test_each_state_of_folders_has_its_newest_commit(checkout):
    for text in ("1", "2", "2", "1"):
        for name in ("a", "b"):
            (checkout / name).mkdir(exist_ok=True)
            (checkout / name / "x").write_text(text)
        git(checkout, "add", ".")
        git(checkout, "commit", "-q", "--allow-empty", "-m", text)
    states = folder_states(("a", "b"), checkout)
    assert list(states.values()) == [git(checkout, "rev-parse", each) for each in ("HEAD", "HEAD~1")]
    assert all(len(state) == 2 for state in states), "commits without the folders have no state"


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
    assert [*versions(binary, checkout)] == [], "nothing leads to them from here"
    git(checkout, "merge", "-q", "--no-ff", "-m", "Merge", "other")
    assert sorted(versions(binary, checkout)) == [b"again", b"\xff\x00kept"]
    assert [*versions(checkout / "runs" / "b.zip", checkout)] == []
