"""What was measured, on the first screen: OneFlow over each baseline by model, and data parallel scaling."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.models.variants import MEGATRON
from repro.report import numbers, tables
from repro.report.document import Cell, Table
from repro.report.host.answer import NAMED, sizes
from repro.report.host.cells import listed, subject
from repro.report.host.configurations import configuration_name
from repro.report.host.measured import current, grouped, ratio_span, span_by_rule
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.method import link
from repro.report.tables import Field
from repro.utils.i18n import N_, Translate

MODEL = re.compile(r"\b[A-Z]{1,3}\d{2,4}\b")
"""A GPU's model within the name that its driver gives it."""
AS_PUBLISHED = "as published"
COMPARED = {
    "pytorch": N_("PyTorch"),
    "megatron": N_("Megatron-Core"),
    AS_PUBLISHED: N_("the baselines that compute as published"),
}
"""What the conclusion names: a framework as people run it today, or the baselines of both that compute as published."""


def table(_: Translate, hosts: Sequence[MeasuredHost]) -> Table | None:
    """A row for each model, baseline and host: the ratios of both programs in the published precision; None without one."""
    groups = [(host, group) for host in hosts for group in grouped(_comparable(host.ratios), _kind)]
    if not groups:
        return None
    groups.sort(key=lambda of: _kind(of[1][0]))  # hosts stay in their order
    names = short_names(hosts)
    fields = (
        Field(_("Model and baseline"), lambda of: Cell(subject(of[1][0].unit), note=of[1][0].base.label)),
        Field(
            _("Measured on"), lambda of: Cell(f"[{names[of[0].name]}](host-{of[0].name}.html)", note=sizes(_, of[1]))
        ),
        Field(_("Port / baseline"), lambda of: _range(_, of[1], PUBLISHED), numeric=True),
        Field(_("Tuned / baseline"), lambda of: _range(_, of[1], TUNED), numeric=True),
    )
    caption = _("Throughput of OneFlow 0.8.0 / that of a baseline in the same run, in the published precision")
    return tables.table("speed", groups, fields, caption)


def how_to_read(_: Translate) -> str:
    """What the numbers of the table are."""
    return _(
        "Lowest to highest of the configurations; above 1 OneFlow is faster. n: sessions behind the least measured of "
        "them; one session says nothing about another machine or day. Port: computes what was published. Tuned: the same "
        "model with faster operators and settings. The `-unfused` baselines compute what the published programs did; the "
        "others take the fused attention that people run today, Megatron-Core without the kernels of Transformer Engine and Apex ({method})."
    ).format(method=link(_, "programs", _("each of them"), "reports/"))


def gpu(host: MeasuredHost) -> str:
    """The model of a host's GPUs; the host's own name if no run measured speed."""
    return next((kept_run.gpus[0]["name"] for kept_run in host.measured if kept_run.gpus), host.name)


def short_names(hosts: Sequence[MeasuredHost]) -> dict[str, str]:
    """By host, its GPUs' model without maker and memory, such as H100; the whole name where two would be called the same."""
    whole = {host.name: gpu(host) for host in hosts}
    models = {name: (match[0] if (match := MODEL.search(gpus)) else gpus) for name, gpus in whole.items()}
    shared = Counter(models.values())
    return {name: model if shared[model] == 1 else whole[name] for name, model in models.items()}


def conclusion(_: Translate, hosts: Sequence[MeasuredHost]) -> str:
    """What both programs have of the throughput of each framework's baselines and of those that compute as published.

    Of a framework's baselines the fastest for each configuration counts, of those that compute as published each one.
    Empty without a ratio.
    """
    parts = []
    for program in KINDS:
        mine = [(host, row) for host in hosts for row in _comparable(host.ratios) if row.unit.program == program]
        fastest: dict[str, dict[tuple[str, str, str], float]] = {baseline: {} for baseline in COMPARED}
        for host, row in mine:
            if row.ratio:
                framework = "megatron" if row.base.label in MEGATRON else "pytorch"
                of_baseline = fastest[AS_PUBLISHED if row.base.label.endswith("-unfused") else framework]
                key = (host.name, configuration_name(row), framework)
                of_baseline[key] = min(row.ratio.value, of_baseline.get(key, row.ratio.value))
        ratios = [
            _("{ratio} × {baseline}").format(
                ratio=numbers.span(map(_two_decimals, sorted(values.values()))), baseline=_(COMPARED[baseline])
            )
            for baseline, values in fastest.items()
            if values
        ]
        if ratios:
            parts.append(_("{program} {ratios}").format(program=_(NAMED[program]), ratios=listed(_, ratios)))
    return _("; ").join(parts)


def scaling(_: Translate, hosts: Sequence[MeasuredHost]) -> str:
    """One sentence on data parallel efficiency, lowest to highest of the ports; empty if no port ran on several GPUs."""
    rows = [row for host in hosts for row in _comparable(host.efficiencies) if row.unit.program == PUBLISHED]
    if not rows:
        return ""
    by_rule = span_by_rule(rows, numbers.percentage)
    text = _(
        "Data parallel on {gpus}, the port of {models} has {efficiency} of the throughput of as many single GPUs{marks}."
    )
    return text.format(
        gpus=sizes(_, rows),
        models=listed(_, dict.fromkeys(subject(row.unit) for row in rows)),
        efficiency=ratio_span(rows, numbers.percentage),
        marks=_(" (steady state; {by_rule} by the report's rule)").format(by_rule=by_rule) if by_rule else "",
    )


def _comparable(rows: Iterable[HostRow]) -> list[HostRow]:
    """The rows of OneFlow with the newest code in the precision of the case that they are or were derived from."""
    return [row for row in current(rows) if row.unit.case_in_precision]


def _kind(row: HostRow) -> tuple[str, str]:
    return subject(row.unit), row.base.label


def _two_decimals(ratio: float) -> str:
    return numbers.fixed(ratio, 2)


def _range(_: Translate, rows: Iterable[HostRow], program: str) -> Cell:
    """The lowest and the highest ratio of a program, with the number of sessions behind the least measured; a dash for none."""
    mine = [row for row in rows if row.unit.program == program and row.ratio]
    if not mine:
        return tables.NONE
    least = min(len(row.sessions) for row in mine)
    lowest = min(row.ratio.value for row in mine if row.ratio)
    return Cell(ratio_span(mine, _two_decimals), lowest, note=_("n\u00a0=\u00a0{n}").format(n=least))
