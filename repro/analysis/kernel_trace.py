"""Reduces a trace of GPU kernels to one mean iteration of a training: kernels, busy time and idle gaps."""

import bisect
import csv
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from repro.analysis.kernel_classes import class_of
from repro.planning.profiling import INTERVAL
from repro.runs.failures import Failure
from repro.runs.files import RunPath, lines, read_json
from repro.runs.metrics import events
from repro.runs.record import write_json, write_text
from repro.utils.errors import FAILED, ReproError
from repro.utils.i18n import N_

KERNELS, SUMMARY = "kernels.csv", "profile.json"
LEAST_GAP_NS, GAPS = 20_000, 10


class TraceError(ReproError):
    """A trace cannot be read; `failure` says why."""

    status = FAILED

    def __init__(self, message: str, **values: object):
        self.failure = Failure(message, values)
        super().__init__(self.failure.text())


class Record(NamedTuple):
    """A kernel, copy or fill: when it began and ended, in ns, the number of its name, its GPU and its CUDA stream."""

    start: int
    end: int
    name: int
    device: int = 0
    stream: int = 0


@dataclass(frozen=True)
class Trace:
    """What `docker/compat/kernel_trace.c` writes; `clocks` are pairs of the same moment in ns, records are by start."""

    cupti: str
    clocks: tuple[tuple[int, int], ...]
    names: dict[int, str]
    records: tuple[Record, ...]
    dropped: int = 0

    def at(self, wall_s: float) -> int:
        """The trace's time in ns at a time since 1970, by the pair of clocks nearest to it."""
        wall = int(wall_s * 1e9)
        traced, real = min(self.clocks, key=lambda pair: abs(pair[1] - wall))
        return wall - real + traced

    def begun(self, begin: int, end: int) -> tuple[Record, ...]:
        """The records that began between two of its times in ns."""
        starts = [record.start for record in self.records]
        return self.records[bisect.bisect_left(starts, begin) : bisect.bisect_left(starts, end)]


@dataclass(frozen=True)
class Kernel:
    """All launches of one kernel, copy or fill: how many, and their time in ms, both per iteration."""

    name: str
    launches: float
    ms: float

    @property
    def kind(self) -> str:
        return class_of(self.name)


@dataclass(frozen=True)
class Gap:
    """Idle times of more than 20 us right before a kernel: how many, and their time in ms, both per iteration."""

    before: str
    count: float
    ms: float


@dataclass(frozen=True)
class Profile:
    """One iteration on rank 0's GPU, as the mean over `iterations`.

    `iteration_ms` is by the clock, `busy_ms` the part of it in which at least one kernel, copy or fill ran. Kernels and
    gaps are sorted by their time, gaps are the largest GAPS.
    """

    iterations: int
    iteration_ms: float
    busy_ms: float
    launches: float
    cupti: str
    kernels: tuple[Kernel, ...]
    gaps: tuple[Gap, ...]

    @property
    def idle_ms(self) -> float:
        return self.iteration_ms - self.busy_ms

    def by_class(self) -> dict[str, float]:
        """Milliseconds of kernels by class; kernels that run at the same time both count."""
        ms_by_class: dict[str, float] = defaultdict(float)
        for kernel in self.kernels:
            ms_by_class[kernel.kind] += kernel.ms
        return dict(ms_by_class)

    def write(self, folder: Path) -> None:
        """Keep the profile in an attempt's folder, as `kernels.csv` and `profile.json`."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("name", "class", "launches_per_iteration", "ms_per_iteration"))
        writer.writerows((kernel.name, kernel.kind, kernel.launches, kernel.ms) for kernel in self.kernels)
        write_text(folder / KERNELS, out.getvalue())
        rest = {**asdict(self), "idle_ms": self.idle_ms}
        del rest["kernels"]
        write_json(folder / SUMMARY, rest)

    @classmethod
    def read(cls, folder: RunPath) -> "Profile":
        """The profile that `write` kept; kernels are classified again."""
        content = read_json(folder / SUMMARY)
        del content["idle_ms"]
        rows = csv.DictReader(lines(folder / KERNELS))
        kernels = tuple(
            Kernel(row["name"], float(row["launches_per_iteration"]), float(row["ms_per_iteration"])) for row in rows
        )
        return cls(**{**content, "kernels": kernels, "gaps": tuple(Gap(**gap) for gap in content["gaps"])})


def read_trace(path: Path) -> Trace:
    """Read a trace file; a last line that was cut off is passed over. TraceError if it is none."""
    cupti, clocks, names, records, dropped = "", [], {}, [], 0
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        for line in text[: text.rfind("\n") + 1].splitlines():
            word, _, rest = line.partition(" ")
            if word.isdigit():
                end, device, stream, place = map(int, rest.split())
                records.append(Record(int(word), end, name=place, device=device, stream=stream))
            elif word == "name":
                number, _, name = rest.partition(" ")
                names[int(number)] = name
            elif word == "clock":
                traced, real = rest.split()
                clocks.append((int(traced), int(real)))
            elif word == "dropped":
                dropped += int(rest)
            elif word == "trace":
                cupti = rest.partition(" ")[2]
    except ValueError:
        raise TraceError(N_("the trace {file} cannot be read: {line}"), file=path.name, line=line[:80]) from None
    if not clocks:
        raise TraceError(N_("the trace {file} contains no record"), file=path.name)
    return Trace(cupti, tuple(clocks), names=names, records=tuple(sorted(records)), dropped=dropped)


def window(metrics: RunPath) -> tuple[float, float, int]:
    """Begin and end of the last INTERVAL iterations or more that were printed, since 1970 in s, and their number."""
    rows = [row for row in events(metrics) if row["event"] == "iteration"]
    last = rows[-1] if rows else {"iteration": 0}
    first = next((row for row in reversed(rows) if row["iteration"] <= last["iteration"] - INTERVAL), None)
    if first is None:
        raise TraceError(N_("fewer than {n} iterations were printed after the first row"), n=INTERVAL)
    return first["time"], last["time"], last["iteration"] - first["iteration"]


def profile_of(trace: Trace, begin_s: float, end_s: float, iterations: int) -> Profile:
    """The mean iteration between two times since 1970.

    Kernels count where they begin; they may reach beyond the end, as one of the iteration before does at the begin.

    Raises
    ------
    TraceError
        CUPTI lost records, or the trace does not reach from the begin to the end.
    """
    begin, end = trace.at(begin_s), trace.at(end_s)
    if trace.dropped:
        raise TraceError(N_("CUPTI lost {n} records: the GPU times are incomplete"), n=trace.dropped)
    inside = trace.begun(begin, end)
    iteration = (end - begin) / iterations
    if not inside or inside[0].start - begin > iteration or end - inside[-1].end > iteration:
        raise TraceError(N_("the trace does not cover the measured iterations"))
    launches: dict[str, int] = defaultdict(int)
    spent: dict[str, int] = defaultdict(int)
    for record in inside:
        name = trace.names.get(record.name, "?")
        launches[name] += 1
        spent[name] += record.end - record.start
    kernels = [Kernel(name, launches[name] / iterations, spent[name] / iterations / 1e6) for name in launches]
    busy, gaps = busy_and_gaps(trace.records, begin, end)
    return Profile(
        iterations,
        iteration / 1e6,
        busy_ms=busy / iterations / 1e6,
        launches=len(inside) / iterations,
        cupti=trace.cupti,
        kernels=tuple(sorted(kernels, key=lambda kernel: (-kernel.ms, kernel.name))),
        gaps=_largest(trace, gaps, iterations),
    )


def busy_and_gaps(records: Sequence[Record], begin: int, end: int) -> tuple[int, list[tuple[int, int]]]:
    """How long at least one of the records, which are sorted by start, ran between two times; and the gaps.

    A gap is its length and the number of the name of the record that ends it; one at the end has none and is left out.
    """
    busy, gaps, reached = 0, [], begin
    for start, stop, number, _device, _stream in records:
        if start >= end:
            break
        if stop <= begin:
            continue
        if start > reached:
            gaps.append((start - reached, number))
        busy += max(0, min(stop, end) - max(start, reached))
        reached = max(reached, stop)
    return busy, gaps


def _largest(trace: Trace, gaps: list[tuple[int, int]], iterations: int) -> tuple[Gap, ...]:
    before: dict[str, list[int]] = defaultdict(list)
    for length, number in gaps:
        if length > LEAST_GAP_NS:
            before[trace.names.get(number, "?")].append(length)
    totals = [Gap(name, len(all_), sum(all_)) for name, all_ in before.items()]
    totals.sort(key=lambda gap: (-gap.ms, gap.before))
    return tuple(Gap(gap.before, gap.count / iterations, gap.ms / iterations / 1e6) for gap in totals[:GAPS])
