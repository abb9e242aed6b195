"""Rules on which rows a report's tables have: those that the text announces, and none besides."""

from __future__ import annotations

from itertools import product

from repro.findings import Finding, Findings, Place, Said, as_figure, finding, unless
from repro.locales import N_


def missing(material) -> Findings:
    """Every batch size and number of devices that the text announces has its row."""
    for report in material.reports:
        claims, cases = report.claims, material.cases_of(report)
        there = {(case.micro_batch, case.layout.world_size) for case in cases}
        for batch, devices in product(claims.get("batch_sizes", ()), claims.get("devices", ())):
            later = _later_throughput(report, batch, devices)
            evidence = Said("a later run of the same team gives {value} samples/s for it", value=later)
            rule = Said(
                "the text announces batch sizes {batches}, each on {devices} GPUs; this row is not there",
                batches=claims["batch_sizes"],
                devices=claims["devices"],
            )
            place = Place("results", f"bs{batch}, {devices} GPU", "throughput")
            note = Said("missing in the original; a later run: {value}", value=later) if later else None
            yield unless(
                (batch, devices) in there,
                "missing",
                report.id,
                place,
                "missing",
                "–",
                later or "",
                rule,
                evidence if later else None,
                note=note or Said("missing in the original"),
            )
        if "device_range" in claims:
            yield _range(report, claims["device_range"], sorted({case.layout.world_size for case in cases}))


def _range(report, announced: list[int], sizes: list[int]) -> Finding | None:
    low, high = announced
    rule = Said(
        "the text announces tests on {low} to {high} GPUs; the tables have {sizes}", low=low, high=high, sizes=sizes
    )
    absent = low if low not in sizes else high
    return unless(
        low in sizes and high in sizes,
        "missing",
        report.id,
        Place("results", f"{absent} GPU", "throughput"),
        "missing",
        "–",
        "",
        rule,
        severity="warning",
    )


def stray(material) -> Findings:
    """A row of a table is a configuration that the text announces."""
    for report in material.reports:
        announced = report.claims.get("batch_sizes", ())
        for case in material.cases_of(report) if announced else ():
            rule = Said("the text announces batch sizes {batches}", batches=announced)
            yield unless(
                case.micro_batch in announced,
                "stray",
                report.id,
                Place("results", case.name, "micro_batch"),
                "stray",
                case.micro_batch,
                "",
                rule,
            )
        for row in report.stray:
            yield _stray_row(report, announced, row)


def _stray_row(report, announced: list[int], row: dict) -> Finding:
    batch, gpus, value = row["micro_batch"], row["nodes"] * row["gpus_per_node"], row["throughput"]
    rule = Said(
        "batch size {batch} is none of {batches}, which the text announces; the row is one run, not {repeats}",
        batch=batch,
        batches=announced,
        repeats=report.rule.repeats,
    )
    later = _later_throughput(report, batch, gpus)
    evidence = None
    if later:
        evidence = Said(
            "a later run of the same team gives {later} samples/s at batch size {batch}; the row is "
            "{apart} % off it, so it belongs to a test at that batch size",
            later=later,
            batch=batch,
            apart=f"{100 * (value / later - 1):+.2f}",
        )
    printed = f"{row['nodes']} | {row['gpus_per_node']} | {batch} | {value}"
    place = Place("all-results", f"bs{batch}, {gpus} GPU", "throughput")
    note = Said("stray row: the text announces no batch size {batch}", batch=batch)
    return finding("stray", report.id, place, "stray", printed, "", rule, evidence, note=note)


def _later_throughput(report, batch: int, gpus: int) -> float | None:
    """What the table of a later run, where the catalogue has one, gives for a configuration."""
    found = (
        row["throughput"]
        for row in report.also("later run")
        if (row["micro_batch"], row["nodes"] * row["gpus_per_node"]) == (batch, gpus)
    )
    return next(found, None)


def example_logs(material) -> Findings:
    """An example log has the rows of its report's settings and, by the report's rule, a figure of its tables."""
    for report in material.reports:
        rows = report.also("example log")
        if not rows:
            continue
        case = material.cases_of(report)[0]
        steps = [row["iteration"] for row in rows]
        rule = Said(
            "{iterations} iterations are printed every {interval}",
            iterations=case.iterations,
            interval=case.log_interval,
        )
        due = list(range(case.log_interval, case.iterations + 1, case.log_interval))
        yield unless(
            steps == due,
            "example-rows",
            report.id,
            Place("example log", "", "iteration"),
            "inconsistency",
            ", ".join(map(str, steps)),
            ", ".join(map(str, due)),
            rule,
        )
        yield _example(report, material.cases_of(report), [row["throughput"] for row in rows[report.rule.skip_first :]])


def _example(report, cases, kept: list[float]) -> Finding | None:
    mean = sum(kept) / len(kept)
    near = min(cases, key=lambda case: abs(case.published.throughput - mean))
    value = near.published.throughput
    rule = Said(
        "by the report's rule the example's throughput is the mean of {n} rows, {mean}; no table prints that",
        n=len(kept),
        mean=f"{mean:.3f}",
    )
    apart = 100 * (value / mean - 1)
    evidence = Said(
        "the nearest published figure is {value} of {case}, {apart} % off: the log is an example, not the "
        "source of a published figure",
        value=value,
        case=near.name,
        apart=f"{apart:+.2f}",
    )
    return unless(
        as_figure(value).agrees(mean),
        "example",
        report.id,
        Place("example log", "", "throughput"),
        "editorial",
        "–",
        f"{mean:.3f}",
        rule,
        evidence,
        "note",
    )


RULES = (
    ("missing", N_("rows that the text announces"), missing),
    ("stray", N_("rows that the text does not announce"), stray),
    ("example", N_("example logs"), example_logs),
)
