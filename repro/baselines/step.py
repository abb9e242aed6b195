"""One training iteration of a baseline: micro-steps, scaling, clipping and update, without waiting for the device."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from repro.baselines.config import BaselineConfig
from repro.trainers.config import Optimizer
from repro.trainers.graph.schedule import decays, learning_rate

LOSS_SCALE_WINDOW = 1000
"""Iterations without overflow after which the scale doubles, as in the trainers."""
SMALLEST_MOMENTUM = 1e-30
"""What stands for 0, at which PyTorch would not keep a momentum for the next iteration."""


class Step:
    """Trains `model` for an iteration when called; gives its outputs by name, micro-steps one after another."""

    def __init__(self, config: BaselineConfig, model: nn.Module, device: torch.device, world_size: int) -> None:
        self.config = config
        self.parameters = list(model.parameters())
        self.optimizer = build_optimizer(model, config.optimizer)
        self.model = wrap(model, config, device, world_size)
        self.device_type = device.type
        self.amp = config.precision == "amp"
        self.scaler = torch.amp.GradScaler(
            device.type, config.loss_scale, growth_interval=LOSS_SCALE_WINDOW, enabled=self.amp
        )

    def __call__(self, iteration: int, micro_batches: list) -> dict:
        self.set_rate(iteration)
        *others, last = micro_batches
        with self.unreduced():
            outputs = [self.micro_step(batch) for batch in others]
        outputs.append(self.micro_step(last))
        if self.config.optimizer.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.config.optimizer.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return joined(outputs)

    def set_rate(self, iteration: int) -> None:
        """Set the learning rate, and scale the momentum by its change.

        OneFlow's momentum is a sum of updates and PyTorch's one of gradients. They are the same where PyTorch's is
        multiplied by the ratio of the last rate to this one.
        """
        settings, schedule = self.config.optimizer, self.config.schedule
        rate = learning_rate(iteration, settings.lr, schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
            if settings.momentum and iteration > 1 and rate:
                last = learning_rate(iteration - 1, settings.lr, schedule)
                group["momentum"] = max(settings.momentum * last / rate, SMALLEST_MOMENTUM)

    def micro_step(self, batch: tuple) -> dict:
        """Add the gradients of a micro-batch; those of all micro-steps make their mean."""
        with torch.autocast(self.device_type, torch.float16, enabled=self.amp):
            outputs = self.model(*batch)
        self.scaler.scale(outputs["loss"] / self.config.accumulation_steps).backward()
        return {name: value.detach() for name, value in outputs.items()}

    def unreduced(self):
        """Context in which gradients stay on their rank."""
        return self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else nullcontext()


def build_optimizer(model: nn.Module, settings: Optimizer) -> torch.optim.Optimizer:
    """Fused optimizer; it also checks for overflow on the device, where others wait for the host."""
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[decays(name)].append(parameter)
    tables = [
        {"params": groups[True], "weight_decay": settings.weight_decay},
        {"params": groups[False], "weight_decay": 0.0},
    ]
    if settings.name == "sgd":
        return build_sgd(tables, settings)
    return torch.optim.AdamW(tables, lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=True)


def build_sgd(tables: list, settings: Optimizer) -> torch.optim.SGD:
    """SGD whose momentum begins at 0.

    Fused SGD takes memory for the momentum as it finds it, and an overflow in the first iteration leaves it so (seen
    with PyTorch 2.13: the losses become NaN).
    """
    optimizer = torch.optim.SGD(tables, lr=settings.lr, momentum=settings.momentum, fused=True)
    for table in tables:
        for parameter in table["params"]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def wrap(model: nn.Module, config: BaselineConfig, device: torch.device, world_size: int) -> nn.Module:
    """Compile and make data parallel as configured; normalisation statistics stay those of each rank."""
    if config.baseline.compile:
        model = torch.compile(model)
    if world_size == 1:
        return model
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    )


def joined(outputs: list) -> dict:
    """Outputs of several micro-steps by name: losses stacked, rows one after another."""
    if len(outputs) == 1:
        return outputs[0]
    join = {name: torch.cat if value.ndim else torch.stack for name, value in outputs[0].items()}
    return {name: function([output[name] for output in outputs]) for name, function in join.items()}
