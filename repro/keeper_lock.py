"""The lock of the node that this runs on: one run at a time, and who has it; needs Python 3.8 and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import time

POLL_S = 0.1
MARGIN_S = 4.0


def take_lock(path: str, owner: dict, patience: float) -> dict | None:
    """Lock a file until this process ends, and write down for whom; the owner if it is another one.

    A connection that was lost may have left the lock with this same owner: then its lease is waited for.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    deadline = time.monotonic() + patience + MARGIN_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = read_owner(handle)
            if holder != owner or time.monotonic() > deadline:
                return holder
            time.sleep(POLL_S)
        else:
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(owner).encode(), 0)
            return None


def read_owner(handle: int) -> dict:
    try:
        return dict(json.loads(os.pread(handle, 4096, 0)))
    except ValueError:
        return {}
