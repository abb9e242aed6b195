"""The units and the attempts of a run as pandas DataFrames.

What is not known is missing, never 0 or an empty text; names of columns end in the unit where there is one.
"""

import json
from collections.abc import Iterable, Iterator

import pandas as pd

from repro.runs.attempts import STATUSES, AttemptRecord
from repro.runs.unit import Unit

UNIT_COLUMNS = {
    "unit": "configuration: its name in the run",
    "model": "gpt, bert, resnet50, ...",
    "report": "published report whose program and rule it follows",
    "case": "published cases it stands for, separated by spaces; missing if there are none",
    "derived_from": "published cases it was derived from, separated by spaces",
    "framework": "oneflow or pytorch",
    "program": "published or tuned: which training program; a baseline has that of its unit",
    "baseline": "variant of the baseline, such as pytorch-compiled; missing for OneFlow",
    "baseline_of": "unit of OneFlow that a baseline is measured against",
    "tuned_of": "unit of the published program that this one, of the tuned program, runs in turn with",
    "reference": "unit whose losses this one must print",
    "role": "what a loss curve is for; missing in other runs",
    "precision": "fp32, tf32 or amp; a baseline has that of its unit",
    "model_shape": "shape of the model as JSON, keys sorted",
    "data_parallel": "data parallel size",
    "tensor_parallel": "tensor parallel size",
    "pipeline_parallel": "pipeline parallel size",
    "world_size": "ranks, one GPU each: the product of the three sizes",
    "micro_batch": "samples per data parallel rank and micro-step",
    "accumulation_steps": "micro-steps per iteration",
    "global_batch": "samples per iteration",
    "activation_checkpointing": "whether activations are recomputed",
    "optimizer_sharding": "ZeRO stage of the optimizer state, 0 for none",
    "iterations": "iterations of the training",
    "log_interval": "iterations per printed row",
    "log_generation": "log format, A to E (repro.published.log_formats)",
}
ATTEMPT_COLUMNS = {
    "repeat": ("Int64", "repeat of the unit, from 1"),
    "attempt": ("Int64", "attempt at this repeat, from 1; more than one where it failed or was interrupted"),
    "status": ("string", "ok, failed or interrupted; figures of attempts that are not ok are missing"),
    "started": ("datetime64[us, UTC]", "when it started"),
    "throughput_samples_per_s": ("float64", "samples/s by the measuring rule of the unit's report"),
    "latency_ms": ("float64", "ms per iteration by the same rule"),
    "steady_samples_per_s": ("float64", "samples/s: median of the printed windows after the first two; no verdict's"),
    "second_window_s": ("float64", "s by which the second printed window was longer than the later ones"),
    "after_last_row_s": ("float64", "s from the last row's stamp to the end of the training"),
    "memory_mib": ("float64", "MiB in use as the log states them; missing where it does not"),
    "memory_peak_mib": ("float64", "MiB: the largest reading of rank 0's device, or of its process on the CPU"),
    "memory_allocated_mib": ("float64", "MiB: most that tensors took, where the program reports it"),
    "first_row_s": ("float64", "s from the start of the attempt to the first printed row"),
    "trainer_s": ("float64", "s from the start to the end of the ranks"),
    "wall_s": ("float64", "s of the whole attempt"),
    "parameters": ("Int64", "parameters of the model"),
    "enough": ("string", "why the unit needs no further repeats by the plan's stopping rule; missing while it does"),
    "failure": ("string", "why it failed, in English"),
    "folder": ("string", "its folder, relative to the run's"),
}


def unit_frame(units: Iterable[Unit]) -> pd.DataFrame:
    """The configurations of a plan in its order, one row each, with the columns of UNIT_COLUMNS (dtype object)."""
    return pd.DataFrame([_unit_row(unit) for unit in units], columns=list(UNIT_COLUMNS), dtype=object)


def attempt_frame(attempts: list[AttemptRecord]) -> pd.DataFrame:
    """The attempts of one run as its record keeps them, one row each, with "unit" and the columns of ATTEMPT_COLUMNS.

    Figures are float64, the rest is as recorded (dtype object).
    """
    columns = ["unit", *ATTEMPT_COLUMNS]
    frame = pd.DataFrame([_attempt_row(attempt) for attempt in attempts], columns=columns, dtype=object)
    return frame.astype({name: dtype for name, (dtype, _meaning) in ATTEMPT_COLUMNS.items() if dtype == "float64"})


def status_counts(attempts: pd.DataFrame) -> pd.DataFrame:
    """How many attempts of each unit ended in each of STATUSES; a row per unit that was attempted."""
    ended = pd.DataFrame({status: attempts.status == status for status in STATUSES})
    return ended.groupby(attempts.unit).sum()


def records(frame: pd.DataFrame) -> Iterator[dict]:
    """The rows of a frame as dictionaries of plain Python values; what is missing is None."""
    names = list(frame)
    for values in zip(*(frame[name].tolist() for name in names), strict=True):
        yield {name: None if _is_missing(value) else value for name, value in zip(names, values, strict=True)}


def _unit_row(unit: Unit) -> dict:
    config, layout = unit.config, unit.config.layout
    return {
        **config.as_json(),
        "unit": unit.name,
        "model": unit.model,
        "report": unit.report or None,
        "case": " ".join(unit.stands_for) or None,
        "derived_from": " ".join(unit.derived_from) or None,
        "framework": unit.framework,
        "program": unit.program,
        "baseline": unit.variant,
        "baseline_of": unit.baseline_of,
        "tuned_of": unit.tuned_of,
        "reference": unit.reference,
        "role": unit.role or None,
        "precision": unit.precision,
        "model_shape": json.dumps(dict(config.shape), sort_keys=True),
        **{f"{axis}_parallel": size for axis, size in vars(layout).items()},
        "world_size": unit.world_size,
        "global_batch": unit.global_batch,
    }


def _attempt_row(attempt: AttemptRecord) -> dict:
    return {
        **vars(attempt),
        **(vars(attempt.windows) if attempt.windows else {}),
        "throughput_samples_per_s": attempt.throughput,
        "failure": attempt.failure.text() if attempt.failure else None,
    }


def _is_missing(value: object) -> bool:
    return value is pd.NA or value is pd.NaT or value != value  # NaN alone is not equal to itself
