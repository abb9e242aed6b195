"""What ranks leave in the folder of an attempt, and how the end of one is named."""

import json

import pytest

from repro.launch.attempt_folder import AttemptFolder, rank_ended


@pytest.fixture
def files(tmp_path):
    """The folder of two ranks, of which the first has finished."""
    files = AttemptFolder(tmp_path, 2, (tmp_path / "launcher.log",))
    files.tails[0].path.write_text(json.dumps({"event": "end", "iterations": 1, "time": 1.0}) + "\n")
    files.tails[0].read()
    return files


def test_ranks_that_have_not_finished_are_named(files):
    assert files.finished(0) and files.unfinished() == [1]


def test_logs_begin_with_rank_0_and_end_with_what_started_the_ranks(files):
    (files.folder / "launcher.log").write_text("launched\n")
    (files.rank_folder(1) / "stderr").write_text("b")
    (files.rank_folder(0) / "stdout").write_text("a\n")
    assert [path.name for path in files.log_files()] == ["stdout", "stderr", "launcher.log"]
    assert files.bytes_on_disk() == 2 + 1 + 9 + files.tails[0].path.stat().st_size
    assert files.log_tail(0, files.launcher_logs[0]) == "a"
    (files.rank_folder(1) / "stderr").write_text("")
    assert files.log_tail(1, files.launcher_logs[0]) == "launched"


def test_damaged_metrics_are_why_a_rank_that_exited_with_0_ended_early(files):
    files.tails[1].path.write_text("no event\n")
    files.tails[1].read()
    assert "ended before" not in files.ended_early(1, 0).text()
    assert files.ended_early(1, 1).text() == "rank 1 exited with status 1"
    assert files.damage([0]) is None and files.damage() is not None


@pytest.mark.parametrize(
    ("status", "end"),
    [(-9, "was killed by SIGKILL"), (0, "ended before its work was done"), (3, "exited with status 3")],
)
def test_an_end_is_named_with_its_node_where_there_are_several(status, end):
    assert rank_ended(1, status).text() == f"rank 1 {end}"
    assert rank_ended(1, status, "n2").text() == f"rank 1 on n2 {end}"
