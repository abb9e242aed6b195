"""The first screen of a host's page: what was measured, the result by model in words, and what it rests on."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import reduce

from repro.analysis.comparability import GPU_MODEL
from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.report import numbers
from repro.report.charts.coverage import AS_PUBLISHED, DERIVED
from repro.report.charts.figure import gpus_text as gpus_count
from repro.report.document import Block, Figure, Items, Section, Text
from repro.report.host.cells import Written, figures_of
from repro.report.host.configurations import baselines
from repro.report.host.coverage import levels_of, units_run
from repro.report.host.measured import comparable, current, factor, factors, ratio_span, span_by_rule
from repro.report.host.results import MeasuredHost
from repro.report.host.rows import LEAST_SESSIONS, HostRow
from repro.report.method import link
from repro.report.names import listed, subject
from repro.report.run.programs import PROGRAMS
from repro.utils.grouping import by_key
from repro.utils.i18n import N_, Translate

NAMED = {PUBLISHED: N_("port"), TUNED: N_("tuned")}
"""The programs within a sentence."""
FRAMEWORKS = {"torch": "PyTorch", "megatron_core": "Megatron-Core"}
"""What baselines are trained with, by the library whose release a rank records."""


def gpus_text(_: Translate, host: MeasuredHost) -> str:
    """The GPUs of all runs: each model with the numbers of GPUs that the machines of the ranks have."""
    counts_by_gpu: dict[str, set[int]] = {}
    for machine in (machine for kept_run in host.runs for machine in kept_run.machines):
        names = [gpu["name"] for gpu in machine.gpus]
        for gpu_name in dict.fromkeys(names):
            counts_by_gpu.setdefault(gpu_name, set()).add(names.count(gpu_name))
    return _(", ").join(_one_kind(_, gpu_name, sorted(counts)) for gpu_name, counts in counts_by_gpu.items())


def _one_kind(_: Translate, gpu: str, counts: list[int]) -> str:
    if counts == [1]:
        return _("{name} (machines with 1 GPU)").format(name=gpu)
    return _("{name} (machines with {numbers} GPUs)").format(name=gpu, numbers=listed(_, map(str, counts)))


def when(_: Translate, host: MeasuredHost) -> str:
    """The days on which runs began, UTC."""
    days = sorted({kept_run.day for kept_run in host.runs})
    return _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else "".join(days)


def measured(_: Translate, host: MeasuredHost) -> str:
    """What was measured on what, in one sentence."""
    levels = list(levels_of(host).values())
    exact, derived, newest = levels.count(AS_PUBLISHED), levels.count(DERIVED), len(factors(host))
    text = _(
        "Measured on {gpus}, {when}: {ran} of the {all} published cases ran, {exact} in their published configuration{newest} "
        "and {derived} shrunk or otherwise derived ({programs}){against}."
    )
    return text.format(
        gpus=gpus_text(_, host) or host.name,
        when=when(_, host) or "–",
        ran=exact + derived,
        all=len(levels),
        programs=listed(_, _ran_with(_, host)) or "–",
        exact=exact,
        newest=_(" ({n} of them with the newest code, as in the tables below)").format(n=newest)
        if newest < exact
        else "",
        derived=derived,
        against=_against(_, host),
    )


def _ran_with(_: Translate, host: MeasuredHost) -> Iterable[str]:
    """The number of cases that ran, in any form, with each program."""
    for program in host.programs:
        units = [unit for unit in units_run(host) if (unit.program or PUBLISHED) == program]
        cases = {case for unit in units for case in (*unit.stands_for, *unit.derived_from)}
        yield _("{n} with the {program}").format(n=len(cases), program=_(PROGRAMS[program]))


def _against(_: Translate, host: MeasuredHost) -> str:
    """The frameworks that OneFlow was compared with, by release; empty if with none."""
    versions = [start.get("versions") or {} for kept_run in host.measured for start in kept_run.starts.values()]
    compared = [
        f"{framework} {release}"
        for library, framework in FRAMEWORKS.items()
        for release in dict.fromkeys(str(of_rank[library]) for of_rank in versions if library in of_rank)
    ]
    return _(", some compared with {frameworks}").format(frameworks=listed(_, compared)) if compared else ""


def by_model(_: Translate, host: MeasuredHost) -> list[str]:
    """For each model in its published precision and each baseline, what each program has of its throughput."""
    rows = comparable(host.ratios)
    return [
        _("**{subject}** over `{baseline}`, {gpus}: {programs}").format(
            subject=subject(group[0].unit),
            baseline=baseline,
            gpus=sizes(_, mine),
            programs=_(", ").join(_programs_over(_, mine)),
        )
        for group in by_key(rows, lambda row: subject(row.unit)).values()
        for baseline in baselines(group)
        for mine in ([row for row in group if row.base.label == baseline],)
    ]


def over_published(_: Translate, host: MeasuredHost) -> str:
    """What each program has of the published throughput, by model; empty if no case ran in its published configuration."""
    every = [(case, row) for case, by_program in factors(host) for row in by_program.values() if not row.shared]
    parts = [
        _("{subject}: {programs}").format(
            subject=model,
            programs=_(", ").join(
                _factors(
                    _, [(row.unit.program, factor(case, row)) for case, row in every if subject(row.unit) == model]
                )
            ),
        )
        for model in dict.fromkeys(subject(row.unit) for _case, row in every)
    ]
    return (
        _("**Over the published V100 throughput**{remark}: {parts}").format(
            remark=_unjudged(_, host, {case.name for case, _row in every}), parts=_("; ").join(parts)
        )
        if parts
        else ""
    )


def _unjudged(_: Translate, host: MeasuredHost, cases: Container[str]) -> str:
    """That none of these cases has a verdict, with the reason if it is the GPUs; empty if one has."""
    verdicts = [
        verdict
        for kept_run in host.measured
        for verdict in kept_run.judgement.verdicts
        if verdict.case in cases and verdict.throughputs
    ]
    if any(verdict.outcome != "none" for verdict in verdicts):
        return ""
    on_others = [any(reason.aspect == GPU_MODEL for reason in verdict.reasons) for verdict in verdicts]
    return _(" (other hardware, no verdict)") if on_others and all(on_others) else _(" (no verdict)")


def sizes(_: Translate, rows: Iterable[HostRow]) -> str:
    """On how many GPUs rows were measured: `1, 2 and 4 GPUs`."""
    numbers_of_gpus = sorted({row.unit.world_size for row in rows})
    if len(numbers_of_gpus) == 1:
        return gpus_count(_, numbers_of_gpus[0])
    return _("{numbers} GPUs").format(numbers=listed(_, map(str, numbers_of_gpus)))


def _programs_over(_: Translate, rows: list[HostRow]) -> Iterable[str]:
    """The lowest and highest ratio of each program, and the numbers of sessions."""
    for program in KINDS:
        mine = [row for row in rows if row.unit.program == program]
        if mine:
            yield _("{program} {values} ({sessions})").format(
                program=_(NAMED[program]),
                values=ratio_span(mine, two_decimals),
                sessions=_sessions(_, mine, two_decimals),
            )


def two_decimals(ratio: float) -> str:
    """A ratio with two decimals: the table below has the third."""
    return numbers.fixed(ratio, 2)


def _short_factor(value: float) -> str:
    return numbers.significant(value, 2)


def _sessions(_: Translate, rows: list[HostRow], written: Written) -> str:
    """How many sessions rows are of; beside the steady state the rule's ratio."""
    sessions = numbers.span(map(str, sorted(len(row.sessions) for row in rows)))
    if by_rule := span_by_rule(rows, written):
        sessions = _("{n}, steady; by the rule {ratio}").format(n=sessions, ratio=by_rule)
    return _("n\u00a0=\u00a0{n}").format(n=sessions)


def _factors(_: Translate, published: list[tuple[str, float]]) -> Iterable[str]:
    for program in KINDS:
        values = sorted(value for of, value in published if of == program)
        if values:
            yield f"{_(NAMED[program])} {numbers.span(map(_short_factor, values))}"


def scaled(_: Translate, host: MeasuredHost) -> str:
    """Scaling efficiency by model and program on each number of GPUs; empty without."""
    rows = comparable(host.efficiencies)
    parts = [
        _("{subject}, {program}, {gpus}: {values} ({sessions})").format(
            subject=subject(group[0].unit),
            program=_(NAMED[group[0].unit.program]),
            gpus=gpus_count(_, group[0].unit.world_size),
            values=ratio_span(group, numbers.percentage),
            sessions=_sessions(_, group, numbers.percentage),
        )
        for group in by_key(rows, lambda row: (subject(row.unit), row.unit.program, row.unit.world_size)).values()
    ]
    return _("**Scaling efficiency**: {parts}").format(parts=_("; ").join(parts)) if parts else ""


def believed(_: Translate, host: MeasuredHost) -> str:
    """What the figures rest on, and what they do not show."""
    every = [*host.gains, *host.ratios, *host.efficiencies]
    rows = current(every)
    single = sum(len(row.sessions) < LEAST_SESSIONS for row in rows)
    verdicts = [verdict for kept_run in host.measured for verdict in kept_run.judgement.verdicts]
    judged = sum(verdict.outcome != "none" for verdict in verdicts)
    sentences = []
    if rows and single == len(rows):
        sentences.append(
            _(
                "Every comparison comes from a single session, so none has an interval: another day may give another ratio."
            )
        )
    elif rows and not single:
        sentences.append(_("Every comparison has an interval over several sessions."))
    elif rows:
        text = _(
            "Comparisons with an interval over several sessions: {several} of {rows}; the others come from a single session."
        )
        sentences.append(text.format(several=len(rows) - single, rows=len(rows)))
    if older := len(every) - len(rows):
        text = _("Comparisons left out, as they were measured only with older code of their program: {n}.")
        sentences.append(text.format(n=older))
    if shared := sum(row.shared for row in rows):
        text = _(
            "Comparisons marked “shared host”: {n}. Another program used the host's processors meanwhile, which slows what waits "
            "for them, and no other run has these configurations."
        )
        sentences.append(text.format(n=shared))
    if verdicts and not judged:
        sentences.append(
            _(
                "Nothing here shows whether a published throughput is reproduced: no result was measured under the published conditions."
            )
        )
    elif verdicts:
        text = _("Published throughputs with a verdict: {judged} of {n} results.")
        sentences.append(text.format(judged=judged, n=len(verdicts)))
    return _joined(_, sentences)


def in_words(_: Translate, host: MeasuredHost) -> tuple[str, ...]:
    """The result of a host, an item for each statement."""
    return tuple(filter(None, (*by_model(_, host), over_published(_, host), scaled(_, host))))


def _checked(_: Translate, host: MeasuredHost) -> str:
    """How a reader checks the page, and where the raw data are."""
    return _(
        "`make verify HOST={host}` recomputes what each run measured from the logs in its [archive](#runs), and "
        "`make host-reports HOST={host} CHECK=1` recomputes this page from that ({method})."
    ).format(host=host.name, method=link(_, "evidence", _("what is checked")))


def how_to_read(_: Translate, host: MeasuredHost) -> str:
    """What the numbers of a host's result are."""
    over = _(
        "Throughput over that of each baseline, lowest to highest of the configurations; above 1 OneFlow is faster."
    )
    sessions = _("In parentheses the number n of sessions; the tables below have 95% intervals ({method}).").format(
        method=link(_, "ratios", _("programs, baselines and intervals"))
    )
    ratios = by_model(_, host)
    texts = [*([over] if ratios else []), *([sessions] if ratios or scaled(_, host) else [])]
    return _joined(_, texts)


def _joined(_: Translate, sentences: list[str]) -> str:
    return reduce(lambda text, more: _("{text} {more}").format(text=text, more=more), sentences) if sentences else ""


def answer(_: Translate, host: MeasuredHost, drawn: list[Figure]) -> list[Section]:
    """The result in words, what it rests on, and the figure that shows it; nothing without a measured speed."""
    if not units_run(host):
        return []
    items = in_words(_, host)
    blocks: list[Block] = [Text(text)] if (text := how_to_read(_, host)) else []
    blocks += [Items(items)] if items else []
    blocks += [Text(text) for text in (believed(_, host), _checked(_, host)) if text]
    return [Section("answer", _("Result"), (*blocks, *figures_of(drawn, "ratios")))]
