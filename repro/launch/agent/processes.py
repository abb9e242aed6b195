"""Processes of the node that this runs on: told apart for good, found by a run's mark, and ended; needs Python 3.8 alone."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterable

from repro.launch.agent.patience import limit

END_S = 8.0
POLL_S = 0.05
GROUP_POLL_S = 0.02


def identity(pid: int) -> str:
    """What tells a process from every other one, also after its number or the machine was used again; "" if it ended."""
    fields = stat(pid)
    return f"{_boot()}-{pid}-{fields[19]}" if fields and fields[0] not in "ZX" else ""


def goes_on(process: str) -> bool:
    """Whether the process with this identity has not ended."""
    return bool(process) and identity(number(process)) == process


def number(process: str) -> int:
    """The process number in an identity; 0 if there is none."""
    _, _, rest = process.partition("-")
    digits = rest.partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped by a signal or a debugger."""
    return stat(pid)[:1] in (["T"], ["t"])


def command(pid: int) -> str:
    """A process's command line, cut to 100 characters; its name if it has none."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
        text = " ".join(words).strip()
        if not text:
            with open(f"/proc/{pid}/comm") as file:
                text = file.read().strip()
    except OSError:
        return "?"
    return printable(text if len(text) <= 100 else text[:97] + "...")


def printable(text: str) -> str:
    """A text that another account may have written, without what would steer a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def owner(pid: int) -> int | None:
    """The number of the account that a process belongs to; None where it is hidden."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("Uid:")), None)
    return None


def of_run(first: int, mark: str) -> list[str]:
    """A process, those of its account whose command line has a run's mark, and all that descend from them.

    Processes of other accounts are left out, whatever their command line says.
    """
    uid, parents = owner(first), _parents()
    chosen = {first}
    if mark:
        chosen |= {pid for pid in parents if owner(pid) == uid and mark in _words(pid)}
    chosen -= {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in chosen} - chosen - {os.getpid()}:
        chosen |= more
    return [process for pid in sorted(chosen) if owner(pid) == uid and (process := identity(pid))]


def end(chosen: Iterable[str]) -> list[str]:
    """End processes, also those that are stopped; those that are left are given back."""
    left = list(chosen)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            _signal(process, kind)
        deadline = time.monotonic() + limit(END_S)
        while (left := [process for process in left if goes_on(process)]) and time.monotonic() < deadline:
            time.sleep(POLL_S)
    return left


def end_group(process: subprocess.Popen, grace_s: float) -> None:
    """End every process of the group that one leads: with SIGTERM, and what is left after a while with SIGKILL."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        if _group_has_ended(process, kind, grace_s):
            break


def _group_has_ended(process: subprocess.Popen, kind: int, grace_s: float) -> bool:
    """Signal a process's group, and say whether all of it has ended after a while."""
    deadline = time.monotonic() + grace_s
    while True:
        process.poll()  # until it is asked for, a process that has ended still counts as one of its group
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            return True
        if time.monotonic() >= deadline:
            return False
        kind = 0
        time.sleep(GROUP_POLL_S)


def of_account() -> list[int]:
    """The processes of this account, by number."""
    return [pid for pid in _parents() if owner(pid) == os.getuid()]


def of_session(leader: int) -> list[str]:
    """The processes of this account in the session that a process began, whether that goes on or not."""
    pids = [pid for pid in of_account() if stat(pid)[3:4] == [str(leader)]]
    return [process for pid in pids if (process := identity(pid))]


def environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty where it is hidden."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return {}
    return dict(word.partition("=")[::2] for word in words if word)


def lock_all_memory() -> None:
    """Let this process and its children lock as much memory as the machine permits; InfiniBand needs it."""
    _, most = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


def limit_reached(error: Exception) -> str:
    """What to do about an error that means that a limit of this account is reached; "" for another."""
    number = getattr(error, "errno", None)
    if number in (errno.EMFILE, errno.ENFILE):
        name, limit = "nofile", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    elif number == errno.EAGAIN or "start new thread" in str(error):
        name, limit = "nproc", resource.getrlimit(resource.RLIMIT_NPROC)[0]
    else:
        return ""
    shown = (
        "unlimited for one session, so it is one of the service or slice" if limit == resource.RLIM_INFINITY else limit
    )
    return f" (limit {name} of this account: {shown}; raise it in /etc/security/limits.d, then connect again)"


def may_end(pid: int) -> bool:
    """Whether the kernel would let this account end a process."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _signal(process: str, kind: int) -> None:
    """Signal a process and let it go on if it is stopped; nothing happens to another with its number."""
    pid = number(process)
    with contextlib.suppress(OSError):
        if hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal"):  # from Python 3.9 on
            handle = os.pidfd_open(pid)
            try:
                if goes_on(process):
                    signal.pidfd_send_signal(handle, kind)
                    signal.pidfd_send_signal(handle, signal.SIGCONT)
            finally:
                os.close(handle)
        elif goes_on(process):
            os.kill(pid, kind)
            os.kill(pid, signal.SIGCONT)


def command_line(pid: int) -> list[str]:
    """A process's command and its arguments; none if it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")[:-1]
    except OSError:
        return []


def _words(pid: int) -> list[str]:
    return " ".join(command_line(pid)).split()


def _parents() -> dict[int, int]:
    """Every process that can be seen, with its parent."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        fields = stat(int(name))
        if fields:
            parents[int(name)] = int(fields[1])
    return parents


def stat(pid: int) -> list[str]:
    """The fields of a process from its state on, empty if it is gone or hidden."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read(8)
