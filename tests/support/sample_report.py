"""A small report with every kind of block, in both languages, for the tests of the HTML renderer."""

from pathlib import Path

from repro.report.charts.canvas import write_svg
from repro.report.charts.lines import LineChart, Series
from repro.report.document import Attachment, Cell, Code, Column, Document, Figure, Items, Section, Table, Text
from repro.report.tables import figure

ROWS = (("DP_8x1x1", 383.76), ("DP_16x1x1", 2942.3), ("MP_1x8x1", None), ("2D_2x4x1", 95.3))
WORDS = {
    "en": {
        "title": "Benchmark reproduction",
        "results": "Results",
        "environment": "Environment",
        "data": "Raw data",
        "case": "Case",
        "speed": "Throughput (samples/s)",
        "text": "What was measured, `samples/s`, and how it compares with what was published. ",
    },
    "zh": {
        "title": "评测复现",
        "results": "结果",
        "environment": "环境",
        "data": "原始数据",
        "case": "用例",
        "speed": "吞吐率 (samples/s)",
        "text": "实测的吞吐率 `samples/s`，以及它与已发布数字的对照。",
    },
}


def sample(folder: Path) -> dict[str, Document]:
    """The report in both languages; its files are written into the folder."""
    (folder / "run.json").write_text('{"id": "样例"}\n', encoding="utf-8")
    return {language: _document(language, WORDS[language], folder) for language in WORDS}


def _document(language: str, texts: dict[str, str], folder: Path) -> Document:
    drawing = folder / f"scaling.{language}.svg"
    series = Series("OneFlow", ((1, 384.9), (8, 2969.5), (32, 11711.2)))
    write_svg(LineChart(texts["speed"], "samples/s", "GPU", (series,)), drawing)
    filler = tuple(Section(f"part-{n}", f"{texts['results']} {n}", (Text(texts["text"] * 9),)) for n in range(1, 7))
    sections = (
        Section("results", texts["results"], (Text(texts["text"]), _table(texts))),
        Section("figures", "SVG", (Figure("figure-scaling", drawing, "OneFlow: 384.9 (1)", (texts["text"],)),)),
        *filler[:3],
        Section("details", texts["results"], (_items(texts), Code("a < b && `c`")), level=3),
        *filler[3:],
        Section("environment", texts["environment"], (_environment(texts),)),
        Section("data", texts["data"], (Attachment("file-run", folder / "run.json", texts["data"]),)),
    )
    return Document(language, texts["title"], texts["text"], sections)


def _items(texts: dict[str, str]) -> Items:
    return Items((texts["text"], "<b>&</b>", "a/path:of/one" * 9))


def _table(texts: dict[str, str]) -> Table:
    notes = {"DP_8x1x1": "<i>12</i> %"}
    rows = tuple(
        (
            Cell(name),
            Cell(figure(value, 2).text, figure(value, 2).sort, notes.get(name, "")),
            Cell("1024"),
            Cell("yes", tone="good", note=notes.get(name, "")),
        )
        for name, value in ROWS
    )
    columns = (Column(texts["case"]), Column(texts["speed"], True), Column("MiB", True), Column(texts["results"]))
    return Table("results", columns, rows, caption=texts["results"])


def _environment(texts: dict[str, str]) -> Table:
    rows = ((Cell("SHA-256"), Cell(f"`{'0123456789abcdef' * 4}`")), (Cell("GPU"), Cell("Tesla V100-SXM2-16GB")))
    return Table("environment", (Column(texts["case"]), Column(texts["results"])), rows)
