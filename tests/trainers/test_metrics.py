"""What a rank writes down, and the memory that it reads of itself."""

import json
import mmap
import resource
from pathlib import Path

import pytest

from repro.trainers.metrics import MEBIBYTE, Memory, Metrics, ProcessMemory


class Readings(Memory):
    """Memory that is read off a list."""

    def __init__(self, *readings):
        super().__init__()
        self.readings = list(readings)

    def read_mib(self):
        return self.readings.pop(0)


@pytest.mark.parametrize("readings", [(100.0, 400.0, 250.0), (400.0, 100.0), (100.0, 400.0)])
def test_the_peak_is_the_most_that_was_read(readings):
    memory = Readings(*readings)
    assert memory.peak_mib == 0, "nothing was read yet"
    assert [memory.used_mib() for _ in readings] == list(readings), "what is in use now, not the peak"
    assert memory.peak_mib == max(readings)


def test_a_process_reads_its_resident_memory_and_the_systems_peak(monkeypatch):
    class Usage:
        ru_maxrss = 300 * 1024

    monkeypatch.setattr(resource, "getrusage", lambda who: Usage if who == resource.RUSAGE_SELF else None)
    monkeypatch.setattr(resource, "getpagesize", lambda: 4096)
    monkeypatch.setattr(
        Path, "read_text", lambda path: "9999 51200 7 1 0 3 0" if str(path) == "/proc/self/statm" else ""
    )
    memory = ProcessMemory()
    assert memory.used_mib() == 51200 * 4096 / 2**20 == 200
    assert memory.peak_mib == 300, "what it held between two readings counts too"


def test_a_process_that_takes_memory_shows_it():
    """Of pages of its own: what malloc gives may be there already, as a worker of many tests has a large heap."""
    memory = ProcessMemory()
    before = memory.used_mib()
    with mmap.mmap(-1, 64 * MEBIBYTE) as taken:
        for place in range(0, len(taken), mmap.PAGESIZE):
            taken[place] = 1
        after = memory.used_mib()
    assert 32 < after - before < 96
    assert memory.peak_mib >= after


def test_events_are_lines_with_a_time_and_are_added_to_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 7.5)
    for _ in range(2):
        metrics = Metrics(str(tmp_path / "new" / "folder"), 3)
        metrics.write("start", device="cpu")
        file = tmp_path / "new" / "folder" / "metrics-rank3.jsonl"
        assert file.read_text().endswith("\n"), "a line is written when the call returns"
        metrics.write("iteration", time=3.0, loss=1.5)
        metrics.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == 2 * [
        {"event": "start", "device": "cpu", "time": 7.5},
        {"event": "iteration", "time": 3.0, "loss": 1.5},
    ]
