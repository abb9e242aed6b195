"""Writes a run's results as Parquet, for whoever computes with them: typed columns, a row a unit."""

from pathlib import Path

from repro.analysis.results import RESULT_COLUMNS, result_row, summarise
from repro.planning.plan import Plan
from repro.runs.record import Run

TEXTS = ("unit", "program", "baseline_of", "model")
LISTS = ("stands_for", "derived_from")
COUNTS = ("world_size", "global_batch", "repeats", "failed_attempts")


def write_parquet(run: Run, folder: Path | None = None) -> Path:
    """Write `results.parquet` into the run's folder, or another, with the columns of `results.csv`; cells of several values are lists."""
    import pyarrow
    from pyarrow import parquet

    types = dict.fromkeys(RESULT_COLUMNS, pyarrow.float64())
    types |= dict.fromkeys(TEXTS, pyarrow.string()) | dict.fromkeys(COUNTS, pyarrow.int64())
    types |= dict.fromkeys(LISTS, pyarrow.list_(pyarrow.string()))
    types["throughputs_samples_per_s"] = pyarrow.list_(pyarrow.float64())
    results = summarise(Plan.from_json(run.description()["plan"]), run.attempts())
    rows = [dict(zip(RESULT_COLUMNS, result_row(result), strict=True)) for result in results]
    target = (folder or run.folder) / "results.parquet"
    partial = target.with_name(target.name + ".partial")
    parquet.write_table(pyarrow.Table.from_pylist(rows, pyarrow.schema(types.items())), partial)
    partial.replace(target)
    return target
