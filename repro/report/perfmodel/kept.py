"""Measurements of the kept runs, for the validation of the performance model."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from repro.perfmodel.hardware import HardwareError, from_devices
from repro.perfmodel.training import kind_of
from repro.perfmodel.validation import MeasuredTraining
from repro.perfmodel.work import ModelJob
from repro.planning.derived import case_of
from repro.report.host.results import MeasuredHost
from repro.report.host.run import KeptRun


def kept_measurements(measured: Iterable[MeasuredHost]) -> list[MeasuredTraining]:
    """Every distinct training that hosts measured, by program and GPU.

    A training that several runs measured counts once, with the figures of the newest and of those with the same code of the
    program: what new code has not measured yet stays as older code measured it. Runs beside which another program used
    the host's processors do not count.
    """
    rows = [
        row
        for host in measured
        for kept_run in host.measured
        if not host.is_shared(kept_run)
        for row in _rows(host, kept_run)
    ]
    if not rows:
        return []
    frame = pd.DataFrame(rows).sort_values(["run", "repeats"], kind="stable")
    groups = frame.groupby(["program", "gpu", "job"], sort=False)
    return sorted((_measurement(group) for _key, group in groups), key=_order)


def _rows(host: MeasuredHost, kept_run: KeptRun) -> list[dict]:
    """A run's measurement of each case on one machine; none for GPUs unknown to the model."""
    rows: list[dict] = []
    if kept_run.environment.cluster:
        return rows
    try:
        from_devices(kept_run.gpus[0]["name"], len(kept_run.gpus))
    except HardwareError:
        return rows
    for result in kept_run.results:
        case = case_of(result.unit)
        measured = result.throughputs and result.memory_mib is not None
        if case is not None and measured and case.layout.world_size <= len(kept_run.gpus):
            program = result.unit.program
            rows.append(
                {
                    "name": result.unit.name,
                    "program": program,
                    "host": host.name,
                    "gpu": kept_run.gpus[0]["name"],
                    "family": case.family,
                    "kind": kind_of(case),
                    "run": kept_run.run.id,
                    "code": kept_run.code(result.unit),
                    "repeats": len(result.throughputs),
                    "throughput": result.throughput,
                    "throughputs": result.throughputs,
                    "memory_mib": result.memory_mib,
                    "job": ModelJob.of(case, program),
                }
            )
    return rows


def _measurement(group: pd.DataFrame) -> MeasuredTraining:
    group = group[group["code"] == group["code"].iloc[-1]]
    newest = {
        str(name): value for name, value in group.drop(columns=["throughputs", "code"]).to_dict("records")[-1].items()
    }
    every = [throughput for row in group["throughputs"] for throughput in row]
    return MeasuredTraining(**newest, runs=tuple(dict.fromkeys(group["run"])), lowest=min(every), highest=max(every))


def _order(measurement: MeasuredTraining) -> tuple:
    job = measurement.job
    return (
        measurement.program,
        measurement.gpu,
        measurement.family,
        job.shape,
        job.precision,
        job.layout.world_size,
        str(job),
    )
