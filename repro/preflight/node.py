"""Checks of a machine itself: locked memory, shared memory, disk, clock, and the port of the rendezvous."""

from __future__ import annotations

import re
import time
from pathlib import PurePosixPath

from repro.cluster.local_shell import LocalShell
from repro.preflight.framework import Check, Finding, Machine, failed, ok, unavailable, warning

GIB = 2**30
SHARED_MEMORY = 1 * GIB
DISK_LEAST, DISK_ENOUGH = 1 * GIB, 10 * GIB
SKEW_NOTICED_S, SKEW_MOST_S = 0.1, 2.0


def check_memlock(machine: Machine) -> Finding:
    limits = machine.text(["cat", "/proc/self/limits"])
    (soft,) = re.findall(r"^Max locked memory\s+(\S+)", limits, re.MULTILINE)
    if soft == "unlimited":
        return ok("unlimited")
    found = f"{int(soft) // 1024:,} KiB"
    fix = "`make provision` sets it; by hand: `* - memlock unlimited` in /etc/security/limits.d, then log in again"
    if machine.expected.hca and not machine.expected.containers:
        return failed(found, "InfiniBand must lock the memory it sends from: transfers fail or fall back to TCP.", fix)
    return warning(found, "Only InfiniBand outside of containers needs more; these are started with memlock=-1.", fix)


def check_shared_memory(machine: Machine) -> Finding:
    size, free, _ = space(machine, "/dev/shm")
    found = f"{free / GIB:.1f} of {size / GIB:.1f} GiB free"
    if free >= SHARED_MEMORY:
        return ok(found)
    impact = "NCCL exchanges data between the GPUs of a node through it where they cannot reach each other."
    fix = "remove what fills /dev/shm, or enlarge it: mount -o remount,size=8G /dev/shm"
    return (warning if machine.expected.gpu == "" else failed)(found, impact, fix)


def check_disk(machine: Machine) -> Finding:
    size, free, where = space(machine, machine.expected.work)
    found = f"{free / GIB:.1f} of {size / GIB:.1f} GiB free on {where}"
    impact = "Logs and metrics of a run go there; image and compiled code need 5 GiB once."
    if free < DISK_LEAST:
        return failed(found, impact, "free some space; old runs can go, and so can `docker image prune`")
    if free < DISK_ENOUGH:
        return warning(found, impact, "free some space before a long run")
    return ok(found)


def space(machine: Machine, path: str) -> tuple[int, int, str]:
    """Size and free space of a file system in bytes, and its mount point; for a missing path, of its first parent."""
    for place in (PurePosixPath(path), *PurePosixPath(path).parents):
        done = machine.run(["df", "-B1", "--output=size,avail,target", str(place)])
        if done.status == 0:
            size, free, where = done.stdout.splitlines()[-1].split(maxsplit=2)
            return int(size), int(free), where
    return 0, 0, path


def check_clock(machine: Machine) -> Finding:
    if isinstance(machine.runner, LocalShell):
        synchronized = machine.text(["timedatectl", "show", "--property=NTPSynchronized", "--value"]).strip()
        if synchronized == "yes":
            return ok("synchronized with a time server")
        return warning(
            "not synchronized with a time server", "Times in the report may be off.", "timedatectl set-ntp true"
        )
    offset, accuracy = min((_offset(machine) for _ in range(3)), key=lambda found: found[1])
    found = f"{offset:+.3f} s from the controller's, known to {accuracy:.3f} s"
    distance = max(0.0, abs(offset) - accuracy)
    impact = "Logs of several nodes cannot be put in order, and file times mislead."
    fix = "sudo chronyc makestep (FIX=1); `make provision` sets up chrony"
    if distance > SKEW_MOST_S:
        return failed(found, impact, fix)
    return warning(found, impact, fix) if distance > SKEW_NOTICED_S else ok(found)


def _offset(machine: Machine) -> tuple[float, float]:
    """Seconds that a machine's clock is ahead, and the uncertainty: half of the time that asking took."""
    before = time.time()
    there = float(machine.text(["date", "+%s.%N"]))
    after = time.time()
    return there - (before + after) / 2, (after - before) / 2


def step_clock(machine: Machine) -> None:
    machine.text(["chronyc", "makestep"], sudo=True)


def check_port(machine: Machine) -> Finding:
    port = machine.expected.port
    if not port:
        return unavailable("each run takes a free port", "PORT= sets one, which is then checked")
    lines = machine.text(["ss", "-Hltnp"]).splitlines()
    holders = [line for line in lines if line.split()[3].rpartition(":")[2] == str(port)]
    if not holders:
        return ok(f"port {port} is free")
    names = sorted(set(re.findall(r'\("([^"]+)",pid=(\d+)', " ".join(holders))))
    who = ", ".join(f"{name} (pid {pid})" for name, pid in names) or "a process of another user"
    return failed(
        f"port {port} is held by {who}",
        "The ranks cannot find each other: rank 0 must listen there.",
        "end it if it is left over from a run, or choose another port (PORT=, or cluster_port)",
    )


CHECKS = (
    Check("memlock", "memory that may be locked", check_memlock),
    Check("shared-memory", "size of /dev/shm", check_shared_memory),
    Check("disk", "space for results", check_disk),
    Check("clock", "the clock is right", check_clock, step_clock),
    Check("port", "the rendezvous can listen", check_port),
)
