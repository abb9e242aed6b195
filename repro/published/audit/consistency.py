"""Rules that compare a report's figures with other tables, other cases, the hardware and the published formula."""

from __future__ import annotations

import math
from itertools import combinations

from repro.published.audit.findings import (
    HOLDS,
    Finding,
    Findings,
    Place,
    as_figure,
    at_precision,
    compare,
    finding,
    unless,
)
from repro.published.audit.flops import efficiency
from repro.published.audit.material import Material
from repro.published.cases import Case, Report
from repro.published.figures import PrintedNumber
from repro.published.noise import baseline, duplicates, published_noise
from repro.utils.i18n import N_, Message

FORMULA = Message("arXiv 2104.04473, equation 3; peak: NVIDIA's V100 data sheet")
NOISE_SIGMAS = 3
"""How many standard deviations of the published noise a figure may lie off before that is a finding."""


def copies(material: Material) -> Findings:
    """Tables of the same runs print the same figures, to the precision of the coarser one."""
    for report, table, rows in material.also_printed():
        columns = ("throughput", "speedup", "latency_ms", "memory_mib")
        for column in (name for name in table["columns"] if name in columns and table.get("same_run")):
            decimals = max(as_figure(row[column]).decimals for row in rows)
            pairs = [(material.catalogue.case(row["case"]), as_figure(row[column], decimals)) for row in rows]
            yield from _copied(report, table, column, pairs)


def _copied(report: Report, table: dict, column: str, pairs: list) -> Findings:
    cut = []
    for case, other in pairs:
        own = getattr(case.published, column)
        coarse, fine = (own, other) if own.decimals < other.decimals else (other, own)
        if coarse.agrees(fine):
            yield HOLDS
        elif coarse is other and _cut(own, other.decimals) == float(other):
            cut.append((case, own, other))
        else:
            yield _differs(report, table, column=column, case=case, own=own, other=other, pairs=pairs)
    if cut:
        yield _cut_off(report, table, column=column, cut=cut, count=len(pairs))


def _cut(value: float, decimals: int) -> float:
    return math.floor(value * 10**decimals) / 10**decimals


def _cut_off(report: Report, table: dict, column: str, cut: list, count: int) -> Finding:
    source = table["source"]
    right = ", ".join(at_precision(own, other.decimals) for _, own, other in cut)
    rule = Message("{own} round to {right}", own=[own for _, own, _ in cut], right=right.split(", "))
    evidence = Message(
        "{n} of {all} values are truncated instead of rounded up: {cases}; source: {source}",
        n=len(cut),
        all=count,
        cases=[case.name for case, _, _ in cut],
        source=Message(source),
    )
    printed = ", ".join(str(other) for _, _, other in cut)
    place = Place(table["what"], "", column)
    return finding(
        "cut-off", report.id, place, printed=printed, expected=right, rule=rule, evidence=evidence, severity="note"
    )


def _differs(
    report: Report, table: dict, column: str, case: Case, own: PrintedNumber, other: PrintedNumber, pairs: list
) -> Finding:
    what, source = table["what"], table["source"]
    rule = Message('the table "{table}" has {other} for the same run', table=Message(what), other=other)
    evidence = Message("source of the other table: {source}", source=Message(source))
    single = baseline(case, [paired_case for paired_case, _ in pairs])
    if column == "speedup" and single:
        evidence = _two_speedups(report, table, case, single, own.decimals)
    if case.report == report.id:
        place, printed, expected = Place("results", case.name, column), own, other
    else:
        place, printed, expected = Place(what, case.name, column), other, own
    return finding(
        "copy",
        report.id,
        place,
        printed=printed,
        expected=expected,
        rule=rule,
        evidence=evidence,
        severity="warning",
        note=Message("{table}: {other}", table=Message(what), other=expected),
        source=Message(source) if case.report == report.id else Message("the cases of {report}", report=case.report),
    )


def _two_speedups(report: Report, table: dict, case: Case, single: Case, decimals: int) -> Message:
    """Which of two printed speed-ups follows from which throughputs."""
    source = table["source"]
    other = {row["case"]: row["throughput"] for row in report.also(table["what"])}
    mine, mine_single = case.published.throughput, single.published.throughput
    theirs, theirs_single = other[case.name], other[single.name]
    return Message(
        "{own} / {own_single} = {own_exact}, rounded {own_speedup}; the other table has {other} / {other_single} = "
        "{other_exact}, rounded {other_speedup}: each follows from its own throughputs, and the one with more digits "
        "is more accurate; source: {source}",
        own=mine,
        own_single=mine_single,
        own_exact=f"{mine / mine_single:.5f}",
        own_speedup=at_precision(mine / mine_single, decimals),
        other=theirs,
        other_single=theirs_single,
        other_exact=f"{theirs / theirs_single:.5f}",
        other_speedup=at_precision(theirs / theirs_single, decimals),
        source=Message(source),
    )


def efficiencies(material: Material) -> Findings:
    """TFLOP/s per GPU, share of peak and PFLOP/s follow from the latency by the published formula."""
    for report, table, rows in material.also_printed("tflops_per_gpu"):
        peak = material.cluster(report)["hardware"]["gpu_peak_tflops"]
        decimals = {name: max(as_figure(row[name]).decimals for row in rows) for name in table["columns"][1:]}
        for row in rows:
            case = material.catalogue.case(row["case"])
            computed = efficiency(case, peak)
            values = {
                "tflops_per_gpu": computed.tflops_per_gpu,
                "percent_of_peak": 100 * computed.share_of_peak,
                "petaflops": computed.petaflops,
            }
            for column, value in values.items():
                if column in row:
                    rule = Message(
                        "{flop} TFLOP per iteration / {latency} ms / {gpus} GPUs = {rate} TFLOP/s, {share}% of {peak}",
                        flop=f"{computed.teraflop:.2f}",
                        latency=case.published.latency_ms,
                        gpus=computed.gpus,
                        rate=f"{computed.tflops_per_gpu:.3f}",
                        share=f"{100 * computed.share_of_peak:.2f}",
                        peak=f"{peak:g}",
                    )
                    yield compare(
                        "efficiency",
                        case,
                        column,
                        printed=as_figure(row[column], decimals[column]),
                        value=value,
                        rule=rule,
                        table=table["what"],
                        source=FORMULA,
                    )


def scaling(material: Material) -> Findings:
    """At the same work per GPU, more GPUs are faster, but not beyond their number and the published noise."""
    tolerance = NOISE_SIGMAS * math.sqrt(2) * published_noise(material.cases).largest
    for smaller, larger in material.scaling_steps():
        growth = larger.layout.world_size / smaller.layout.world_size
        ratio = larger.published.throughput / smaller.published.throughput
        rule = Message(
            "with {gpus} times the GPUs of {smaller} ({few}), throughput is {ratio} times as high; 1 to {most} is "
            "plausible given the published noise",
            gpus=f"{growth:g}",
            smaller=smaller.name,
            few=smaller.published.throughput,
            ratio=f"{ratio:.3f}",
            most=f"{growth * (1 + tolerance):.3f}",
        )
        place = Place("results", larger.name, "throughput")
        yield unless(
            1 <= ratio <= growth * (1 + tolerance),
            "scaling",
            larger.report,
            place,
            printed=larger.published.throughput,
            rule=rule,
            severity="warning",
        )


def memory(material: Material) -> Findings:
    """Memory fits the GPU, and a larger micro-batch takes more of it in the same layout."""
    for case in material.cases:
        used, place = case.published.memory_mib, Place("results", case.name, "memory_mib")
        if used is None:
            continue
        limit = material.cluster_of(case)["hardware"]["gpu_memory_mib"]
        rule = Message("the GPU has {limit} MiB", limit=limit)
        yield unless(used <= limit, "memory", case.report, place, printed=used, rule=rule)
        for other in material.cases:
            more = other.published.memory_mib
            if more is not None and _differs_in_batch(other, case) and other.micro_batch < case.micro_batch:
                rule = Message("{other} takes {more} MiB with a smaller micro-batch", other=other.name, more=more)
                yield unless(
                    used > more, "memory-order", case.report, place, printed=used, rule=rule, severity="warning"
                )


def _differs_in_batch(case: Case, other: Case) -> bool:
    keys = ("report", "layout", "accumulation_steps", "shape", "optimizer_sharding")
    return all(getattr(case, key) == getattr(other, key) for key in keys)


def repeated_configurations(material: Material) -> Findings:
    """One configuration under two names is a repeat: it is pointed out, and must agree within the noise."""
    noise = published_noise(case for case in material.cases if case.published.repeats).largest
    for group in duplicates(material.cases):
        for first, second in combinations(group, 2):
            one, other = first.published.throughput, second.published.throughput
            apart = 2 * abs(one - other) / (one + other)
            kind, severity = "editorial", "note"
            if apart > NOISE_SIGMAS * math.sqrt(2) * noise:
                kind, severity = "inconsistency", "error"
            rule = Message(
                "same layout, batch size and shape as {first}; throughputs {one} and {other} differ by {apart}%",
                first=first.name,
                one=one,
                other=other,
                apart=f"{100 * apart:.2f}",
            )
            evidence = Message(
                "gives an estimate of the noise; the largest CV of seven runs in the reports is {cv}%",
                cv=f"{100 * noise:.2f}",
            )
            yield finding(
                "duplicate",
                second.report,
                Place("results", second.name, "case"),
                kind=kind,
                printed=other,
                rule=rule,
                evidence=evidence,
                severity=severity,
                note=Message("same configuration as {first}", first=first.name),
            )


RULES = (
    ("copy", N_("tables of the same runs"), copies),
    ("efficiency", N_("TFLOP/s per GPU and share of peak"), efficiencies),
    ("scaling", N_("scaling between 1 and the ideal"), scaling),
    ("memory", N_("memory fits the GPU and grows with the batch size"), memory),
    ("duplicate", N_("configurations published twice"), repeated_configurations),
)
