"""One training iteration of a baseline: micro-steps, scaling, clipping and update, without waiting for the device."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from repro.baselines.config import BaselineConfig
from repro.baselines.optimizers import build_optimizer
from repro.baselines.torch_versions import clip, grad_scaler
from repro.trainers.graph.schedule import learning_rate


class Step:
    """Trains `model` for an iteration when called; gives its outputs by name, micro-steps one after another."""

    def __init__(
        self, config: BaselineConfig, model: nn.Module, device: torch.device, world_size: int, rank: int
    ) -> None:
        self.config, self.data_rank = config, rank
        self.parameters = list(model.parameters())
        self.parameter_count = sum(parameter.numel() for parameter in self.parameters)
        self.optimizer = build_optimizer(model, config)
        self.model = wrap(model, config, device, world_size)
        self.device_type = device.type
        self.amp = config.precision == "amp"
        self.scaler = grad_scaler(device.type, config.loss_scale, config.choices.loss_scale_window, self.amp)

    def __call__(self, iteration: int, micro_batches: list) -> dict:
        self.set_rate(iteration)
        *others, last = micro_batches
        with self.unreduced():
            outputs = [self.micro_step(batch) for batch in others]
        outputs.append(self.micro_step(last))
        if self.config.optimizer.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            self.clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return joined(outputs)

    @property
    def half_precision(self) -> bool:
        """Whether the loss is scaled for gradients in half precision."""
        return self.scaler.is_enabled()

    def set_rate(self, iteration: int) -> None:
        config = self.config
        rate = learning_rate(iteration, config.optimizer.lr, config.schedule, config.choices.warmup_to_base)
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def clip(self) -> None:
        """Clip the gradients by the norm of them all; unfused as the program does, gradient by gradient or together."""
        together = self.config.choices.norm_in_one_kernel or not self.config.baseline.unfused
        clip(self.parameters, self.config.optimizer.clip_norm, together)

    def micro_step(self, batch: tuple) -> dict:
        """Add the gradients of a micro-batch; those of all micro-steps make their mean."""
        with torch.autocast(self.device_type, torch.float16) if self.amp else nullcontext():
            outputs = self.model(*batch)
        self.scaler.scale(outputs["loss"] / self.config.accumulation_steps).backward()
        return {name: value.detach() for name, value in outputs.items()}

    def unreduced(self):
        """Context in which gradients stay on their rank."""
        return self.model.no_sync() if isinstance(self.model, DistributedDataParallel) else nullcontext()


def wrap(model: nn.Module, config: BaselineConfig, device: torch.device, world_size: int) -> nn.Module:
    """Compile and make data parallel as configured; normalisation statistics stay those of each rank.

    Unfused under AMP gradients travel in half precision, as in the published programs.
    """
    if config.baseline.compile:
        model = torch.compile(model)
    if world_size == 1:
        return model
    parallel = DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        broadcast_buffers=False,
        gradient_as_bucket_view=True,
    )
    if config.unfused_amp:
        parallel.register_comm_hook(None, fp16_compress_hook)
    return parallel


def joined(outputs: list) -> dict:
    """Outputs of several micro-steps by name: losses stacked, rows one after another."""
    if len(outputs) == 1:
        return outputs[0]
    join = {name: torch.cat if value.ndim else torch.stack for name, value in outputs[0].items()}
    return {name: function([output[name] for output in outputs]) for name, function in join.items()}
