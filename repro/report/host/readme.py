"""Puts a summary of the ratios of all kept runs into the project's READMEs, between two markers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from repro.report.document import Block, Code, Column, Document, Section, Table, Text, figure, markdown, words
from repro.report.host.cells import columns, tally
from repro.report.host.machine import day, gpus
from repro.report.host.page import INDEX
from repro.report.host.results import Host
from repro.report.host.rows import Row
from repro.report.host.run import KeptRun
from repro.report.run.programs import PROGRAMS
from repro.runs.files import RecordError
from repro.utils.i18n import Translate, catalogue
from repro.utils.paths import ROOT

BEGIN, END = "<!-- reproduced:begin -->", "<!-- reproduced:end -->"
BEFORE = {"en": "## What else there is", "zh": "## 其他功能"}


def with_block(text: str, language: str, block: str) -> str:
    """A README with this block: in place of the one between its markers, or before the heading `BEFORE` without any.

    An empty block removes the markers too. RecordError if there is no place for the block.
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
            f"{BEFORE[language]!r}: add the markers where the table should be"
        )
    return text.replace(heading, f"\n{block}\n{heading}")


def blocks(hosts: Iterable[Host]) -> dict[str, str]:
    """The block of each language, with its markers; empty without a ratio of any host."""
    found = [host for host in hosts if host.ratios]
    return {language: _block(found, language) if found else "" for language in INDEX}


def _block(found: list[Host], language: str) -> str:
    _ = catalogue(language).gettext
    parts = [part for host in found for part in _of(_, host, language)]
    document = Document(language, "", "", (Section("reproduced", _("Reproduced"), tuple(parts)),))
    text = markdown(document, ROOT)
    return f"{BEGIN}\n{text[text.index('##') :].strip()}\n{END}"


def _of(_: Translate, host: Host, language: str) -> list[Block]:
    rows = host.ratios
    runs = _runs(rows)
    days = sorted({day(each) for each in runs})
    when = _("{first} to {last}").format(first=days[0], last=days[-1]) if len(days) > 1 else days[0]
    commands = dict.fromkeys(each.description["command"] for each in runs)
    text = _(
        "Measured on {host} ({gpus}), {when}, by the commands below. A ratio is OneFlow's throughput over "
        "PyTorch's in the same run, as the mean of the runs that count, from the lowest to the highest of the cases; a "
        "single run decides no target. The [whole page](reports/reproduced/{host}/{page}) has every case with its runs "
        "and its interval."
    )
    summary = text.format(
        host=host.name, gpus=_(", ").join(dict.fromkeys(map(gpus, runs))), when=when, page=INDEX[language]
    )
    return [Text(summary), _table(_, host, rows), Code("\n".join(commands))]


def _runs(rows: list[Row]) -> list[KeptRun]:
    """The runs that count for the rows, in their order, each once."""
    return sorted({kept.run.id: kept for row in rows for kept in row.runs}.values(), key=lambda kept: kept.run.id)


def _table(_: Translate, host: Host, rows: list[Row]) -> Table:
    """A row for each model, program, precision and number of GPUs, a column for each kind of baseline."""
    kinds = tuple(dict.fromkeys(row.base.label for row in rows))
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        config = row.unit.config
        key = (config["model"], config["program"], config["precision"], row.unit.world_size)
        groups.setdefault(key, []).append(row)
    cells = []
    for (model, program, precision, count), mine in groups.items():
        ours = {row.unit.name for row in mine}
        ratios = words(
            *(_range([row.ratio.value for row in mine if row.ratio and row.base.label == kind]) for kind in kinds)
        )
        least = ", ".join(dict.fromkeys(str(row.target) for row in mine if row.target)) or "–"
        status = tally(_, mine) or "–"
        cells.append(
            (
                *words(model, _(PROGRAMS[program]), precision),
                figure(count, 0),
                figure(len(ours), 0),
                *ratios,
                *words(least, status),
            )
        )
    titles = columns(
        _("Model"),
        _("Training program"),
        _("Precision"),
        numeric=(_("GPUs"), _("Cases"), *(f"OneFlow / {kind}" for kind in kinds), _("Target")),
    )
    return Table(f"reproduced-{host.name}", (*titles, Column(_("Status"))), tuple(cells))


def _range(values: list[float]) -> str:
    """The lowest and the highest; a dash where there is none."""
    if not values:
        return "–"
    low, high = f"{min(values):.2f}", f"{max(values):.2f}"
    return low if low == high else f"{low} … {high}"


def render(hosts: Iterable[Host], root: Path = ROOT) -> list[Path]:
    """Write the block into both READMEs; the paths of those that changed."""
    texts = _expected(hosts, root)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")
    return list(texts)


def differing(hosts: Iterable[Host], root: Path = ROOT) -> list[Path]:
    """The READMEs whose block is not what the kept runs give."""
    return list(_expected(hosts, root))


def _expected(hosts: Iterable[Host], root: Path) -> dict[Path, str]:
    """The text that each README should have, of those that have another."""
    found = {}
    for language, block in blocks(hosts).items():
        path = root / INDEX[language]
        text = path.read_text(encoding="utf-8")
        if (expected := with_block(text, language, block)) != text:
            found[path] = expected
    return found
