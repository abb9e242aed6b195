"""A whole training run of one process: model, data and graph, the loop, and its clock."""
from __future__ import annotations

import os
import socket
import time

import numpy as np
import oneflow as flow

from repro.trainers.bert import BERT
from repro.trainers.config import Config
from repro.trainers.data import build_feeder
from repro.trainers.gpt import GPT
from repro.trainers.graph import TrainGraph, set_up_device
from repro.trainers.layout import BROADCAST, Layout
from repro.trainers.loglines import LogLines, Row
from repro.trainers.metrics import DeviceMemory, Metrics, ProcessMemory
from repro.trainers.optimizer import learning_rate
from repro.trainers.parameters import Parameters
from repro.trainers.readers import build_reader
from repro.trainers.resnet import ResNet50
from repro.trainers.versions import libraries, versions

MODELS = {"gpt": GPT, "bert": BERT, "resnet50": ResNet50}
FIRST_LOSSES = 5
"""Iterations whose losses are always written, so that layouts can be compared."""
TOP = 5


def train(config: Config) -> None:
    """Run all iterations; every process of the layout calls this."""
    layout = Layout(config.layout.data, config.layout.tensor, config.layout.pipeline, config.device)
    flow.manual_seed(config.seed)
    set_up_device(config)
    metrics = Metrics(config.output, flow.env.get_rank())
    model = MODELS[config.model](config, Parameters(layout, config.seed, config.optimizer_sharding > 0))
    reader = build_reader(config, layout)
    feeder = None if reader else build_feeder(config, layout)
    graph = TrainGraph(model, reader, config)
    memory = DeviceMemory() if config.device == "cuda" else ProcessMemory()
    write_start(metrics, config, model, memory)
    monitor = Monitor(config, layout, metrics, memory)
    for iteration in range(1, config.iterations + 1):
        monitor.after(iteration, graph(*(feeder.batch(iteration - 1) if feeder else ())))
    metrics.write("end", iterations=config.iterations)
    metrics.close()


def write_start(metrics: Metrics, config: Config, model: flow.nn.Module, memory) -> None:
    values = {
        "rank": flow.env.get_rank(),
        "world_size": flow.env.get_world_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "versions": versions(config.device),
        "libraries": libraries(),
        "device": config.device,
        "rdma": flow.env.rdma_is_initialized(),
        "memory_kind": memory.kind,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    if config.model != "resnet50":
        values["padded_vocab_size"] = config.padded_vocab_size
    metrics.write("start", **values)


class Monitor:
    """Times the iterations and writes the log rows.

    Graph calls return before their work is done. A window of `log_interval` iterations is closed by fetching the loss
    of its last one, and nothing is fetched within it. The first window opens before the first iteration and so holds
    the compilation, as in the published logs.
    """

    def __init__(self, config: Config, layout: Layout, metrics: Metrics, memory) -> None:
        self.config = config
        self.layout = layout
        self.metrics = metrics
        self.memory = memory
        self.pending = {}
        self.lines = LogLines(config, flow.env.get_node_size())
        self.say(self.lines.opening())
        self.opened = time.perf_counter()

    def after(self, iteration: int, outputs: dict) -> None:
        """Take an iteration's outputs; close the window if it is the last of one."""
        if iteration % self.config.log_interval == 0:
            self.close_window(iteration, outputs)
        elif iteration <= FIRST_LOSSES:
            self.pending[iteration] = outputs["loss"]

    def close_window(self, iteration: int, outputs: dict) -> None:
        values = {"loss": self.fetch(outputs["loss"])}
        closed, stamp = time.perf_counter(), time.time()
        elapsed, self.opened = closed - self.opened, closed
        for name in sorted(set(outputs) - {"loss", "logits", "labels"}):
            values[name] = self.fetch(outputs[name])
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
            self.metrics.write("loss", iteration=iteration, loss=self.fetch(loss))
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

    def fetch(self, value: flow.Tensor) -> float:
        """A loss as this host's number, the same on every rank; under accumulation the mean over the micro-steps."""
        value = value.to_global(sbp=self.layout.spread())
        if self.layout.pipeline > 1:
            value = value.to_global(placement=self.layout.everywhere(), sbp=[BROADCAST])
        return float(value.to_local().numpy().mean())

    def accuracy(self, logits: flow.Tensor, labels: flow.Tensor) -> dict:
        """Shares of the global batch whose label has the highest score, or one of the five highest."""
        scores = logits.to_global(sbp=self.layout.rows()).to_local().numpy()
        wanted = labels.to_global(sbp=self.layout.rows()).to_local().numpy()
        own = scores[np.arange(len(wanted)), wanted]
        place = (scores > own[:, None]).sum(axis=1)
        counts = np.array([(place < 1).sum(), (place < TOP).sum(), len(wanted)], np.float32)
        total = flow.tensor(counts).to_global(self.layout.everywhere(), sbp=[flow.sbp.partial_sum])
        first, five, samples = total.to_global(sbp=[BROADCAST]).to_local().numpy()
        return {"top_1": float(first / samples), "top_5": float(five / samples)}

    def say(self, lines: list) -> None:
        if flow.env.get_rank() == 0:
            for line in lines:
                print(line, flush=True)
