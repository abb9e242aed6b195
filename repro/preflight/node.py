"""Checks of the machine: locked memory, shared memory, disk, clock, and the rendezvous port."""

from __future__ import annotations

import re
import time
from pathlib import PurePosixPath

from repro.cluster.local_shell import LocalShell
from repro.preflight.framework import CheckResult, Machine, PreflightCheck, failed, ok, unavailable, warning
from repro.utils.i18n import Message

GIB = 2**30
SHARED_MEMORY = 1 * GIB
DISK_LEAST, DISK_ENOUGH = 1 * GIB, 10 * GIB
SKEW_NOTICED_S, SKEW_MOST_S = 0.1, 2.0


def check_memlock(machine: Machine) -> CheckResult:
    """Failed where InfiniBand needs locked memory and the limit is not "unlimited"."""
    limits = machine.text(["cat", "/proc/self/limits"])
    (soft,) = re.findall(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    if soft == "unlimited":
        return ok(Message("unlimited"))
    message = Message("{kib:,} KiB", kib=int(soft) // 1024)
    fix = "`make provision` sets it; by hand: `* - memlock unlimited` in /etc/security/limits.d, then log in again"
    if machine.expected.hca and not machine.expected.containers:
        return failed(message, "InfiniBand needs locked memory: transfers fail or fall back to TCP.", fix)
    return warning(
        message, "Only InfiniBand outside containers needs more; containers are started with memlock=-1.", fix
    )


def check_shared_memory(machine: Machine) -> CheckResult:
    """Failed where less than SHARED_MEMORY bytes of /dev/shm are free."""
    size, free, _ = space(machine, "/dev/shm")
    message = Message("{free:.1f} of {size:.1f} GiB free", free=free / GIB, size=size / GIB)
    if free >= SHARED_MEMORY:
        return ok(message)
    impact = "NCCL uses it for data between GPUs of a node without peer access."
    fix = "remove what fills /dev/shm, or enlarge it: mount -o remount,size=8G /dev/shm"
    return (warning if machine.expected.gpu == "" else failed)(message, impact, fix)


def check_disk(machine: Machine) -> CheckResult:
    """Free space for runs: a warning below DISK_ENOUGH bytes, failed below DISK_LEAST."""
    size, free, where = space(machine, machine.expected.work)
    message = Message("{free:.1f} of {size:.1f} GiB free on {where}", free=free / GIB, size=size / GIB, where=where)
    impact = "Logs and metrics of runs are written there; image and compiled code need 5 GiB once."
    if free < DISK_LEAST:
        return failed(message, impact, "free some space: delete old runs, or use `docker image prune`")
    if free < DISK_ENOUGH:
        return warning(message, impact, "free some space before a long run")
    return ok(message)


def space(machine: Machine, path: str) -> tuple[int, int, str]:
    """Size and free space of a file system in bytes, and its mount point; for a missing path, of its nearest parent."""
    for place in (PurePosixPath(path), *PurePosixPath(path).parents):
        done = machine.run(["df", "-B1", "--output=size,avail,target", str(place)])
        if done.status == 0:
            size, free, where = done.stdout.splitlines()[-1].split(maxsplit=2)
            return int(size), int(free), where
    return 0, 0, path


def check_clock(machine: Machine) -> CheckResult:
    """The clock's distance from the controller's: a warning above SKEW_NOTICED_S, failed above SKEW_MOST_S seconds.

    This machine's is only asked whether a time server synchronizes it.
    """
    if isinstance(machine.runner, LocalShell):
        synchronized = machine.text(["timedatectl", "show", "--property=NTPSynchronized", "--value"]).strip()
        if synchronized == "yes":
            return ok(Message("synchronized with a time server"))
        return warning(
            Message("not synchronized with a time server"),
            "Times in the report may be off.",
            "timedatectl set-ntp true",
        )
    offset, accuracy = min((_offset(machine) for _ in range(3)), key=lambda pair: pair[1])
    message = Message(
        "{offset:+.3f} s from the controller, uncertainty {accuracy:.3f} s", offset=offset, accuracy=accuracy
    )
    distance = max(0.0, abs(offset) - accuracy)
    impact = "Logs of several nodes cannot be ordered, and file times mislead."
    fix = "sudo chronyc makestep (FIX=1); `make provision` sets up chrony"
    if distance > SKEW_MOST_S:
        return failed(message, impact, fix)
    return warning(message, impact, fix) if distance > SKEW_NOTICED_S else ok(message)


def _offset(machine: Machine) -> tuple[float, float]:
    """Seconds by which a machine's clock is ahead, and the uncertainty: half of the round-trip time."""
    before = time.time()
    there = float(machine.text(["date", "+%s.%N"]))
    after = time.time()
    return there - (before + after) / 2, (after - before) / 2


def step_clock(machine: Machine) -> None:
    """Set the clock to that of its time servers at once; needs root."""
    machine.text(["chronyc", "makestep"], sudo=True)


def check_port(machine: Machine) -> CheckResult:
    """Failed where a process listens on the rendezvous port that was set."""
    port = machine.expected.port
    if not port:
        return unavailable(Message("each run uses a free port"), "PORT= sets one, which is then checked")
    lines = machine.text(["ss", "-Hltnp"]).splitlines()
    holders = [line for line in lines if line.split()[3].rpartition(":")[2] == str(port)]
    if not holders:
        return ok(Message("port {port} is free", port=port))
    names = sorted(set(re.findall(r'\("([^"]+)",pid=(\d+)', " ".join(holders))))
    who = ", ".join(f"{name} (pid {pid})" for name, pid in names) or Message("a process of another user")
    return failed(
        Message("port {port} is held by {who}", port=port, who=who),
        "The ranks cannot find each other: rank 0 must listen on this port.",
        "end it if it is left over from a run, or choose another port (PORT= or cluster_port)",
    )


CHECKS = (
    PreflightCheck("memlock", "limit of locked memory", check_memlock),
    PreflightCheck("shared-memory", "size of /dev/shm", check_shared_memory),
    PreflightCheck("disk", "disk space for results", check_disk),
    PreflightCheck("clock", "the clock is right", check_clock, step_clock),
    PreflightCheck("port", "the rendezvous port is free", check_port),
)
