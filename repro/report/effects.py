"""What the port gains from newer kernels, as measured with those of 2020: texts and tables in one language."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from operator import itemgetter

from repro.models.past import BACKWARD, DIRECTIONS, DROPOUT, FORWARD, LAYER_NORM, SOFTMAX
from repro.perfmodel.hardware import from_devices
from repro.perfmodel.past_kernels import Gain, Span, TimedOperators, gain, measurements
from repro.planning.past import uses_of
from repro.published.cases import Case, load_catalogue
from repro.report.document import Block, Cell, Section, Table, Text
from repro.report.numbers import RANGE, significant
from repro.report.tables import NONE, Field, count, table
from repro.utils.i18n import N_, Translate

TITLES = {
    SOFTMAX: N_("softmax, cross-entropy"),
    DROPOUT: N_("dropout"),
    LAYER_NORM: "LayerNorm",
}
"""The operators of each deviation that was measured."""
CALLED = {FORWARD: N_("forward"), BACKWARD: N_("backward")}


def percent_span(span: Span) -> str:
    """From the least to the most, in per cent with one decimal."""
    low, high = (f"{100 * end:.1f}".replace("-", "−") for end in (span.low, span.high))
    return f"{low}%" if low == high else f"{low}{RANGE}{high}%"


def hull(spans: Iterable[Span]) -> Span:
    """From the least of all to the most of all."""
    all_spans = list(spans)
    return Span(min(span.low for span in all_spans), max(span.high for span in all_spans))


def gains(reports: Iterable[str]) -> dict[str, Gain]:
    """The gain of each case of these reports for which something was measured, by the case's name."""
    named = set(reports)
    by_case = {case.name: gain(case) for case in load_catalogue().cases if case.report in named}
    return {name: case_gain for name, case_gain in by_case.items() if case_gain}


def effects(_: Translate, reports: Iterable[str]) -> dict[str, str]:
    """The measured effect of each deviation on these reports' cases; nothing for those that were not measured."""
    case_gains = gains(reports).values()
    ids = dict.fromkeys(deviation for case_gain in case_gains for deviation in case_gain.by_deviation)
    return {
        deviation: _effect(_, deviation, [case_gain for case_gain in case_gains if deviation in case_gain.by_deviation])
        for deviation in ids
    }


def _effect(_: Translate, deviation: str, case_gains: list[Gain]) -> str:
    text = _("Kernels timed on {gpus}, scaled to {target}: {span} faster in the published cases.")
    return text.format(
        span=percent_span(hull(case_gain.of(deviation) for case_gain in case_gains)), **_gpus(_, case_gains)
    )


def _gpus(_: Translate, case_gains: Iterable[Gain]) -> dict[str, str]:
    """The GPUs that were measured, and the published ones that the times were scaled to."""
    of_cases = list(case_gains)
    measured = dict.fromkeys(gpu for case_gain in of_cases for gpu in case_gain.gpus)
    published = dict.fromkeys(case_gain.target for case_gain in of_cases)
    return {"gpus": _(", ").join(measured), "target": _(", ").join(published)}


def how_timed(_: Translate) -> str:
    """How the kernels of 2020 were timed, and what was made of the times."""
    return _(
        "Kernels with the passes of the old ones were timed against those of OneFlow 0.8.0 (`make effects`). Each call found its "
        "data outside the GPU's cache; in the second column of times, so did each kernel. A pass reads or writes as many elements "
        "as the input has. Times are those of the kernels alone, from CUPTI. The difference was scaled to the published GPUs by "
        "memory bandwidth and by multiprocessors times clock; one of them limits kernels that fill a GPU, the range covers both, "
        "and data in the GPU's cache or not. For kernels too short to fill one, its lower end may be too high. Other deviations "
        "keep their estimates."
    )


def gain_text(_: Translate, case_gains: Mapping[str, Gain], method: str = "") -> Text:
    """The gains of all measured deviations together, over these configurations.

    `method` is a link to where it is said how they were timed; without one, the text says it.
    """
    ids = dict.fromkeys(deviation for case_gain in case_gains.values() for deviation in case_gain.by_deviation)
    text = _(
        "The port is expected to be {span} faster than the program of that time for its newer kernels alone ({operators}; timed "
        "on {gpus}, scaled to {target}; {method})."
    ).format(
        span=percent_span(hull(case_gain.faster for case_gain in case_gains.values())),
        operators=_(", ").join(_(TITLES[deviation]) for deviation in ids),
        **_gpus(_, case_gains.values()),
        method=method or "`make effects`",
    )
    return Text(text if method else _("{text} {more}").format(text=text, more=how_timed(_)))


def gain_table(_: Translate, id: str, case_gains: Mapping[str, Gain]) -> Table:
    """How much faster each configuration is expected to be, in all and by operator."""
    ids = list(dict.fromkeys(deviation for case_gain in case_gains.values() for deviation in case_gain.by_deviation))

    def gained(row: tuple[str, Gain], deviation: str) -> Cell:
        return _span(row[1].of(deviation)) if deviation in row[1].by_deviation else NONE

    fields = (
        Field(_("Configuration"), itemgetter(0)),
        Field(_("Expected to be faster by"), lambda row: _span(row[1].faster), numeric=True),
        *(
            Field(
                _("Share of {operators}").format(operators=_(TITLES[deviation])),
                partial(gained, deviation=deviation),
                numeric=True,
            )
            for deviation in ids
        ),
    )
    return table(id, case_gains.items(), fields, _("What newer kernels are expected to gain, by configuration:"))


def _span(span: Span) -> Cell:
    return Cell(percent_span(span), (span.low + span.high) / 2)


def measurement_section(_: Translate, cases: Iterable[Case], method: str) -> Section | None:
    """What was timed for these cases: the operators with their shapes, passes and milliseconds, by GPU.

    `method` is a link to where it is said how.
    """
    of_cases = list(cases)
    tables = [_table(_, measured, of_cases) for measured in measurements()]
    shown: list[Block] = [table for table in tables if table.rows]
    if not shown:
        return None
    text = _("Times of the kernels alone ({method}).").format(method=method)
    return Section("past-kernels", _("Kernels of 2020, timed"), (Text(text), *shown), folded=True)


def _table(_: Translate, measured: TimedOperators, cases: list[Case]) -> Table:
    used = {use.subject for case in cases for use in uses_of(case)}
    keys = {(subject.form, subject.rows, subject.columns, direction) for subject in used for direction in DIRECTIONS}
    fields = (
        Field(_("Operator"), lambda operator: f"{operator.form} {operator.rows}×{operator.columns}"),
        Field(_("Direction"), lambda operator: _(CALLED[operator.direction])),
        Field(_("Passes"), lambda operator: operator.passes, count),
        Field(_("2020 (ms)"), lambda operator: operator.past_ms, _milliseconds),
        Field(_("2020, nothing cached (ms)"), lambda operator: operator.cold_ms, _milliseconds),
        Field(_("0.8.0 (ms)"), lambda operator: operator.present_ms, _milliseconds),
        Field(_("2020 (GB/s)"), lambda operator: operator.bytes / operator.cold_ms / 1e6, count),
    )
    timed = [operator for operator in measured.operators if operator.key in keys]
    gpu = from_devices(measured.gpu, 1).gpu
    caption = _("On {gpu}, whose memory has {peak} GB/s:").format(gpu=measured.gpu, peak=f"{gpu.bandwidth_gbs:.0f}")
    return table(f"past-{gpu.name}", timed, fields, caption)


def _milliseconds(ms: float) -> Cell:
    return Cell(significant(ms, 3), ms)
