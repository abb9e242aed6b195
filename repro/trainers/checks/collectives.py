"""Measures all-reduce and point-to-point bandwidth with the operations that training uses."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import oneflow as flow

from repro.trainers.checks.config import Measurement
from repro.trainers.libraries import libraries
from repro.trainers.metrics import Metrics
from repro.trainers.versions import versions

CALLS_AT_MOST = 1000
BYTES_IN_FLIGHT = 4 * 2**30
BYTES_PER_ELEMENT = 4


def measure(measurement: Measurement) -> None:
    """Run all measurements and write them to this rank's metrics; every process of the layout calls this.

    Raises
    ------
    ValueError
        If a sum or a received tensor is wrong; a speed would then be meaningless.
    """
    metrics = Metrics(measurement.output, flow.env.get_rank())
    metrics.write(
        "start",
        rank=flow.env.get_rank(),
        world_size=flow.env.get_world_size(),
        pid=os.getpid(),
        host=socket.gethostname(),
        versions=versions(measurement.device),
        libraries=libraries(),
    )
    ranks = Ranks(measurement.device)
    for size in measurement.sizes:
        metrics.write("all_reduce", **all_reduce(ranks, size, measurement))
    if measurement.pairs:
        for first in (0, 1):
            for row in pairs(ranks, max(measurement.sizes), measurement, first):
                metrics.write("pair", **row)
    metrics.write("end")
    metrics.close()


class Ranks:
    """All ranks of the run on a one-dimensional placement."""

    def __init__(self, device: str) -> None:
        self.rank, self.count, self.device = flow.env.get_rank(), flow.env.get_world_size(), device
        self.local = f"{device}:{flow.env.get_local_rank()}" if device == "cuda" else device
        self.all_ranks = flow.placement(device, ranks=list(range(self.count)))

    def filled(self, size: int, value: float):
        """A local tensor of `size` bytes filled with `value`."""
        return flow.full((size // BYTES_PER_ELEMENT,), value, dtype=flow.float32, device=self.local)

    def parts(self, mine):
        """The ranks' local tensors as a global tensor with partial-sum signature."""
        return mine.to_global(placement=self.all_ranks, sbp=flow.sbp.partial_sum)

    def gather(self, value: float) -> list[float]:
        """The values of all ranks in rank order; also acts as a barrier."""
        values = np.zeros(self.count, np.float32)
        values[self.rank] = value
        parts = self.parts(flow.tensor(values, device=self.local))
        return [float(number) for number in parts.to_global(sbp=flow.sbp.broadcast).to_local().numpy()]


def all_reduce(ranks: Ranks, size: int, measurement: Measurement) -> dict:
    """Time of one all-reduce of `size` bytes (the slowest rank's median), and the resulting bandwidth.

    `algorithm_gbs` is S/T. `bus_gbs` is 2(n-1)/n of it, the rate of each rank's link in one direction in a ring.
    1 GB is 10^9 bytes.
    """
    parts = ranks.parts(ranks.filled(size, float(ranks.rank + 1)))

    def call():
        return parts.to_global(sbp=flow.sbp.broadcast)

    calls, times, result = windows(ranks, call, lambda result: result.to_local(), size, measurement)
    expected = ranks.count * (ranks.count + 1) / 2
    check(result.to_local(), expected, f"the all-reduce of {size} bytes")
    seconds = max(ranks.gather(median(times)))
    algorithm = size / seconds / 1e9
    return {
        "bytes": size,
        "calls": calls,
        "windows_s": times,
        "seconds": seconds,
        "algorithm_gbs": algorithm,
        "bus_gbs": 2 * (ranks.count - 1) / ranks.count * algorithm,
    }


def pairs(ranks: Ranks, size: int, measurement: Measurement, first: int) -> list[dict]:
    """Bandwidth from every second rank, starting at `first`, to the next rank, with all pairs at the same time.

    Every rank gets the rows of all pairs. The list is empty if no rank follows `first`.
    """
    senders = range(first, ranks.count - 1, 2)
    if not senders:
        return []
    sends, receives = ranks.rank in senders, ranks.rank - 1 in senders
    mine = ranks.filled(size, float(ranks.rank + 1))
    shape, kind = mine.shape, mine.dtype

    def call():
        if sends:
            flow.comm.send(mine, ranks.rank + 1, send_meta=False)
        elif receives:
            return flow.comm.recv(ranks.rank - 1, shape=shape, dtype=kind, device=flow.device(ranks.local))
        return mine

    _, times, result = windows(ranks, call, lambda result: result, size, measurement)
    if receives:
        check(result, float(ranks.rank), f"what rank {ranks.rank - 1} sent to {ranks.rank}")
    medians = ranks.gather(median(times))
    return [
        {
            "from": rank,
            "to": rank + 1,
            "bytes": size,
            "seconds": medians[rank + 1],
            "gbs": size / medians[rank + 1] / 1e9,
        }
        for rank in senders
    ]


def windows(ranks: Ranks, call: Callable, local: Callable, size: int, measurement: Measurement) -> tuple:
    """Run a call in timed windows after two warm-up windows; returns (calls per window, seconds per call, last result).

    Calls are asynchronous, so a window ends when an element of its last result is on the host. The number of calls is
    limited so that results of `size` bytes fit into a small GPU's memory. All ranks make the same number of calls per
    window, given by the slowest rank, so that none waits for ever.
    """

    def window(calls: int) -> tuple:
        ranks.gather(0.0)
        started = time.perf_counter()
        for _ in range(calls):
            result = call()
        local(result)[-1:].numpy()
        return (time.perf_counter() - started) / calls, result

    window(1)
    once = max(ranks.gather(window(2)[0]))
    calls = max(1, min(CALLS_AT_MOST, BYTES_IN_FLIGHT // size, round(measurement.window_s / once)))
    timed = [window(calls) for _ in range(measurement.repeats)]
    return calls, [seconds for seconds, _ in timed], timed[-1][1]


def check(tensor, expected: float, what: str) -> None:
    low, high = float(tensor.min().numpy()), float(tensor.max().numpy())
    if low != expected or high != expected:
        raise ValueError(f"{what} holds values from {low:g} to {high:g}; each should be {expected:g}")
