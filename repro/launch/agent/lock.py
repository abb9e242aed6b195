"""The lock of the node that this runs on: one for all accounts and work folders; needs Python 3.8 and nothing else.

It is a POSIX lock on a file that all accounts may open: the kernel frees it with the process that holds it, and names
that process to those who wait. Nobody reads or writes the file. What the holder says of itself is in a second file, one
per account, which only that account can write; it counts only for the process that the kernel names. The folder
belongs to root and is sticky, so that a file in it can be removed or renamed only by its owner and by root.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import pwd
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable

from repro.launch.agent.patience import limit
from repro.launch.agent.processes import goes_on, identity, is_stopped, may_end, owner, printable

PLACES = ("/run/lock", "/var/tmp")
NAME = "oneflow-reproduction"
SEAM = "REPRO_NODE_LOCK_FOLDER"
BEAT_S = 2.0
POLL_S = 0.1
MARGIN_S = 4.0
RECORD_S = 1.0
RECORD_BYTES = 8192
FLOCK = "hhqqi0q"  # struct flock of 64-bit Linux: type, whence, start, length, process
OPEN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class LockError(OSError):
    """The lock cannot be used on this node; the message says why and what to do."""


class Held(Exception):
    """Another process holds the lock; `holder` is what `holder_of` gives."""

    def __init__(self, holder: dict):
        super().__init__("the lock is held")
        self.holder = holder


def folder() -> str:
    """Where this node has the lock: the same for all accounts. The environment variable is for tests."""
    if SEAM in os.environ:
        return os.environ[SEAM]
    for place in PLACES:
        with contextlib.suppress(OSError):
            state = os.lstat(place)
            if stat.S_ISDIR(state.st_mode) and state.st_uid == 0 and state.st_mode & 0o1007 == 0o1007:
                return place
    raise LockError(
        f"none of {' and '.join(PLACES)} is a folder of root's that all accounts can write and that is sticky "
        f"(mode 1777), which the lock between runs needs; `chmod 1777 {PLACES[-1]}` as root makes it one"
    )


class NodeLock:
    """The lock, held until `release` or the end of this process."""

    def __init__(self, handle: int, path: str, record: dict):
        self._handle, self._path = handle, path
        self._record = record
        self._write()

    def beat(self) -> str:
        """Record that the holder lives; why the lock is no longer held, "" while it is."""
        try:
            if not _same_file(self._handle, self._path):
                return f"another file has taken the place of {self._path}"
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return f"{self._path} was removed"
        except OSError as error:
            return f"{self._path}: {error.strerror}"
        with contextlib.suppress(OSError):
            os.utime(self._record_path, follow_symlinks=False)
        return ""

    def keep(self, stopped: threading.Event, on_lost: Callable[[str], object]) -> None:
        """Beat every two seconds in a thread of its own, until `stopped` is set or the lock is lost."""

        def go_on() -> None:
            while not stopped.wait(BEAT_S):
                lost = self.beat()
                if lost:
                    on_lost(lost)
                    return

        threading.Thread(target=go_on, daemon=True, name="beat of the lock").start()

    def add(self, **more: str) -> None:
        """Record more of the holder, such as its run; the lock holds also where that cannot be written."""
        self._record.update(more)
        with contextlib.suppress(OSError):
            self._write()

    def release(self) -> None:
        """Let others have the node."""
        if _content(self._record_path)[0].get("process") == self._record["process"]:
            with contextlib.suppress(OSError):
                os.unlink(self._record_path)
        os.close(self._handle)

    @property
    def _record_path(self) -> str:
        return _record_path(os.path.dirname(self._path), os.getuid())

    def _write(self) -> None:
        """Replace the record whole; what lies at its place is neither followed nor opened."""
        partial = f"{self._record_path}.{os.urandom(8).hex()}"
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN, 0o644)
        try:
            os.fchmod(handle, 0o644)
            os.write(handle, json.dumps(self._record).encode())
            os.replace(partial, self._record_path)
        except OSError as error:
            os.unlink(partial)
            why = f"{self._record_path} cannot be written: {error.strerror}; {_whose(self._record_path)}"
            raise LockError(why) from error
        finally:
            os.close(handle)


def acquire(holder: dict, patience: float) -> NodeLock:
    """Lock the node until this process ends; Held if another does, LockError if it cannot be locked.

    A connection that was lost may have left the lock with the same `mark` and `node`: then this waits `patience` seconds
    and a little for the end of its lease.

    Parameters
    ----------
    holder : of texts, what others are told: who, what, since, run; mark, which no other run has; and node, the name that
        the run knows this node by.
    """
    path = os.path.join(folder(), f"{NAME}.lock")
    me = {
        **holder,
        "process": identity(os.getpid()),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "account": account(os.getuid()),
    }
    deadline = time.monotonic() + patience + limit(MARGIN_S)
    while True:
        handle = _open(path)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            occupant = _recorded_holder(handle)
            os.close(handle)
            ours = occupant and (occupant.get("mark"), occupant.get("node")) == (holder["mark"], holder.get("node"))
            if occupant and (not ours or time.monotonic() > deadline):
                raise Held(occupant) from None
            time.sleep(POLL_S)
        else:
            with contextlib.suppress(FileNotFoundError):
                if _same_file(handle, path):
                    try:
                        return NodeLock(handle, path, me)
                    except BaseException:
                        os.close(handle)
                        raise
            os.close(handle)


def current_holder() -> dict | None:
    """Who holds this node's lock, as `holder_of` says it; never call it in a process that holds the lock itself."""
    path = os.path.join(folder(), f"{NAME}.lock")
    try:
        handle = os.open(path, os.O_RDONLY | OPEN)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LockError(f"{path} cannot be opened: {error.strerror}; {_whose(path)}") from error
    try:
        return _recorded_holder(handle)
    finally:
        os.close(handle)


def _recorded_holder(handle: int) -> dict | None:
    """As `holder_of`; one that has only just taken the lock gets the time to record itself."""
    deadline = time.monotonic() + limit(RECORD_S)
    while (holder := holder_of(handle)) and "mark" not in holder and time.monotonic() < deadline:
        time.sleep(POLL_S / 2)
    return holder


def holder_of(handle: int) -> dict | None:
    """The process that holds the lock on an open file, and what is recorded of it; None if nobody does.

    `pid` is the kernel's word, 0 for a process that cannot be seen from here. The rest is there where it is known:
    `account` and `uid`, `silent_s` since its last beat, `stopped`, and the texts that it was recorded with. `may_end`
    says whether this account has the right to end it.
    """
    asked = struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))
    if kind == fcntl.F_UNLCK:
        return None
    pid = max(pid, 0)
    recorded = _recorded(folder(), pid) if pid else {}
    uid = recorded.get("uid", owner(pid) if pid else None)
    if uid is not None:
        recorded.update(uid=uid, account=account(uid))
    more = {"process": identity(pid), "stopped": is_stopped(pid), "may_end": pid > 0 and may_end(pid)}
    return {**recorded, "pid": pid, **more}


def account(uid: int) -> str:
    """The name of an account, its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _recorded(place: str, pid: int) -> dict:
    """What the account of a process has recorded of it; empty if that is nothing, or of another process."""
    uid = owner(pid)
    paths = [_record_path(place, uid)] if uid is not None else sorted(glob.glob(_record_path(place, "*")))
    for path in paths:
        content, state = _content(path)
        hidden = uid is None  # then the record alone says whose process that is
        if content.get("pid") == pid and (hidden or goes_on(str(content.get("process")))):
            texts = {key: printable(value) for key, value in content.items() if isinstance(value, str)}
            return {**texts, "uid": state.st_uid, "silent_s": max(0.0, time.time() - state.st_mtime)}
    return {}


def _content(path: str) -> tuple[dict, os.stat_result]:
    """A record and its file's state; it is empty if the file is not there, or not of the account that its name has."""
    nothing = os.stat_result((0,) * 10)
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(path, os.O_RDONLY | OPEN)
        try:
            state = os.fstat(handle)
            content = json.loads(os.read(handle, RECORD_BYTES))
        finally:
            os.close(handle)
        if stat.S_ISREG(state.st_mode) and path == _record_path(os.path.dirname(path), state.st_uid):
            return (content, state) if isinstance(content, dict) else ({}, nothing)
    return {}, nothing


def _record_path(place: str, uid: object) -> str:
    return os.path.join(place, f"{NAME}.{uid}.json")


def _open(path: str) -> int:
    """The lock's file open for locking, made if it is not there; LockError if it is not what it must be."""
    while True:
        try:
            handle = os.open(path, os.O_RDWR | OPEN)
        except FileNotFoundError:
            _create(path)
            continue
        except OSError as error:
            raise LockError(f"{path} cannot be opened: {error.strerror}; {_whose(path)}") from error
        if stat.S_ISREG(os.fstat(handle).st_mode):
            return handle
        os.close(handle)
        raise LockError(f"{path} is no plain file; {_whose(path)}")


def _create(path: str) -> None:
    """Make the file under another name, open to all accounts, and only then give it its name, unless that is taken."""
    partial = f"{path}.{os.urandom(8).hex()}"
    handle = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN, 0o666)
    try:
        os.fchmod(handle, 0o666)
        with contextlib.suppress(FileExistsError):
            os.link(partial, path, follow_symlinks=False)
    finally:
        os.close(handle)
        os.unlink(partial)


def _whose(path: str) -> str:
    """Who can put a file right."""
    try:
        state = os.lstat(path)
    except OSError:
        return "ask an administrator of this node"
    kind = "a symbolic link" if stat.S_ISLNK(state.st_mode) else "what is there"
    whose = (
        ""
        if state.st_uid == os.getuid()
        else f"ask account {account(state.st_uid)} or an administrator of this node to "
    )
    return f"{whose}remove {kind}"


def _same_file(handle: int, path: str) -> bool:
    mine, there = os.fstat(handle), os.lstat(path)
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)
