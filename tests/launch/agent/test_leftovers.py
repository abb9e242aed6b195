"""Which containers an agent removes: those of its account and work folder that a dead agent left, and no others."""

import json
import os
import subprocess
import sys

import pytest

from repro.launch.agent import leftovers, unlock
from repro.launch.agent.leftovers import AGENT, USER, WORK, clear, labels, sweep
from repro.launch.agent.processes import identity

ME = str(os.getuid())


@pytest.fixture
def dead():
    """The identity of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = identity(process.pid)
    process.communicate(b"\n")
    return found


@pytest.fixture
def engine(monkeypatch):
    """A Docker engine with these containers: name -> (status, user, work folder, agent); gives what it has left."""
    has = {}

    def docker(verb, *arguments):
        if verb == "rm":
            for name in arguments[2:]:
                del has[name]
            return subprocess.CompletedProcess([], 0, "", "")
        rows = [[name, name, status, "run", *own] for name, (status, *own) in has.items()]
        return subprocess.CompletedProcess([], 0, "".join(json.dumps(row) + "\n" for row in rows), "")

    monkeypatch.setattr(leftovers, "docker", docker)
    monkeypatch.setattr(leftovers, "WAIT_S", 0.0)
    return has


def test_only_what_a_dead_run_of_this_account_and_folder_left_is_removed(engine, dead, tmp_path):
    work, alive = str(tmp_path), identity(os.getpid())
    other_boot = dead.replace(dead[:8], "00000000", 1)
    engine |= {
        "left": ("Up 3 hours", ME, work, dead),
        "ended": ("Exited (137) 2 days ago", ME, work, other_boot),
        "of a live run": ("Up 1 second", ME, work, alive),
        "in another folder": ("Up 3 hours", ME, f"{work}2", dead),
        "another account's": ("Up 3 hours", "12345", work, dead),
        "without labels": ("Up 3 hours", "", "", ""),
    }
    assert sweep(work) == ["left", "ended"]
    assert set(engine) == {"of a live run", "in another folder", "another account's", "without labels"}


def test_whoever_starts_is_told_of_what_runs_and_is_not_its_own_to_remove(engine, dead, tmp_path):
    work = str(tmp_path)
    engine |= {
        "left": ("Up 3 hours", ME, work, dead),
        "theirs": ("Up 3 hours", "12345", "/their/work", dead),
        "ended": ("Exited (0) 1 hour ago", "12345", "/their/work", dead),
    }
    removed, others = clear(work)
    assert removed == ["left"]
    told = {"name": "theirs", "run": "run", "account": "12345", "work": "/their/work", "abandoned": True, "mine": False}
    assert others == [told]


def test_labels_of_an_agent_keep_its_containers_from_itself(engine, tmp_path):
    words = labels(str(tmp_path))
    given = dict(word.split("=", 1) for word in words if word != "--label")
    engine["mine"] = ("Up 1 second", given[USER], given[WORK], given[AGENT])
    assert sweep(str(tmp_path)) == []
    assert "mine" in engine


def test_a_folder_by_another_name_is_the_same_folder(engine, dead, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "work")
    engine["left"] = ("Up 3 hours", ME, str(tmp_path / "work"), dead)
    assert sweep(str(tmp_path / "link")) == ["left"]


def test_the_containers_of_a_holder_that_one_has_no_right_to_end_are_not_removed(engine, monkeypatch):
    """The engine would do it for every account that may use it."""
    process = identity(os.getpid())
    holder = {"pid": os.getpid(), "process": process, "mark": "", "may_end": False}
    monkeypatch.setattr(unlock, "current_holder", lambda: holder)
    monkeypatch.setattr(unlock, "of_run", lambda pid, mark: [process])
    monkeypatch.setattr(unlock, "end", lambda processes: pytest.fail("nothing is to be ended"))
    engine["theirs"] = ("Up 1 second", "12345", "/their/work", process)
    assert [each["name"] for each in unlock.survey()["containers"]] == ["theirs"]
    assert unlock.free(process) == {"error": f"process {os.getpid()} is another account's; nothing was ended"}
    assert set(engine) == {"theirs"}


def test_a_lock_that_goes_a_little_after_its_holder_is_free(engine, monkeypatch):
    """Where the first thread of the holder ends before the last, the kernel names it still."""
    holder = {"pid": 12, "process": "b-12-3", "mark": "", "may_end": True}
    answers = iter([holder, holder, holder, None])
    monkeypatch.setattr(unlock, "current_holder", lambda: next(answers))
    monkeypatch.setattr(unlock, "of_run", lambda pid, mark: [])
    assert unlock.free("b-12-3") == {"left": [], "holder": None}


def test_unlock_also_removes_what_dead_runs_left_in_other_folders(engine, dead, tmp_path, monkeypatch):
    monkeypatch.setenv("REPRO_NODE_LOCK_FOLDER", str(tmp_path))
    engine |= {
        "left": ("Up 3 hours", ME, "/another/folder", dead),
        "of a live run": ("Up 1 second", ME, "/another/folder", identity(os.getpid())),
    }
    found = unlock.survey()
    assert found["holder"] is None
    assert [each["name"] for each in found["containers"]] == ["left"]
    assert unlock.free("") == {"left": [], "holder": None}
    assert set(engine) == {"of a live run"}
