"""The learning rate per iteration, and which parameters have weight decay."""

from __future__ import annotations

import math

from repro.trainers.config import Schedule


def decays(name: str, not_decayed: tuple[str, ...]) -> bool:
    """Whether weight decay applies to a parameter; names that contain a word of `not_decayed` are exempt."""
    return not any(word in name for word in not_decayed)


def learning_rate(iteration: int, lr: float, schedule: Schedule, warmup_to_base: bool) -> float:
    """Learning rate of an iteration, counted from 1; OneFlow's graphs compute the same rate but do not return it.

    Warm-up rises linearly from 0 to `lr` or to the decayed rate at its end. The decay always starts at iteration 1.
    """
    step, warmup = iteration - 1, schedule.warmup_iterations
    if step >= warmup:
        return decayed(step, lr, schedule)
    return (lr if warmup_to_base else decayed(warmup, lr, schedule)) * step / warmup


def decayed(step: int, lr: float, schedule: Schedule) -> float:
    if schedule.kind == "constant":
        return lr
    done = min(step / schedule.decay_iterations, 1.0)
    if schedule.kind == "cosine":
        return schedule.min_lr + (lr - schedule.min_lr) * 0.5 * (1.0 + math.cos(math.pi * done))
    return schedule.min_lr + (lr - schedule.min_lr) * (1.0 - done) ** schedule.power
