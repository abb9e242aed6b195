"""The optimizers and learning rate schedules of the published runs, built into OneFlow's training graph."""

from __future__ import annotations

import oneflow as flow
from oneflow.optim.lr_scheduler import CosineDecayLR, LinearLR, PolynomialLR, SequentialLR, WarmUpLR

from repro.models.programs import Program
from repro.trainers.config import Optimizer, Schedule


class ExemptingAdamW(flow.optim.AdamW):
    """AdamW that exempts some parameters from weight decay and clips by the global gradient norm.

    Parameter groups would clip each group by its own norm.
    """

    def __init__(self, groups: list, not_decayed: tuple[str, ...], **settings) -> None:
        super().__init__(groups, **settings)
        self.not_decayed = not_decayed

    def _generate_conf_for_graph(self, train_conf, vars_conf):
        confs = super()._generate_conf_for_graph(train_conf, vars_conf)
        for conf in confs:
            conf.weight_decay_conf.excludes.pattern.extend(self.not_decayed)
        return confs


class DecayingSGD(flow.optim.SGD):
    """Momentum SGD with decoupled weight decay, and an L2 penalty on the gradients of all parameters or of none.

    OneFlow's update supports the decay `lr * decay * w`, but its SGD class does not enable it.
    """

    def __init__(self, parameters, decay: float, not_decayed: tuple[str, ...], l2_on_all: bool, **settings) -> None:
        super().__init__(parameters, weight_decay=decay if l2_on_all else 0.0, **settings)
        self.decay = decay
        self.not_decayed = not_decayed

    def _generate_conf_for_graph(self, train_conf, vars_conf):
        confs = super()._generate_conf_for_graph(train_conf, vars_conf)
        for conf in confs:
            conf.weight_decay_conf.weight_decay_rate = self.decay
            conf.weight_decay_conf.excludes.pattern.extend(self.not_decayed)
        return confs


def build_optimizer(model: flow.nn.Module, settings: Optimizer, program: Program) -> flow.optim.Optimizer:
    parameters = list(model.parameters())
    if settings.name == "sgd":
        return DecayingSGD(
            parameters,
            settings.weight_decay,
            program.not_decayed,
            program.l2_on_all,
            lr=settings.lr,
            momentum=settings.momentum,
        )
    group = {"params": parameters}
    if settings.clip_norm is not None:
        group.update(clip_grad_max_norm=settings.clip_norm, clip_grad_norm_type=2.0)
    return ExemptingAdamW(
        [group],
        program.not_decayed,
        lr=settings.lr,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        do_bias_correction=program.bias_correction,
    )


def build_scheduler(optimizer: flow.optim.Optimizer, lr: float, schedule: Schedule, warmup_to_base: bool):
    """Scheduler for the graph, or None for a constant rate without warm-up; `schedule.learning_rate` has its values."""
    decay, warmup = None, schedule.warmup_iterations
    if schedule.kind == "cosine":
        decay = CosineDecayLR(optimizer, schedule.decay_iterations, alpha=schedule.min_lr / lr)
    elif schedule.kind == "polynomial":
        decay = PolynomialLR(optimizer, schedule.decay_iterations, schedule.min_lr, schedule.power)
    if warmup == 0:
        return decay
    if decay is None or not warmup_to_base:
        return WarmUpLR(decay or optimizer, warmup_factor=0.0, warmup_iters=warmup, warmup_method="linear")
    rise = LinearLR(optimizer, start_factor=0.0, end_factor=1.0, total_iters=warmup)
    return SequentialLR(optimizer, [rise, decay], milestones=[warmup], interval_rescaling=False)
