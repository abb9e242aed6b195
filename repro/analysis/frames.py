"""Runs as pandas DataFrames: one tidy table over any runs, for the reports of this project and for plots of your own.

`load` gives one row per attempt, with what ran, where, and what was measured; `iterations` gives one row per iteration
of each attempt. For instance, the throughput of every configuration over all runs, by the kind of GPU:

    from repro.analysis import frames

    attempts = frames.load("runs/*")
    succeeded = attempts[(attempts.kind == "bench") & (attempts.status == "ok")]
    by = ["gpu", "unit", "framework", "program"]
    print(succeeded.groupby(by, dropna=False).throughput_samples_per_s.agg(["median", "count"]))

Only runs of the kind bench measure speed, for instance those of the kind profile are traced, and a repeat that was
retried has several attempts: filter by `kind` and `status` before you aggregate. What is not known is missing
(`pandas.NA`, or NaN in floats), never 0 or an empty text. The columns, with dtype and unit of each, are `COLUMNS` and
`ITERATION_COLUMNS`; names end in the unit where there is one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from glob import glob
from pathlib import Path

import pandas as pd

from repro.analysis import steady
from repro.runs.attempts import STATUSES, AttemptRecord
from repro.runs.description import RunDescription
from repro.runs.files import RunPath, is_archive, reading
from repro.runs.metrics import METRICS, events
from repro.runs.record import RecordError, Run
from repro.runs.unit import Unit

TIME = "datetime64[us, UTC]"

RUN_COLUMNS = {
    "run": ("string", "run: the name of its folder"),
    "created": (TIME, "when the run was planned"),
    "kind": ("string", "what the run is for: bench measures speed; curves, convergence, profile and rehearsal do not"),
    "scale": ("string", "size of what is trained: published, smoke or reduced"),
    "device": ("string", "cuda or cpu"),
    "host": ("string", "host that planned the run; on a cluster the controller"),
    "cluster": ("string", "name of the cluster; missing on one machine"),
    "gpu": ("string", "GPU models, separated by commas; missing on the CPU"),
    "host_gpus": ("Int64", "GPUs that could be used, not those that an attempt used: that is world_size"),
    "software_stack": ("string", "OneFlow's software stack: cu102, cu102-modern or cpu"),
    "git_commit": ("string", "commit of this project"),
    "git_changed_files": ("Int64", "files that differed from the commit"),
}
UNIT_COLUMNS = {
    "unit": ("string", "configuration: its name in the run"),
    "model": ("string", "gpt, bert, resnet50, ..."),
    "report": ("string", "published report whose program and rule it follows"),
    "case": ("string", "published cases it stands for, separated by spaces; missing if there are none"),
    "derived_from": ("string", "published cases it was derived from, separated by spaces"),
    "framework": ("string", "oneflow or pytorch"),
    "program": ("string", "published or tuned: which training program; a baseline has that of its unit"),
    "baseline": ("string", "variant of the baseline, such as pytorch-compiled; missing for OneFlow"),
    "baseline_of": ("string", "unit of OneFlow that a baseline is measured against"),
    "tuned_of": ("string", "unit of the published program that this one, of the tuned program, runs in turn with"),
    "reference": ("string", "unit whose losses this one must print"),
    "role": ("string", "what a loss curve is for; missing in other runs"),
    "precision": ("string", "fp32, tf32 or amp; a baseline has that of its unit"),
    "model_shape": ("string", "shape of the model as JSON, keys sorted"),
    "data_parallel": ("Int64", "data parallel size"),
    "tensor_parallel": ("Int64", "tensor parallel size"),
    "pipeline_parallel": ("Int64", "pipeline parallel size"),
    "world_size": ("Int64", "ranks, one GPU each: the product of the three sizes"),
    "micro_batch": ("Int64", "samples per data parallel rank and micro-step"),
    "accumulation_steps": ("Int64", "micro-steps per iteration"),
    "global_batch": ("Int64", "samples per iteration"),
    "activation_checkpointing": ("boolean", "whether activations are recomputed"),
    "optimizer_sharding": ("Int64", "ZeRO stage of the optimizer state, 0 for none"),
    "iterations": ("Int64", "iterations of the training"),
    "log_interval": ("Int64", "iterations per printed row"),
    "log_generation": ("string", "log format, A to E (repro.published.log_formats)"),
}
ATTEMPT_COLUMNS = {
    "repeat": ("Int64", "repeat of the unit, from 1"),
    "attempt": ("Int64", "attempt at this repeat, from 1; more than one where it failed or was interrupted"),
    "status": ("string", "ok, failed or interrupted; figures of attempts that are not ok are missing"),
    "started": (TIME, "when it started"),
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
COLUMNS = {**RUN_COLUMNS, **UNIT_COLUMNS, **ATTEMPT_COLUMNS}
"""Columns of `load`: the dtype and the meaning of each."""

ITERATION_COLUMNS = {
    **{name: COLUMNS[name] for name in ("run", "unit", "repeat", "attempt", "status")},
    "iteration": ("Int64", "iteration, from 1"),
    "time": (TIME, "when rank 0 wrote it down"),
    "loss": ("float64", "loss in nats"),
    "throughput_samples_per_s": ("float64", "samples/s since the row before; missing where no row is printed"),
    "latency_ms": ("float64", "ms per iteration since the row before; missing where no row is printed"),
    "memory_mib": ("float64", "MiB in use; missing where no row is printed"),
    "learning_rate": ("float64", "learning rate; missing where no row is printed"),
    "top_1": ("float64", "share of right labels, 0 to 1; missing for models without labels"),
}
"""Columns of `iterations`; the first five identify the attempt, so that the two tables can be merged."""

Columns = Mapping[str, tuple[str, str]]


def load(*sources: str | Path | Run) -> pd.DataFrame:
    """Every attempt that ended in the runs of `sources`, one row each, in the order of the runs and of their ends.

    Parameters
    ----------
    sources
        Folders of runs, kept runs, globs of either such as "runs/*", names of runs in `runs/`, or `Run` objects. What
        a glob matches and is not a run is passed over.

    Returns
    -------
    DataFrame with the columns of `COLUMNS`.

    Raises
    ------
    RecordError
        A source is not a run, a glob matches none, or a run cannot be read.
    """
    return _joined([_run_attempts(run) for run in _runs(sources)], COLUMNS)


def iterations(*sources: str | Path | Run) -> pd.DataFrame:
    """Every iteration that rank 0 wrote down in the attempts of `sources`, one row each.

    Parameters and errors are those of `load`; the columns are those of `ITERATION_COLUMNS`. Attempts without metrics,
    because they failed before the first iteration, have no rows.
    """
    frames = []
    for run in _runs(sources):
        for attempt in records(attempt_frame(run.attempts())):
            metrics = _metrics(run.files / attempt["folder"] / METRICS.format(0))
            labels = {name: attempt[name] for name in ("unit", "repeat", "attempt", "status")}
            frames.append(metrics.assign(run=run.id, **labels))
    return _joined(frames, ITERATION_COLUMNS)


def unit_frame(units: Iterable[Unit]) -> pd.DataFrame:
    """The configurations of a plan in its order, one row each, with the columns of UNIT_COLUMNS.

    Values are those of the plan (dtype object); `load` gives each column its dtype.
    """
    return pd.DataFrame([_unit_row(unit) for unit in units], columns=list(UNIT_COLUMNS), dtype=object)


def attempt_frame(attempts: list[AttemptRecord]) -> pd.DataFrame:
    """The attempts of one run as its record keeps them, one row each, with "unit" and the columns of ATTEMPT_COLUMNS.

    Figures are float64, the rest is as recorded (dtype object); `load` gives each column its dtype.
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


def _runs(sources: tuple[str | Path | Run, ...]) -> Iterator[Run]:
    for source in sources:
        if isinstance(source, Run):
            yield source
        elif any(character in str(source) for character in "*?["):
            paths = [path for path in sorted(glob(str(source))) if _is_run(Path(path))]
            if not paths:
                raise RecordError(f"{source}: no run matches; a run is a folder with run.json, or a kept run's zip")
            yield from map(Run.find, paths)
        else:
            yield Run.find(str(source))


def _is_run(path: Path) -> bool:
    return (path.is_dir() or is_archive(path)) and (Run(path).files / "run.json").is_file()


def _run_attempts(run: Run) -> pd.DataFrame:
    with reading(run.path):
        description = run.description()
        units = unit_frame(description.plan.units)
        return (
            attempt_frame(steady.attempts(run)).merge(units, on="unit", how="left").assign(**_run_row(run, description))
        )


def _run_row(run: Run, description: RunDescription) -> dict:
    plan, environment = description.plan, description.environment
    return {
        "run": run.id,
        "created": description.created,
        "kind": plan.kind,
        "scale": plan.scale,
        "device": plan.device,
        "host": environment.host,
        "cluster": (environment.cluster or {}).get("name"),
        "gpu": environment.of_gpus("name") or None,
        "host_gpus": description.gpu_count,
        "software_stack": environment.stack_name or None,
        "git_commit": environment.git_commit,
        "git_changed_files": environment.git_changed_files,
    }


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


def _metrics(path: RunPath) -> pd.DataFrame:
    """One row per iteration of a rank's metrics: an iteration may have an event of its loss and one of its printed row."""
    names = [{"throughput_samples_per_s": "throughput"}.get(name, name) for name in ITERATION_COLUMNS][5:]
    rows = pd.DataFrame([event for event in events(path) if "iteration" in event], columns=names)
    return rows.groupby("iteration", as_index=False).first().rename(columns={"throughput": "throughput_samples_per_s"})


def _joined(frames: list[pd.DataFrame], columns: Columns) -> pd.DataFrame:
    """The frames below each other, without those that have no rows."""
    filled = [_typed(frame, columns) for frame in frames if len(frame)]
    return pd.concat(filled, ignore_index=True) if filled else _typed(pd.DataFrame(), columns)


def _typed(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """These columns in this order, each with its dtype; a column that the frame lacks has missing values.

    Times are seconds since 1970 in a run's files.
    """
    frame = frame.reindex(columns=list(columns))
    times = [name for name, (dtype, _meaning) in columns.items() if dtype == TIME]
    seconds = {name: pd.to_datetime(frame[name].astype("float64"), unit="s", utc=True) for name in times}
    return frame.assign(**seconds).astype({name: dtype for name, (dtype, _meaning) in columns.items()})
