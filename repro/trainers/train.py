"""A whole training run of one process: model, data, graph and the loop."""

from __future__ import annotations

import os
import socket

import numpy as np
import oneflow as flow

from repro.models.registry import module_of
from repro.trainers.config import Config
from repro.trainers.data.feeder import build_feeder
from repro.trainers.data.readers import build_reader
from repro.trainers.data.settings import described
from repro.trainers.graph.graph import TrainGraph, set_up_device
from repro.trainers.graph.rewrite import TABLES
from repro.trainers.layout import BROADCAST, Layout
from repro.trainers.libraries import libraries
from repro.trainers.metrics import Memory, Metrics, ProcessMemory
from repro.trainers.models.parameters import Parameters
from repro.trainers.monitor import Monitor, Transfer
from repro.trainers.versions import versions


def train(config: Config) -> None:
    """Run all iterations; every process of the layout calls this."""
    sizes = config.layout
    layout = Layout(sizes.data, sizes.tensor, sizes.pipeline, config.device, config.half_gradients)
    flow.manual_seed(config.seed)
    set_up_device(config)
    rank = flow.env.get_rank()
    metrics = Metrics(config.output, rank)
    model = build_model(config, layout)
    reader = build_reader(config, layout)
    feeder = None if reader else build_feeder(config, layout)
    graph = TrainGraph(model, reader, config)
    memory = DeviceMemory() if config.device == "cuda" else ProcessMemory()
    write_start(metrics, config, model, memory)
    monitor = Monitor(config, flow.env.get_node_size(), rank == 0, metrics, memory, GlobalTransfer(layout))
    for iteration in range(1, config.iterations + 1):
        monitor.after(iteration, graph(*(feeder.batch(iteration - 1) if feeder else ())))
    metrics.write("end", iterations=config.iterations)
    metrics.close()


def build_model(config: Config, layout: Layout) -> flow.nn.Module:
    """The configured model with its initial parameters."""
    program = module_of("repro.trainers.models", config.model)
    return program.MODEL(config, Parameters(layout, config.seed, config.optimizer_sharding > 0))


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
        "rdma": flow.env.rdma_is_initialized(),
        "memory_kind": memory.kind,
        "parameters": sum(each.numel() for name, each in model.named_parameters() if f"model.{name}" != TABLES[1]),
    }
    if config.spec.has_vocabulary:
        values["padded_vocab_size"] = config.padded_vocab_size
    metrics.write("start", **values)


class DeviceMemory(Memory):
    """Memory of this rank's GPU as the driver counts it, that of all processes together.

    The reading is of this thread's device, which OneFlow leaves at GPU 0 on every rank.
    """

    kind = "device memory in use, from the driver"

    def __init__(self) -> None:
        super().__init__()
        flow._oneflow_internal.SetCudaDeviceIndex(flow.env.get_local_rank())

    def read_mib(self) -> float:
        return float(flow._oneflow_internal.GetCUDAMemoryUsed())


class GlobalTransfer(Transfer):
    """Takes global tensors to the host, from whichever ranks hold them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def mean(self, value: flow.Tensor) -> float:
        value = value.to_global(sbp=self.layout.sbp_signature())
        if self.layout.pipeline > 1:
            value = value.to_global(placement=self.layout.all_ranks(), sbp=[BROADCAST])
        return float(value.to_local().numpy().mean())

    def rows(self, value: flow.Tensor) -> np.ndarray:
        return value.to_global(sbp=self.layout.batch_signature()).to_local().numpy()

    def total(self, counts: np.ndarray) -> np.ndarray:
        value = flow.tensor(counts).to_global(self.layout.all_ranks(), sbp=[flow.sbp.partial_sum])
        return value.to_global(sbp=[BROADCAST]).to_local().numpy()
