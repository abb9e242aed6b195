"""Times the kernels of 2020 and OneFlow's own on the same shapes, while `docker/compat/kernel_trace.c` traces them.

Nothing is timed here: the metrics say when a phase began and ended, and the trace has the kernels that ran in it. Before
each call, and in the phase "cold" before each kernel, other data displaces what the GPU's cache holds.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import oneflow as flow

from repro.models.past import DIRECTIONS, FORWARD, Subject
from repro.trainers.libraries import libraries
from repro.trainers.metrics import Metrics
from repro.trainers.past.config import Timing
from repro.trainers.past.cuda import Address, CudaError, Cudnn, Driver, Operator
from repro.trainers.past.forms import RATE, BatchNorm, Long, form
from repro.trainers.past.present import present, wait
from repro.trainers.past.reference import TOLERANCES, expected, needs_all_rows, reads
from repro.trainers.versions import versions

PAST, COLD, PRESENT = "past", "cold", "present"
WARM_UP = 3
PAUSE_S = 0.002
"""Between two phases, so that no kernel of one may count for the other."""
FLUSHED_ELEMENTS = 2**26
"""256 MiB in fp32, several times the cache of any GPU."""
CHECKED_ROWS = 4
KEPT_TOLERANCE = 0.01


def measure(timing: Timing) -> None:
    """Check and time every operator; one that fails is written down with the reason, and the others go on."""
    metrics = Metrics(timing.output, 0)
    flow.ones(1, device="cuda").numpy()
    driver = Driver(timing.code)
    metrics.write(
        "start",
        rank=0,
        world_size=1,
        pid=os.getpid(),
        host=socket.gethostname(),
        versions=versions("cuda"),
        libraries=libraries(),
        gpu={"name": driver.name, **driver.attributes},
    )
    measurement = Measurement(driver, metrics, timing.calls)
    for subject in timing.subjects:
        measurement.present(subject)
        measurement.past(subject)
    metrics.write("end")
    metrics.close()


class Measurement:
    def __init__(self, driver: Driver, metrics: Metrics, calls: int) -> None:
        self.driver, self.metrics, self.calls = driver, metrics, calls
        self.cudnn: Cudnn | None = None
        self.displaced = Address(driver.allocate(4 * FLUSHED_ELEMENTS))

    def present(self, subject: Subject) -> None:
        calls = present(subject.form, subject.rows, subject.columns, "cuda")
        for direction in DIRECTIONS:
            self.phase(subject, direction, PRESENT, [calls[direction]], wait)
        del calls
        wait()
        flow.cuda.empty_cache()

    def past(self, subject: Subject) -> None:
        whole = form(subject.form, subject.rows, subject.columns, self.driver.gpu)
        if self.cudnn is None and any(isinstance(step, BatchNorm) for steps in whole.steps.values() for step in steps):
            self.cudnn = Cudnn()
        operator = Operator(self.driver, self.cudnn, whole)
        try:
            for direction in DIRECTIONS:
                steps = whole.steps[direction]
                about = {"subject": subject.name, "direction": direction}
                self.metrics.write("passes", **about, passes=whole.passes(direction), bytes=[*map(whole.bytes, steps)])
                for step in steps:
                    operator.run(step)
                self.driver.wait()
                for part, error, tolerance in errors(operator, subject, direction):
                    self.metrics.write("error", **about, part=part, error=error, tolerance=tolerance)
                runs = [lambda step=step: operator.run(step) for step in steps]
                self.phase(subject, direction, PAST, [lambda runs=runs: [run() for run in runs]], self.driver.wait)
                self.phase(subject, direction, COLD, runs, self.driver.wait)
        except CudaError as error:
            self.metrics.write("refused", subject=subject.name, reason=str(error))
        finally:
            operator.close()

    def phase(self, subject: Subject, direction: str, kind: str, parts: list[Callable], wait: Callable) -> None:
        """Make the calls, whose parts each find a cache without their data, and write down from when to when."""
        for call in range(WARM_UP + self.calls):
            if call == WARM_UP:
                time.sleep(PAUSE_S)
                begin = time.time()
            for part in parts:
                self.driver.launch("flush_cache", 1024, 256, (Long(FLUSHED_ELEMENTS), self.displaced))
                self.driver.wait()
                part()
                wait()
        end = time.time()
        time.sleep(PAUSE_S)
        about = asdict(subject) | {"subject": subject.name, "direction": direction}
        self.metrics.write("phase", **about, kind=kind, calls=self.calls, begin=begin, end=end)


def errors(operator: Operator, subject: Subject, direction: str) -> list:
    """The relative error of each result of a direction, and what it may be; from some rows unless results add up all."""
    rows = subject.rows
    some = [slice(0, rows)] if needs_all_rows(subject.form, direction) else _ends(rows)

    def values(name: str) -> np.ndarray:
        parts = [operator.values(name, span) for span in some]
        return parts[0] if operator.form.buffers[name][0] == subject.columns else np.concatenate(parts)

    results = []
    given = {buffer: values(buffer) for buffer in reads(subject.form, direction)}
    for name, exact in expected(subject.form, direction, given).items():
        difference = np.linalg.norm(values(name).astype(np.float64) - exact)
        results.append((name, float(difference / np.linalg.norm(exact)), TOLERANCES[operator.form.precision]))
    if "mask" in operator.form.buffers and direction == FORWARD:
        share = operator.values("mask", slice(0, min(rows, 4096))).mean()
        results.append(("share kept", float(abs(share - (1.0 - RATE))), KEPT_TOLERANCE))
    return results


def _ends(rows: int) -> list:
    few = min(CHECKED_ROWS, rows // 2)
    return [slice(0, few), slice(rows - few, rows)]
