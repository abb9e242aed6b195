"""Rules on what surrounds the figures: sample logs, later runs, dates, units of columns, the statistic that is named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING

from repro.models.registry import spec_of
from repro.published.audit.findings import PEERS, RESULTS, Finding, Findings, Place, unless
from repro.published.noise import published_noise
from repro.utils.i18n import N_, Message
from repro.utils.stats import median

if TYPE_CHECKING:
    from repro.published.audit.material import Material
    from repro.published.cases import Case, Report


LOGS = ("example log", "rows of a log")
ROW_SPREAD = 0.05
"""How far a row of a sample log may deviate from the median of the rows after the first, which includes start-up.

In the published logs it is at most 0.2 %.
"""
NOISE_SIGMAS = 3
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "median": median,
    "mean": mean,
    "average": mean,
    "best": max,
    "maximum": max,
    "minimum": min,
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = 3
"""How many days tests may take: the dates that one report names or prints lie as close together."""
QUANTITIES = (
    (r"mem", ("mb", "mib", "gb", "gib")),
    (r"util", ("%",)),
    (r"l[a-z]*tency|time", ("ms", "s", "us")),
    (r"thr[a-z]*put|speed(?!up)", ("samples/s", "sample/sec", "samples/sec", "images/s", "images/sec", "img/s")),
)
"""What a column's title says it has, and its units in lower case."""


def sample_logs(material: Material) -> Findings:
    """Rows of a sample log go on, have losses and accuracies that can be, and speeds that are alike."""
    for report in material.reports:
        for table in LOGS:
            if rows := report.also(table):
                yield from _rows(report, table, rows)


def _rows(report: Report, table: str, rows: Sequence[dict]) -> Findings:
    usual = median([row["throughput"] for row in rows[1:] or rows])
    first, before = rows[0]["loss"], 0
    for number, row in enumerate(rows, 1):
        low = usual * (1 - ROW_SPREAD) if number > 1 else 0.0
        checks = {
            "iteration": (row["iteration"] > before, Message("the row before is of iteration {before}", before=before)),
            "throughput": (
                low < row["throughput"] <= usual * (1 + ROW_SPREAD),
                Message("the rows after the first have {usual} samples/s (median)", usual=f"{usual:g}"),
            ),
            "top_1": (0 <= row["top_1"] <= 1, Message("an accuracy is from 0 to 1")),
            "loss": (
                0 < row["loss"] <= first,
                Message("the loss is above 0, and at most that of the first row, {first}", first=first),
            ),
        }
        for column, (fits, rule) in checks.items():
            place = Place(table, f"row {number}", column)
            printed = row[column]
            yield unless(fits, "sample-row", report.id, place, printed=printed, rule=rule, severity="warning")
        before = row["iteration"]


def later_runs(material: Material) -> Findings:
    """A later run of the same team has the published figures within the noise, and scales as far as its GPUs."""
    allowed = NOISE_SIGMAS * 2**0.5 * published_noise(material.cases).largest
    for report in material.reports:
        rows, cases = report.also("later run"), material.cases_of(report)
        for row in rows:
            where = f"bs{row['micro_batch']}, {row['nodes'] * row['gpus_per_node']} GPU"
            place = Place("later run", where, "throughput")
            for case in (other for other in cases if _same(other, row)):
                apart = abs(row["throughput"] / case.published.throughput - 1)
                rule = Message("{case} has {value}", case=case.name, value=case.published.throughput)
                yield unless(
                    apart <= allowed,
                    "later-run",
                    report.id,
                    place,
                    printed=row["throughput"],
                    rule=rule,
                    severity="warning",
                )
        for fewer, more in pairwise(
            sorted(rows, key=lambda row: (row["micro_batch"], row["nodes"] * row["gpus_per_node"]))
        ):
            if fewer["micro_batch"] == more["micro_batch"]:
                yield _growth(report, fewer, more, allowed)


def _same(case: Case, row: dict) -> bool:
    return all(getattr(case, key) == row[key] for key in ("nodes", "gpus_per_node", "micro_batch"))


def _growth(report: Report, fewer: dict, more: dict, allowed: float) -> Finding | None:
    sizes = [row["nodes"] * row["gpus_per_node"] for row in (fewer, more)]
    ratio, most = more["throughput"] / fewer["throughput"], sizes[1] / sizes[0] * (1 + allowed)
    rule = Message(
        "{few} to {many} GPUs: throughput is {ratio} times as high; 1 to {most} is plausible",
        few=sizes[0],
        many=sizes[1],
        ratio=f"{ratio:.3f}",
        most=f"{most:.3f}",
    )
    place = Place("later run", f"bs{more['micro_batch']}, {sizes[1]} GPU", "scaling")
    return unless(
        1 <= ratio <= most, "later-scaling", report.id, place, printed=more["throughput"], rule=rule, severity="warning"
    )


def dates(material: Material) -> Findings:
    """The dates that a report names, and prints with its rows, are those of the report."""
    for report in material.reports:
        own = date.fromisoformat(report.date)
        named = report.claims.get("date", "")
        for day in days_of(named):
            rule = Message("the report is of {date}", date=report.date)
            place = Place("text", "", "date")
            yield _day(report, place, printed=named, day=day, own=own, rule=rule)
        for case in material.cases_of(report):
            printed = str(case.published.printed.get("date", ""))
            for day in days_of(printed):
                rule = Message("the report is of {date}", date=report.date)
                yield _day(report, Place(RESULTS, case.name, "date"), printed=printed, day=day, own=own, rule=rule)


def _day(report: Report, place: Place, printed: str, day: date | None, own: date, rule: Message) -> Finding | None:
    fits = day is not None and abs((day - own).days) <= DAYS
    return unless(fits, "date", report.id, place, printed=printed, expected=report.date, rule=rule, severity="warning")


def days_of(text: str) -> Iterator[date | None]:
    """Every day that a text names as 2020-8-22, 20201208 or Aug 8 2020; None for one that no calendar has."""
    for year, month, day in re.findall(r"\b(\d{4})-?(\d{1,2})-?(\d{1,2})\b", text):
        yield _date(int(year), int(month), int(day))
    for month, day, year in re.findall(r"\b([A-Za-z]{3})[a-z]* (\d{1,2}),? (\d{4})\b", text):
        there = month.lower() in MONTHS
        yield _date(int(year), MONTHS.index(month.lower()) + 1, int(day)) if there else None


def _date(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def statistics(material: Material) -> Findings:
    """A report has as many repeats as it says, and its figures are the statistic of them that it names."""
    for report in material.reports:
        name, repeats = report.claims.get("statistic"), report.claims.get("repeats")
        for case in material.cases_of(report):
            runs = case.published.repeats
            if runs and repeats is not None:
                rule = Message("the text says that each was run {n} times", n=repeats)
                place = Place("all-results", case.name, "repeats")
                yield unless(
                    len(runs) == repeats, "repeats", report.id, place, printed=len(runs), expected=repeats, rule=rule
                )
            if runs and name in STATISTICS:
                yield _statistic(report, case, name, STATISTICS[name](runs))


def _statistic(report: Report, case: Case, name: str, value: float) -> Finding | None:
    figure = case.published.throughput
    rule = Message("the text names the {name}, which is {value}", name=name, value=f"{value:.6g}")
    place = Place(RESULTS, case.name, "throughput")
    return unless(
        figure.agrees(value),
        "statistic",
        report.id,
        place,
        kind="arithmetic",
        printed=figure,
        expected=f"{value:.{figure.decimals}f}",
        rule=rule,
    )


def units(material: Material) -> Findings:
    """The unit of a column is one of what its title says, and that of a throughput one of what the model reads."""
    for report in material.reports:
        for heading in report.heading:
            for column in heading["columns"]:
                for unit in re.findall(r"\(([^)]+)\)", column):
                    yield from _unit(report.id, Place("heading", heading["table"], column), column, unit)
    seen = {(peer.model, peer.unit, peer.source): peer for peer in material.peers}
    for (model, unit, source), peer in seen.items():
        units = spec_of(model).throughput_units
        if units:
            rule = Message("samples of this model are counted in {units}", units=list(units))
            place = Place(PEERS, f"{model}, {source}", "unit")
            yield unless(unit in units, "column-unit", PEERS, place, printed=peer.unit, rule=rule)


def _unit(report: str, place: Place, column: str, unit: str) -> Findings:
    for pattern, units in QUANTITIES:
        if re.search(pattern, column.partition("(")[0].lower()):
            rule = Message("a column of this title is in {units}", units=list(units))
            yield unless(unit.lower() in units, "column-unit", report, place, printed=unit, rule=rule)


RULES = (
    ("sample-row", N_("rows of sample logs"), sample_logs),
    ("later-run", N_("later runs of the same team"), later_runs),
    ("date", N_("dates"), dates),
    ("statistic", N_("the named statistic against the repeats"), statistics),
    ("column-unit", N_("units of columns"), units),
)
