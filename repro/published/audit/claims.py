"""Rules that check a report's statements about its tests: titles, names, logs, precision, switches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from repro.models.registry import specs
from repro.published.audit.findings import HOLDS, Finding, Findings, Place, unless
from repro.published.audit.material import Material
from repro.published.cases import Case
from repro.utils.i18n import N_, Message

PRECISIONS = {"float32": "fp32", "fp32": "fp32", "fp16": "amp", "float16": "amp"}
NAMES = (
    r"(?P<group>[A-Z0-9]+(?:_PP)?)_(?P<data>\d+)x(?P<tensor>\d+)x(?P<pipeline>\d+)_(?P<global_batch>\d+)"
    r"_(?P<hidden_size>\d+)x(?P<layers>\d+)",
    r"\w+_(?P<nodes>\d+)n(?P<gpus_per_node>\d+)g_bs(?P<micro_batch>\d+)(?:_zero(?P<optimizer_sharding>\d))?",
)
LOG = (
    r".*_(?P<nodes>\d+)n(?P<gpus_per_node>\d+)d_dp(?P<data>\d+)_mp(?P<tensor>\d+)_pp(?P<pipeline>\d+)"
    r"_mbz(?P<micro_batch>\d+)_gbz(?P<global_batch>\d+)_s(?P<seq_length>\d+)_l(?P<layers>\d+)"
    r"_h(?P<hidden_size>\d+)_nh(?P<attention_heads>\d+)\.log"
)
LAYOUT = r"(?P<nodes>\d+)n_(?P<gpus_per_node>\d+)g_dp_(?P<micro_batch>\d+)bs"


def parameters(case: Case) -> dict[str, int]:
    """All numbers that a case's name or log may state, by name."""
    keys = ("nodes", "gpus_per_node", "micro_batch", "global_batch", "optimizer_sharding")
    return {**{key: getattr(case, key) for key in keys}, **vars(case.layout), **case.shape}


def titles(material: Material) -> Findings:
    """A title that names a model names the one that was tested."""
    for report in material.reports:
        title = report.title_printed.lower()
        named = {spec.name for spec in specs() if any(word in title for word in spec.title_words)}
        subject = report.claims["subject"]
        rule = Message("the title names a different model; the report tests {subject}", subject=subject)
        evidence = Message("all {n} cases are {model}", n=len(material.cases_of(report)), model=subject)
        yield unless(
            not named or report.model in named,
            "title",
            report.id,
            Place("title"),
            kind="editorial",
            printed=report.title_printed,
            expected=subject,
            rule=rule,
            evidence=evidence,
        )


def names(material: Material) -> Findings:
    """The parameters in a case's name, its log's name and its layout column are those of the case."""
    for case in material.cases:
        printed = case.published.printed
        yield _name(case, "cases", column="case", text=case.name, patterns=NAMES)
        if "log" in printed:
            yield _name(case, "logs", column="log", text=printed["log"], patterns=(LOG,))
        if "layout" in printed:
            yield _name(case, "results", column="layout", text=printed["layout"], patterns=(LAYOUT,))


def _name(case: Case, table: str, column: str, text: str, patterns: tuple[str, ...]) -> Finding | None:
    actual = parameters(case)
    match = next((candidate for pattern in patterns if (candidate := re.fullmatch(pattern, text))), None)
    stated = {key: int(value) for key, value in match.groupdict().items() if value and key != "group"} if match else {}
    wrong = [key for key, value in stated.items() if value != actual[key]]
    right = ", ".join(f"{key} {actual[key]}" for key in wrong)
    rule = Message("the name differs in form from the report's other names")
    if match:
        named = ", ".join(f"{key} {stated[key]}" for key in wrong)
        rule = Message("the name says {named}, the case has {right}", named=named, right=right)
    place = Place(table, case.name, column)
    return unless(match is not None and not wrong, "name", case.report, place, printed=text, expected=right, rule=rule)


def words(material: Material) -> Findings:
    """The words of a row: group, kind of parallelism, sharding on or off, and the figures in composed cells."""
    for case in material.cases:
        printed = case.published.printed
        match = re.fullmatch(NAMES[0], case.name)
        if match and "group" in printed:
            rule = Message(
                "the group is {group}, the layout {layout} (data x tensor x pipeline)",
                group=printed["group"],
                layout=case.layout,
            )
            yield unless(
                _group_fits(case, match["group"].split("_")),
                "group",
                case.report,
                Place("cases", case.name, "group"),
                printed=match["group"],
                rule=rule,
            )
        if text := printed.get("description"):
            rule = Message("the case has optimizer sharding stage {stage}", stage=case.optimizer_sharding)
            yield unless(
                text == ("on_optimization" if case.optimizer_sharding else "off_optimization"),
                "description",
                case.report,
                Place("results", case.name, "description"),
                printed=text,
                rule=rule,
            )
        for column, key in (("memory", "memory_mib"), ("throughput", "throughput")):
            if column in printed:
                yield _cell(case, column, key)


def _group_fits(case: Case, kinds: list[str]) -> bool:
    layout, group = case.layout, case.published.printed["group"]
    several = layout.world_size > 1
    fits = {"DP": layout.tensor == 1, "MP": layout.data == 1 and (layout.tensor > 1) == several, "2D": several}
    piped = ("PP" in kinds) == (layout.pipeline > 1)
    return piped and group == ("PP" if "PP" in kinds else kinds[0]) and all(fits.get(kind, True) for kind in kinds)


def _cell(case: Case, column: str, key: str) -> Finding | None:
    """A cell such as "9547(-1754,↓15.5%)" contains the figures recorded individually in the catalogue."""
    printed = case.published.printed
    parts = [getattr(case.published, key), printed.get(f"{column}_change"), printed.get(f"{column}_change_percent")]
    recorded = [abs(float(part)) for part in parts if part is not None]
    held = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", printed[column])]
    rule = Message("the cell does not contain the recorded figures {known}", known=[f"{v:g}" for v in recorded])
    return unless(
        held == recorded,
        "cell",
        case.report,
        Place("results", case.name, key),
        printed=printed[column],
        expected=", ".join(f"{v:g}" for v in recorded),
        rule=rule,
    )


def shared_logs(material: Material) -> Findings:
    """One log is the source of one set of figures."""
    first: dict[tuple, Case] = {}
    for case in material.cases:
        if log := case.published.printed.get("log"):
            other = first.setdefault((case.report, log), case)
            mine, theirs = _figures(case), _figures(other)
            rule = Message(
                "{other} names the same log, but one log cannot yield both {mine} and {theirs}",
                other=other.name,
                mine=mine,
                theirs=theirs,
            )
            right, source = next(_other_logs(material, case), ("", ""))
            evidence = Message("another version of the report names {log} for this case", log=right) if right else None
            yield unless(
                mine == theirs,
                "log",
                case.report,
                Place("logs", case.name, "log"),
                printed=log,
                expected=right,
                rule=rule,
                evidence=evidence,
                severity="warning",
                note=Message("also the log of {other}", other=other.name),
                source=Message(source) if right else None,
            )


def _figures(case: Case) -> str:
    published = case.published
    figures = ((published.throughput, "samples/s"), (published.latency_ms, "ms"), (published.memory_mib, "MiB"))
    return " / ".join(f"{value} {unit}" for value, unit in figures if value is not None)


def _other_logs(material: Material, case: Case) -> Iterator[tuple[str, str]]:
    """Log and source of each table that names another log of a case."""
    for report, table, rows in material.also_printed("log"):
        if report.id == case.report:
            yield from ((row["log"], table["source"]) for row in rows if row["case"] == case.name)


def precisions(material: Material) -> Findings:
    """A report's claim on precision agrees with its own cases, and one on all tests with all reports."""
    for report in material.reports:
        claimed, place = report.claims.get("precision"), Place("text", "", "precision")
        if claimed is None:
            continue
        meant = PRECISIONS.get(claimed.lower())
        rule = Message("the cases were run in {precision}", precision=report.precision)
        yield unless(
            meant == report.precision,
            "precision",
            report.id,
            place,
            printed=claimed,
            expected=report.precision,
            rule=rule,
        )
        if "precision_scope" in report.claims:
            others = [other for other in material.reports if other.precision != meant]
            rule = Message(
                "the text says that all tests are {claimed}; these reports use fp16 mixed precision: {others}",
                claimed=claimed,
                others=[other.id for other in others],
            )
            evidence = Message(
                "correct when written ({date}); the other reports are from {dates}",
                date=report.date,
                dates=[other.date for other in others],
            )
            yield unless(
                not others,
                "precision-scope",
                report.id,
                place,
                kind="editorial",
                printed=claimed,
                expected=f"{claimed}, FP16 (AMP)",
                rule=rule,
                evidence=evidence,
                severity="note",
                source=Message("the other reports"),
            )


def switches(material: Material) -> Findings:
    """A switch does what its name says, and the scripts of one report use the same folder."""
    for report in material.reports:
        if "sharding_flag" in report.claims:
            yield _flag(report.id, report.claims["sharding_flag"], material.cases_of(report))
        folders = report.claims.get("script_folders", ())
        rule = Message(
            "the report's two scripts use different folders for one trainer; the text names {folder}",
            folder=folders[0] if folders else "",
        )
        yield unless(
            len(set(folders)) < 2,
            "script-folder",
            report.id,
            Place("text", "", "script_folders"),
            kind="editorial",
            printed=", ".join(folders),
            expected=folders[0] if folders else "",
            rule=rule,
            severity="note",
        )


def _flag(report: str, flag: str, cases: Sequence[Case]) -> Finding | None:
    on = next((case for case in cases if case.optimizer_sharding), None)
    off = next((case for case in cases if on and not case.optimizer_sharding and case.layout == on.layout), None)
    if on is None or off is None:
        return HOLDS
    less, more = on.published.memory_mib, off.published.memory_mib
    if less is None or more is None:
        return HOLDS
    rule = Message(
        'with "on", the optimizer state is distributed: {on} takes {less} MiB, {off} takes {more} MiB; the name says '
        "the opposite",
        on=on.name,
        less=less,
        off=off.name,
        more=more,
    )
    return unless(
        less > more or not flag.startswith("non_distributed"),
        "flag",
        report,
        Place("text", "", "flag"),
        kind="editorial",
        printed=f"{flag}=on",
        rule=rule,
        severity="warning",
    )


RULES = (
    ("title", N_("titles against content"), titles),
    ("name", N_("names of cases and logs against parameters"), names),
    ("words", N_("groups, switches and composed cells"), words),
    ("log", N_("one log for one set of figures"), shared_logs),
    ("precision", N_("claims about precision"), precisions),
    ("wording", N_("names of switches and folders"), switches),
)
