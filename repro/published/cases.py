"""The catalogue of published cases, and how to select from it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

from repro.models import extensions, registry
from repro.published.figures import PrintedNumber, Published
from repro.published.ports import has_port
from repro.published.rules import Rule, rule_of
from repro.published.schema import ENTRIES, check_file, merged, taken_twice, unknown, unknown_cases
from repro.published.validators import whole
from repro.utils.errors import ReproError
from repro.utils.output import TerminalColumn
from repro.utils.paths import DATA

CASES = DATA / "cases"
FUSED = "fused_scale_tril_softmax_dropout"
"""The setting of a report whose program fused the operators of attention."""
T = TypeVar("T")


class CaseError(ReproError):
    """Inconsistent case data, or a selection without cases; `problems` has one line per fault."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


@dataclass(frozen=True)
class Layout:
    """How ranks are divided: data x tensor x pipeline parallel sizes; ValueError unless whole numbers above 0."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            if reason := whole(1)(size):
                raise ValueError(f"the {name} parallel size {reason}")

    @property
    def world_size(self) -> int:
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        return f"{self.data}x{self.tensor}x{self.pipeline}"


@dataclass(frozen=True)
class Case:
    """One published measurement; `micro_batch` is samples a data-parallel rank and micro-step.

    `shape` and `training` have the keys of the trainer's configuration, less those that its optimizer and schedule
    do not use. `optimizer_sharding` is 0 for none, else the ZeRO stage. `log_generation` is the format of the report's
    logs, empty for one that is not read here. `framework` is what trained it, `family` what reports of one training on several dates have in common,
    `label` what tells a case from others of its report, if the batch size does not. `ported` says whether the program
    that was measured can be run here, `fused` whether it fused bias, dropout, mask and softmax into single kernels.
    `origin` is the published case that this one was changed from, None for a published one.
    """

    name: str
    model: str
    report: str
    layout: Layout
    nodes: int
    gpus_per_node: int
    micro_batch: int
    accumulation_steps: int
    global_batch: int
    precision: str
    activation_checkpointing: bool
    optimizer_sharding: int
    iterations: int
    log_interval: int
    log_generation: str
    rule: Rule
    shape: dict = field(hash=False)
    training: dict = field(hash=False)
    published: Published
    source: str
    framework: str = ""
    family: str = ""
    label: str = ""
    ported: bool = True
    fused: bool = False
    origin: Case | None = None

    @property
    def published_as(self) -> Case:
        """The published case that it is, whole or changed."""
        return self.origin or self

    @property
    def derived(self) -> bool:
        """Whether it has a name of its own, as its figures cannot be compared with those of the published case."""
        return self.name != self.published_as.name

    def changed(self, **changes: Any) -> Case:
        """The same with these values, from the same published case."""
        return replace(self, origin=self.published_as, **changes)


@dataclass(frozen=True)
class ResultsTable:
    """The table of a report's results: its columns, by key, and their titles by language if the project has none.

    A column is a published figure, something else that is printed with it, or one of the keys in
    `repro.report.published.tables`. With `by`, each value of that key has a table of its own.
    """

    columns: tuple[str, ...] = ()
    by: str = ""
    titles: dict = field(default_factory=dict, hash=False)


@dataclass(frozen=True, eq=False)
class Report:
    """One published report: its titles, its environment and claims as printed, and what surrounds its cases.

    `settings` are those of the original that no trainer's configuration carries; `unstated` says what the report
    does not, with the reason for the value used; `stray` are rows that belong to no table; `also_printed` are
    tables that repeat or complete the cases, `same_run` where they print the very runs of the cases; `heading` are
    the columns of its tables and `quoted` some of its wording, both as printed; `table` is how its results are shown. `source` is "owner/repository:path",
    and `source_commit` a commit at which that file prints the figures of the cases.
    """

    id: str
    file: str
    model: str
    date: str
    language: str
    title_printed: str
    title: dict[str, str]
    precision: str
    cluster: str
    framework: str
    version: str
    trainer: dict[str, str]
    source: str
    settings_source: tuple[str, ...]
    environment: dict
    claims: dict
    settings: dict
    rule: Rule
    family: str
    log_generation: str = ""
    source_commit: str = ""
    repeats_source: str = ""
    unstated: tuple[dict, ...] = ()
    stray: tuple[dict, ...] = ()
    also_printed: tuple[dict, ...] = ()
    heading: tuple[dict, ...] = ()
    table: ResultsTable = field(default_factory=ResultsTable)
    quoted: tuple[dict, ...] = ()

    @property
    def path(self) -> str:
        """Its case file in this repository; the file's name for one from outside."""
        return f"repro/data/cases/{self.file}" if (CASES / self.file).is_file() else self.file

    @property
    def ported(self) -> bool:
        """Whether the program that produced its figures can be run here."""
        return has_port(self.model, self.id)

    @property
    def url(self) -> str | None:
        """A permanent link to the original; None for a report that no public commit is known of."""
        repository, _, path = self.source.partition(":")
        return f"https://github.com/{repository}/blob/{self.source_commit}/{path}" if self.source_commit else None

    def also(self, what: str) -> tuple[dict, ...]:
        """The rows of the table in `also_printed` called `what`, each a dict by column; () if it is not there."""
        tables = (table for table in self.also_printed if table["what"] == what)
        return tuple(dict(zip(table["columns"], row, strict=True)) for table in tables for row in table["rows"])


@dataclass(frozen=True, eq=False)
class Catalogue:
    """All reports by date, and their cases in published order."""

    reports: tuple[Report, ...]
    cases: tuple[Case, ...]

    def report(self, identity: str) -> Report:
        """The report of that id; CaseError if there is none."""
        return _find(identity, {report.id: report for report in self.reports}, "report")

    def case(self, name: str) -> Case:
        """The case of that name; CaseError if there is none."""
        return _find(name, self.by_name, "case")

    @cached_property
    def by_name(self) -> dict[str, Case]:
        """The cases by their names."""
        return {case.name: case for case in self.cases}

    @property
    def ported(self) -> tuple[Case, ...]:
        """The cases whose programs can be run here; figures of other programs are neither run nor predicted."""
        return tuple(case for case in self.cases if case.ported)

    def select(self, model: str | None = None, pattern: str | None = None) -> tuple[Case, ...]:
        """The cases of a model whose names match a pattern; both may be left out.

        A pattern is a name, a shell pattern such as "DP_*", the id of a report for all of its cases, or several of them
        with commas or spaces between them.
        CaseError for an unknown model, and for a pattern that matches nothing.
        """
        if model:
            _find(model, dict.fromkeys(registry.names()), "model")
        cases = tuple(case for case in self.cases if not model or case.model == model)
        if not pattern:
            return cases
        patterns, names = re.split(r"[\s,]+", pattern.strip(" ,")), [case.name for case in cases]
        what = f"{model} case" if model else "case"
        problems = [unknown(glob, names, what) for glob in patterns if not any(_is_of(case, glob) for case in cases)]
        if problems:
            raise CaseError(*problems)
        return tuple(case for case in cases if any(_is_of(case, glob) for glob in patterns))


@cache
def load_catalogue(folder: Path = CASES) -> Catalogue:
    """Read and check every case file of a folder, once per process; CaseError with every fault of every file.

    The project's own folder is completed by the case files of models from outside (`repro.models.extensions`).
    """
    files = sorted(Path(folder).glob("*.toml"))
    if folder == CASES:
        files += [file for extra in extensions.folders() for file in sorted((extra / "data" / "cases").glob("*.toml"))]
    try:
        registry.specs()
    except registry.ModelError as error:
        raise CaseError(str(error)) from error
    if not files:
        raise CaseError(f"{folder}: no case files (*.toml) there")
    parsed, problems = {}, []
    for file in files:
        try:
            parsed[file.name] = tomllib.loads(file.read_text(encoding="utf-8"), parse_float=PrintedNumber)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            problems.append(f"{file.name}: not TOML: {error}")
    faults = {name: check_file(name, data) for name, data in parsed.items()}
    sound = {name: data for name, data in parsed.items() if not faults[name]}
    problems += [fault for file_faults in faults.values() for fault in file_faults] + list(taken_twice(sound))
    if not problems:
        problems = list(unknown_cases(parsed))
    if problems:
        raise CaseError(*problems)
    by_date = sorted(parsed.items(), key=lambda item: (item[1]["report"]["date"], item[0]))
    reports = tuple(_report(name, data) for name, data in by_date)
    return Catalogue(reports, tuple(case for _, data in by_date for case in _cases(data)))


def cases_table(cases: Iterable[Case]) -> tuple[list[TerminalColumn], list[list[str]]]:
    """Columns, and one row of texts per case with its configuration and published figures."""
    columns = [
        TerminalColumn("case"),
        TerminalColumn("GPUs", spare=1),
        TerminalColumn("layout"),
        TerminalColumn("micro-batch", number=True),
        TerminalColumn("steps", number=True, spare=4),
        TerminalColumn("global batch", number=True, spare=3),
        TerminalColumn("precision", spare=2),
        *(TerminalColumn(title, number=True) for title in ("samples/s", "ms", "MiB", "speed-up")),
    ]
    return columns, [_row(case) for case in cases]


def cases_json(cases: Iterable[Case]) -> list[dict]:
    """One object per case with its configuration and published figures; `output.schema.json` describes it."""
    return [
        {
            "name": case.name,
            "report": case.report,
            "model": case.model,
            "nodes": case.nodes,
            "gpus_per_node": case.gpus_per_node,
            "layout": vars(case.layout),
            "micro_batch": case.micro_batch,
            "accumulation_steps": case.accumulation_steps,
            "global_batch": case.global_batch,
            "precision": case.precision,
            "activation_checkpointing": case.activation_checkpointing,
            "optimizer_sharding": case.optimizer_sharding,
            "iterations": case.iterations,
            "shape": case.shape,
            "published": {
                "throughput_samples_per_s": case.published.throughput,
                "latency_ms": case.published.latency_ms,
                "memory_mib": case.published.memory_mib,
                "speedup": case.published.speedup,
            },
        }
        for case in cases
    ]


def _row(case: Case) -> list[str]:
    published = case.published
    batches = (case.micro_batch, case.accumulation_steps, case.global_batch)
    figures = (published.throughput, published.latency_ms, published.memory_mib, published.speedup)
    texts = ["" if figure is None else str(figure) for figure in figures]
    place = [f"{case.nodes}x{case.gpus_per_node}", str(case.layout)]
    return [case.name, *place, *map(str, batches), case.precision, *texts]


def _report(file: str, data: dict) -> Report:
    report = data["report"] | {name: tuple(data.get(name, ())) for name in ENTRIES}
    report["settings_source"] = tuple(report["settings_source"])
    report["settings"] = _plain(report["settings"])
    report.setdefault("family", report["id"])
    table = data.get("table", {})
    shown = ResultsTable(**{**table, "columns": tuple(table.get("columns", ()))})
    return Report(file=file, rule=rule_of(data["rule"]), table=shown, **report)


def _cases(data: dict) -> Iterator[Case]:
    rule = rule_of(data["rule"])
    report = data["report"]
    common = {
        **{key: report[key] for key in ("model", "precision", "framework")},
        "log_generation": report.get("log_generation", ""),
        "family": report.get("family", report["id"]),
        "ported": has_port(report["model"], report["id"]),
        "fused": bool(report["settings"].get(FUSED)),
    }
    for case in data["case"]:
        full = merged(case, data["defaults"])
        full["published"] = _published(full["published"], full.pop("printed", {}))
        full["layout"] = Layout(*full["layout"])
        full["training"] = _plain(full["training"])
        yield Case(report=report["id"], rule=rule, **common, **full)


def _published(figures: dict, printed: dict) -> Published:
    single: dict[str, Any] = {key: PrintedNumber(str(value)) for key, value in figures.items() if key != "repeats"}
    return Published(
        **single, repeats=tuple(PrintedNumber(str(run)) for run in figures.get("repeats", ())), printed=printed
    )


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return float(value) if isinstance(value, float) else value


def _is_of(case: Case, pattern: str) -> bool:
    return case.report == pattern or fnmatchcase(case.name, pattern)


def _find(name: str, entries: Mapping[str, T], what: str) -> T:
    if name not in entries:
        raise CaseError(unknown(name, entries, what))
    return entries[name]
