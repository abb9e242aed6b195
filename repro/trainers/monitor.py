"""Times a run in windows of iterations, each closed by fetching the loss, and writes a row per window."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from repro.trainers.config import Config
from repro.trainers.graph.schedule import learning_rate
from repro.trainers.log_lines import LogLines, Row
from repro.trainers.metrics import Memory, Metrics

FIRST_LOSSES = 5
"""Iterations whose losses are always written, so that layouts can be compared."""
TOP = 5


class Transfer:
    """Copies outputs from the device to the host; implemented per framework and called collectively by all ranks."""

    def mean(self, value) -> float | None:
        """Mean of a loss over the accumulation steps as a Python number; None on ranks that do not have it."""
        raise NotImplementedError

    def rows(self, value) -> np.ndarray:
        """This rank's rows of an output."""
        raise NotImplementedError

    def total(self, counts: np.ndarray) -> np.ndarray:
        """Element-wise sum of an array over all ranks."""
        raise NotImplementedError


class Monitor:
    """Times the iterations and writes the log rows.

    A training step returns before its work is done. A window of `log_interval` iterations is closed by fetching the
    loss of its last iteration. The first window opens before the first iteration, so it includes the compilation, as in
    the published logs.

    Parameters
    ----------
    speaks : whether this process prints the log.
    fetches_each : whether the outputs of every iteration are fetched, as in the published programs. The fetch follows
        the start of the next iteration, so the device does not wait. Otherwise nothing is fetched within a window.
    """

    def __init__(
        self,
        config: Config,
        nodes: int,
        speaks: bool,
        metrics: Metrics,
        memory: Memory,
        transfer: Transfer,
        fetches_each: bool = False,
    ):
        self.config = config
        self.speaks = speaks
        self.metrics = metrics
        self.memory = memory
        self.transfer = transfer
        self.fetches_each = fetches_each
        self.pending: dict[int, Any] = {}
        self.started: tuple[int, dict] | None = None
        self.counts = np.zeros(3, np.float32)
        self.sums: dict[str, float] = {}
        self.lines = LogLines(config, nodes)
        if speaks:
            self.say(self.lines.opening())
        self.opened = time.perf_counter()

    def after(self, iteration: int, outputs: dict) -> None:
        """Process an iteration's outputs; close the window after its last iteration."""
        if not self.fetches_each:
            self.take(iteration, outputs)
            return
        self.finish()
        self.started = iteration, outputs

    def finish(self) -> None:
        """Process the outputs of the last iteration, if they are still pending."""
        if self.started:
            iteration, outputs = self.started
            self.started = None
            self.fetch(outputs)
            self.take(iteration, outputs)

    def take(self, iteration: int, outputs: dict) -> None:
        if iteration % self.config.log_interval == 0:
            self.close_window(iteration, outputs)
        elif iteration <= FIRST_LOSSES:
            self.pending[iteration] = outputs["loss"]

    def fetch(self, outputs: dict) -> None:
        """Wait for an iteration's outputs, add its losses up, and count a classifier's correct predictions."""
        for name, loss in self.losses(outputs).items():
            self.sums[name] = self.sums.get(name, 0.0) + loss
        if "scores" in outputs:
            self.counts += self.hits(outputs["scores"], outputs["labels"])

    def close_window(self, iteration: int, outputs: dict) -> None:
        values = self.losses(outputs)
        closed, stamp = time.perf_counter(), time.time()
        elapsed, self.opened = closed - self.opened, closed
        interval = self.config.log_interval
        printed = self.lines.losses(values, {name: total / interval for name, total in self.sums.items()})
        self.sums.clear()
        accuracy = self.accuracy(outputs["scores"], outputs["labels"]) if "scores" in outputs else {}
        row = Row(
            iteration=iteration,
            samples=iteration * self.config.global_batch,
            throughput=interval * self.config.global_batch / elapsed,
            latency_ms=elapsed / interval * 1000,
            time=stamp,
            values={**printed, **accuracy},
        )
        self.write(row, {**values, **accuracy})
        if self.speaks:
            self.say(self.lines.row(row))

    def losses(self, outputs: dict) -> dict:
        """An iteration's losses by name, `loss` first; empty on ranks that do not have them."""
        names = ["loss", *sorted(set(outputs) - {"loss", "scores", "labels"})]
        means = {name: self.transfer.mean(outputs[name]) for name in names}
        return {name: mean for name, mean in means.items() if mean is not None}

    def write(self, row: Row, values: dict) -> None:
        """Write a row to the metrics with the losses of its last iteration in `values`; `printed_loss` is the log's."""
        printed = {"printed_loss": row.values["loss"]} if "loss" in row.values else {}
        for iteration, loss in self.pending.items():
            value = self.transfer.mean(loss)
            if value is not None:
                self.metrics.write("loss", iteration=iteration, loss=value)
        self.pending.clear()
        self.metrics.write(
            "iteration",
            iteration=row.iteration,
            time=row.time,
            samples=row.samples,
            throughput=row.throughput,
            latency_ms=row.latency_ms,
            **values,
            **printed,
            learning_rate=learning_rate(
                row.iteration,
                self.config.optimizer.lr,
                self.config.schedule,
                self.config.choices.warmup_to_base,
            ),
            memory_mib=self.memory.used_mib(),
            peak_memory_mib=self.memory.peak_mib,
        )

    def accuracy(self, scores, labels) -> dict:
        """Top-1 and top-5 accuracy.

        They cover the window if every iteration is fetched, otherwise its last iteration.
        """
        counts = self.counts if self.fetches_each else self.hits(scores, labels)
        first, five, samples = self.transfer.total(counts)
        self.counts = np.zeros(3, np.float32)
        return {"top_1": float(first / samples), "top_5": float(five / samples)} if samples else {}

    def hits(self, scores, labels) -> np.ndarray:
        """Counts (3,) over this rank's rows: top-1 hits, top-5 hits, rows."""
        rows, targets = self.transfer.rows(scores), self.transfer.rows(labels)
        return np.array([hits_among(rows, targets, 1), hits_among(rows, targets, TOP), len(targets)], np.float32)

    def say(self, lines: list) -> None:
        for line in lines:
            print(line, flush=True)


def hits_among(scores: np.ndarray, labels: np.ndarray, top: int) -> int:
    """How many labels (n,) are among the `top` best classes of scores (n, classes), by a partition as published.

    Source: OneFlow-Benchmark@892f87e6:Classification/cnns/util.py#L99-L103.
    """
    if not len(labels):
        return 0
    top = min(top, scores.shape[1])
    best = np.argpartition(scores, -top, axis=1)[:, -top:]
    return int((best == labels[:, None]).any(axis=1).sum())
