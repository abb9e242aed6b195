"""Checks of a machine itself, over recorded output, for what is right, wrong and not there."""

import time

import pytest

from repro.cluster.local_shell import LocalShell
from repro.cluster.ssh import CommandResult
from repro.preflight.framework import FAILED, OK, UNAVAILABLE, WARNING, Expected, Machine, run_checks
from repro.preflight.node import CHECKS
from tests.support.recorded import machine

NAMED = {check.name: check for check in CHECKS}
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max stack size            8388608              unlimited            bytes
Max locked memory         {0:<20} {0:<20} bytes
Max address space         unlimited            unlimited            bytes
"""
# `ss -Hltnp` of Debian 12.
FREE = 'LISTEN 0      128          0.0.0.0:22         0.0.0.0:*    users:(("sshd",pid=88,fd=3))\n'
BUSY = FREE + 'LISTEN 0      4096               *:29500            *:*    users:(("python3",pid=4242,fd=7))\n'
HIDDEN = FREE + "LISTEN 0      4096       127.0.0.1:29500      0.0.0.0:*\n"


def df(size, free, where="/"):
    return f"    1B-blocks        Avail Mounted on\n{size:>13} {free:>12} {where}\n"


GIB = 2**30
CASES = [
    ("memlock", {"cat /proc/self/limits": LIMITS.format("unlimited")}, {}, OK, "unlimited"),
    ("memlock", {"cat /proc/self/limits": LIMITS.format(65536)}, {"hca": "mlx5_0"}, FAILED, "64 KiB"),
    (
        "memlock",
        {"cat /proc/self/limits": LIMITS.format(65536)},
        {"hca": "mlx5_0", "containers": True},
        WARNING,
        "64 KiB",
    ),
    ("memlock", {"cat /proc/self/limits": LIMITS.format(8388608)}, {}, WARNING, "8,192 KiB"),
    ("memlock", {"cat": (1, "cat: /proc/self/limits: No such file or directory")}, {}, UNAVAILABLE, "No such file"),
    ("shared-memory", {"df": df(200 * GIB, 190 * GIB, "/dev/shm")}, {}, OK, "190.0 of 200.0 GiB"),
    ("shared-memory", {"df": df(64 * 2**20, 64 * 2**20, "/dev/shm")}, {}, FAILED, "0.1 of 0.1 GiB"),
    ("shared-memory", {"df": df(64 * 2**20, 64 * 2**20, "/dev/shm")}, {"gpu": ""}, WARNING, "0.1 of 0.1 GiB"),
    ("shared-memory", {}, {}, UNAVAILABLE, "df is not installed"),
    ("disk", {"df": df(900 * GIB, 500 * GIB)}, {}, OK, "500.0 of 900.0 GiB free on /"),
    ("disk", {"df": df(900 * GIB, 5 * GIB)}, {}, WARNING, "5.0 of 900.0"),
    ("disk", {"df": df(900 * GIB, 0)}, {}, FAILED, "0.0 of 900.0"),
    (
        "disk",
        {
            "df -B1 --output=size,avail,target /srv/runs/new": (1, "df: No such file or directory"),
            "df -B1 --output=size,avail,target /srv/runs": (1, "df: No such file or directory"),
            "df -B1 --output=size,avail,target /srv": df(90 * GIB, 80 * GIB, "/srv"),
        },
        {"work": "/srv/runs/new"},
        OK,
        "free on /srv",
    ),
    ("port", {"ss": FREE}, {"port": 29500}, OK, "port 29500 is free"),
    ("port", {"ss": BUSY}, {"port": 29500}, FAILED, "port 29500 is held by python3 (pid 4242)"),
    ("port", {"ss": HIDDEN}, {"port": 29500}, FAILED, "held by a process of another user"),
    ("port", {"ss": BUSY}, {}, UNAVAILABLE, "uses a free port"),
    ("port", {}, {"port": 29500}, UNAVAILABLE, "ss is not installed"),
]


@pytest.mark.parametrize(("check", "answers", "expected", "result", "message"), CASES)
def test_a_check_finds(check, answers, expected, result, message):
    (entry,) = next(run_checks([NAMED[check]], [machine(answers, **expected)]))
    assert entry.finding.result == result
    assert message in entry.finding.facts
    assert bool(entry.finding.impact and entry.finding.fix) == (result in (WARNING, FAILED))


class Clock:
    """A machine whose clock is ahead; each answer takes a while, as over a network."""

    def __init__(self, ahead, delay):
        self.ahead, self.delay = ahead, delay

    def run(self, argv, **options):
        if argv[0] == "chronyc":
            self.ahead = 0.0
            return CommandResult("200 OK", "", 0)
        time.sleep(self.delay / 2)
        now = time.time() + self.ahead
        time.sleep(self.delay / 2)
        return CommandResult(f"{now:.9f}\n", "", 0)


@pytest.mark.parametrize(("ahead", "result"), [(0.0, OK), (-0.02, OK), (0.5, WARNING), (-30.0, FAILED)])
def test_clocks_are_compared_with_the_controllers(ahead, result):
    (entry,) = next(run_checks([NAMED["clock"]], [Machine("node1", Clock(ahead, 0.02), Expected())]))
    assert entry.finding.result == result
    assert float(entry.finding.facts.split()[0]) == pytest.approx(ahead, abs=0.05)


def test_a_slow_way_to_the_node_is_not_taken_for_a_wrong_clock():
    (entry,) = next(run_checks([NAMED["clock"]], [Machine("node1", Clock(0.15, 0.2), Expected())]))
    assert entry.finding.result == OK


def test_a_wrong_clock_can_be_set():
    (entry,) = next(run_checks([NAMED["clock"]], [Machine("node1", Clock(9.0, 0.0), Expected())], fix=True))
    assert (entry.finding.result, entry.finding.fixed) == (OK, True)


@pytest.mark.parametrize(("answer", "result"), [("yes", OK), ("no", WARNING)])
def test_this_machine_asks_for_a_time_server(monkeypatch, answer, result):
    monkeypatch.setattr(LocalShell, "run", lambda self, argv, **options: CommandResult(answer + "\n", "", 0))
    (entry,) = next(run_checks([NAMED["clock"]], [Machine("this machine", LocalShell())]))
    assert entry.finding.result == result
