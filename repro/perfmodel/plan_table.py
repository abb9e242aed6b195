"""What to expect of each case before anything starts: speed, memory, duration, and which cases will be left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.perfmodel.constants import Calibration
from repro.perfmodel.hardware import Cluster
from repro.perfmodel.predict import Expectation, default_calibration, expect
from repro.planning.plan import MOST_REPEATS, verdict_looks
from repro.published.cases import Case

START_UP_S = 30  # a process group's start and the compilation of its graph, seen between 3 and 60 s


@dataclass(frozen=True)
class Row:
    """A case with its expectation, or the reason why it will be left out.

    `hours` are for all its repeats, `first_look_hours` for those after which its verdict can be decided.
    """

    case: Case
    expectation: Expectation | None
    hours: float
    first_look_hours: float
    skipped: str = ""


def plan_rows(cases: Iterable[Case], cluster: Cluster, repeats: int | None = None, programs: int = 1) -> list[Row]:
    """One row per case, for `repeats` runs of each, or as many as the stopping rule of a bench makes, times the number
    of programs.
    """
    calibration = default_calibration()
    first, most = repeats or verdict_looks()[0].repeats, repeats or MOST_REPEATS
    return [_row(case, cluster, first * programs, most * programs, calibration) for case in cases]


def _row(case: Case, cluster: Cluster, first: int, repeats: int, calibration: Calibration) -> Row:
    ranks = case.layout.world_size
    if ranks > cluster.gpus:
        return Row(case, None, 0.0, 0.0, f"needs {ranks} GPUs, there are {cluster.gpus}")
    expected = expect(case, cluster, calibration)
    if not expected.fits:
        short = f"needs {expected.memory_mib:,.0f} MiB, a GPU has {cluster.gpu.memory_mib:,}"
        return Row(case, expected, 0.0, 0.0, short)
    hours = (START_UP_S + case.iterations * expected.latency_ms / 1000) / 3600
    return Row(case, expected, repeats * hours, first * hours)


def plan_table(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    """Column titles and a row of texts for each case."""
    titles = ["case", "layout", "GPUs", "samples/s", "within", "ms", "MiB", "within", "minutes", "at most", "left out"]
    return titles, [_texts(row) for row in rows]


def _texts(row: Row) -> list[str]:
    case, expected = row.case, row.expectation
    head = [case.name, str(case.layout), str(case.layout.world_size)]
    if expected is None:
        return [*head, *[""] * 7, row.skipped]
    figures = [
        f"{expected.throughput:.2f}",
        f"× {1 + expected.uncertainty:.2f}",
        f"{expected.latency_ms:.1f}",
        f"{expected.memory_mib:.0f}",
        f"× {1 + expected.memory_uncertainty:.2f}",
    ]
    minutes = [f"{60 * hours:.1f}" for hours in (row.first_look_hours, row.hours)]
    return [*head, *figures, *(["", ""] if row.skipped else minutes), row.skipped]


def plan_json(rows: Iterable[Row], cluster: Cluster) -> dict:
    """The rows for programs; `output.schema.json` describes it."""
    return {"cluster": cluster.name, "gpus": cluster.gpus, "cases": [_object(row) for row in rows]}


def _object(row: Row) -> dict:
    expected = row.expectation
    figures = None
    if expected is not None:
        figures = {
            "throughput_samples_per_s": expected.throughput,
            "throughput_uncertainty": expected.uncertainty,
            "latency_ms": expected.latency_ms,
            "memory_mib": expected.memory_mib,
            "memory_uncertainty": expected.memory_uncertainty,
        }
    return {
        "name": row.case.name,
        "layout": vars(row.case.layout),
        "gpus": row.case.layout.world_size,
        "expected": figures,
        "minutes": None if row.skipped else 60 * row.first_look_hours,
        "minutes_at_most": None if row.skipped else 60 * row.hours,
        "skipped": row.skipped or None,
    }


def plan_summary(rows: list[Row], cluster: Cluster, repeats: int | None = None) -> str:
    """How many cases run, how long all take with the stopping rule and without it, how many are left out."""
    run = [row for row in rows if not row.skipped]
    hours, most = sum(row.first_look_hours for row in run), sum(row.hours for row in run)
    duration = f"about {most:.1f} hours"
    if not repeats:
        first = verdict_looks()[0].repeats
        duration = (
            f"about {hours:.1f} hours if every verdict is decided after {first} repeats, {most:.1f} hours without "
            f"stopping before {MOST_REPEATS}"
        )
    left = len(rows) - len(run)
    return f"{cluster.name}: {len(run)} cases to run in {duration}; {left} left out; all figures modelled"
