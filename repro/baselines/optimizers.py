"""The optimizers of the published programs, in PyTorch's fastest form or with a kernel of its own for each parameter."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.torch_versions import HAS_FUSED_ADAMW
from repro.trainers.graph.schedule import decays

LATE = 2.0**40
"""A count of steps at which no power of Adam's betas is left (config allows them up to 0.999999); fp32 holds it."""


class Momentum(torch.optim.Optimizer):
    """OneFlow's momentum update of a weight w with gradient g, where torch.optim.SGD keeps another momentum.

        m = momentum * m - lr * (g + l2 * w)
        w = w + m - lr * decay * w

    The learning rate is within m, so that a change of it does not act on earlier gradients. `groups` give `params` and
    `decay`. An optimizer of PyTorch's that is fused checks for overflow under AMP on the device, this one on the host.
    """

    def __init__(self, groups: list[dict], lr: float, momentum: float, l2: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "l2": l2})
        for group in self.param_groups:
            group["moments"] = [torch.zeros_like(weight) for weight in group["params"]]

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights, with a few kernels for many of them."""
        for group in self.param_groups:
            weights, moments, lr = group["params"], group["moments"], group["lr"]
            torch._foreach_mul_(moments, group["momentum"])
            torch._foreach_add_(moments, [weight.grad for weight in weights], alpha=-lr)
            torch._foreach_add_(moments, weights, alpha=-lr * group["l2"])
            torch._foreach_mul_(weights, 1.0 - lr * group["decay"])
            torch._foreach_add_(weights, moments)


def build_optimizer(model: nn.Module, config: BaselineConfig) -> torch.optim.Optimizer:
    """The optimizer of the configuration's program, over all parameters of a model."""
    settings, program = config.optimizer, config.choices
    groups = list(decay_groups(model, settings.weight_decay, program.not_decayed))
    if settings.name == "sgd":
        l2 = settings.weight_decay if program.l2_on_all else 0.0
        return Momentum(groups, settings.lr, settings.momentum, l2)
    return build_adamw(groups, config)


def decay_groups(model: nn.Module, decay: float, not_decayed: tuple[str, ...]) -> Iterator[dict]:
    """Groups of parameters that decay and that do not."""
    named = list(model.named_parameters())
    for decayed in (True, False):
        parameters = [parameter for name, parameter in named if decays(name, not_decayed) is decayed]
        if parameters:
            yield {"params": parameters, "decay": decay if decayed else 0.0}


def build_adamw(groups: list[dict], config: BaselineConfig) -> torch.optim.AdamW:
    """AdamW by its fused kernel, which also checks for overflow on the device, where others wait for the host.

    The kernel takes all parameters of a group together, so unfused a parameter is a group of its own: as in the
    published programs, one kernel updates each. Without `foreach`, PyTorch's other way, it would be eight. The PyTorch
    of 2022 has no fused kernel: it gets the fewest of those eight, which update all parameters together.

    Without bias correction the update of a weight w with gradient g is that of AdamW after infinitely many steps,

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        w = w - lr * m / (sqrt(v) + eps) - lr * decay * w

    so its steps are counted from LATE on, from where m and v are divided by exactly 1.
    """
    settings, way = config.optimizer, {"fused": True} if HAS_FUSED_ADAMW else {"foreach": True}
    tables = [{"params": group["params"], "weight_decay": group["decay"]} for group in groups]
    if config.baseline.unfused and HAS_FUSED_ADAMW:
        tables = [{**table, "params": [parameter]} for table in tables for parameter in table["params"]]
    optimizer = torch.optim.AdamW(tables, lr=settings.lr, betas=settings.betas, eps=settings.eps, **way)
    if not config.choices.bias_correction:
        for table in tables:
            for parameter in table["params"]:
                optimizer.state[parameter] = {
                    "step": torch.tensor(LATE, device=parameter.device if HAS_FUSED_ADAMW else "cpu"),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
    return optimizer
