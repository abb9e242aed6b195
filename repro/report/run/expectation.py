"""The section of a run's report that compares measurements with the performance model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repro.analysis.results import Result
from repro.perfmodel.hardware import HardwareError
from repro.perfmodel.predict import Expectation, expect_unit
from repro.report.document import Block, Cell, Section, Text
from repro.report.tables import Field, count, decimals, factor, table
from repro.runs.plan import PUBLISHED
from repro.utils.i18n import Translate


def expectation_sections(
    _: Translate, scale: str, results: Sequence[Result], gpus: Sequence[Mapping], nodes: int = 1
) -> list[Section]:
    """One section for a run at the published scale, none for another or without a result that the model knows.

    results : the run's results; the model knows the units of published cases, and those derived from them.
    gpus : what nvidia-smi reported of each GPU of the run, on all its `nodes`; where the model does not know them, the
        section says so.
    """
    if scale != PUBLISHED or not gpus:
        return []
    title = _("Compared with the performance model")
    try:
        pairs = [(result, expected) for result in results if (expected := expect_unit(result.unit, gpus, nodes))]
    except HardwareError as error:
        text = _("The model does not describe these GPUs: {reason}").format(reason=error)
        return [Section("expectation", title, (Text(text),))]
    return [Section("expectation", title, _blocks(_, pairs))] if pairs else []


def _blocks(_: Translate, pairs: Sequence[tuple[Result, Expectation]]) -> tuple[Block, ...]:
    text = _(
        "MODELLED figures compared with measured ones, by the constants of `reports/model/`. The uncertainty is the "
        "factor, in either direction, within which nine in ten comparable trainings stay; measurements further away "
        "are marked and worth checking."
    )
    notes = dict.fromkeys(
        _(message).format(**values) for _result, expectation in pairs for message, values in expectation.notes
    )
    fields = (
        Field(_("Case"), lambda pair: pair[0].unit.name),
        Field(_("Measured (samples/s)"), lambda pair: pair[0].throughput, decimals(2)),
        Field(_("Expected (samples/s)"), lambda pair: pair[1].throughput, decimals(2)),
        Field(_("Uncertainty"), lambda pair: pair[1].uncertainty, factor),
        Field(_("Measured memory (MiB)"), lambda pair: pair[0].memory_mib, count),
        Field(_("Expected memory (MiB)"), lambda pair: pair[1].memory_mib, count),
        Field(_("Deviates"), lambda pair: _verdict(_, pair[0].throughput, pair[1])),
    )
    return (Text(text), *(Text(note) for note in notes), table("expectation", pairs, fields))


def _verdict(_: Translate, throughput: float | None, expected: Expectation) -> Cell:
    deviates = None if throughput is None else expected.deviates(throughput)
    if throughput is None or deviates is None:
        return Cell("–")
    if not deviates:
        return Cell(_("no"), tone="good")
    faster = throughput > expected.throughput
    return Cell(_("faster than expected") if faster else _("slower than expected"), tone="bad")
