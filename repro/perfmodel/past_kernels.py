"""What the kernels of 2020 that OneFlow 0.8.0 no longer has would cost in a published iteration, from measurements.

`make effects` measures them beside 0.8.0's own on a GPU that is here, and keeps the times in `repro/data/past`. On the
published GPU they are not known. The difference is multiplied by the ratio of the memory bandwidths and by that of
multiprocessors times clock: kernels that fill a GPU are limited by one or the other. Both are bounds of an interval, and
so are the times with the data of one kernel in the cache for the next, and without: 2020's GPUs had smaller caches.
Kernels too short to fill a GPU would differ by less than both.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from repro.models.past import BACKWARD, FORWARD, Use
from repro.perfmodel.hardware import GpuModel, describe, from_devices
from repro.planning.past import uses_of
from repro.published.cases import Case, load_catalogue
from repro.published.figures import load_published_cluster
from repro.utils.errors import FAILED, ReproError
from repro.utils.paths import DATA

FOLDER = DATA / "past"


class EffectError(ReproError):
    """A recorded measurement cannot be used; the message says which file and why."""

    status = FAILED


@dataclass(frozen=True)
class Timed:
    """An operator in one direction on a matrix: milliseconds of a call by the kernels of 2020 and by 0.8.0's.

    `past_ms` is with what the kernel before left in the cache, `cold_ms` without. `passes` counts how often the old ones
    read or write as much as the input, `bytes` what they read and write.
    """

    form: str
    rows: int
    columns: int
    direction: str
    passes: int
    bytes: int
    past_ms: float
    cold_ms: float
    present_ms: float
    past_kernels: Mapping[str, float]
    present_kernels: Mapping[str, float]

    @property
    def key(self) -> tuple[str, int, int, str]:
        return self.form, self.rows, self.columns, self.direction

    @property
    def differences(self) -> tuple[float, float]:
        """How much longer the old ones take, in ms."""
        return self.past_ms - self.present_ms, self.cold_ms - self.present_ms


@dataclass(frozen=True)
class TimedOperators:
    """The operators that were timed on a GPU, as nvidia-smi names it; and why others were not, by name."""

    gpu: str
    multiprocessors: int
    clock_mhz: float
    versions: Mapping[str, str]
    cupti: str
    operators: tuple[Timed, ...]
    left_out: Mapping[str, str]

    def text(self) -> str:
        """As its file has it: an operator per line."""
        head = {name: value for name, value in asdict(self).items() if name != "operators"}
        lines = ",\n  ".join(json.dumps(asdict(operator), ensure_ascii=False) for operator in self.operators)
        return json.dumps(head, ensure_ascii=False, indent=1)[:-2] + f',\n "operators": [\n  {lines}\n ]\n}}\n'


@dataclass(frozen=True)
class Span:
    """From the least to the most."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def __mul__(self, times: float) -> Span:
        return Span(self.low * times, self.high * times)


@dataclass(frozen=True)
class Gain:
    """By how much 0.8.0's kernels shorten an iteration of a case on the published GPU, in ms, by deviation.

    `gpus` are those that were measured, `target` the published one.
    """

    by_deviation: Mapping[str, Span]
    iteration_ms: float
    gpus: tuple[str, ...]
    target: str

    @property
    def faster(self) -> Span:
        """How much faster the port is than the program of its time for these reasons: 0.1 is 10 %."""
        return self._relative(sum(self.by_deviation.values(), Span(0.0, 0.0)))

    def of(self, deviation: str) -> Span:
        """The same for one deviation alone."""
        return self._relative(self.by_deviation[deviation])

    def as_json(self) -> dict:
        """As verdicts keep it."""
        spans = {deviation: vars(self.of(deviation)) for deviation in self.by_deviation}
        return {**vars(self.faster), "by_deviation": spans, "measured_on": list(self.gpus)}

    def _relative(self, saved: Span) -> Span:
        low, high = (ms / (self.iteration_ms - ms) for ms in (saved.low, saved.high))
        return Span(low, high)


def measurements(folder: Path = FOLDER) -> tuple[TimedOperators, ...]:
    """Every recorded measurement, in the order of their files; EffectError for a file that is none."""
    return tuple(map(_read, sorted(folder.glob("*.json"))))


@cache
def _read(path: Path) -> TimedOperators:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return TimedOperators(**{**content, "operators": tuple(Timed(**operator) for operator in content["operators"])})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EffectError(f"{path}: no measurement that `make effects` wrote ({error})") from error


def file_of(gpu: str, folder: Path = FOLDER) -> Path:
    """Where the measurement on a GPU is kept; HardwareError for one that gpus.toml does not know."""
    return folder / f"{from_devices(gpu, 1).gpu.name}.json"


def gain(case: Case, given: Iterable[TimedOperators] | None = None) -> Gain | None:
    """The gain on the published GPU in a published iteration; None where nothing was measured for the case.

    A deviation counts only if each of its operators was measured in the case's shapes.
    """
    measured = tuple(measurements() if given is None else given)
    cluster = load_catalogue().report(case.report).cluster
    target = describe(cluster).gpu
    saved: dict[str, list[Span | None]] = {}
    for use in uses_of(case):
        saved.setdefault(use.subject.deviation, []).append(_saved(use, measured, target))
    by_deviation = {
        deviation: sum((span for span in spans if span), Span(0.0, 0.0))
        for deviation, spans in saved.items()
        if None not in spans
    }
    if not by_deviation:
        return None
    milliseconds = 1000 * case.global_batch / float(case.published.throughput)
    printed = load_published_cluster(cluster)["hardware"]["gpu"]
    return Gain(by_deviation, milliseconds, tuple(measurement.gpu for measurement in measured), printed)


def _saved(use: Use, measured: tuple[TimedOperators, ...], target: GpuModel) -> Span | None:
    """What an operator's calls take longer in an iteration on the target, in ms; None if it was not measured."""
    total = Span(0.0, 0.0)
    for direction, calls in ((FORWARD, use.forward), (BACKWARD, use.backward)):
        key = (use.subject.form, use.subject.rows, use.subject.columns, direction)
        spans = [
            _scaled(timed, measurement, target)
            for measurement in measured
            for timed in measurement.operators
            if timed.key == key
        ]
        if not spans:
            return None
        total += Span(min(span.low for span in spans), max(span.high for span in spans)) * calls
    return total


def _scaled(timed: Timed, measured: TimedOperators, target: GpuModel) -> Span:
    """The differences on the target, by the ratios of bandwidth and of multiprocessors times clock."""
    here = from_devices(measured.gpu, 1).gpu
    ratios = here.bandwidth_gbs / target.bandwidth_gbs, here.issue_ghz / target.issue_ghz
    products = [difference * ratio for difference in timed.differences for ratio in ratios]
    return Span(min(products), max(products))
