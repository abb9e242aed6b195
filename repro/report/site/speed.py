"""What was measured, on the first screen: OneFlow over each baseline by model, and data parallel scaling."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.models.variants import MEGATRON
from repro.report import numbers, tables
from repro.report.document import Cell, Table
from repro.report.host.answer import sizes, two_decimals
from repro.report.host.configurations import configuration_name
from repro.report.host.measured import comparable, ratio_span, span_by_rule
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import HostRow
from repro.report.method import link
from repro.report.names import listed, subject
from repro.report.tables import Field
from repro.utils.grouping import by_key
from repro.utils.i18n import N_, Translate

MODEL = re.compile(r"\b[A-Z]{1,3}\d{2,4}\b")
"""A GPU's model within the name that its driver gives it."""
FRAMEWORKS = {"pytorch": "PyTorch", "megatron": "Megatron-Core"}
FASTER = N_("faster than {framework} in {models}")
SLOWER = N_("slower than {framework} in {models}")
DESCRIBED = {
    PUBLISHED: N_("The **port** (the published program rewritten for OneFlow 0.8.0)"),
    TUNED: N_("The **tuned** program (the same model with faster operators and settings)"),
}


@dataclass(frozen=True)
class FrameworkRatios:
    """A host's rows of one model over the baselines of one framework, in the published precision."""

    host: MeasuredHost
    rows: tuple[HostRow, ...]

    @property
    def model(self) -> str:
        return subject(self.rows[0].unit)

    @property
    def framework(self) -> str:
        return _framework(self.rows[0])

    def over_fastest(self, program: str, *, unfused: bool = False) -> list[HostRow]:
        """Each configuration's row over its fastest baseline; if `unfused`, of those that compute as the published programs."""
        mine = [row for row in self.rows if row.ratio and (row.unit.program, _unfused(row)) == (program, unfused)]
        return [min(group, key=_ratio) for group in by_key(mine, configuration_name).values()]


def comparisons(hosts: Sequence[MeasuredHost]) -> list[FrameworkRatios]:
    """All of them with the newest code, by model, framework and host."""
    of_hosts = [
        FrameworkRatios(host, tuple(rows))
        for host in hosts
        for rows in by_key(comparable(host.ratios), lambda row: (subject(row.unit), _framework(row))).values()
    ]
    order = list(FRAMEWORKS)
    return sorted(of_hosts, key=lambda compared: (compared.model, order.index(compared.framework)))


def table(_: Translate, hosts: Sequence[MeasuredHost]) -> Table | None:
    """A row for each model, framework and host: the ratios of both programs; None without one."""
    every = comparisons(hosts)
    if not every:
        return None
    names = short_names(hosts)

    def titled(compared: FrameworkRatios) -> Cell:
        return Cell(compared.model, note=FRAMEWORKS[compared.framework])

    def measured_on(compared: FrameworkRatios) -> Cell:
        host = compared.host.name
        return Cell(f"[{names[host]}](host-{host}.html)", note=sizes(_, compared.rows))

    fields = (
        Field(_("Model and framework"), titled),
        Field(_("Measured on"), measured_on),
        Field(_("Port / fastest current baseline"), partial(_range, _, PUBLISHED), numeric=True),
        Field(_("Tuned / fastest current baseline"), partial(_range, _, TUNED), numeric=True),
        Field(_("Port / baseline as published"), partial(_range, _, PUBLISHED, unfused=True), numeric=True, minor=True),
    )
    caption = _(
        "Throughput of OneFlow 0.8.0 over that of another framework in the same run, in the published precision; above 1 "
        "OneFlow is faster"
    )
    return tables.table("speed", every, fields, caption)


def how_to_read(_: Translate, hosts: Sequence[MeasuredHost]) -> str:
    """What the numbers of the table are."""
    shared = any(host.is_shared(kept_run) for host in hosts for kept_run in host.measured)
    text = _(
        "Lowest to highest of the configurations. n: sessions behind the least measured of "
        "them; one session says nothing about another machine or day. Fastest current baseline: the fastest that was measured "
        "in the run, with fused attention, Megatron-Core without the kernels of Transformer Engine and Apex. As published: a "
        "baseline that computes what the published programs did; it counts as no current one, even where it was faster. The port reads files as the published program did, all "
        "others train on synthetic batches. OneFlow calls a newer cuBLAS and cuDNN than its own through libraries of this "
        "project ({method})."
    ).format(method=link(_, "programs", _("each of them"), "reports/"))
    elsewhere = _("Runs next to which another program used the host's processors are on the host's page only.")
    return _("{text} {more}").format(text=text, more=elsewhere) if shared else text


def gpu(host: MeasuredHost) -> str:
    """The model of a host's GPUs; the host's own name if no run measured speed."""
    return next((kept_run.gpus[0]["name"] for kept_run in host.measured if kept_run.gpus), host.name)


def short_name(gpu: str) -> str:
    """A GPU's model without maker and memory, such as H100; the whole name where it has none."""
    return match[0] if (match := MODEL.search(gpu)) else gpu


def short_names(hosts: Sequence[MeasuredHost]) -> dict[str, str]:
    """By host, its GPUs' model without maker and memory, such as H100; the whole name where two would be called the same."""
    whole = {host.name: gpu(host) for host in hosts}
    models = {name: short_name(gpus) for name, gpus in whole.items()}
    shared = Counter(models.values())
    return {name: model if shared[model] == 1 else whole[name] for name, model in models.items()}


def conclusion(_: Translate, hosts: Sequence[MeasuredHost]) -> list[str]:
    """What intervals over sessions decide of the rows over the fastest baselines: a statement for each program, and the rest.

    None without a row; no rest where all are decided.
    """
    every = comparisons(hosts)
    if not every:
        return []
    decided = {
        (program, framework): outcomes
        for program in KINDS
        for framework in FRAMEWORKS
        if (outcomes := _outcomes(_, every, program, framework))
    }
    statements = [
        _("{program} was {outcomes}.").format(
            program=_(DESCRIBED[program]),
            outcomes=_("; ").join(
                text for (of, _framework), texts in decided.items() if of == program for text in texts
            ),
        )
        for program in dict.fromkeys(program for program, _framework in decided)
    ]
    by_row = [_outcome(row) for compared in every for program in KINDS for row in compared.over_fastest(program)]
    if not statements:
        rest = _(
            "All {n} comparisons are undecided: a single session has no interval, and few sessions have a wide one."
        )
        return [rest.format(n=len(by_row))]
    if None not in by_row:
        return statements
    undecided = [
        name
        for framework, name in FRAMEWORKS.items()
        if any(compared.framework == framework for compared in every)
        and framework not in {of for _program, of in decided}
    ]
    rest = _(
        "The other {n} of {all} comparisons are undecided{frameworks}: a single session has no interval, and few sessions "
        "have a wide one."
    ).format(
        n=by_row.count(None),
        all=len(by_row),
        frameworks=_(", all those with {frameworks} among them").format(frameworks=listed(_, undecided))
        if undecided
        else "",
    )
    return [*statements, rest]


def _outcomes(_: Translate, every: Sequence[FrameworkRatios], program: str, framework: str) -> list[str]:
    """Where the whole interval is on one side of 1: "faster than PyTorch in all 3 ResNet50 fp32 configurations (…)"."""
    decided: dict[str, list[HostRow]] = {}
    for compared in every:
        if compared.framework == framework:
            decided.setdefault(compared.model, []).extend(filter(_outcome, compared.over_fastest(program)))
    texts = []
    for outcome in (SLOWER, FASTER):
        models = [
            _configurations(_, model, rows, mine)
            for model, rows in decided.items()
            if (mine := [row for row in rows if _outcome(row) == outcome])
        ]
        if models:
            texts.append(_(outcome).format(framework=FRAMEWORKS[framework], models=listed(_, models)))
    return texts


def _configurations(_: Translate, model: str, decided: Sequence[HostRow], mine: Sequence[HostRow]) -> str:
    """How many of a model's decided configurations are `mine`, and the baselines of these: "3 of 4 BERT fp32 …"."""
    text = (
        _("{n} of {all} decided {model} configurations ({baselines})")
        if len(mine) < len(decided)
        else _("all {all} decided {model} configurations ({baselines})")
        if len(mine) > 2
        else _("both decided {model} configurations ({baselines})")
        if len(mine) > 1
        else _("the one decided {model} configuration ({baselines})")
    )
    baselines = listed(_, dict.fromkeys(row.base.label for row in mine))
    return text.format(model=model, n=len(mine), all=len(decided), baselines=baselines)


def _outcome(row: HostRow) -> str | None:
    """SLOWER or FASTER where the interval over sessions is on one side of 1; None where it decides nothing."""
    interval = row.ratio and row.ratio.decisive
    if not interval:
        return None
    return SLOWER if interval.high < 1 else FASTER if interval.low > 1 else None


def scaling(_: Translate, hosts: Sequence[MeasuredHost]) -> str:
    """One sentence on data parallel efficiency, lowest to highest of the ports; empty if no port ran on several GPUs."""
    rows = [row for host in hosts for row in comparable(host.efficiencies) if row.unit.program == PUBLISHED]
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


def _framework(row: HostRow) -> str:
    return "megatron" if row.base.label in MEGATRON else "pytorch"


def _unfused(row: HostRow) -> bool:
    return bool(row.base.config.switches.get("unfused"))


def _ratio(row: HostRow) -> float:
    assert row.ratio
    return row.ratio.value


def _range(_: Translate, program: str, compared: FrameworkRatios, *, unfused: bool = False) -> Cell:
    """The lowest and the highest ratio, with the number of sessions behind the least measured; a dash for none."""
    mine = compared.over_fastest(program, unfused=unfused)
    if not mine:
        return tables.NONE
    least = min(len(row.sessions) for row in mine)
    note = _("{baselines}, n\u00a0=\u00a0{n}").format(
        baselines=listed(_, dict.fromkeys(row.base.label for row in mine)), n=least
    )
    return Cell(ratio_span(mine, two_decimals), min(map(_ratio, mine)), note=note)
