"""Rules that recompute a report's figures from its own figures; each yields one finding, or HOLDS, per comparison.

Rules compare to the printed precision and are independent of each other.
"""

from __future__ import annotations

from repro.published.audit.findings import PEERS, Finding, Findings, Place, as_figure, compare, ratio_reach, unless
from repro.published.audit.material import Material
from repro.published.cases import Case
from repro.published.figures import PrintedNumber
from repro.published.noise import baseline, published_noise
from repro.utils.i18n import N_, Message
from repro.utils.stats import median

OUTLIER_SPREADS = 5
"""How many of the largest CV of the report's other groups a run may lie off its median; the published runs: 2."""


def medians(material: Material) -> Findings:
    """The published throughput of repeated runs is their median."""
    for case in material.cases:
        if runs := case.published.repeats:
            rule = Message(
                "the median of the {n} printed runs {runs} is {median}",
                n=len(runs),
                runs=sorted(runs),
                median=median(runs),
            )
            elsewhere = material.catalogue.report(case.report).repeats_source
            source = Message(elsewhere) if elsewhere else None
            yield compare(
                "median",
                case,
                "throughput",
                printed=case.published.throughput,
                value=median(runs),
                rule=rule,
                source=source,
            )


def outliers(material: Material) -> Findings:
    """No single run lies far off its group's median, measured by the spread of the report's other groups."""
    noise = published_noise(material.cases)
    for case in material.cases:
        others = [
            noise.cvs[other.name]
            for other in material.cases
            if other.report == case.report and other is not case and other.published.repeats
        ]
        for number, run in enumerate(case.published.repeats if others else (), 1):
            yield _outlier(case, number, run=run, middle=noise.repeats[case.name].median, usual=max(others))


def _outlier(case: Case, number: int, run: PrintedNumber, middle: float, usual: float) -> Finding | None:
    off, allowed = abs(run / middle - 1), OUTLIER_SPREADS * usual
    rule = Message(
        "run {number} is {off}% off the median {median}; the largest CV of the report's other groups is {usual}%",
        number=number,
        off=f"{100 * off:.2f}",
        median=middle,
        usual=f"{100 * usual:.2f}",
    )
    place = Place("all-results", case.name, f"run-{number}")
    return unless(
        off <= allowed, "outlier", case.report, place, printed=run, expected=middle, rule=rule, severity="warning"
    )


def speedups(material: Material) -> Findings:
    """A speed-up is the throughput over that of one GPU at the same batch size, in every table that prints one."""
    for case in material.cases:
        single = baseline(case, material.cases)
        weak = case.published.printed.get("weak_scaling")
        for column, printed in (("speedup", case.published.speedup), ("weak_scaling", weak)):
            if printed is not None and single:
                own, alone = case.published.throughput, single.published.throughput
                yield _speedup(case, "results", printed=as_figure(printed), throughput=own, single=alone, column=column)
    for report, table, rows in material.also_printed("throughput", "speedup"):
        singles: dict[object, PrintedNumber] = {}
        for row in rows:
            case = material.catalogue.case(row["case"])
            singles.setdefault(_work(case), row["throughput"])
            yield _speedup(
                case,
                table["what"],
                printed=as_figure(row["speedup"]),
                throughput=row["throughput"],
                single=singles[_work(case)],
                report=report.id,
            )


def _work(case: Case) -> tuple:
    return case.report, case.model, case.micro_batch


def _speedup(
    case: Case,
    table: str,
    printed: PrintedNumber,
    throughput: PrintedNumber,
    single: PrintedNumber,
    report: str = "",
    column: str = "speedup",
) -> Finding | None:
    value = throughput / single
    rule = Message(
        "speed-up = throughput / throughput of 1 GPU = {throughput} / {single} = {value}",
        throughput=throughput,
        single=single,
        value=f"{value:.5f}",
    )
    reach = None if throughput is single else ratio_reach(throughput, single)
    return compare(
        "speed-up", case, column, printed=printed, value=value, rule=rule, table=table, report=report, reach=reach
    )


def latencies(material: Material) -> Findings:
    """Throughput is the global batch over the latency, for the cases and for peers that ran the same case."""
    for case in material.cases:
        if case.published.latency_ms is not None:
            yield _latency("latency", case, case.published.throughput, case.published.latency_ms, case.report)
    for peer in material.peers:
        if peer.case and peer.latency_ms is not None:
            case = material.catalogue.case(peer.case)
            yield _latency(
                f"latency-{peer.framework}", case, throughput=peer.throughput, latency_ms=peer.latency_ms, report=PEERS
            )


def _latency(
    check: str, case: Case, throughput: PrintedNumber, latency_ms: PrintedNumber, report: str
) -> Finding | None:
    value = 1000 * case.global_batch / latency_ms
    rule = Message(
        "throughput = global batch size / latency = {batch} / {latency} ms = {value} samples/s",
        batch=case.global_batch,
        latency=latency_ms,
        value=f"{value:.4f}",
    )
    return compare(check, case, "throughput", printed=throughput, value=value, rule=rule, report=report)


def products(material: Material) -> Findings:
    """Printed counts are the products they claim to be."""
    for case in material.cases:
        printed, data = case.published.printed, case.layout.data
        gpus, batch = case.nodes * case.gpus_per_node, case.micro_batch * data
        made = {
            "gpus": (
                gpus,
                Message(
                    "GPUs = nodes x GPUs per node = {nodes} x {gpus} = {value}",
                    nodes=case.nodes,
                    gpus=case.gpus_per_node,
                    value=gpus,
                ),
            ),
            "micro_batch_times_data": (
                batch,
                Message(
                    "micro-batch size x data-parallel size = {micro} x {data} = {value}",
                    micro=case.micro_batch,
                    data=data,
                    value=batch,
                ),
            ),
        }
        for column, (value, rule) in made.items():
            if column in printed:
                yield compare(
                    "product", case, column, printed=as_figure(printed[column]), value=value, rule=rule, table="cases"
                )
        global_batch = batch * case.accumulation_steps
        rule = Message(
            "global batch size = micro-batch size x data-parallel size x accumulation steps = {micro} x {data} x "
            "{steps} = {value}",
            micro=case.micro_batch,
            data=data,
            steps=case.accumulation_steps,
            value=global_batch,
        )
        yield compare(
            "product",
            case,
            "global_batch",
            printed=as_figure(case.global_batch),
            value=global_batch,
            rule=rule,
            table="cases",
        )


def changes(material: Material) -> Findings:
    """Changes printed for a case with optimizer sharding, compared with the case without."""
    for case in material.cases:
        plain = next((other for other in material.cases if _differs_in_sharding(case, other)), None)
        if plain is None:
            continue
        for figure in ("memory_mib", "throughput"):
            before, after = getattr(plain.published, figure), getattr(case.published, figure)
            yield from _change(material, case, figure, before, after)


def _differs_in_sharding(case: Case, other: Case) -> bool:
    same = (case.report, case.layout, case.micro_batch, case.accumulation_steps, case.shape)
    return case.optimizer_sharding > 0 == other.optimizer_sharding and same == (
        other.report,
        other.layout,
        other.micro_batch,
        other.accumulation_steps,
        other.shape,
    )


def _change(material: Material, case: Case, figure: str, before: PrintedNumber, after: PrintedNumber) -> Findings:
    printed = case.published.printed
    name = figure.removesuffix("_mib")
    difference, share = printed.get(f"{name}_change"), printed.get(f"{name}_change_percent")
    if difference is not None:
        rule = Message(
            "difference = {after} - {before} = {value}", after=after, before=before, value=f"{after - before:+g}"
        )
        yield compare(
            "change",
            case,
            f"{name}_change",
            printed=as_figure(difference),
            value=after - before,
            rule=rule,
            evidence=_savings(material, case, difference),
        )
    if share is not None:
        value = 100 * (after - before) / before
        rule = Message(
            "change = ({after} - {before}) / {before} = {value}%", after=after, before=before, value=f"{value:+.2f}"
        )
        evidence = None
        if difference is not None and difference != after - before:
            own = 100 * difference / before
            evidence = Message(
                "the printed difference {difference} would be {own}% of {before}",
                difference=difference,
                own=f"{own:+.1f}",
                before=before,
            )
        low, high = ratio_reach(after, before, 100)
        yield compare(
            "change",
            case,
            f"{name}_change_percent",
            printed=as_figure(share, 1),
            value=value,
            rule=rule,
            evidence=evidence,
            reach=(low - 100, high - 100),
        )


def _savings(material: Material, case: Case, printed: float) -> Message:
    """Evidence from the other cases: sharding over d ranks frees 1 - 1/d of the optimizer state at any batch size."""
    freed, texts = 1 - 1 / case.layout.data, []
    for other in material.cases:
        plain = next((candidate for candidate in material.cases if _differs_in_sharding(other, candidate)), None)
        if plain and other.report == case.report and other.micro_batch == case.micro_batch:
            before, after = plain.published.memory_mib, other.published.memory_mib
            if before is not None and after is not None:
                texts.append(f"{(before - after) / (1 - 1 / other.layout.data):.0f} ({other.layout.data} GPU)")
    return Message(
        "sharding over d ranks frees 1 - 1/d of the state; the full state is {states} by the printed memory and "
        "{state} by the printed difference",
        states=texts,
        state=f"{abs(printed) / freed:.0f}",
    )


RULES = (
    ("median", N_("medians of repeated runs"), medians),
    ("outlier", N_("single runs against their median"), outliers),
    ("speed-up", N_("speed-ups over 1 GPU"), speedups),
    ("latency", N_("throughput against global batch size and latency"), latencies),
    ("product", N_("products of counts and batch sizes"), products),
    ("change", N_("differences and percentages with optimizer sharding"), changes),
)
