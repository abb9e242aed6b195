"""The sections of a host's page on speed and memory: a short table for each question, and behind it every row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace

from repro.analysis.cross_hardware import TOLERANCES, published_scaling
from repro.analysis.relations import layout_text
from repro.analysis.results import Result
from repro.planning.derived import published_case
from repro.planning.unit import Unit
from repro.published.cases import load_catalogue
from repro.published.claim_ids import MEMORY, SPEEDUP, claim_id
from repro.report import numbers, tables
from repro.report.document import Block, Cell, Figure, Section, Table
from repro.report.host import cells
from repro.report.host.cells import figures_of, least_to_most, subject
from repro.report.host.coverage import same_configuration
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow, middle
from repro.report.run.baselines import descriptions
from repro.report.run.programs import PROGRAMS
from repro.report.run.verdicts import COMPARED
from repro.report.tables import columns, count, quotient, share, words
from repro.utils.i18n import Translate


def grouped(rows: Iterable[HostRow], key: Callable[[HostRow], Hashable]) -> list[list[HostRow]]:
    """Rows with the same key together, in the order in which keys first occur."""
    groups: dict[Hashable, list[HostRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return list(groups.values())


def ratios(_: Translate, host: MeasuredHost) -> list[Section]:
    """OneFlow compared with PyTorch: a row for each model, precision and number of GPUs, then every row."""
    rows = host.ratios
    if not rows:
        return []
    groups = grouped(rows, lambda row: (subject(_, row.unit, host.programs), row.unit.world_size, row.base.label))
    short = tuple(
        (
            *words(subject(_, mine[0].unit, host.programs)),
            count(mine[0].unit.world_size),
            least_to_most(row.ratio.value for row in mine if row.ratio),
            cells.verdicts(_, mine),
            *words(mine[0].base.label),
            cells.goals(mine),
        )
        for mine in groups
    )
    titles = (*columns(_("Model")), *columns(numeric=(_("GPUs"), "OneFlow / PyTorch")))
    titles = (*titles, *columns(_("Verdict"), _("Baseline"), _("Target")))
    caption = _(
        "Throughput of OneFlow over that of PyTorch in the same run, lowest to highest of the configurations; above 1 "
        "OneFlow is faster. PyTorch and the tuned program train on synthetic batches; where the port reads "
        "its input from files, its ratio includes reading and decoding."
    )
    described = descriptions(_, (row.base.label for row in rows))
    blocks: list[Block] = [Table("speed", titles, short, caption), described]
    return [Section("speed", _("How fast compared with PyTorch?"), tuple(blocks)), _every_ratio(_, host, rows)]


def _every_ratio(_: Translate, host: MeasuredHost, rows: list[HostRow]) -> Section:
    titles = (
        *columns(_("Configuration"), _("Baseline")),
        *columns(
            numeric=(
                _("GPUs"),
                "OneFlow (samples/s)",
                "PyTorch (samples/s)",
                "OneFlow / PyTorch",
                _("95% interval"),
                _("Steady state"),
                _("Target"),
            )
        ),
        *columns(_("Verdict"), _("Run")),
    )
    table_rows = tuple(
        (
            *words(_configurations(_, host, row), row.base.label),
            count(row.unit.world_size),
            tables.measured(row.throughput),
            tables.measured(row.base_throughput),
            quotient(row.ratio.value if row.ratio else None),
            cells.spread(row),
            quotient(row.steady),
            cells.goal(row),
            cells.status(_, row),
            cells.runs_of(_, row),
        )
        for row in rows
    )
    caption = _(
        "Ratios of medians of a run, in which OneFlow and PyTorch took turns, as the geometric mean over sessions. The "
        "interval follows from how far the sessions lie apart; n is their number."
    )
    return _folded(
        "ratios", _("Every configuration compared with PyTorch"), Table("ratios", titles, table_rows, caption)
    )


def _folded(identity: str, title: str, *blocks: Block) -> Section:
    return Section(identity, title, blocks, level=3, folded=True)


def gains(_: Translate, host: MeasuredHost) -> list[Section]:
    """The tuned program compared with the published one, a row for each configuration of both."""
    rows = host.gains
    if not rows:
        return []
    titles = (
        *columns(_("Configuration")),
        *columns(
            numeric=(
                _("GPUs"),
                _("Tuned / port"),
                _("95% interval"),
                _("Port (samples/s)"),
                _("Tuned program (samples/s)"),
            )
        ),
        *columns(_("Run")),
    )
    table_rows = tuple(
        (
            *words(row.base.name),
            count(row.unit.world_size),
            quotient(row.ratio.value if row.ratio else None),
            cells.spread(row),
            tables.measured(row.base_throughput),
            tables.measured(row.throughput),
            cells.runs_of(_, row),
        )
        for row in rows
    )
    caption = _(
        "The programs were interleaved in each run; above 1 the tuned program is faster. It trains on synthetic batches; "
        "where the port reads its input from files, the gain includes reading and decoding."
    )
    return [Section("gain", _("How much faster is the tuned program?"), (Table("gain", titles, table_rows, caption),))]


def _configurations(_: Translate, host: MeasuredHost, row: HostRow) -> str:
    """The names under which the runs that count have the configuration, which differ where cases train alike.

    With the program where the host has several.
    """
    names = _(", ").join(dict.fromkeys(result.unit.name for result in row.results))
    return _named(_, host, names, row.unit)


def _named(_: Translate, host: MeasuredHost, name: str, unit: Unit) -> str:
    """A name, with the unit's program where the host has several."""
    if len(host.programs) < 2:
        return name
    return _("{name} ({program})").format(name=name, program=_(PROGRAMS[unit.program]))


def scaling(_: Translate, host: MeasuredHost) -> list[Section]:
    """Data parallelism relative to one GPU in the same run, compared with the published efficiency."""
    rows = host.efficiencies
    if not rows:
        return []
    ours = [row for row in rows if not row.unit.baseline_of]
    groups = grouped(ours, lambda row: (subject(_, row.unit, host.programs), row.unit.world_size))
    short = tuple(
        (
            *words(subject(_, mine[0].unit, host.programs)),
            count(mine[0].unit.world_size),
            least_to_most((row.ratio.value for row in mine if row.ratio), numbers.percentage),
            cells.verdicts(_, mine),
            _published_range(_, mine),
            cells.goals(mine),
        )
        for mine in groups
    )
    titles = (
        *columns(_("Model")),
        *columns(numeric=(_("GPUs"), _("Efficiency"))),
        *columns(_("Verdict"), _("Published (V100)"), _("Target")),
    )
    caption = _(
        "Scaling efficiency: throughput divided by that of one GPU times the number of GPUs, in the same run and "
        "with the same batch size per GPU; lowest to highest of the configurations. Published: that of the original "
        "cases, on the number of V100s in parentheses; with another number of GPUs the two are not like for like."
    )
    return [
        Section("scaling", _("How does it scale?"), (Table("scaling", titles, short, caption),)),
        _every_efficiency(_, host, rows),
    ]


def published_efficiency(unit: Unit) -> tuple[float, int] | None:
    """The published efficiency of the case that a unit is or was derived from, and its number of GPUs; None without."""
    case = published_case(unit)
    if case is None or unit.baseline_of or case.precision != unit.precision:
        return None
    efficiency = published_scaling(case, load_catalogue().ported)
    return None if efficiency is None else (efficiency, case.layout.world_size)


def _published_range(_: Translate, rows: list[HostRow]) -> Cell:
    published = [efficiency for row in rows if (efficiency := published_efficiency(row.unit))]
    if not published:
        return tables.NONE
    values, sizes = sorted(value for value, _gpus in published), sorted({gpus for _value, gpus in published})
    on = _(", ").join(map(str, sizes))
    cases = {case.name for row in rows if (case := published_case(row.unit))}
    claim = claim_id(cases.pop(), SPEEDUP) if len(cases) == 1 else ""
    text = _("{share} ({n} GPUs)").format(share=numbers.span(map(numbers.percentage, values)), n=on)
    return Cell(text, values[0], claim=claim)


def _every_efficiency(_: Translate, host: MeasuredHost, rows: list[HostRow]) -> Section:
    titles = (
        *columns(_("Configuration"), _("Program")),
        *columns(
            numeric=(
                _("GPUs"),
                _("Throughput (samples/s)"),
                _("Efficiency"),
                _("95% interval"),
                _("Steady state"),
                _("Published (V100)"),
                _("Target"),
            )
        ),
        *columns(_("Verdict"), _("Run")),
    )
    table_rows = tuple(
        (
            *words(_configurations(_, host, row), row.unit.label),
            count(row.unit.world_size),
            tables.measured(row.throughput),
            share(row.ratio.value if row.ratio else None),
            cells.spread(row, numbers.percentage),
            share(row.steady),
            _published_range(_, [row]),
            cells.goal(row),
            cells.status(_, row),
            cells.runs_of(_, row),
        )
        for row in rows
    )
    caption = _("Each against one GPU in the same run; PyTorch's own scaling is in the rows of its baselines.")
    return _folded("efficiency", _("Scaling of every configuration"), Table("efficiency", titles, table_rows, caption))


def layouts(_: Translate, host: MeasuredHost) -> list[Section]:
    """Layouts on several GPUs; compared with the performance model where it judges them."""
    rows = host.layouts
    if not rows:
        return []
    judged = [row for row in rows if row.ratio]
    return [*_expectations(_, host, judged), _every_layout(_, host, rows, with_expected=bool(judged))]


def _expectations(_: Translate, host: MeasuredHost, rows: list[HostRow]) -> list[Section]:
    """Throughput over the performance model's; nothing where it judges none."""
    if not rows:
        return []
    groups = grouped(rows, lambda row: (subject(_, row.unit, host.programs), row.unit.world_size))
    short = tuple(
        (
            *words(subject(_, mine[0].unit, host.programs)),
            count(mine[0].unit.world_size),
            least_to_most(row.ratio.value for row in mine if row.ratio),
            cells.verdicts(_, mine),
            cells.goals(mine),
        )
        for mine in groups
    )
    titles = (
        *columns(_("Model")),
        *columns(numeric=(_("GPUs"), _("Measured / expected"))),
        *columns(_("Verdict"), _("Target")),
    )
    caption = _(
        "Throughput over what the performance model expects, lowest to highest of the layouts. The launch cost and the "
        "efficiency of kernels are fitted on half of the trainings that were measured on such GPUs; only the other half is "
        "compared. A value above the target shows the model wrong as much as one below."
    )
    table = Table("expectation", titles, short, caption)
    return [Section("expectation", _("Does the performance model carry over?"), (table,))]


def _every_layout(_: Translate, host: MeasuredHost, rows: list[HostRow], with_expected: bool) -> Section:
    expected = (_("Expected (samples/s)"), _("Measured / expected"), _("95% interval")) if with_expected else ()
    titles = (
        *columns(_("Configuration"), _("Layout")),
        *columns(
            numeric=(
                _("GPUs"),
                _("Global batch size"),
                _("Throughput (samples/s)"),
                *expected,
                _("GPU memory (MiB)"),
            )
        ),
        *columns(*([_("Verdict")] if with_expected else []), _("Run")),
    )
    table_rows = tuple(
        (
            *words(_configurations(_, host, row), layout_text(row.unit)),
            count(row.unit.world_size),
            count(row.unit.global_batch),
            tables.measured(row.throughput),
            *(_expected(row) if with_expected else ()),
            count(middle(result.memory_mib for result in row.results)),
            *([cells.status(_, row)] if with_expected else []),
            cells.runs_of(_, row),
        )
        for row in rows
    )
    caption = _("A layout is data x tensor x pipeline parallel sizes.")
    if with_expected:
        more = _(
            "Expected values are modelled (`reports/model/`); there is none for trainings that the model was fitted on, and "
            "where it is too unsure to judge."
        )
        caption = _("{text} {more}").format(text=caption, more=more)
    return _folded("layouts", _("Every layout on several GPUs"), Table("layouts", titles, table_rows, caption))


def _expected(row: HostRow) -> tuple[Cell, ...]:
    """What is expected of a row, and how the measured throughput compares; dashes where nothing is."""
    if row.ratio is None:
        return cells.NONE, cells.NONE, cells.NONE
    return tables.measured(row.expected), quotient(row.ratio.value), cells.spread(row)


def memories(host: MeasuredHost) -> list[tuple[str, Unit, float, float]]:
    """The cases whose memory was published and that ran in their published configuration, the newest run of each.

    For each its name, the unit, the published MiB and the measured ones. The number of iterations may differ: it does
    not change what a training allocates.
    """
    by_case: dict[tuple[str, str], tuple[str, Unit, float, float]] = {}
    for kept_run in sorted(host.measured, key=lambda kept_run: kept_run.description["created"]):
        for result in kept_run.results:
            case = same_configuration(result.unit)
            current = (kept_run.run.id, result.unit.name) not in host.superseded
            if case and case.published.memory_mib and result.memory_mib and current:
                key = (case.name, result.unit.program)
                by_case[key] = (case.name, result.unit, float(case.published.memory_mib), result.memory_mib)
    order = [case.name for case in load_catalogue().ported]
    return sorted(by_case.values(), key=lambda row: order.index(row[0]))


def memory(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """Memory compared with the published figures and with PyTorch."""
    published = tuple(
        (
            *words(_named(_, host, case, unit)),
            count(unit.world_size),
            replace(count(theirs), claim=claim_id(case, MEMORY)),
            count(ours),
            Cell(numbers.signed_percentage(ours / theirs - 1), ours / theirs),
        )
        for case, unit, theirs, ours in memories(host)
    )
    blocks: list[Block] = []
    if published:
        titles = (
            *columns(_("Case")),
            *columns(numeric=(_("GPUs"), _("Published, V100 (MiB)"), _("Measured (MiB)"), _("Difference"))),
        )
        caption = _(
            "Memory per GPU as the driver counts it, of cases that ran in their published layout, precision and batch "
            "size; some ran fewer iterations, which does not change what is allocated: tensors, the allocator's "
            "reserve, the GPU's context and the libraries. The stack differs from the published one, so a "
            "difference is not the trainer's alone."
        )
        blocks += [*figures_of(drawn, "memory"), Table("memory", titles, published, caption)]
    compared = [
        (row, ours, theirs)
        for row in host.ratios
        if (ours := middle(result.memory_mib for result in row.results))
        and (theirs := middle(result.memory_mib for result in row.bases))
    ]
    sections = [Section("memory", _("How much memory?"), tuple(blocks))] if blocks else []
    if compared:
        titles = (
            *columns(_("Configuration"), _("Baseline")),
            *columns(numeric=(_("GPUs"), "OneFlow (MiB)", "PyTorch (MiB)", "OneFlow / PyTorch")),
        )
        table_rows = tuple(
            (
                *words(_configurations(_, host, row), row.base.label),
                count(row.unit.world_size),
                count(ours),
                count(theirs),
                quotient(ours / theirs),
            )
            for row, ours, theirs in compared
        )
        caption = _(
            "Memory in use as the driver counts it, median over runs. It holds what each framework's allocator keeps in "
            "reserve, so a lower figure need not mean that less is needed."
        )
        sections.append(
            _folded(
                "memory-pytorch",
                _("Memory compared with PyTorch"),
                Table("memory-pytorch", titles, table_rows, caption),
            )
        )
    return sections


def transfers(_: Translate, host: MeasuredHost) -> list[Section]:
    """What can be compared with the published V100 figures: relative figures that should carry over, not speeds."""
    compared = host.comparisons
    factors = _factors(host)
    sections = []
    if compared:
        rows = []
        for kind in dict.fromkeys(comparison.kind for _kept_run, comparison in compared):
            mine = [comparison for _kept_run, comparison in compared if comparison.kind == kind]
            rows.append(
                (
                    Cell(_(COMPARED[kind])),
                    cells.outof(sum(comparison.agrees for comparison in mine), len(mine)),
                    share(TOLERANCES[kind]),
                    least_to_most((comparison.difference for comparison in mine), numbers.signed_percentage),
                )
            )
        links = dict.fromkeys(cells.link(kept_run) for kept_run, _comparison in compared)
        caption = _(
            "What does not depend on how fast a GPU is, of each case and run. Measured and published agree if their "
            "relative difference is within the tolerance. Each comparison is in the report of its run: {runs}."
        ).format(runs=_(", ").join(links))
        titles = columns(_("What"), numeric=(_("Comparisons that agree"), _("Tolerance"), _("Difference")))
        table = Table("transfers", titles, tuple(rows), caption)
        sections.append(Section("transfers", _("Does it agree with the published V100 results?"), (table,)))
    if factors:
        sections.append(_folded("factors", _("Throughput against the published V100s"), _factor_table(_, factors)))
    return sections


def _factors(host: MeasuredHost) -> list[tuple[Result, float]]:
    """Units that ran a published case unchanged, and their throughput divided by the published one."""
    factors = []
    for kept_run in host.measured:
        results = {result.unit.name: result for result in kept_run.results}
        for verdict in kept_run.judgement.verdicts:
            result = results[verdict.unit]
            if result.throughput and verdict.published and (kept_run.run.id, verdict.unit) not in host.superseded:
                factors.append((result, result.throughput / verdict.published))
    return factors


def _factor_table(_: Translate, factors: list[tuple[Result, float]]) -> Table:
    groups: dict[tuple, list[tuple[str, float]]] = {}
    for result, factor in factors:
        config = result.unit.config
        key = (config["model"], config["program"], config["precision"], result.unit.world_size)
        groups.setdefault(key, []).append((result.unit.name, factor))
    rows = tuple(
        (
            *words(cells.name(model), _(PROGRAMS[program]), cells.name(precision)),
            count(gpus),
            count(len({name for name, _factor in group})),
            count(len(group)),
            least_to_most((factor for _name, factor in group), numbers.significant),
        )
        for (model, program, precision, gpus), group in sorted(groups.items())
    )
    titles = columns(
        _("Model"),
        _("Training program"),
        _("Precision"),
        numeric=(_("GPUs"), _("Cases"), _("Results"), _("Measured / published")),
    )
    caption = _(
        "Cases that ran in their published configuration, with a result of each run. The factor is one of hardware, "
        "libraries and program together; it says nothing of whether a published throughput is reproduced."
    )
    return Table("factors", titles, rows, caption)
