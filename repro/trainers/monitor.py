"""The clock of a run: windows of iterations, closed by fetching the loss, and the rows written for them."""

from __future__ import annotations

import time

import numpy as np

from repro.trainers.config import Config
from repro.trainers.graph.schedule import learning_rate
from repro.trainers.log_lines import LogLines, Row
from repro.trainers.metrics import Memory, Metrics

FIRST_LOSSES = 5
"""Iterations whose losses are always written, so that layouts can be compared."""
TOP = 5


class Transfer:
    """Takes outputs from the device to the host; each framework has its own. All ranks call it at the same places."""

    def mean(self, value) -> float:
        """A loss as this host's number, the same on every rank; under accumulation the mean over the micro-steps."""
        raise NotImplementedError

    def rows(self, value) -> np.ndarray:
        """This rank's rows of an output."""
        raise NotImplementedError

    def total(self, counts: np.ndarray) -> np.ndarray:
        """Sums of an array over all ranks."""
        raise NotImplementedError


class Monitor:
    """Times the iterations and writes the log rows.

    Calls of a training step return before their work is done. A window of `log_interval` iterations is closed by
    fetching the loss of its last one, and nothing is fetched within it. The first window opens before the first
    iteration and so holds the compilation, as in the published logs.

    Parameters
    ----------
    speaks : whether this process prints the log.
    """

    def __init__(self, config: Config, nodes: int, speaks: bool, metrics: Metrics, memory: Memory, transfer: Transfer):
        self.config = config
        self.speaks = speaks
        self.metrics = metrics
        self.memory = memory
        self.transfer = transfer
        self.pending = {}
        self.lines = LogLines(config, nodes)
        self.say(self.lines.opening())
        self.opened = time.perf_counter()

    def after(self, iteration: int, outputs: dict) -> None:
        """Take an iteration's outputs; close the window if it is the last of one."""
        if iteration % self.config.log_interval == 0:
            self.close_window(iteration, outputs)
        elif iteration <= FIRST_LOSSES:
            self.pending[iteration] = outputs["loss"]

    def close_window(self, iteration: int, outputs: dict) -> None:
        values = {"loss": self.transfer.mean(outputs["loss"])}
        closed, stamp = time.perf_counter(), time.time()
        elapsed, self.opened = closed - self.opened, closed
        for name in sorted(set(outputs) - {"loss", "logits", "labels"}):
            values[name] = self.transfer.mean(outputs[name])
        if "logits" in outputs:
            values.update(self.accuracy(outputs["logits"], outputs["labels"]))
        interval = self.config.log_interval
        row = Row(
            iteration=iteration,
            samples=iteration * self.config.global_batch,
            throughput=interval * self.config.global_batch / elapsed,
            latency_ms=elapsed / interval * 1000,
            time=stamp,
            values=values,
        )
        self.write(row)
        self.say(self.lines.row(row))

    def write(self, row: Row) -> None:
        for iteration, loss in self.pending.items():
            self.metrics.write("loss", iteration=iteration, loss=self.transfer.mean(loss))
        self.pending.clear()
        self.metrics.write(
            "iteration",
            iteration=row.iteration,
            time=row.time,
            samples=row.samples,
            throughput=row.throughput,
            latency_ms=row.latency_ms,
            **row.values,
            learning_rate=learning_rate(row.iteration, self.config.optimizer.lr, self.config.schedule),
            memory_mib=self.memory.used_mib(),
            peak_memory_mib=self.memory.peak_mib,
        )

    def accuracy(self, logits, labels) -> dict:
        """Shares of the global batch whose label has the highest score, or one of the five highest."""
        scores, targets = self.transfer.rows(logits), self.transfer.rows(labels)
        own = scores[np.arange(len(targets)), targets]
        place = (scores > own[:, None]).sum(axis=1)
        counts = np.array([(place < 1).sum(), (place < TOP).sum(), len(targets)], np.float32)
        first, five, samples = self.transfer.total(counts)
        return {"top_1": float(first / samples), "top_5": float(five / samples)}

    def say(self, lines: list) -> None:
        if self.speaks:
            for line in lines:
                print(line, flush=True)
