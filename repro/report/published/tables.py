"""Tables of a published report: its figures as printed, with the notes of the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from repro.published.audit.engine import Audit
from repro.published.cases import Case, Report
from repro.published.claim_ids import claim_at
from repro.published.noise import published_noise, speedup
from repro.report.document import Cell, Column, Section, Table, Text
from repro.report.tables import figure, percent
from repro.utils.grouping import by_key
from repro.utils.i18n import N_, Translate

TITLES = {
    "nodes": N_("Nodes"),
    "gpus_per_node": N_("GPUs per node"),
    "gpus": N_("GPUs"),
    "micro_batch": N_("Batch size per GPU"),
    "throughput": N_("Throughput (samples/s)"),
    "latency_ms": N_("Latency (ms)"),
    "memory_mib": N_("GPU memory (MiB)"),
    "speedup": N_("Speed-up"),
    "gpu_utilisation": N_("GPU utilisation (%)"),
    "memory_change": N_("Memory change (MiB)"),
    "memory_change_percent": N_("Memory change (%)"),
    "throughput_change_percent": N_("Throughput change (%)"),
    "efficiency": N_("Scaling efficiency"),
    "weak_scaling": N_("Weak scaling"),
    "group": N_("Group"),
    "case": N_("Case"),
    "date": N_("Date"),
    "test": N_("Test"),
    "sharding": N_("Optimizer state sharding"),
}


class Sheet:
    """Makes cells of one report: the text as printed, with the audit's notes on that place."""

    def __init__(self, translate: Translate, result: Audit, report: Report, language: str = "en") -> None:
        self._, self.result, self.report, self.language = translate, result, report, language
        self.cases = result.material.cases_of(report)

    def cell(self, table: str, row: str, column: str, text: object, sort: float | None = None) -> Cell:
        """A cell of a table, a row and a column, by their keys in the audit."""
        findings = self.result.at(self.report.id, table, row, column)
        note = "; ".join(finding.remark(self._) for finding in findings)
        tone = "bad" if any(finding.severity == "error" for finding in findings) else ""
        shown = "–" if text is None else str(text)
        return Cell(shown, float(text) if sort is None and isinstance(text, int | float) else sort, note, tone)

    def published(self, case: Case, column: str) -> Cell:
        """A published figure of a case, a dash where the report prints none."""
        cell = self.cell("results", case.name, column, getattr(case.published, column))
        return replace(cell, claim=claim_at(case.name, column))

    def printed(self, case: Case, column: str) -> Cell:
        """What else the report prints of a case."""
        value = case.published.printed.get(column)
        return self.cell(
            "results",
            case.name,
            column,
            value if value is None or column not in SIGNED else _signed(value),
            float("-inf") if value is None else float(value),
        )

    def title(self, column: str) -> str:
        """The title of a column: the report's own for what it alone prints."""
        own = self.report.table.titles.get(column)
        return own[self.language] if own else self._(TITLES.get(column, column))

    def columns(self, *names: str) -> tuple[Column, ...]:
        """Columns of numbers by their keys."""
        return tuple(Column(self._(TITLES[name]), numeric=True) for name in names)

    def groups(self) -> dict[int, list[Case]]:
        """The cases by micro-batch, in printed order."""
        return by_key(self.cases, lambda case: case.micro_batch)


def _signed(value: float) -> str:
    text = str(value)
    return text if text.startswith("-") else f"+{text}"


NOTES = {
    "efficiency": N_(
        "Throughput and speed-up are as printed. Scaling efficiency is derived here: throughput divided by the "
        "throughput of 1 GPU at the same batch size and by the number of GPUs."
    ),
    "memory_change": N_(
        "Changes are relative to the row above, which is the same test without optimizer state sharding. All "
        "figures are as printed; plus and minus signs replace the arrows of the original."
    ),
    "group": N_(
        "All figures are as printed. Groups are those of the original: data parallelism (DP), tensor parallelism "
        "(MP), both (2D), and each of them with pipeline parallelism (PP)."
    ),
}
"""What is said of a table with this column."""
SIGNED = ("memory_change", "memory_change_percent", "throughput_change_percent")
"""What is printed as a change: a gain carries its sign."""


def results(sheet: Sheet) -> Section:
    """The report's own table of results, or one for each batch size, with the columns that its data names."""
    _, shown = sheet._, sheet.report.table
    columns = shown.columns or _printed_columns(sheet)
    groups = list(sheet.groups().items()) if shown.by else [(None, list(sheet.cases))]
    blocks = [_results_table(sheet, columns, batch, cases) for batch, cases in groups]
    text = next((_(note) for column, note in NOTES.items() if column in columns), _("All figures are as printed."))
    return Section("results", _("Results"), (Text(text), *blocks, *_further_tables(sheet)))


def _printed_columns(sheet: Sheet) -> tuple[str, ...]:
    """The columns of a report that names none: its cases, and every figure that it prints of one."""
    figures = ("latency_ms", "memory_mib", "gpu_utilisation", "throughput", "speedup")
    printed = [name for name in figures if any(getattr(case.published, name) is not None for case in sheet.cases)]
    return ("case", "gpus", "micro_batch", *printed)


def _results_table(sheet: Sheet, columns: tuple[str, ...], batch: int | None, cases: list[Case]) -> Table:
    rows = [tuple(_result(sheet, case, column) for column in columns) for case in cases]
    titles = tuple(Column(sheet.title(column), numeric=column not in TEXTS) for column in columns)
    if batch is None:
        return Table("results-all", titles, tuple(rows))
    rows += _missing_rows(sheet, batch, columns)
    return Table(f"results-bs{batch}", titles, tuple(rows), sheet._("Batch size per GPU: {batch}").format(batch=batch))


TEXTS: dict[str, Callable[[Sheet, Case], Cell]] = {
    "case": lambda sheet, case: sheet.cell("results", case.name, "case", case.name),
    "group": lambda sheet, case: Cell(case.published.printed["group"]),
    "date": lambda sheet, case: Cell(_iso(case.published.printed["date"])),
    "test": lambda sheet, case: Cell(case.published.printed["test"]),
    "sharding": lambda sheet, case: sheet.cell(
        "results", case.name, "description", sheet._("on") if case.optimizer_sharding else sheet._("off")
    ),
}
"""The cells of columns of words."""


def _result(sheet: Sheet, case: Case, column: str) -> Cell:
    """The cell of a case in a column of the results."""
    if column in TEXTS:
        return TEXTS[column](sheet, case)
    if column == "gpus":
        return sheet.cell("cases", case.name, "gpus", case.layout.world_size)
    if column in ("nodes", "gpus_per_node", "micro_batch"):
        return figure(getattr(case, column), 0)
    if column == "efficiency":
        ideal = speedup(case, sheet.cases)
        return percent(ideal and ideal / case.layout.world_size, 1)
    return sheet.published(case, column) if hasattr(case.published, column) else sheet.printed(case, column)


def _missing_rows(sheet: Sheet, batch: int, columns: tuple[str, ...]) -> Iterable[tuple[Cell, ...]]:
    """A row of dashes for each one that the text announces and the table lacks."""
    per_node = max(case.gpus_per_node for case in sheet.cases)
    for gpus in sheet.report.claims.get("devices", ()):
        cell = sheet.cell("results", f"bs{batch}, {gpus} GPU", "throughput", None)
        if cell.note:
            counts = {"nodes": max(1, gpus // per_node), "gpus_per_node": min(gpus, per_node), "gpus": gpus}
            cells = {"throughput": cell, **{name: figure(count, 0) for name, count in counts.items()}}
            yield tuple(cells.get(column, Cell("–")) for column in columns)


def _iso(date: str) -> str:
    return f"{date[:4]}-{date[4:6]}-{date[6:]}"


def _further_tables(sheet: Sheet) -> Iterable[Table | Text]:
    """Tables that repeat figures or have those of other runs, such as the summary's BERT rows."""
    _ = sheet._
    for table in sheet.report.also_printed:
        names = [name for name in ("throughput", "speedup", "memory_mib") if name in table["columns"]]
        if "throughput" not in names or "iteration" in table["columns"]:
            continue
        rows = []
        for row in sheet.report.also(table["what"]):
            case = sheet.result.material.catalogue.case(row["case"]) if "case" in row else None
            nodes, per_node, batch = (
                getattr(case, key) if case else row[key] for key in ("nodes", "gpus_per_node", "micro_batch")
            )
            counts = (figure(count, 0) for count in (nodes, per_node, nodes * per_node, batch))
            rows.append((*counts, *(sheet.cell(table["what"], row.get("case", ""), name, row[name]) for name in names)))
        what, source = table["what"], table["source"]
        caption = _("{what} (source: {source})").format(what=_(what), source=_(source))
        columns = sheet.columns("nodes", "gpus_per_node", "gpus", "micro_batch", *names)
        yield Table(f"also-{what.replace(' ', '-').lower()}", columns, tuple(rows), caption)


def repeats(sheet: Sheet) -> Section | None:
    """Every single run, its median and its spread."""
    _, spreads = sheet._, published_noise(sheet.cases).repeats
    if not spreads:
        return None
    count = sheet.report.rule.repeats
    rows = []
    for case in sheet.cases:
        if case.name in spreads:
            runs = [
                sheet.cell("all-results", case.name, f"run-{number}", run)
                for number, run in enumerate(case.published.repeats, 1)
            ]
            rows.append(
                (
                    *_place(case.nodes, case.gpus_per_node, case.micro_batch),
                    *runs,
                    sheet.published(case, "throughput"),
                    percent(spreads[case.name].cv),
                )
            )
    for row in sheet.report.stray:
        gpus = row["nodes"] * row["gpus_per_node"]
        cell = sheet.cell("all-results", f"bs{row['micro_batch']}, {gpus} GPU", "throughput", row["throughput"])
        rows.append(
            (
                *_place(row["nodes"], row["gpus_per_node"], row["micro_batch"]),
                cell,
                *(Cell("–") for _run in range(count + 1)),
            )
        )
    numbers = tuple(Column(_("Run {n}").format(n=number), numeric=True) for number in range(1, count + 1))
    columns = (
        *sheet.columns("nodes", "gpus_per_node", "micro_batch"),
        *numbers,
        Column(_("Median"), numeric=True),
        Column("CV", numeric=True),
    )
    text = _(
        "Throughput of every run in samples/s, in printed order; the published figure is the median. CV is the "
        "sample standard deviation over the mean."
    )
    if sheet.report.repeats_source:
        text += _(" The report itself prints only medians; the individual runs are from {source}.").format(
            source=_(sheet.report.repeats_source)
        )
    return Section("repeats", _("All runs"), (Text(text), Table("repeats", columns, tuple(rows))))


def _place(nodes: int, gpus_per_node: int, batch: int) -> tuple[Cell, ...]:
    return tuple(figure(number, 0) for number in (nodes, gpus_per_node, batch))


def tested(sheet: Sheet) -> Section | None:
    """The GPT report's tables of cases and of logs."""
    if not any("log" in case.published.printed for case in sheet.cases):
        return None
    _ = sheet._
    rows = tuple(_case_row(sheet, case) for case in sheet.cases)
    titles = (
        N_("Nodes"),
        N_("GPUs per node"),
        N_("Data parallel"),
        N_("Tensor parallel"),
        N_("Pipeline parallel"),
        N_("Micro-batch"),
        N_("Micro-batch x data parallel"),
        N_("Accumulation steps"),
        N_("Global batch size"),
        N_("Hidden size"),
        N_("Attention heads"),
        N_("Layers"),
    )
    columns = (
        *(Column(_(title)) for title in (N_("Group"), N_("Case"))),
        *(Column(_(title), numeric=True) for title in titles),
    )
    logs = tuple(
        (Cell(case.name), sheet.cell("logs", case.name, "log", f"`{case.published.printed['log']}`"))
        for case in sheet.cases
    )
    where = _("The logs are under {address}.").format(address=f"`{sheet.report.claims['logs']}`")
    return Section(
        "cases",
        _("Cases"),
        (
            Table("cases", columns, rows, _("Configuration of each case:")),
            Text(where),
            Table("logs", (Column(_("Case")), Column(_("Log"))), logs, _("Log of each case:")),
        ),
    )


def _case_row(sheet: Sheet, case: Case) -> tuple[Cell, ...]:
    printed, layout, shape = case.published.printed, case.layout, case.shape
    numbers = (case.nodes, case.gpus_per_node, layout.data, layout.tensor, layout.pipeline, case.micro_batch)
    return (
        sheet.cell("cases", case.name, "group", printed["group"]),
        sheet.cell("cases", case.name, "case", case.name),
        *(figure(number, 0) for number in numbers),
        sheet.cell("cases", case.name, "micro_batch_times_data", printed["micro_batch_times_data"]),
        figure(case.accumulation_steps, 0),
        sheet.cell("cases", case.name, "global_batch", case.global_batch),
        *(figure(shape[name], 0) for name in ("hidden_size", "attention_heads", "layers")),
    )
