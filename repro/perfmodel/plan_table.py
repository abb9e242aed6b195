"""What to expect of each case before anything starts: speed, memory, duration, and which cases will be left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repro.perfmodel.hardware import ClusterModel
from repro.perfmodel.predict import Expectation, expect
from repro.planning.derived import NO_PORT
from repro.planning.plan import MOST_REPEATS, verdict_looks
from repro.planning.schedule import Block, duration_s
from repro.published.cases import Case
from repro.utils.output import TerminalColumn

START_UP_S = 30  # a process group's start and the compilation of its graph, seen between 3 and 60 s


@dataclass(frozen=True)
class PlanRow:
    """A case with its expectation, or the reason why it will be left out.

    `hours` are for all its repeats, `first_look_hours` for those after which its verdict can be decided; `nodes` is how
    many nodes it takes.
    """

    case: Case
    expectation: Expectation | None
    hours: float
    first_look_hours: float
    skipped: str = ""
    nodes: int = 0


@dataclass(frozen=True)
class Duration:
    """Hours of a run of many cases: one attempt at a time, and with attempts side by side on the nodes.

    No order of the attempts takes less than `least` hours: so long all nodes are busy all the time.
    """

    alone: float
    side_by_side: float
    least: float


def plan_rows(
    cases: Iterable[Case], cluster: ClusterModel, repeats: int | None = None, programs: int = 1
) -> list[PlanRow]:
    """One row per case, for `repeats` runs of each, or as many as the stopping rule of a bench makes, times the number
    of programs.
    """
    first, most = repeats or verdict_looks()[0].repeats, repeats or MOST_REPEATS
    return [_row(case, cluster, first=first * programs, repeats=most * programs) for case in cases]


def _row(case: Case, cluster: ClusterModel, first: int, repeats: int) -> PlanRow:
    ranks = case.layout.world_size
    if not case.ported:
        return PlanRow(case, None, hours=0.0, first_look_hours=0.0, skipped=NO_PORT.format(framework=case.framework))
    if ranks > cluster.gpus:
        return PlanRow(case, None, hours=0.0, first_look_hours=0.0, skipped=f"needs {ranks} GPUs of {cluster.gpus}")
    expected = expect(case, cluster)
    if not expected.fits:
        return PlanRow(
            case,
            expected,
            hours=0.0,
            first_look_hours=0.0,
            skipped=f"needs {expected.memory_mib:,.0f} MiB of {cluster.gpu.memory_mib:,} per GPU",
        )
    hours = attempt_s(case.iterations, expected) / 3600
    return PlanRow(case, expected, repeats * hours, first * hours, nodes=math.ceil(ranks / cluster.node.gpus))


def attempt_s(iterations: int, expected: Expectation) -> float:
    """How many seconds one attempt is expected to take."""
    return START_UP_S + iterations * expected.latency_ms / 1000


def duration(rows: Iterable[PlanRow], nodes: int, repeats: int, of_all: bool = False) -> Duration:
    """How long so many repeats of the rows that run take, on so many nodes.

    `of_all` says that `repeats` are all of a row's, not those of the first look.
    """
    run = [row for row in rows if not row.skipped]
    row_hours = [(row, (row.hours if of_all else row.first_look_hours) / repeats) for row in run]
    blocks = [
        Block(row.case.name, repeat, row.nodes, 3600 * hours)
        for repeat in range(1, repeats + 1)
        for row, hours in row_hours
    ]
    busy = sum(row.nodes * hours for row, hours in row_hours) * repeats
    return Duration(sum(hours for _, hours in row_hours) * repeats, duration_s(blocks, nodes) / 3600, busy / nodes)


def plan_table(rows: Iterable[PlanRow]) -> tuple[list[TerminalColumn], list[list[str]]]:
    """Columns and a row of texts for each case."""
    columns = [
        TerminalColumn("case"),
        TerminalColumn("layout", spare=1),
        TerminalColumn("GPUs", number=True, spare=6),
        TerminalColumn("samples/s", number=True),
        TerminalColumn("speed within", number=True, spare=2),
        TerminalColumn("ms", number=True, spare=7),
        TerminalColumn("MiB", number=True, spare=3),
        TerminalColumn("memory within", number=True, spare=5),
        TerminalColumn("minutes", number=True),
        TerminalColumn("at most", number=True, spare=4),
        TerminalColumn("not run", wraps=True),
    ]
    return columns, [_texts(row) for row in rows]


def _texts(row: PlanRow) -> list[str]:
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


def plan_json(rows: Sequence[PlanRow], cluster: ClusterModel, repeats: int | None = None) -> dict:
    """The rows for programs; `output.schema.json` describes it."""
    first, most = repeats or verdict_looks()[0].repeats, repeats or MOST_REPEATS
    return {
        "cluster": cluster.name,
        "gpus": cluster.gpus,
        "hours": vars(duration(rows, cluster.nodes, first)),
        "hours_at_most": vars(duration(rows, cluster.nodes, most, of_all=True)),
        "cases": [_object(row) for row in rows],
    }


def _object(row: PlanRow) -> dict:
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
        "nodes": None if row.skipped else row.nodes,
        "expected": figures,
        "minutes": None if row.skipped else 60 * row.first_look_hours,
        "minutes_at_most": None if row.skipped else 60 * row.hours,
        "skipped": row.skipped or None,
    }


def plan_summary(rows: list[PlanRow], cluster: ClusterModel, repeats: int | None = None) -> str:
    """How many cases run, how long all take with the stopping rule and without it, how many are left out.

    On several nodes also how long they take with attempts side by side.
    """
    first, most = repeats or verdict_looks()[0].repeats, repeats or MOST_REPEATS
    decided, all_of_it = duration(rows, cluster.nodes, first), duration(rows, cluster.nodes, most, of_all=True)

    def hours(alone: float, side_by_side: float) -> str:
        return (
            f"{side_by_side:.1f} hours ({alone:.1f} with SIDE_BY_SIDE=0)" if cluster.nodes > 1 else f"{alone:.1f} hours"
        )

    texts = [hours(estimate.alone, estimate.side_by_side) for estimate in (decided, all_of_it)]
    said = f"about {texts[1]}"
    if not repeats:
        said = (
            f"about {texts[0]} if every verdict is decided after {first} repeats, {texts[1]} without stopping before "
            f"{MOST_REPEATS}"
        )
    if cluster.nodes > 1:
        said += f"; nodes that were never idle would take {decided.least:.1f} hours for {first} repeats"
    left = sum(bool(row.skipped) for row in rows)
    return f"{cluster.name}: {len(rows) - left} cases to run in {said}; {left} left out; all figures modelled"
