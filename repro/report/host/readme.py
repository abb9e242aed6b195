"""Puts the ratios of all kept runs in short into the project's READMEs, between two markers."""

from __future__ import annotations

from pathlib import Path

from repro.analysis.relations import variant
from repro.report.document import Code, Column, Document, Section, Table, Text, figure, markdown, words
from repro.report.host.keep import REPRODUCED
from repro.report.host.machine import day, gpus
from repro.report.host.measured import columns, tally
from repro.report.host.page import INDEX
from repro.report.host.results import TARGETS, Host, Row, hosts, load
from repro.runs.record import RecordError
from repro.utils.i18n import catalogue
from repro.utils.paths import ROOT

BEGIN, END = "<!-- reproduced:begin -->", "<!-- reproduced:end -->"
BEFORE = {"en": "## What else there is", "zh": "## 其他功能"}


def due(text: str, language: str, block: str) -> str:
    """A README with its block as given: between its markers, or before the heading `BEFORE` if it has none yet.

    Without a block the markers go too. RecordError if the block's place cannot be found.
    """
    if BEGIN in text and END in text:
        head, rest = text.split(BEGIN, 1)
        tail = rest.split(END, 1)[1]
        return head + block + tail if block else head.rstrip("\n") + "\n\n" + tail.lstrip("\n")
    if not block:
        return text
    heading = f"\n{BEFORE[language]}\n"
    if text.count(heading) != 1:
        raise RecordError(
            f"{INDEX[language]} has neither the markers {BEGIN} and {END} nor the heading "
            f"{BEFORE[language]!r}: add the markers where the table should stand"
        )
    return text.replace(heading, f"\n{block}\n{heading}")


def blocks(reproduced: Path = REPRODUCED, data: Path = TARGETS) -> dict[str, str]:
    """The block of each language, with its markers; empty without a ratio of any host."""
    found = [host for host in (load(name, reproduced, data) for name in hosts(reproduced)) if host.ratios()]
    return {language: _block(found, language) if found else "" for language in INDEX}


def _block(found: list[Host], language: str) -> str:
    _ = catalogue(language).gettext
    parts = [part for host in found for part in _of(_, host, language)]
    document = Document(language, "", "", (Section("reproduced", _("Reproduced"), tuple(parts)),))
    text = markdown(document, ROOT)
    return f"{BEGIN}\n{text[text.index('##') :].strip()}\n{END}"


def _of(_, host: Host, language: str) -> list:
    rows = host.ratios()
    told = _runs(rows)
    days = sorted({day(each) for each in told})
    when = _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else days[0]
    commands = dict.fromkeys(each.description["command"] for each in told)
    text = _(
        "Measured on {host} ({gpus}), {when}, by the commands below. A ratio is OneFlow's throughput over "
        "PyTorch's in the same run, from the lowest to the highest of the cases; the [whole "
        "page](reports/reproduced/{host}/{page}) has every case with its 95% interval."
    )
    said = text.format(
        host=host.name, gpus=_(", ").join(dict.fromkeys(map(gpus, told))), when=when, page=INDEX[language]
    )
    return [Text(said), _table(_, host, rows), Code("\n".join(commands))]


def _runs(rows: list[Row]) -> list:
    """The runs that the rows are from, in their order, each once."""
    return list({row.told.label: row.told for row in sorted(rows, key=lambda row: row.told.run.id)}.values())


def _table(_, host: Host, rows: list[Row]) -> Table:
    """A row for each model, precision and number of GPUs, a column for each kind of peer."""
    kinds = tuple(dict.fromkeys(variant(row.base.unit) for row in rows))
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        config = row.result.unit.config
        groups.setdefault((config["model"], config["precision"], row.result.unit.world_size), []).append(row)
    cells = []
    for (model, precision, count), mine in groups.items():
        ours = {(row.told.label, row.result.unit.name) for row in mine}
        ratios = words(*(_range([row.ratio.value for row in mine if variant(row.base.unit) == kind]) for kind in kinds))
        held = [row for row in mine if row.target]
        least = ", ".join(dict.fromkeys(f"≥ {row.target.at_least:.2f}" for row in held)) or "–"
        standing = tally(_, mine) or "–"
        cells.append(
            (*words(model, precision), figure(count, 0), figure(len(ours), 0), *ratios, *words(least, standing))
        )
    titles = columns(
        _("Model"),
        _("Precision"),
        numeric=(_("GPUs"), _("Cases"), *(f"OneFlow / {kind}" for kind in kinds), _("Target")),
    )
    return Table(f"reproduced-{host.name}", (*titles, Column(_("Standing"))), tuple(cells))


def _range(values: list[float]) -> str:
    """The lowest and the highest; a dash where there is none."""
    if not values:
        return "–"
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} … {high}"


def render(root: Path = ROOT, reproduced: Path = REPRODUCED, data: Path = TARGETS) -> list[Path]:
    """Write the block into both READMEs; the paths of those that changed."""
    texts = _due(root, reproduced, data)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)


def differing(root: Path = ROOT, reproduced: Path = REPRODUCED, data: Path = TARGETS) -> list[Path]:
    """The READMEs whose block is not what the kept runs give."""
    return list(_due(root, reproduced, data))


def _due(root: Path, reproduced: Path, data: Path) -> dict[Path, str]:
    found = {}
    for language, block in blocks(reproduced, data).items():
        path = root / INDEX[language]
        text = path.read_text(encoding="utf-8")
        if (wanted := due(text, language, block)) != text:
            found[path] = wanted
    return found
