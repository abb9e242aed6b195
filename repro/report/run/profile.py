"""The section and the figures of a report that show where the GPU's time goes, for OneFlow and for PyTorch."""

from collections.abc import Callable

from repro.analysis.kernel_classes import TITLES, class_of, short_name
from repro.analysis.kernel_trace import GAPS, LEAST_GAP_NS, Profile
from repro.analysis.profiles import ProfileComparison, Profiled, Profiles, profiles
from repro.planning.profiling import INTERVAL, KIND
from repro.report.charts.figure import FigureSpec
from repro.report.charts.stacked import Part, StackedChart
from repro.report.document import Block, Cell, Section, Table, Text
from repro.report.run.baselines import descriptions
from repro.report.run.kinds import Kind, register
from repro.report.tables import Field, count, decimals, percents, table
from repro.runs.unit import Unit
from repro.utils.i18n import N_, Translate

LARGEST = 10
IDLE = "idle"
PARTS = (*TITLES, IDLE)


def profile_section(_: Translate, findings: Profiles) -> Section:
    """One section: first an overview of all iterations, then each case's classes, kernels and gaps."""
    text = Text(
        _(
            "NVIDIA's CUPTI recorded when each kernel, copy and fill ran on rank 0's GPU. The tables show the mean "
            "iteration over the last {n} or more printed iterations. Kernels are classified by name. Concurrent "
            "kernels are each counted, so the classes may add up to more than the busy time. Tracing takes time, and "
            "how much is not known beforehand; run the same case with `make bench` to find out. Do not read the "
            "iteration time here as a throughput."
        ).format(n=INTERVAL)
    )
    names = [other.unit.label for comparison in findings.comparisons for other in comparison.others]
    described = descriptions(_, names)
    blocks: list[Block] = [text, *([described] if described.items else []), _iterations(_, findings)]
    if timelines := [f"`{profiled_unit.timeline}`" for profiled_unit in findings.every if profiled_unit.timeline]:
        blocks.append(
            Text(
                _("The same iterations as timelines, to open in Perfetto (ui.perfetto.dev) or chrome://tracing: ")
                + ", ".join(timelines)
            )
        )
    for number, comparison in enumerate(findings.comparisons, 1):
        blocks += _comparison(_, comparison, number)
    return Section("profile", _("Where GPU time goes"), tuple(blocks))


def _iterations(_: Translate, findings: Profiles) -> Table:
    def of(value: Callable[[Profile], float]) -> Callable[[Profiled], float | None]:
        return lambda profiled_unit: value(profiled_unit.profile) if profiled_unit.profile else None

    fields = (
        Field(_("Configuration"), lambda profiled_unit: profiled_unit.unit.name),
        Field(_("Program"), lambda profiled_unit: profiled_unit.unit.label),
        Field(_("Iteration (ms)"), of(lambda profile: profile.iteration_ms), decimals(2)),
        Field(_("GPU busy (ms)"), of(lambda profile: profile.busy_ms), decimals(2)),
        Field(_("GPU idle (ms)"), of(lambda profile: profile.idle_ms), decimals(2)),
        Field(_("Busy share"), of(lambda profile: profile.busy_ms / profile.iteration_ms), percents(1)),
        Field(_("Launches per iteration"), of(lambda profile: profile.launches), count),
        Field(_("Kernels (ms)"), of(lambda profile: sum(profile.by_class().values())), decimals(2)),
    )
    return table("profile-iterations", findings.every, fields, _("One iteration of each program:"))


def _comparison(_: Translate, comparison: ProfileComparison, number: int) -> list[Block]:
    own = comparison.own.profile
    blocks: list[Block] = []
    unit = comparison.own.unit
    for index, other in enumerate(comparison.others, 1):
        if own and other.profile:
            id = f"profile-classes-{number}-{index}"
            blocks.append(_classes_beside(_, unit, own=own, theirs=other.profile, label=other.unit.label, id=id))
    if own and not blocks:
        blocks.append(_classes(_, unit, own, f"profile-classes-{number}"))
    for index, profiled_unit in enumerate((comparison.own, *comparison.others)):
        if profiled_unit.profile:
            blocks.append(_kernels(_, profiled_unit, profiled_unit.profile, f"profile-kernels-{number}-{index}"))
            if profiled_unit.profile.gaps:
                blocks.append(_gaps(_, profiled_unit, profiled_unit.profile, f"profile-gaps-{number}-{index}"))
    return blocks


def _classes_beside(_: Translate, unit: Unit, own: Profile, theirs: Profile, label: str, id: str) -> Table:
    """Classes and idle time of both, those first on which the unit spends most more than the other."""
    ours, others = _parts(own), _parts(theirs)
    rows = [
        (_title(_, part), ours.get(part, 0.0), others.get(part, 0.0))
        for part in PARTS
        if part in ours or part in others
    ]
    rows.sort(key=lambda row: row[2] - row[1])
    rows.append((_("Iteration"), own.iteration_ms, theirs.iteration_ms))
    fields = (
        Field(_("Class"), lambda row: row[0]),
        Field(f"{unit.label} (ms)", lambda row: row[1], decimals(3)),
        Field(f"{label} (ms)", lambda row: row[2], decimals(3)),
        Field(_("Difference (ms)"), lambda row: row[1] - row[2], _signed),
    )
    caption = _("{unit} and {baseline}, milliseconds per iteration:").format(unit=unit.name, baseline=label)
    return table(id, rows, fields, caption)


def _classes(_: Translate, unit: Unit, own: Profile, id: str) -> Table:
    parts = _parts(own)
    rows = sorted((part for part in PARTS if part in parts), key=lambda part: -parts[part])
    fields = (
        Field(_("Class"), lambda part: _title(_, part)),
        Field(f"{unit.label} (ms)", lambda part: parts[part], decimals(3)),
        Field(_("Share of the iteration"), lambda part: parts[part] / own.iteration_ms, percents(1)),
    )
    return table(id, rows, fields, _("{unit}, milliseconds per iteration:").format(unit=unit.name))


def _parts(profile: Profile) -> dict[str, float]:
    """Milliseconds of the classes that occur, and of idle time."""
    return profile.by_class() | {IDLE: profile.idle_ms}


def _signed(value: float) -> Cell:
    rounded = round(value, 3) + 0.0  # no negative zero
    return Cell(f"{rounded:+.3f}", rounded)


def _title(_: Translate, part: str) -> str:
    return _("GPU idle") if part == IDLE else _(TITLES[part])


def _kernels(_: Translate, profiled_unit: Profiled, profile: Profile, id: str) -> Table:
    fields = (
        Field(_("Kernel"), lambda kernel: f"`{short_name(kernel.name)}`"),
        Field(_("Class"), lambda kernel: _(TITLES[kernel.kind])),
        Field(_("Launches per iteration"), lambda kernel: kernel.launches, decimals(1)),
        Field(_("Time (ms)"), lambda kernel: kernel.ms, decimals(3)),
        Field(_("Share of the iteration"), lambda kernel: kernel.ms / profile.iteration_ms, percents(1)),
    )
    longest = profile.kernels[:LARGEST]
    caption = _("{unit}: the {n} longest-running kernels. `kernels.csv` of the attempt has all of them.").format(
        unit=profiled_unit.unit.name, n=len(longest)
    )
    return table(id, longest, fields, caption)


def _gaps(_: Translate, profiled_unit: Profiled, profile: Profile, id: str) -> Table:
    fields = (
        Field(_("Next kernel"), lambda gap: f"`{short_name(gap.before)}`"),
        Field(_("Class"), lambda gap: _(TITLES[class_of(gap.before)])),
        Field(_("Gaps per iteration"), lambda gap: gap.count, decimals(1)),
        Field(_("Time (ms)"), lambda gap: gap.ms, decimals(3)),
    )
    caption = _("{unit}: idle times longer than {us} µs, by the next kernel; at most {n}:").format(
        unit=profiled_unit.unit.name, us=LEAST_GAP_NS // 1000, n=GAPS
    )
    return table(id, profile.gaps, fields, caption)


def profile_figures(findings: Profiles) -> list[FigureSpec]:
    """A figure for each case: a bar for the case and one for each unit that ran in turn with it, made of the classes and idle time."""
    return [
        _figure(comparison, number)
        for number, comparison in enumerate(findings.comparisons, 1)
        if comparison.own.profile
    ]


def _figure(comparison: ProfileComparison, number: int) -> FigureSpec:
    bars = [
        (profiled_unit.unit.label, profiled_unit.profile)
        for profiled_unit in (comparison.own, *comparison.others)
        if profiled_unit.profile
    ]
    name = comparison.own.unit.name
    return stacked_figure(f"profile-{number}", bars, lambda _: _("Where iteration time goes: {unit}").format(unit=name))


def stacked_figure(name: str, bars: list[tuple[str, Profile]], title: Callable[[Translate], str]) -> FigureSpec:
    """A bar for each labelled profile, made of its classes and idle time."""
    times = [_parts(profile) for _label, profile in bars]
    present = [part for part in PARTS if any(part in bar_times for bar_times in times)]
    values = tuple(tuple(bar_times.get(part, 0.0) for part in present) for bar_times in times)

    def chart(_: Translate) -> StackedChart:
        return StackedChart(
            title(_),
            _("ms per iteration on rank 0's GPU, by kernel class"),
            rows=tuple(label for label, _profile in bars),
            parts=tuple(Part(_title(_, part), None if part == IDLE else PARTS.index(part)) for part in present),
            values=values,
        )

    return FigureSpec(
        name,
        chart,
        lambda _: _("Concurrent kernels are each counted, so a bar may exceed the iteration."),
    )


register(
    Kind(
        KIND,
        N_("profile: a few iterations of each configuration, with every GPU kernel traced"),
        analyse=lambda run, plan, attempts, results: profiles(plan, attempts, run.files),
        sections=lambda _, data: [profile_section(_, data.findings)],
        figures=lambda data, files: profile_figures(data.findings),
        figures_after="profile",
    )
)
