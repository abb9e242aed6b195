"""What the PyTorch of `docker/baseline-cu102.lock`, of 2022, calls otherwise than today's or does not have."""

from __future__ import annotations

import inspect

import torch
from torch import distributed, nn

HAS_FUSED_ADAMW = "fused" in inspect.signature(torch.optim.AdamW).parameters
"""Whether one kernel updates a parameter; without it, one kernel per operation updates all of them."""


def grad_scaler(device_type: str, scale: float, window: int, enabled: bool):
    """The loss scaler of AMP."""
    options = {"init_scale": scale, "growth_interval": window, "enabled": enabled}
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(device_type, **options)
    return torch.cuda.amp.GradScaler(**options)


def clip(parameters: list, norm: float, together: bool) -> None:
    """Clip gradients by the norm of them all, all in one kernel if `together` and PyTorch can."""
    can_choose = "foreach" in inspect.signature(nn.utils.clip_grad_norm_).parameters
    nn.utils.clip_grad_norm_(parameters, norm, **({"foreach": None if together else False} if can_choose else {}))


def join(backend: str, device: torch.device, at_once: bool) -> None:
    """Join the other processes; `at_once` connects GPUs now, where PyTorch can, instead of in the first collective."""
    at_once = at_once and device.type == "cuda"
    named = at_once and "device_id" in inspect.signature(distributed.init_process_group).parameters
    distributed.init_process_group(backend, **({"device_id": device} if named else {}))
