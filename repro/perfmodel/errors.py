"""Errors of the model on the published cases: by kind of case, without a family, and compared with two simple
predictions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from repro.perfmodel.constants import CONFIDENCE, Constants, Uncertainty
from repro.perfmodel.hardware import ClusterModel
from repro.perfmodel.megatron_baseline import MegatronShare, memory_mib
from repro.perfmodel.predict import predict
from repro.perfmodel.training import kind_of, training_cases, training_of
from repro.perfmodel.work import ModelJob
from repro.published.cases import Case

MODELS = ("model", "left_out", "nearest", "megatron")
"""Whose errors are compared: the model, the model fitted without the case's family, and two baselines."""


def error_frame(
    cases: Sequence[Case],
    cluster: ClusterModel,
    constants: Constants,
    without: dict[str, Constants],
    baseline: MegatronShare,
) -> pd.DataFrame:
    """A row for each job that was published; cases that are one job count once, with the mean of their figures.

    Columns: `name` and `names` of the first and of all its cases, `family`, `kind`, `trained`, `job`; `throughput`
    (samples/s) and `memory` (MiB, NaN where not printed) as published; for each of MODELS its throughput and memory,
    its error against the published figures (`…_error`, modelled over published less one) and that of memory
    (`…_memory_error`).
    """
    training = training_cases(cases)
    rows = pd.DataFrame(
        [
            _row(case, training, cluster=cluster, constants=constants, without=without, baseline=baseline)
            for case in cases
        ]
    )
    once = dict.fromkeys(rows.columns.drop("job"), "first") | {"throughput": "mean", "memory": "mean", "trained": "any"}
    frame = rows.groupby("job", sort=False).agg(once | {"names": ", ".join}).reset_index()
    for name in MODELS:
        frame[f"{name}_error"] = frame[f"{name}_throughput"] / frame["throughput"] - 1
        frame[f"{name}_memory_error"] = frame[f"{name}_memory"] / frame["memory"] - 1
    return frame


def _row(
    case: Case,
    training: Sequence[Case],
    cluster: ClusterModel,
    constants: Constants,
    without: dict[str, Constants],
    baseline: MegatronShare,
) -> dict:
    job, family, memory = ModelJob.of(case), case.family, case.published.memory_mib
    ours, left_out = predict(job, cluster, constants), predict(job, cluster, without[family])
    near = nearest(case, training)
    near_memory = near.published.memory_mib if near else None
    return {
        "name": case.name,
        "names": case.name,
        "family": family,
        "kind": kind_of(case),
        "trained": case in training,
        "job": job,
        "throughput": float(case.published.throughput),
        "memory": math.nan if memory is None else float(memory),
        "model_throughput": ours.throughput,
        "model_memory": ours.memory.total_mib,
        "left_out_throughput": left_out.throughput,
        "left_out_memory": left_out.memory.total_mib,
        "nearest_throughput": _per_gpu(near) * case.layout.world_size if near else math.nan,
        "nearest_memory": math.nan if near_memory is None else float(near_memory),
        "megatron_throughput": baseline.throughput(job, cluster),
        "megatron_memory": memory_mib(job),
    }


def nearest(case: Case, training: Iterable[Case]) -> Case | None:
    """The training case of the same model, shape and precision that is nearest in GPUs, then in micro-batch.

    Its samples/s a GPU are the least that a model has to beat; None where no training case has the shape.
    """

    def distance(other: Case) -> tuple[float, float]:
        gpus, batch = other.layout.world_size / case.layout.world_size, other.micro_batch / case.micro_batch
        return abs(math.log(gpus)), abs(math.log(batch))

    return min(
        (candidate for candidate in training if training_of(candidate) == training_of(case)), key=distance, default=None
    )


def _per_gpu(case: Case) -> float:
    return case.published.throughput / case.layout.world_size


@dataclass(frozen=True)
class Summary:
    """Median and largest absolute relative error of some cases, and the factor less one that nine in ten lie within."""

    cases: int
    median: float
    worst: float
    level: float


def summary(errors: Iterable[float]) -> Summary:
    """The summary of relative errors, NaN left out; ValueError where there is none.

    The level is a factor, so that half and twice are as far off: an error of -50 % is a factor of 2. It is the
    ⌈0.9 (n + 1)⌉-th smallest, within which the next of them lies with a probability of nine in ten (conformal
    prediction). Of fewer than 19 that is the largest, of fewer than nine with a probability of n / (n + 1) only.
    """
    values = pd.Series(list(errors), dtype=float).dropna()
    if values.empty:
        raise ValueError("no errors to summarise")
    sizes, factors = values.abs(), sorted(math.exp(abs(math.log1p(error))) for error in values)
    level = factors[min(len(factors), math.ceil(CONFIDENCE * (len(factors) + 1))) - 1] - 1
    return Summary(len(values), float(sizes.median()), float(sizes.max()), level)


def uncertainty(errors: pd.Series, memory_errors: pd.Series) -> Uncertainty:
    """Factors minus one within which nine in ten results lie; NaN for memory without measurements."""
    memory = summary(memory_errors).level if memory_errors.notna().any() else math.nan
    return Uncertainty(len(errors), summary(errors).level, memory)


def uncertainties(frame: pd.DataFrame) -> dict[str, Uncertainty]:
    """For each kind of case how far held-out jobs of it are off.

    "untrained" is plain data parallelism of shapes that the fit never saw: all of a family, fitted without it.
    """
    held_out = frame[~frame["trained"]]
    by_kind = {
        str(kind): uncertainty(rows["model_error"], rows["model_memory_error"])
        for kind, rows in held_out.groupby("kind")
    }
    plain = frame[frame["kind"] == "data"]
    return by_kind | {"untrained": uncertainty(plain["left_out_error"], plain["left_out_memory_error"])}
