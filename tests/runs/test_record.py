"""The run folder: nothing lost, nothing rewritten."""

import errno
import json

import pytest

from repro.runs.record import RecordError, Run, write_json, write_text
from repro.utils import writing
from tests.support.attempts import recorded
from tests.support.synthetic import described


@pytest.fixture
def run(tmp_path):
    return Run.create("test", described(), tmp_path / "runs")


def test_two_runs_in_one_second_are_two_folders(tmp_path):
    made = [Run.create("test", described(), tmp_path) for _ in range(3)]
    assert len({run.id for run in made}) == 3
    assert all(run.description().id == run.id for run in made)


def test_attempts_come_back_in_order(run):
    for number in (1, 2, 3):
        run.add_attempt(recorded({"repeat": number, "log_tail": "原因"}))
    assert [attempt.repeat for attempt in run.attempts()] == [1, 2, 3]
    assert run.attempts()[0].log_tail == "原因"


def test_a_line_cut_off_by_a_crash_is_no_record(run):
    run.add_attempt(recorded({"repeat": 1}))
    with open(run.attempts_file, "ab") as file:
        file.write(b'{"number": 1, "unit')
    assert [attempt.repeat for attempt in run.attempts()] == [1]
    run.add_attempt(recorded({"repeat": 3}))
    assert [attempt.repeat for attempt in run.attempts()] == [1, 3]


def test_each_attempt_gets_its_own_folder(run):
    first, second = run.attempt_folder("unit", 1), run.attempt_folder("unit", 1)
    assert first.name == "repeat-1.attempt-1"
    assert second.name == "repeat-1.attempt-2"
    assert first.is_dir()


def test_an_unknown_run_names_those_there_are(run):
    with pytest.raises(RecordError, match=run.id):
        Run.open("20200101-000000-gpt-smoke", run.folder.parent)


@pytest.mark.parametrize("bad", ["", "..", "../x", "/etc", "a/b", "-x", "a\nb"])
def test_a_run_id_is_no_path(run, bad):
    with pytest.raises(RecordError, match="no such run"):
        Run.open(bad, run.folder.parent)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    target = tmp_path / "results.json"
    write_json(target, {"old": 1})

    def full(path, *arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(writing.os, "fdopen", full)
    with pytest.raises(RecordError, match="the disk is full"):
        write_text(target, "new")
    monkeypatch.undo()
    assert json.loads(target.read_text()) == {"old": 1}
    assert list(tmp_path.iterdir()) == [target]
