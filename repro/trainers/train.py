"""The training run of one process: model, data, graph and training loop."""

from __future__ import annotations

import os
import socket
from importlib import import_module

import numpy as np
import oneflow as flow

from repro.models.programs import PUBLISHED
from repro.models.registry import module_of
from repro.trainers.config import Config
from repro.trainers.data.feeder import build_feeder
from repro.trainers.data.readers import build_reader
from repro.trainers.data.settings import described
from repro.trainers.graph.changes import CHANGES, TABLES, Change
from repro.trainers.graph.graph import EvaluationGraph, TrainGraph, set_up_device
from repro.trainers.layout import Layout
from repro.trainers.libraries import libraries
from repro.trainers.metrics import Memory, Metrics, ProcessMemory
from repro.trainers.models.parameters import Parameters
from repro.trainers.monitor import Monitor, Transfer
from repro.trainers.versions import versions

TF32_SWITCHES = ("CUBLAS_FORWARD_TF32", "CUDNN_FORWARD_TF32")
"""The variables by which the forwarding libraries may compute in TF32 (`repro.images.stack.TF32`)."""


def train(config: Config) -> None:
    """Run all iterations; every process of the layout calls this."""
    sizes = config.layout
    layout = Layout(sizes.data, sizes.tensor, sizes.pipeline, config.device)
    flow.manual_seed(config.seed)
    set_up_device(config)
    rank = flow.env.get_rank()
    metrics = Metrics(config.output, rank)
    model, changes = build_program(config, layout)
    reader = build_reader(config, layout)
    feeder = None if reader else build_feeder(config, layout)
    graph = TrainGraph(model, reader, config, layout, changes)
    evaluation = EvaluationGraph(model, config, layout) if config.choices.evaluation_job else None
    memory = DeviceMemory() if config.device == "cuda" else ProcessMemory()
    write_start(metrics, config, model, memory)
    monitor = Monitor(
        config,
        flow.env.get_node_size(),
        rank == 0,
        metrics,
        memory,
        GlobalTransfer(rank),
        config.choices.fetch_each,
    )
    for iteration in range(1, config.iterations + 1):
        outputs = graph(*(feeder.batch(iteration - 1) if feeder else ()))
        if iteration == 1:
            jobs = {"operators": graph.census}
            if evaluation:
                evaluation.compile()
                jobs["evaluation"] = evaluation.census
            if rank == 0:
                metrics.write("census", **jobs, changes=[change.__name__ for change in changes])
        monitor.after(iteration, outputs)
    monitor.finish()
    metrics.write("end", iterations=config.iterations)
    metrics.close()


def build_program(config: Config, layout: Layout) -> tuple[flow.nn.Module, tuple[Change, ...]]:
    """The configured model with its initial parameters, and the changes to its training job.

    A published program never imports the tuned one, so that a run of it does not depend on that code.
    """
    if config.program == PUBLISHED:
        return module_of("repro.trainers.models", config.model).MODEL(config, Parameters(layout, config)), CHANGES
    return import_module("repro.trainers.tuning.program").build(config, layout)


def write_start(metrics: Metrics, config: Config, model: flow.nn.Module, memory: Memory) -> None:
    values = {
        "rank": flow.env.get_rank(),
        "world_size": flow.env.get_world_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "versions": versions(config.device),
        "libraries": libraries(),
        "device": config.device,
        "data": described(config.data),
        "switches": {name: value for name, value in sorted(os.environ.items()) if name.startswith("ONEFLOW_")},
        "tf32": config.device == "cuda" and all(os.environ.get(name) == "1" for name in TF32_SWITCHES),
        "rdma": flow.env.rdma_is_initialized(),
        "memory_kind": memory.kind,
        "parameters": sum(
            parameter.numel() for name, parameter in model.named_parameters() if f"model.{name}" != TABLES[1]
        ),
    }
    if config.spec.has_vocabulary:
        values["padded_vocab_size"] = config.padded_vocab_size
    metrics.write("start", **values)


class DeviceMemory(Memory):
    """Memory of this rank's GPU as reported by the driver, for all processes together.

    The driver reports on this thread's device, which OneFlow leaves at GPU 0 on every rank.
    """

    kind = "device memory in use, from the driver"

    def __init__(self) -> None:
        super().__init__()
        flow._oneflow_internal.SetCudaDeviceIndex(flow.env.get_local_rank())

    def read_mib(self) -> float:
        return float(flow._oneflow_internal.GetCUDAMemoryUsed())


class GlobalTransfer(Transfer):
    """Copies outputs to the host on rank 0, where the graph gathers them; other ranks have no outputs."""

    def __init__(self, rank: int) -> None:
        self.has_outputs = rank == 0

    def mean(self, value: flow.Tensor) -> float | None:
        return float(value.to_local().numpy().mean()) if self.has_outputs else None

    def rows(self, value: flow.Tensor) -> np.ndarray:
        return value.to_local().numpy() if self.has_outputs else np.zeros((0,) * value.ndim, np.int64)

    def total(self, counts: np.ndarray) -> np.ndarray:
        return counts
