"""The list of kept runs: what is entered stays, and whatever is not as listed is named."""

import subprocess

import pytest

from repro.runs import digests
from repro.runs.digests import (
    LOST,
    NAME,
    REPRODUCED,
    Withdrawal,
    enter,
    entered,
    fault_of,
    faults,
    list_of,
    lost_commits,
    read,
    withdraw,
    withdrawn,
)
from repro.runs.history import history, removed_lines
from repro.runs.record import RecordError, Run


@pytest.fixture
def archive(tmp_path):
    """A host's archive, entered in the list."""
    path = tmp_path / "h200" / "runs" / "a.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"kept")
    enter(path, list_of(path))
    return path


def test_sha256sum_reads_the_list(archive):
    listed = list_of(archive)
    assert subprocess.run(["sha256sum", "--check", "--strict", NAME], cwd=listed.parent, check=True)
    assert faults(archive.parents[1]) == [] and fault_of(archive, listed) is None


def test_a_name_is_entered_once(archive):
    before = list_of(archive).read_text()
    archive.write_bytes(b"another")
    with pytest.raises(RecordError, match="a kept run is never recorded anew"):
        enter(archive, list_of(archive))
    assert list_of(archive).read_text() == before


def test_another_archive_a_missing_one_and_one_too_many_are_named(archive):
    archive.write_bytes(b"another")
    archive.with_name("b.zip").write_bytes(b"by hand")
    (other, by_hand) = faults(archive.parents[1])
    assert "is not the archive that was kept" in other and "has no line" in by_hand
    archive.unlink()
    archive.with_name("b.zip").unlink()
    assert faults(archive.parents[1]) == [f"{archive} was kept and is gone"]


@pytest.mark.parametrize("line", ["", "nothing", "0" * 63 + "  h200/runs/b.zip", "# a comment", "# no commit abc: why"])
def test_a_line_that_is_none_is_named(archive, line):
    listed = list_of(archive)
    listed.write_text(listed.read_text() + line + "\n")
    with pytest.raises(RecordError, match="line 2 is no digest of a kept run"):
        read(listed)


def test_a_line_twice_is_named(archive):
    listed = list_of(archive)
    listed.write_text(listed.read_text() * 2)
    with pytest.raises(RecordError, match="line 2 is no digest of a kept run, or one again"):
        read(listed)


def test_an_archive_elsewhere_has_no_list(tmp_path):
    assert list_of(tmp_path / "a.zip") is None


# Withdrawn runs

LINE = "# withdrawn h200/runs/a.zip (one, two.pytorch-unfused as two.tuned): superseded by b, c"


def test_a_withdrawal_is_read_as_it_is_written():
    found = Withdrawal.of(LINE)
    assert found == Withdrawal("h200/runs/a.zip", {"one": "one", "two.pytorch-unfused": "two.tuned"}, ("b", "c"))
    assert str(found) == LINE


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace(": superseded by b, c", ""),
        LINE.replace("b, c", ""),
        LINE.replace("one, two.pytorch-unfused as two.tuned", ""),
        LINE.replace("one, ", "one "),
        LINE.replace("# withdrawn", "# removed"),
        LINE + " ",
        LINE + ": too old",
    ],
)
def test_a_withdrawal_of_another_form_is_none(archive, line):
    assert Withdrawal.of(line) is None
    with open(list_of(archive), "a") as listed:
        listed.write(line + "\n")
    with pytest.raises(RecordError, match="line 2 is no digest of a kept run"):
        read(list_of(archive))


@pytest.fixture
def superseded(archive):
    """The host's folder, in which `b` supersedes `a`, and `a` is withdrawn."""
    newer = archive.with_name("b.zip")
    newer.write_bytes(b"newer")
    enter(newer, list_of(newer))
    archive.with_name("a.zip.sig").write_text("signed")
    withdraw(archive.parents[1], [Withdrawal("h200/runs/a.zip", {"one": "one"}, ("b",))])
    return archive.parents[1]


def test_a_withdrawn_run_is_gone_and_its_lines_stay(superseded):
    listed = superseded.parent / NAME
    assert [path.name for path in (superseded / "runs").iterdir()] == ["b.zip"]
    assert listed.read_text().splitlines()[-1] == "# withdrawn h200/runs/a.zip (one): superseded by b"
    assert list(read(listed)) == ["h200/runs/a.zip", "h200/runs/b.zip"]
    assert list(withdrawn(superseded)) == ["a"] and withdrawn(superseded.with_name("h100")) == {}
    assert faults(superseded) == []
    done = subprocess.run(["sha256sum", "--check", "--ignore-missing", NAME], cwd=listed.parent, check=False)
    assert done.returncode == 0


def test_a_withdrawn_run_is_not_kept_again_and_not_put_back(superseded):
    archive = superseded / "runs" / "a.zip"
    archive.write_bytes(b"kept")
    with pytest.raises(RecordError, match="a kept run is never recorded anew"):
        enter(archive, list_of(archive))
    assert faults(superseded) == [f"{archive} was withdrawn and is still there: remove it"]


def test_the_superseding_run_must_be_there(superseded):
    listed, newer = superseded.parent / NAME, superseded / "runs" / "b.zip"
    newer.unlink()
    assert faults(superseded) == [f"{newer} was kept and is gone"]
    newer.write_bytes(b"newer")
    listed.write_text(listed.read_text().replace("superseded by b", "superseded by c"))
    (fault,) = faults(superseded)
    assert "h200/runs/a.zip is superseded by c, which is no kept run of h200" in fault


@pytest.mark.parametrize("path", ["h200/runs/a.zip", "h200/runs/c.zip"])
def test_only_a_kept_run_is_withdrawn_and_once(superseded, path):
    listed = superseded.parent / NAME
    listed.write_text(listed.read_text() + f"# withdrawn {path} (one): superseded by b\n")
    with pytest.raises(RecordError, match="line 4 withdraws a run that was never kept, or one again"):
        read(listed)


# What is committed


COMMITTED = REPRODUCED / NAME
HOSTS = [path for path in REPRODUCED.iterdir() if path.is_dir()]


def test_every_committed_archive_is_the_one_that_was_kept():
    kept = len(read(COMMITTED)) - sum(len(withdrawn(host)) for host in HOSTS)
    assert sum(len(list(host.glob("runs/*.zip"))) for host in HOSTS) == kept > 0
    assert [fault for host in HOSTS for fault in faults(host)] == []
    assert all(entered(path, COMMITTED) for host in HOSTS for path in host.glob("runs/*.zip"))


def test_the_committed_list_was_only_ever_added_to():
    if gap := history().gap:
        pytest.skip(gap)
    assert removed_lines(COMMITTED) == []


def test_every_commit_of_a_kept_run_is_in_the_history_but_those_that_the_list_names():
    if gap := history().gap:
        pytest.skip(gap)
    runs = [Run(path) for host in HOSTS for path in host.glob("runs/[0-9]*.zip")]
    commits = {run.description()["environment"]["git_commit"] for run in runs}
    assert {commit for commit in commits if not history().holds(commit)} <= lost_commits(COMMITTED)


def test_a_commit_that_is_lost_needs_a_reason():
    assert LOST.fullmatch(f"# no commit {'0' * 40}: rebased") and not LOST.fullmatch(f"# no commit {'0' * 40}: ")
    assert digests.is_kept("20261121-184824-bert-published") and not digests.is_kept("20261121-184824-bert")
