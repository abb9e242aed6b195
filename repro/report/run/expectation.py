"""The section of a run's report that puts the performance model's expectation beside each measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from repro.analysis.results import Result
from repro.perfmodel.hardware import Cluster, HardwareError, from_devices
from repro.planning.derived import case_of
from repro.planning.plan import PUBLISHED
from repro.report.document import Block, Cell, Column, Section, Table, Text, figure
from repro.utils.i18n import Translate

if TYPE_CHECKING:
    from repro.perfmodel.predict import Expectation


def expectation_sections(_: Translate, scale: str, results: Sequence[Result], gpus: Sequence[dict]) -> list[Section]:
    """One section for a run at the published scale, none for another.

    results : the run's results; the model knows the units of published cases, and those derived from them.
    gpus : what nvidia-smi reported of each GPU of the run; where the model does not know them, the section says so.
    """
    if scale != PUBLISHED or not gpus:
        return []
    title = _("Beside what the performance model expects")
    try:
        cluster = from_devices(gpus[0]["name"], len(gpus))
    except HardwareError as error:
        text = _("The model has no description of these GPUs: {reason}").format(reason=error)
        return [Section("expectation", title, (Text(text),))]
    return [Section("expectation", title, _blocks(_, results, cluster))]


def _blocks(_: Translate, results: Sequence[Result], cluster: Cluster) -> tuple[Block, ...]:
    from repro.perfmodel.predict import expect

    cases = [(result, case) for result in results if (case := case_of(result.unit))]
    pairs = [(result, expect(case, cluster)) for result, case in cases if case.layout.world_size <= cluster.gpus]
    text = _(
        "MODELLED figures beside measured ones, by the constants of `reports/model/`. The uncertainty is the error "
        "that nine in ten comparable cases stay within; a measurement further away is marked, and worth a second look."
    )
    notes = dict.fromkeys(_(message).format(**values) for _result, each in pairs for message, values in each.notes)
    numeric = (
        _("Measured (samples/s)"),
        _("Expected (samples/s)"),
        _("Uncertainty"),
        _("Measured memory (MiB)"),
        _("Expected memory (MiB)"),
    )
    columns = (Column(_("Case")), *(Column(each, numeric=True) for each in numeric), Column(_("Deviates")))
    table = Table("expectation", columns, tuple(_row(_, result, expected) for result, expected in pairs))
    return (Text(text), *(Text(note) for note in notes), table)


def _row(_: Translate, result: Result, expected: Expectation) -> tuple[Cell, ...]:
    return (
        Cell(result.unit.name),
        figure(result.throughput, 2),
        figure(expected.throughput, 2),
        Cell(f"± {expected.uncertainty:.0%}", expected.uncertainty),
        figure(result.memory_mib, 0),
        figure(expected.memory_mib, 0),
        _verdict(_, result.throughput, expected),
    )


def _verdict(_: Translate, throughput: float | None, expected: Expectation) -> Cell:
    if throughput is None:
        return Cell("–")
    if not expected.deviates(throughput):
        return Cell(_("no"), tone="good")
    faster = throughput > expected.throughput
    return Cell(_("faster than expected") if faster else _("slower than expected"), tone="bad")
