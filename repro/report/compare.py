"""Renders a comparison of two runs: a document in each language, JSON, and a table for the terminal."""

from pathlib import Path

from repro.analysis.compare_runs import Pair, RunComparison
from repro.report.document import Block, Cell, Column, Document, Section, Table, Text, markdown
from repro.report.run.baselines import interval
from repro.report.tables import Field, count, decimals, table, words
from repro.runs.plan import SMOKE
from repro.runs.record import RecordError, disk_error, write_json, write_text
from repro.utils import output
from repro.utils.i18n import LANGUAGES, N_, Translate, catalogue
from repro.utils.output import TerminalColumn

OUTCOMES = {
    "same": (N_("same"), "good"),
    "faster": (N_("second faster"), "good"),
    "slower": (N_("second slower"), "bad"),
    "inconclusive": (N_("inconclusive"), "muted"),
    "none": (N_("not judged"), "muted"),
}


def write(comparison: RunComparison, runs: Path) -> list[Path]:
    """Write `compare.json` and the document in both languages into `runs/compare-<first>-<second>/`."""
    folder = runs / f"compare-{comparison.first.id}-{comparison.second.id}"
    if folder.is_symlink():
        raise RecordError(f"{folder} is a link, through which nothing is written; remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk_error(error, folder) from error
    write_json(folder / "compare.json", comparison.as_json())
    written = [folder / "compare.json"]
    for language in LANGUAGES:
        target = folder / f"compare.{language}.md"
        write_text(target, markdown(build(comparison, language), folder))
        written.append(target)
    return written


def build(comparison: RunComparison, language: str) -> Document:
    """The comparison as a document in one language."""
    _ = catalogue(language).gettext
    first, second = comparison.first.id, comparison.second.id
    sections = [_units(_, comparison), *_apart(_, comparison), _environment(_, comparison), _attempts(_, comparison)]
    title = _("Two runs compared: {first} and {second}").format(first=first, second=second)
    lead = _("The first run is `{first}`, the second `{second}`. A ratio above 1 means that the second is faster.")
    return Document(language, title, lead.format(first=first, second=second), tuple(sections), links=False)


def units_table(_: Translate, comparison: RunComparison) -> Table:
    """The matched units, one row each."""
    fields = (
        Field(_("Configuration"), _pair_name),
        Field(_("First (samples/s)"), lambda pair: pair.first.throughput, decimals(2), minor=True),
        Field(_("Second (samples/s)"), lambda pair: pair.second.throughput, decimals(2), minor=True),
        Field(
            _("Repeats"),
            lambda pair: f"{len(pair.first.throughputs)}, {len(pair.second.throughputs)}",
            numeric=True,
            minor=True,
        ),
        Field(_("Second / first"), lambda pair: pair.ratio and pair.ratio.value, decimals(4)),
        Field(_("Interval (confidence)"), lambda pair: interval(_, pair.ratio, 4), numeric=True),
        Field(_("Memory, second / first"), lambda pair: pair.memory_ratio, decimals(3), minor=True),
        Field(_("Result"), lambda pair: _outcome(_, pair)),
    )
    return table("units", comparison.pairs, fields)


def _pair_name(pair: Pair) -> str:
    return pair.name if pair.name == pair.second.unit.name else f"{pair.name} = {pair.second.unit.name}"


def _outcome(_: Translate, pair: Pair) -> Cell:
    outcome, tone = OUTCOMES[pair.outcome]
    return Cell(_("different configuration"), tone="bad") if pair.different else Cell(_(outcome), tone=tone)


def _units(_: Translate, comparison: RunComparison) -> Section:
    if comparison.scale == SMOKE:
        text = _("Both runs are smoke runs: the ratios only show that something was measured; none of them is judged.")
    else:
        text = _(
            "Throughputs are the same if the interval of their ratio is within {tolerance} around 1, faster or "
            "slower if it is entirely outside, and inconclusive otherwise or if its confidence is below 95%."
        )
        text = text.format(tolerance=f"±{comparison.tolerance * 100:.2f}%")
    return Section("units", _("By configuration"), (Text(text), units_table(_, comparison)))


def _apart(_: Translate, comparison: RunComparison) -> list[Section]:
    """Units that were not compared: different configurations under one name, and units missing in one run."""
    blocks: list[Block] = []
    rows = [(pair.name, key, *map(str, values)) for pair in comparison.pairs for key, values in pair.different.items()]
    if rows:
        columns = tuple(map(Column, (_("Configuration"), _("Setting"), _("First"), _("Second"))))
        blocks += [
            Text(_("Not compared, because the names are the same but the configurations differ:")),
            Table("different", columns, tuple(words(*row) for row in rows)),
        ]
    exclusive = [(_("first"), name) for name in comparison.only_first]
    exclusive += [(_("second"), name) for name in comparison.only_second]
    if exclusive:
        columns = (Column(_("Only in")), Column(_("Configuration")))
        blocks += [
            Text(_("Configurations in only one of the runs:")),
            Table("alone", columns, tuple(words(*row) for row in exclusive)),
        ]
    return [Section("apart", _("Not compared"), tuple(blocks))] if blocks else []


def _environment(_: Translate, comparison: RunComparison) -> Section:
    if not comparison.environment:
        return Section("environment", _("Environment differences"), (Text(_("Nothing recorded differs.")),))
    columns = (Column(_("Item")), Column(_("First")), Column(_("Second")))
    rows = tuple(
        words(name, *("–" if value is None else value for value in values))
        for name, values in comparison.environment.items()
    )
    return Section("environment", _("Environment differences"), (Table("environment", columns, rows),))


def _attempts(_: Translate, comparison: RunComparison) -> Section:
    counts_by_side = comparison.as_json()["attempts"]
    fields = (
        Field(_("Run"), lambda row: row[0].id),
        Field(_("Succeeded"), lambda row: row[1]["ok"], count),
        Field(_("Failed attempts"), lambda row: row[1]["failed"], count),
        Field(_("Interrupted attempts"), lambda row: row[1]["interrupted"], count),
    )
    sides = zip((comparison.first, comparison.second), counts_by_side, strict=True)
    return Section("attempts", _("Attempts"), (table("attempts", sides, fields),))


def print_table(comparison: RunComparison) -> None:
    """The matched units as a table on the terminal, and what could not be compared."""
    units = units_table(lambda message: message, comparison)
    columns = [TerminalColumn(column.title, column.numeric, int(column.minor)) for column in units.columns]
    output.print_table(columns, [[cell.text for cell in row] for row in units.rows])
    for side, names in (("first", comparison.only_first), ("second", comparison.only_second)):
        if names:
            print(f"only in the {side}: {', '.join(names)}")
    print(f"{len(comparison.environment)} items of the environment differ; the document lists them")
