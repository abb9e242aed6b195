"""A node's lock: one holder at a time, named by the kernel, and no trap for the accounts that share its folder."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repro.launch.agent import lock
from repro.launch.agent.lock import NAME, SEAM, LockError, acquire, current_holder
from tests.support.paths import ROOT
from tests.support.patience import patience, wait_until
from tests.support.processes import stop

NOBODY = 65534
BECOME = """
import json, os, sys, threading
from repro.launch.agent.lock import Held, acquire, current_holder
if int(sys.argv[2]):
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
"""
HOLD = """
try:
    held = acquire({"who": "a@b", "what": "c", "since": "then", "mark": sys.argv[1]}, 0)
except Held as error:
    print("held by", error.holder.get("what"), error.holder["pid"], flush=True)
    sys.exit(1)
print("locked", flush=True)
held.keep(threading.Event(), lambda why: print("lost:", why, flush=True))
while True:
    line = sys.stdin.readline()
    if not line:
        break
held.release()
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can take the place of other accounts")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder as /run/lock: root's, sticky, and open to all."""
    place = tmp_path / "lock"
    place.mkdir()
    place.chmod(0o1777)
    for folder in place.parents:
        if folder.owner() == place.owner() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | stat.S_IXOTH)
    monkeypatch.setenv(SEAM, str(place))
    return place


@pytest.fixture
def start():
    """Starts processes that want the lock; gives the process and the first line that it prints."""
    started = []

    def start_one(mark="m", uid=0):
        argv = [sys.executable, "-c", BECOME + HOLD, mark, str(uid)]
        process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start_one
    for process in started:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def test_one_holder_at_a_time_and_the_next_is_told_of_it(place, start):
    first, said = start()
    assert said == "locked"
    assert start("another")[1] == f"held by c {first.pid}"
    found = current_holder()
    assert (found["pid"], found["who"], found["since"], found["mark"]) == (first.pid, "a@b", "then", "m")
    wait_until(lambda: current_holder()["silent_s"] < 5, "it beats")
    assert not found["stopped"]
    assert found["may_end"]
    first.stdin.close()
    first.wait(patience())
    assert current_holder() is None
    assert [path.name for path in place.iterdir()] == [f"{NAME}.lock"], "a record does not outlive its holder's release"
    assert start("another")[1] == "locked"


def test_the_kernel_frees_the_lock_of_a_holder_that_is_killed(place, start):
    first, _ = start()
    first.kill()
    first.wait()
    assert current_holder() is None, "though its record is still there"
    assert start("another")[1] == "locked"


BARE = """
import fcntl, os, sys, time
from repro.launch.agent import lock
handle = lock._open(os.path.join(lock.folder(), lock.NAME + ".lock"))
fcntl.lockf(handle, fcntl.LOCK_EX)
print("locked", flush=True)
if sys.argv[1]:
    time.sleep(float(sys.argv[1]))
    lock.NodeLock(handle, os.path.join(lock.folder(), lock.NAME + ".lock"),
                  {"process": lock.identity(os.getpid()), "pid": os.getpid(), "what": "late", "mark": "l"})
sys.stdin.read()
"""


@pytest.mark.parametrize(("delay", "what"), [("0.4", "late"), ("", None)])
def test_a_holder_has_a_moment_to_record_itself(place, monkeypatch, delay, what):
    if what:
        monkeypatch.setattr(lock, "RECORD_S", patience())
    argv = [sys.executable, "-c", BARE, delay]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(lock.Held) as held:
            acquire({"mark": "m"}, 0)
        assert (held.value.holder["pid"], held.value.holder.get("what")) == (process.pid, what)
        process.stdin.close()


def test_a_stopped_holder_holds_on_and_falls_silent(place, start):
    first, _ = start()
    stop(first.pid)
    record = place / f"{NAME}.{os.getuid()}.json"
    assert current_holder()["stopped"]
    beat = time.time() - 100
    os.utime(record, (beat, beat))
    assert 100 <= current_holder()["silent_s"] <= time.time() - beat
    first.send_signal(signal.SIGCONT)
    wait_until(lambda: current_holder()["silent_s"] <= 90, "its beat is recorded again")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_holder_notices_that_its_lock_was_taken_away(place, start, replaced):
    first, _ = start()
    (place / f"{NAME}.lock").unlink()
    if replaced:
        assert start("another")[1] == "locked"
    reason = first.stdout.readline()
    assert reason.startswith("lost: another file has taken" if replaced else "lost: ")
    assert reason.endswith(f"{NAME}.lock\n" if replaced else f"{NAME}.lock was removed\n")


@needs_root
def test_accounts_exclude_each_other_and_only_root_ends_another_s(place, start):
    first, said = start(uid=NOBODY)
    assert said == "locked"
    assert start("root's")[1] == f"held by c {first.pid}"
    assert start("third", uid=NOBODY - 1)[1] == f"held by c {first.pid}"
    found = asked_by(NOBODY - 1)
    assert (found["account"], found["uid"], found["may_end"]) == (lock.account(NOBODY), NOBODY, False)
    assert current_holder()["may_end"], "for root"
    first.kill()
    first.wait()
    assert start("third", uid=NOBODY - 1)[1] == "locked"


def asked_by(uid):
    """What another account finds when it asks for the holder."""
    argv = [sys.executable, "-c", f"{BECOME}\nprint(json.dumps(current_holder()))", "", str(uid)]
    return json.loads(subprocess.run(argv, cwd=ROOT, capture_output=True, check=True).stdout)


@needs_root
def test_a_record_of_another_account_is_not_believed(place, start):
    """It says of a process that it holds the lock; the kernel names another, and whose that is."""
    first, _ = start()
    forged = place / f"{NAME}.{NOBODY}.json"
    forged.write_text(json.dumps({"pid": first.pid, "who": "mallory", "mark": "x"}))
    os.chown(forged, NOBODY, NOBODY)
    assert current_holder()["who"] == "a@b"
    own = place / f"{NAME}.0.json"
    os.chown(own, NOBODY, NOBODY)
    assert "who" not in current_holder(), "a record that the holder's account does not own"


def test_where_processes_of_others_are_hidden_the_record_of_the_process_says_whose_it_is(place, start, monkeypatch):
    """As under /proc mounted with hidepid."""
    first, _ = start()
    monkeypatch.setattr(lock, "owner", lambda pid: None)
    monkeypatch.setattr(lock, "identity", lambda pid: "")
    monkeypatch.setattr(lock, "goes_on", lambda process: False)
    found = current_holder()
    assert (found["pid"], found["who"], found["uid"]) == (first.pid, "a@b", os.getuid())


def test_what_another_account_wrote_does_not_steer_a_terminal(place, start):
    _, _ = start("\x1b[2J\x07mark")
    assert current_holder()["mark"] == "?[2J?mark"


@pytest.mark.parametrize("kind", ["link", "dangling link", "folder", "fifo"])
def test_what_lies_at_the_lock_s_place_is_not_followed(place, tmp_path, kind):
    path, target = place / f"{NAME}.lock", tmp_path / "victim"
    target.write_text("kept")
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(target if kind == "link" else tmp_path / "nothing")
    with pytest.raises(LockError, match=r"oneflow-reproduction\.lock .*remove"):
        acquire({"mark": "m"}, 0)
    assert target.read_text() == "kept"
    assert not (tmp_path / "nothing").exists()
    assert [each.name for each in place.iterdir()] == [path.name]


def test_what_lies_at_the_record_s_place_is_replaced_and_not_written_to(place, start, tmp_path):
    target = tmp_path / "victim"
    target.write_text("kept")
    record = place / f"{NAME}.{os.getuid()}.json"
    record.symlink_to(target)
    assert start()[1] == "locked"
    assert target.read_text() == "kept"
    assert not record.is_symlink()


@needs_root
def test_a_lock_that_another_account_has_closed_says_whom_to_ask(place, start):
    path = place / f"{NAME}.lock"
    path.touch()
    path.chmod(0o600)
    argv = [sys.executable, "-c", f"{BECOME}\nacquire({{'mark': 'm'}}, 0)", "", str(NOBODY)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "cannot be opened: Permission denied; ask account root or an administrator of this node" in done.stderr


def test_the_place_is_root_s_and_sticky(monkeypatch, tmp_path):
    monkeypatch.delenv(SEAM, raising=False)
    places = [tmp_path / "missing", tmp_path / "closed", tmp_path / "not sticky", tmp_path / "right"]
    for place, mode in zip(places[1:], (0o755, 0o777, 0o1777), strict=True):
        place.mkdir()
        place.chmod(mode)
    monkeypatch.setattr(lock, "PLACES", tuple(map(str, places)))
    if os.geteuid():
        with pytest.raises(LockError, match=r"none of .* is a folder of root's"):
            lock.folder()
    else:
        assert lock.folder() == str(places[-1])
        os.chown(places[-1], NOBODY, NOBODY)
        with pytest.raises(LockError, match=r"none of .* is a folder of root's"):
            lock.folder()
