"""The sections of a host's page on what was measured: ratios to PyTorch, scaling, layouts, and what transfers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from repro.analysis.cross_hardware import TOLERANCES, published_scaling
from repro.analysis.relations import layout_text
from repro.analysis.results import Result
from repro.planning.derived import published_case
from repro.planning.plan import Unit
from repro.published.cases import load_catalogue
from repro.report.document import Block, Cell, Column, Figure, Section, Table, Text, figure, percent, words
from repro.report.host.results import Host
from repro.report.host.rows import MET, MISSED, ONE, OPEN, Row, middle, throughput
from repro.report.host.run import KeptRun
from repro.report.run.baselines import descriptions, interval
from repro.report.run.programs import PROGRAMS
from repro.report.run.verdicts import COMPARED
from repro.utils.i18n import N_, Translate

STATUSES = {
    MET: (N_("met"), "good"),
    MISSED: (N_("missed"), "bad"),
    OPEN: (N_("not decided"), "muted"),
    ONE: (N_("one run"), "muted"),
}


def columns(*titles: str, numeric: tuple[str, ...] = ()) -> tuple[Column, ...]:
    """Columns of words, then columns of numbers."""
    return tuple(Column(title) for title in titles) + tuple(Column(title, numeric=True) for title in numeric)


def link(kept: KeptRun) -> str:
    """A run's short name, linked to its row in the table of runs."""
    return f"[{kept.label}](#{kept.run.id})"


def share(good: int, of: int) -> Cell:
    """A number of successes out of all."""
    return Cell(f"{good} / {of}", good / of if of else math.nan, tone="good" if good == of else "bad")


def tally(_: Translate, rows: Iterable[Row]) -> str:
    """How many of the rows that have a target met it, missed it, or leave it open; empty without a target."""
    found = [row.status for row in rows if row.target]
    parts = [
        _("{n} {what}").format(what=_(STATUSES[each][0]), n=found.count(each)) for each in STATUSES if each in found
    ]
    return _("; ").join(parts)


def ratios(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """OneFlow compared with PyTorch, a row for each unit and baseline."""
    rows = host.ratios
    if not rows:
        return []
    titles = columns(
        _("Runs (commit)"),
        _("Model"),
        _("Configuration"),
        _("Training program"),
        _("Precision"),
        _("Baseline"),
        numeric=(
            _("GPUs"),
            "OneFlow (samples/s)",
            "PyTorch (samples/s)",
            "OneFlow / PyTorch",
            _("Steady state"),
            _("Interval (confidence)"),
            _("Repeats"),
            _("OneFlow: memory in use (MiB)"),
            _("PyTorch: memory in use (MiB)"),
            _("Target"),
        ),
    )
    cells = tuple(
        (
            *words(
                _runs(_, row),
                row.unit.model,
                _configurations(_, row),
                _(PROGRAMS[row.unit.program]),
                row.unit.config["precision"],
                row.base.label,
            ),
            figure(row.unit.world_size, 0),
            figure(throughput(row.results), 2),
            figure(throughput(row.bases), 2),
            *_ratio(_, row),
            _repeats(row),
            figure(middle(each.memory_mib for each in row.results), 0),
            figure(middle(each.memory_mib for each in row.bases), 0),
            _least(row),
            _status(_, row),
            _superseded(_, row),
        )
        for row in rows
    )
    text = _(
        "Every ratio is of medians within one run, where OneFlow and PyTorch took turns, or the mean of such ratios of "
        "several runs; above 1 OneFlow is faster. A "
        "target is met if the whole interval of the ratio reaches it, missed if the whole interval is below it, "
        "and not decided otherwise, nor by an interval of less than 95% confidence. Rows with a target: {tally}. "
        "The baselines are:"
    ).format(tally=tally(_, rows) or _("none"))
    table = Table("ratios", (*titles, *columns(_("Status"), _("Superseded runs"))), cells)
    described = descriptions(_, (row.base.label for row in rows))
    blocks: list[Block] = [Text(text), described, *figures_of(drawn, "ratios"), table]
    return [Section("ratios", _("Compared with PyTorch in the same run"), tuple(blocks))]


def gains(_: Translate, host: Host) -> list[Section]:
    """The tuned program compared with the published one, a row for each unit of both."""
    rows = host.gains
    if not rows:
        return []
    titles = columns(
        _("Runs (commit)"),
        _("Model"),
        _("Configuration"),
        _("Precision"),
        numeric=(
            _("GPUs"),
            _("Published program (samples/s)"),
            _("Tuned program (samples/s)"),
            _("Tuned / published"),
            _("Steady state"),
            _("Interval (confidence)"),
            _("Repeats"),
            _("Published program: memory (MiB)"),
            _("Tuned program: memory (MiB)"),
        ),
    )
    cells = tuple(
        (
            *words(_runs(_, row), row.unit.model, row.base.name, row.unit.config["precision"]),
            figure(row.unit.world_size, 0),
            figure(throughput(row.bases), 2),
            figure(throughput(row.results), 2),
            *_ratio(_, row),
            _repeats(row),
            figure(middle(each.memory_mib for each in row.bases), 0),
            figure(middle(each.memory_mib for each in row.results), 0),
            _superseded(_, row),
        )
        for row in rows
    )
    text = Text(_("The programs were interleaved in each run; above 1 the tuned program is faster."))
    return [
        Section(
            "gain",
            _("Gain of the tuned program"),
            (text, Table("gain", (*titles, *columns(_("Superseded runs"))), cells)),
        )
    ]


def _runs(_: Translate, row: Row) -> str:
    """The runs that count, each with its commit."""
    return _(", ").join(f"{link(kept)} ({kept.commit})" for kept in row.runs)


def _superseded(_: Translate, row: Row) -> Cell:
    return Cell(_(", ").join(f"{link(each.kept)} ({each.kept.commit})" for each in row.superseded) or "–")


def _configurations(_: Translate, row: Row) -> str:
    """The names under which the runs that count have the configuration, which differ where cases train alike."""
    return _(", ").join(dict.fromkeys(each.unit.name for each in row.results))


def _ratio(_: Translate, row: Row) -> tuple[Cell, ...]:
    """A row's ratio, that in the steady state, and the interval of the first."""
    return figure(row.ratio.value if row.ratio else None, 3), figure(row.steady, 3), row_interval(_, row)


def row_interval(_: Translate, row: Row) -> Cell:
    """The interval of a row's ratio, said to be within one run where it is."""
    cell = interval(_, row.ratio)
    if row.ratio is None or not row.ratio.interval or len(row.runs) > 1:
        return cell
    return replace(cell, text=_("{interval}, within one run").format(interval=cell.text))


def _repeats(row: Row) -> Cell:
    ours, theirs = (sum(len(each.throughputs) for each in side) for side in (row.results, row.bases))
    return Cell(str(ours) if ours == theirs else f"{ours}, {theirs}", ours)


def _least(row: Row) -> Cell:
    return Cell(str(row.target), row.target.at_least) if row.target else figure(None, 2)


def _status(_: Translate, row: Row) -> Cell:
    if not row.target:
        return Cell("–")
    name, tone = STATUSES[row.status]
    return Cell(_(name), tone=tone)


def figures_of(drawn: list[Figure], name: str) -> list[Figure]:
    """The figures of that name among those that were drawn."""
    return [each for each in drawn if each.id == f"figure-{name}"]


def scaling(_: Translate, host: Host, drawn: list[Figure]) -> list[Section]:
    """Data parallelism over one GPU in the same run."""
    rows = host.efficiencies
    if not rows:
        return []
    titles = columns(
        _("Runs (commit)"),
        _("Model"),
        _("Configuration"),
        _("Against"),
        _("Training program"),
        _("Precision"),
        numeric=(
            _("GPUs"),
            _("Throughput (samples/s)"),
            _("Efficiency"),
            _("Steady state"),
            _("Interval (confidence)"),
            _("Published on V100s"),
            _("Target"),
        ),
    )
    cells = tuple(
        (
            *words(
                _runs(_, row),
                row.unit.model,
                _configurations(_, row),
                row.base.name,
                _(PROGRAMS[row.unit.program]),
                row.unit.config["precision"],
            ),
            figure(row.unit.world_size, 0),
            figure(throughput(row.results), 2),
            percent(row.ratio.value if row.ratio else None, 1),
            percent(row.steady, 1),
            row_interval(_, row),
            _published(_, row.unit),
            _least(row),
            _status(_, row),
            _superseded(_, row),
        )
        for row in rows
    )
    text = _(
        "Throughput over that of one GPU in the same run times the number of GPUs, with the same batch on each. "
        "What was published is of the case that a row is, or that it was derived from, on as many V100s as that "
        "has. Rows with a target: {tally}."
    ).format(tally=tally(_, rows) or _("none"))
    table = Table("efficiency", (*titles, *columns(_("Status"), _("Superseded runs"))), cells)
    return [Section("scaling", _("Data parallel scaling"), (Text(text), *figures_of(drawn, "efficiency"), table))]


def _published(_: Translate, unit: Unit) -> Cell:
    """The published efficiency of the case that a unit is or was derived from, a dash without one."""
    case = published_case(unit)
    if case is None or case.precision != unit.config["precision"]:
        return percent(None)
    found = published_scaling(case, load_catalogue().cases)
    if found is None:
        return percent(None)
    return Cell(_("{share} on {n}").format(share=percent(found, 1).text, n=case.layout.world_size), found)


def layouts(_: Translate, host: Host) -> list[Section]:
    """Layouts on several GPUs, beside what the performance model expects."""
    rows = host.layouts
    if not rows:
        return []
    titles = columns(
        _("Runs (commit)"),
        _("Configuration"),
        _("Training program"),
        _("Layout (data x tensor x pipeline)"),
        _("Precision"),
        numeric=(
            _("GPUs"),
            _("Global batch size"),
            _("Throughput (samples/s)"),
            _("Latency (ms)"),
            _("Memory (MiB)"),
            _("Expected (samples/s)"),
            _("Measured / expected"),
            _("Interval (confidence)"),
            _("Target"),
        ),
    )
    cells = tuple(
        (
            *words(
                _runs(_, row),
                _configurations(_, row),
                _(PROGRAMS[row.unit.program]),
                layout_text(row.unit),
                row.unit.config["precision"],
            ),
            figure(row.unit.world_size, 0),
            figure(row.unit.global_batch, 0),
            figure(throughput(row.results), 2),
            figure(middle(each.latency_ms for each in row.results), 1),
            figure(middle(each.memory_mib for each in row.results), 0),
            figure(row.expected, 2),
            figure(row.ratio.value if row.ratio else None, 3),
            row_interval(_, row),
            _least(row),
            _status(_, row),
            _superseded(_, row),
        )
        for row in rows
    )
    text = _(
        "Layouts of one model on several GPUs. What is expected is MODELLED, by the constants of "
        "`reports/model/`, fitted on V100s: on other GPUs it is no more than a second opinion. Its target has two sides: "
        "a measurement above what was expected shows the model wrong as much as one below. Rows with a target: {tally}."
    ).format(tally=tally(_, rows) or _("none"))
    return [
        Section(
            "layouts",
            _("Layouts"),
            (Text(text), Table("layouts", (*titles, *columns(_("Status"), _("Superseded runs"))), cells)),
        )
    ]


def transfers(_: Translate, host: Host) -> list[Section]:
    """What can be set beside the published V100 figures: ratios that should carry over, and speeds that do not."""
    compared = host.comparisons
    factors = _factors(host)
    if not compared and not factors:
        return []
    blocks: list[Block] = []
    if factors:
        blocks += [
            Text(
                _(
                    "What does not transfer is speed. Where a published case ran with its own layout, precision and batch, its "
                    "throughput here over the published one on V100s is:"
                )
            ),
            _factor_table(_, factors),
        ]
    if compared:
        blocks.append(
            Text(
                _(
                    "What can transfer is what has no unit of time: how a layout scales, what it costs beside another, what "
                    "memory it takes. Measured here and published agree within the tolerance of their kind in:"
                )
            )
        )
        rows = []
        for kind in dict.fromkeys(each.kind for _kept, each in compared):
            mine = [each for _kept, each in compared if each.kind == kind]
            rows.append(
                (
                    Cell(_(COMPARED[kind])),
                    share(sum(each.agrees for each in mine), len(mine)),
                    percent(TOLERANCES[kind], 0),
                    percent(min(each.difference for each in mine), 1),
                    percent(max(each.difference for each in mine), 1),
                )
            )
        blocks.append(
            Table(
                "transfers",
                columns(
                    _("What"), numeric=(_("Agree"), _("Tolerance"), _("Lowest difference"), _("Highest difference"))
                ),
                tuple(rows),
            )
        )
        links = dict.fromkeys(link(kept) for kept, _each in compared)
        blocks.append(Text(_("Each comparison is in the report of its run: {runs}.").format(runs=_(", ").join(links))))
    return [Section("transfers", _("What transfers from the published V100s, and what does not"), tuple(blocks))]


def _factors(host: Host) -> list[tuple[Result, float]]:
    """Units that stand for a published case as it was, and their throughput over the published one."""
    found = []
    for kept in host.measured:
        results = {result.unit.name: result for result in kept.results}
        for verdict in kept.judgement.verdicts:
            result = results[verdict.unit]
            if result.throughput and verdict.published and (kept.run.id, verdict.unit) not in host.superseded:
                found.append((result, result.throughput / verdict.published))
    return found


def _factor_table(_: Translate, factors: list[tuple[Result, float]]) -> Table:
    groups: dict[tuple, list[float]] = {}
    for result, factor in factors:
        config = result.unit.config
        key = (config["model"], config["program"], config["precision"], result.unit.world_size)
        groups.setdefault(key, []).append(factor)
    rows = tuple(
        (
            *words(model, _(PROGRAMS[program]), precision),
            figure(gpus, 0),
            figure(len(values), 0),
            figure(min(values), 2),
            figure(max(values), 2),
        )
        for (model, program, precision, gpus), values in sorted(groups.items())
    )
    return Table(
        "factors",
        columns(
            _("Model"),
            _("Training program"),
            _("Precision"),
            numeric=(_("GPUs"), _("Cases"), _("Lowest factor"), _("Highest factor")),
        ),
        rows,
    )
