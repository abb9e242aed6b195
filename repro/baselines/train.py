"""A whole training run of one baseline process: device, model, data and the loop."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import distributed

from repro.baselines.config import BaselineConfig
from repro.baselines.data import Feeder
from repro.baselines.parameters import Parameters
from repro.baselines.step import Step
from repro.baselines.torch_versions import join
from repro.baselines.versions import versions
from repro.models.registry import module_of
from repro.trainers.libraries import libraries
from repro.trainers.metrics import MEBIBYTE, Memory, Metrics, ProcessMemory
from repro.trainers.monitor import Monitor, Transfer

if TYPE_CHECKING:
    from repro.baselines.megatron.step import MegatronStep


@dataclass(frozen=True)
class Place:
    """The place of this process among the others, and its device."""

    rank: int
    world_size: int
    nodes: int
    device: torch.device


def train(config: BaselineConfig) -> None:
    """Run all iterations; every process of the layout calls this."""
    place = take_place(config)
    set_up_torch(config, place)
    metrics = Metrics(config.output, place.rank)
    step = (megatron_step if config.baseline.megatron else data_parallel_step)(config, place)
    feeder = Feeder(config, step.data_rank, place.device)
    memory = DeviceMemory() if config.device == "cuda" else ProcessMemory()
    write_start(metrics, config, place, step, memory)
    transfer = TorchTransfer(place, config.layout.data)
    monitor = Monitor(config, place.nodes, place.rank == 0, metrics, memory, transfer)
    for iteration in range(1, config.iterations + 1):
        monitor.after(iteration, step(iteration, feeder.batch(iteration - 1)))
    if distributed.is_initialized():
        distributed.destroy_process_group()
    metrics.write("end", iterations=config.iterations, **allocated(config.device))
    metrics.close()


def data_parallel_step(config: BaselineConfig, place: Place) -> Step:
    model = module_of("repro.baselines", config.model).MODEL(config, Parameters(config.seed)).to(place.device)
    if config.baseline.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return Step(config, model, place.device, place.world_size, place.rank)


def megatron_step(config: BaselineConfig, place: Place) -> MegatronStep:
    """Megatron-Core expects a process group also where a process is alone."""
    from repro.baselines.megatron.step import MegatronStep

    if not distributed.is_initialized():
        distributed.init_process_group(backend_of(place.device), store=distributed.HashStore(), rank=0, world_size=1)
    return MegatronStep(config, place.device)


def take_place(config: BaselineConfig) -> Place:
    """Join the other processes; a launcher that does not say how many each node has started them all on one."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    nodes = world_size // int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    device = torch.device("cpu")
    if config.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    if world_size > 1:
        join(backend_of(device), device, at_once=not config.baseline.megatron)
    return Place(int(os.environ.get("RANK", "0")), world_size, nodes, device)


def backend_of(device: torch.device) -> str:
    return "nccl" if device.type == "cuda" else "gloo"


def set_up_torch(config: BaselineConfig, place: Place) -> None:
    """Choose what PyTorch may do; ranks draw different dropout."""
    torch.manual_seed(config.seed + place.rank)
    torch.set_float32_matmul_precision("high" if config.baseline.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = config.baseline.tf32
    torch.backends.cudnn.benchmark = True


def write_start(
    metrics: Metrics, config: BaselineConfig, place: Place, step: Step | MegatronStep, memory: Memory
) -> None:
    values = {
        "rank": place.rank,
        "world_size": place.world_size,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "versions": versions(config.device),
        "libraries": libraries(),
        "device": config.device,
        "settings": {**asdict(config.baseline), "amp": step.half_precision, **read_back()},
        "memory_kind": memory.kind,
        "parameters": step.parameter_count,
    }
    if config.device == "cuda":
        values["gpu"] = torch.cuda.get_device_name()
    if config.spec.has_vocabulary:
        values["padded_vocab_size"] = config.padded_vocab_size
    metrics.write("start", **values)


def read_back() -> dict:
    """What PyTorch itself says of the precision that it may compute in."""
    return {
        "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
        "tf32_cudnn": torch.backends.cudnn.allow_tf32,
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
    }


def allocated(device: str) -> dict:
    """The most that tensors of this process held on its GPU, in MiB: without what the allocator keeps in reserve."""
    return {"peak_allocated_mib": torch.cuda.max_memory_allocated() / MEBIBYTE} if device == "cuda" else {}


class DeviceMemory(Memory):
    """Memory of this rank's GPU as the driver counts it, that of all processes together."""

    kind = "device memory in use, from the driver"

    def read_mib(self) -> float:
        free, total = torch.cuda.mem_get_info()
        return (total - free) / MEBIBYTE


class TorchTransfer(Transfer):
    """Takes a rank's tensors to the host, after reducing them over the ranks where all must see the same.

    `shares` ranks have a loss of their own, those of their rows; the loss of the others is 0.
    """

    def __init__(self, place: Place, shares: int) -> None:
        self.place, self.shares = place, shares

    def mean(self, value: torch.Tensor) -> float:
        return self.reduced(value.float().mean()).item() / self.shares

    def rows(self, value: torch.Tensor) -> np.ndarray:
        return value.cpu().numpy()

    def total(self, counts: np.ndarray) -> np.ndarray:
        return self.reduced(torch.from_numpy(counts).to(self.place.device)).cpu().numpy()

    def reduced(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks; `value` is overwritten."""
        if self.place.world_size > 1:
            distributed.all_reduce(value)
        return value
