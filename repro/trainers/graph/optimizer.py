"""The optimizers and learning rate schedules of the published runs, as OneFlow builds them into a training graph."""

from __future__ import annotations

import oneflow as flow

from repro.trainers.config import Optimizer, Schedule
from repro.trainers.graph.schedule import NO_DECAY, decays


class AdamW(flow.optim.AdamW):
    """AdamW that passes over some parameters in its weight decay and still clips by the norm of them all.

    Parameter groups, the usual way to do the first, would clip each group by a norm of its own.
    """

    def _generate_conf_for_graph(self, train_conf, vars_conf):
        confs = super()._generate_conf_for_graph(train_conf, vars_conf)
        for conf in confs:
            conf.weight_decay_conf.excludes.pattern.extend(NO_DECAY)
        return confs


def build_optimizer(model: flow.nn.Module, settings: Optimizer) -> flow.optim.Optimizer:
    if settings.name == "adamw":
        return build_adamw(model, settings)
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[decays(name)].append(parameter)
    return flow.optim.SGD(
        [
            {"params": groups[True], "weight_decay": settings.weight_decay},
            {"params": groups[False], "weight_decay": 0.0},
        ],
        lr=settings.lr,
        momentum=settings.momentum,
    )


def build_adamw(model: flow.nn.Module, settings: Optimizer) -> AdamW:
    group = {"params": list(model.parameters())}
    if settings.clip_norm is not None:
        group.update(clip_grad_max_norm=settings.clip_norm, clip_grad_norm_type=2.0)
    return AdamW([group], lr=settings.lr, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay)


def build_scheduler(optimizer: flow.optim.Optimizer, lr: float, schedule: Schedule):
    """Scheduler for the graph, or None for a constant rate without warm-up."""
    scheduler = None
    if schedule.kind == "cosine":
        cosine = flow.optim.lr_scheduler.CosineDecayLR
        scheduler = cosine(optimizer, schedule.decay_iterations, alpha=schedule.min_lr / lr)
    elif schedule.kind == "polynomial":
        polynomial = flow.optim.lr_scheduler.PolynomialLR
        scheduler = polynomial(optimizer, schedule.decay_iterations, schedule.min_lr, schedule.power)
    if schedule.warmup_iterations == 0:
        return scheduler
    return flow.optim.lr_scheduler.WarmUpLR(
        optimizer if scheduler is None else scheduler,
        warmup_factor=0.0,
        warmup_iters=schedule.warmup_iterations,
        warmup_method="linear",
    )
