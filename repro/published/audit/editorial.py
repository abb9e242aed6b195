"""Rules on the rows and the wording of a report: missing rows, broken encodings, misspelt headings, wrong units."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from itertools import product

from repro.published.audit.findings import HOLDS, Finding, Findings, Place, as_figure, finding, unless
from repro.published.audit.material import Material
from repro.published.cases import Case, Report
from repro.published.figures import PrintedNumber
from repro.utils.i18n import N_, Message


def missing(material: Material) -> Findings:
    """Every batch size and number of devices that the text announces has its row."""
    for report in material.reports:
        claims, cases = report.claims, material.cases_of(report)
        there = {(case.micro_batch, case.layout.world_size) for case in cases}
        for batch, devices in product(claims.get("batch_sizes", ()), claims.get("devices", ())):
            later, source = _later_run(report, batch, devices)
            evidence = Message("a later run of the same team has {value} samples/s", value=later)
            rule = Message(
                "the text announces batch sizes {batches}, each on {devices} GPUs; this row is missing",
                batches=claims["batch_sizes"],
                devices=claims["devices"],
            )
            place = Place("results", f"bs{batch}, {devices} GPU", "throughput")
            note = Message("missing in the original; a later run: {value}", value=later) if later else None
            yield unless(
                (batch, devices) in there,
                "missing",
                report.id,
                place,
                kind="missing",
                printed="–",
                expected=later or "",
                rule=rule,
                evidence=evidence if later else None,
                note=note or Message("missing in the original"),
                source=source,
            )
        if "device_range" in claims:
            yield _range(report, claims["device_range"], sorted({case.layout.world_size for case in cases}))


def _range(report: Report, announced: list[int], sizes: list[int]) -> Finding | None:
    low, high = announced
    rule = Message(
        "the text announces tests on {low} to {high} GPUs; the tables have only {sizes}",
        low=low,
        high=high,
        sizes=sizes,
    )
    absent = low if low not in sizes else high
    return unless(
        low in sizes and high in sizes,
        "missing",
        report.id,
        Place("results", f"{absent} GPU", "throughput"),
        kind="missing",
        printed="–",
        rule=rule,
        severity="warning",
    )


def stray(material: Material) -> Findings:
    """A row of a table is a configuration that the text announces."""
    for report in material.reports:
        announced = report.claims.get("batch_sizes", ())
        for case in material.cases_of(report) if announced else ():
            rule = Message("the text announces batch sizes {batches}", batches=announced)
            yield unless(
                case.micro_batch in announced,
                "stray",
                report.id,
                Place("results", case.name, "micro_batch"),
                kind="stray",
                printed=case.micro_batch,
                rule=rule,
            )
        for row in report.stray:
            yield _stray_row(report, announced, row)


def _stray_row(report: Report, announced: list[int], row: dict) -> Finding:
    batch, gpus, value = row["micro_batch"], row["nodes"] * row["gpus_per_node"], row["throughput"]
    rule = Message(
        "the text announces batch sizes {batches}, not {batch}; the row is a single run, not {repeats}",
        batch=batch,
        batches=announced,
        repeats=report.rule.repeats,
    )
    later, _ = _later_run(report, batch, gpus)
    evidence = None
    if later:
        evidence = Message(
            "a later run of the same team has {later} samples/s at batch size {batch}; the row differs from it by "
            "{apart}%, which is consistent with a test at that batch size",
            later=later,
            batch=batch,
            apart=f"{100 * (value / later - 1):+.2f}",
        )
    printed = f"{row['nodes']} | {row['gpus_per_node']} | {batch} | {value}"
    place = Place("all-results", f"bs{batch}, {gpus} GPU", "throughput")
    note = Message("stray row: the text does not announce batch size {batch}", batch=batch)
    return finding("stray", report.id, place, kind="stray", printed=printed, rule=rule, evidence=evidence, note=note)


def _later_run(report: Report, batch: int, gpus: int) -> tuple[PrintedNumber | None, Message | None]:
    """Throughput of a configuration in the table of a later run, if the catalogue has one, and its source."""
    source = next((table["source"] for table in report.also_printed if table["what"] == "later run"), "")
    matches = (
        (row["throughput"], Message(source))
        for row in report.also("later run")
        if (row["micro_batch"], row["nodes"] * row["gpus_per_node"]) == (batch, gpus)
    )
    return next(matches, (None, None))


def example_logs(material: Material) -> Findings:
    """An example log has the rows of its report's settings and, by the report's rule, a figure of its tables."""
    for report in material.reports:
        rows = report.also("example log")
        if not rows:
            continue
        case = material.cases_of(report)[0]
        steps = [row["iteration"] for row in rows]
        rule = Message(
            "{iterations} iterations, with a row every {interval}",
            iterations=case.iterations,
            interval=case.log_interval,
        )
        due = list(range(case.log_interval, case.iterations + 1, case.log_interval))
        yield unless(
            steps == due,
            "example-rows",
            report.id,
            Place("example log", "", "iteration"),
            printed=", ".join(map(str, steps)),
            expected=", ".join(map(str, due)),
            rule=rule,
        )
        if averaged := report.rule.averaged([row["throughput"] for row in rows]):
            yield _example(report, material.cases_of(report), averaged)


def _example(report: Report, cases: Sequence[Case], counted: Sequence[float]) -> Finding | None:
    mean = sum(counted) / len(counted)
    near = min(cases, key=lambda case: abs(case.published.throughput - mean))
    value = near.published.throughput
    rule = Message(
        "by the report's rule, the throughput of the example is the mean of {n} rows, {mean}; no table has this figure",
        n=len(counted),
        mean=f"{mean:.3f}",
    )
    apart = 100 * (value / mean - 1)
    evidence = Message(
        "the closest published figure is {value} of {case} ({apart}%): the log is an example, not the source of a "
        "published figure",
        value=value,
        case=near.name,
        apart=f"{apart:+.2f}",
    )
    return unless(
        as_figure(value).agrees(mean),
        "example",
        report.id,
        Place("example log", "", "throughput"),
        kind="editorial",
        printed="–",
        expected=f"{mean:.3f}",
        rule=rule,
        evidence=evidence,
        severity="note",
    )


TERMS = (
    "throughput",
    "latency",
    "memory",
    "speedup",
    "sample",
    "batch",
    "layers",
    "hidden",
    "pipeline",
    "parallel",
    "accumulation",
    "attention",
    "software",
    "hardware",
    "configurations",
    "utilization",
    "主要硬软件配置",
)
UNITS = ("ms", "MiB", "MB", "GiB", "GB", "%", "samples/s", "sample/sec", "images/sec", "iterations")
LIKENESS = 0.82
"""How like a term a word must be to be taken for a misspelling of it (difflib's ratio)."""


def encodings(material: Material) -> Findings:
    """No text is UTF-8 that was read as Windows-1252 or Latin-1."""
    for report in material.reports:
        for section, key, text in _texts(report):
            right = _decoded(text)
            rule = Message("UTF-8 bytes decoded with another encoding")
            yield unless(
                right is None,
                "encoding",
                report.id,
                Place(section, "", key),
                kind="typing",
                printed=text,
                expected=right or "",
                rule=rule,
                severity="note",
                note=Message("garbled characters corrected"),
            )


def _texts(report: Report) -> Iterator[tuple[str, str, str]]:
    yield "title", "", report.title_printed
    for section, values in (("environment", report.environment), ("text", report.claims)):
        yield from ((section, key, text) for key, text in values.items() if isinstance(text, str))
    yield from (("text", entry["place"], entry["text"]) for entry in report.quoted)


def _decoded(text: str) -> str | None:
    """The text with its first wrongly decoded run corrected, or None if there is none."""
    for run in re.findall(r"[\u0080-\u024f\u2010-\u2122]{2,}", text):
        for encoding in ("cp1252", "latin-1"):
            try:
                return text.replace(run, run.encode(encoding).decode("utf-8"))
            except (UnicodeEncodeError, UnicodeDecodeError):
                continue
    return None


def wordings(material: Material) -> Findings:
    """Words of headings are spelt as the terms they resemble, units have their case, and rows follow patterns."""
    for report in material.reports:
        unique: dict[tuple, Finding] = {}
        for result in _wordings(material, report):
            if result is HOLDS:
                yield HOLDS
            elif unique.setdefault((result.printed, result.recomputed), result) is result:
                yield result


def _wordings(material: Material, report: Report) -> Findings:
    for heading in report.heading:
        for column in heading["columns"]:
            place = Place("heading", heading["table"], column)
            for word in re.findall(r"[A-Za-z]{5,}", column):
                yield _spelling(report.id, place, word)
            for unit in re.findall(r"\(([^)]+)\)", column):
                yield _unit(report.id, place, unit)
            if re.fullmatch(r"x[a-z]+(?:_x[a-z]+)+", column):
                yield _pattern(report.id, place, column, material.cases_of(report))
    for entry in report.quoted:
        for word in re.findall(r"[A-Za-z]{5,}|[\u4e00-\u9fff]+", entry["text"]):
            yield _spelling(report.id, Place("text", entry["place"], word), word)


def _spelling(report: str, place: Place, word: str) -> Finding | None:
    near = difflib.get_close_matches(word.lower(), TERMS, 1, LIKENESS)
    if not near or word.lower().removesuffix("s") == near[0].removesuffix("s"):
        return HOLDS
    rule = Message('"{word}" is a misspelling of "{term}"', word=word, term=near[0])
    source = Message("the usual spelling")
    return finding(
        "spelling",
        report,
        place,
        kind="typing",
        printed=word,
        expected=near[0],
        rule=rule,
        severity="note",
        source=source,
    )


def _unit(report: str, place: Place, unit: str) -> Finding | None:
    right = next((spelling for spelling in UNITS if spelling.lower() == unit.lower()), unit)
    rule = Message("m is the prefix milli, mega is M; memory is read with nvidia-smi, which reports MiB")
    source = Message("nvidia-smi prints MiB")
    return unless(
        right == unit,
        "unit",
        report,
        place,
        kind="typing",
        printed=unit,
        expected=f"{right} (MiB)",
        rule=rule,
        severity="note",
        source=source,
    )


def _pattern(report: str, place: Place, column: str, cases: Sequence[Case]) -> Finding | None:
    """A heading such as "xn_xg_xbs" promises a number before each of its letters."""
    parts = [part[1:] for part in column.split("_")]
    form = re.compile("_".join(rf"\d+{part}" for part in parts))
    layouts = dict.fromkeys(case.published.printed.get("layout", "") for case in cases)
    wrong = [text for text in layouts if text and not form.fullmatch(text)]
    rule = Message(
        "the heading specifies {n} numbers, but the rows have another form: {rows}", n=len(parts), rows=wrong
    )
    return unless(
        not wrong, "pattern", report, place, kind="typing", printed=", ".join(wrong[:1]), rule=rule, severity="note"
    )


RULES = (
    ("missing", N_("rows announced in the text"), missing),
    ("stray", N_("rows not announced in the text"), stray),
    ("example", N_("example logs"), example_logs),
    ("encoding", N_("garbled text"), encodings),
    ("spelling", N_("headings, units and spelling"), wordings),
)
