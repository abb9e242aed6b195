"""Measurements on hardware not used for the fit, with the model's predictions.

`validation.toml` has the measurements of the kept runs, one entry per distinct training; `make model` writes it.
`megatron.toml` has figures that others published for their own program.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from repro.perfmodel.constants import Calibration, Constants, Group, Uncertainty
from repro.perfmodel.errors import uncertainty
from repro.perfmodel.hardware import ClusterModel, describe, from_devices
from repro.perfmodel.predict import predict
from repro.perfmodel.work import ModelJob
from repro.perfmodel.workload import flops
from repro.published.cases import Layout
from repro.utils.paths import DATA

FILE, MEGATRON = DATA / "validation.toml", DATA / "megatron.toml"
MICRO_BATCHES = (1, 2, 4, 8)
HEAD = """\
# Written by `make model`: what the kept runs of reports/reproduced/ measured, one entry for each training that differs in
# more than its number of iterations, by program and GPU. The figures are those of the newest run, medians over its repeats
# in samples/s and MiB; `lowest` and `highest` are over all repeats of all its runs with the same code. The constants
# of calibration.toml are fitted without them, its kernels on half of them.
"""


@dataclass(frozen=True)
class MeasuredTraining:
    """A training that kept runs measured; `run` is the newest of `runs`, `gpu` what nvidia-smi calls the GPU."""

    name: str
    program: str
    host: str
    gpu: str
    family: str
    kind: str
    run: str
    runs: tuple[str, ...]
    repeats: int
    throughput: float
    lowest: float
    highest: float
    memory_mib: float
    job: ModelJob

    @property
    def group(self) -> Group:
        """The generation of its GPU, its program and its model."""
        return self.cluster.gpu.generation, self.program, self.job.model

    @property
    def cluster(self) -> ClusterModel:
        """Its GPUs, all in one node."""
        return from_devices(self.gpu, self.job.layout.world_size)


def as_toml(measurements: Iterable[MeasuredTraining]) -> str:
    """The file of the measurements."""
    return HEAD + "".join(f"\n[[measurement]]\n{_fields(measurement)}" for measurement in measurements)


def _fields(measurement: MeasuredTraining) -> str:
    values = asdict(measurement)
    values["job"]["shape"] = dict(measurement.job.shape)
    return "".join(f"{name} = {_value(value)}\n" for name, value in values.items())


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(item)}" for name, item in value.items()) + " }"
    return f"{value:.6g}" if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def load_measurements(file: Path = FILE) -> list[MeasuredTraining]:
    """The measurements that `make model` wrote."""
    with open(file, "rb") as stream:
        rows = tomllib.load(stream).get("measurement", ())
    return [MeasuredTraining(**{**row, "runs": tuple(row["runs"]), "job": _job(row["job"])}) for row in rows]


def _job(values: dict) -> ModelJob:
    return ModelJob(**{**values, "shape": tuple(values["shape"].items()), "layout": Layout(**values["layout"])})


def check_frame(measurements: Sequence[MeasuredTraining], calibration: Calibration) -> pd.DataFrame:
    """One row per measurement: its fields, `gpu` by the model's name, `generation`, and the prediction.

    `modelled` (samples/s) with `error`, `modelled_memory` (MiB) with `memory_error`, and `launch`, the share of the
    modelled iteration spent only on launching kernels.
    """
    rows = []
    for measurement in measurements:
        generation, _program, model = measurement.group
        prediction = predict(measurement.job, measurement.cluster, calibration.constants_of(measurement.group))
        rows.append(
            vars(measurement)
            | {
                "gpu": measurement.cluster.gpu.name,
                "generation": generation,
                "model": model,
                "modelled": prediction.throughput,
                "modelled_memory": prediction.memory.total_mib,
                "launch": prediction.seconds.launch / prediction.seconds.total,
            }
        )
    frame = pd.DataFrame(rows)
    frame["error"] = frame["modelled"] / frame["throughput"] - 1
    frame["memory_error"] = frame["modelled_memory"] / frame["memory_mib"] - 1
    return frame


def elsewhere(frame: pd.DataFrame) -> Uncertainty:
    """The uncertainty of what was never measured: the largest of all groups, with constants fitted on none of them."""
    groups = [
        uncertainty(rows["error"], rows["memory_error"])
        for _group, rows in frame.groupby(["generation", "program", "family"])
    ]
    return Uncertainty(len(frame), max(group.throughput for group in groups), max(group.memory for group in groups))


def measured_uncertainties(frame: pd.DataFrame, calibration: Calibration) -> dict[Group, Uncertainty]:
    """The uncertainty of each group whose kernels were fitted: of throughput that of its generation."""
    by_group: dict[Group, Uncertainty] = {}
    for names, rows in frame.groupby(["generation", "program", "model"]):
        generation, program, model = map(str, names)
        if (generation, program, model) in calibration.kernels:
            memory = uncertainty(rows["error"], rows["memory_error"]).memory
            factor = calibration.generations[generation].factor
            by_group[generation, program, model] = Uncertainty(len(rows), factor, memory)
    return by_group


@dataclass(frozen=True)
class PublishedRate:
    """A figure that others published, TFLOP/s a GPU, and the modelled one."""

    name: str
    gpu: str
    measured: float
    modelled: float

    @property
    def error(self) -> float:
        return self.modelled / self.measured - 1


def megatron_checks(constants: Constants) -> list[PublishedRate]:
    """Every figure of megatron.toml with its prediction."""
    with open(MEGATRON, "rb") as stream:
        rows = tomllib.load(stream)["published"]
    return [_check(row, describe(row["cluster"]), constants) for row in rows]


def _check(row: dict, cluster: ClusterModel, constants: Constants) -> PublishedRate:
    best = max(_rate(job, cluster, constants) for job in _jobs(row))
    return PublishedRate(row["name"], cluster.gpu.name, row["tflops"], best)


def _jobs(row: dict) -> Iterator[ModelJob]:
    layout, shape = Layout(*row["layout"]), tuple(sorted(row["shape"].items()))
    for micro_batch in MICRO_BATCHES:
        steps, rest = divmod(row["global_batch"], micro_batch * layout.data)
        if steps and not rest:
            yield ModelJob(
                row["model"],
                shape,
                layout=layout,
                micro_batch=micro_batch,
                accumulation_steps=steps,
                activation_checkpointing=True,
                fused=True,
            )


def _rate(job: ModelJob, cluster: ClusterModel, constants: Constants) -> float:
    """TFLOP/s a GPU by the formula the published figures were made with, 0 for what does not fit."""
    predicted = predict(job, cluster, constants)
    if predicted.memory.total_mib > cluster.gpu.memory_mib:
        return 0.0
    return flops(job) / predicted.seconds.total / job.layout.world_size / 1e12
