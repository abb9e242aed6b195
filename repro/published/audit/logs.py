"""Recomputes published figures from original log files: matches logs with cases and applies the measuring rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from repro.published.audit.findings import at_precision
from repro.published.cases import Case, Catalogue
from repro.published.figures import PrintedNumber
from repro.published.logs import Log, LogError, parse
from repro.utils.stats import median

STATED = {
    "A": {"num_nodes": "nodes", "gpu_num_per_node": "gpus_per_node", "batch_size_per_device": "micro_batch"},
    "E": {
        "data_parallel_size": "data",
        "tensor_model_parallel_size": "tensor",
        "hidden_size": "hidden_size",
        "pipeline_model_parallel_size": "pipeline",
        "micro_batch_size": "micro_batch",
        "num_layers": "layers",
        "global_batch_size": "global_batch",
        "num_attention_heads": "attention_heads",
        "seq_length": "seq_length",
    },
}
IN_NAME = (
    (r"(\d+)n[_-]?(\d+)g", ("nodes", "gpus_per_node")),
    (r"(?<![a-z])(?:bs|bsz|bz|b)[_-]?(\d+)|[_-](\d+)bs", ("micro_batch",)),
)
SHARDED = {"on": 1, "off": 0, "True": 1, "False": 0}


class NoLogs(LogError):
    """A folder is missing or contains no log of a published case."""

    def __str__(self) -> str:
        return self.reason


@dataclass(frozen=True)
class Compared:
    """A published figure and the one recomputed from a log, or from the logs of all repeats."""

    name: str
    published: PrintedNumber
    recomputed: float

    @property
    def agrees(self) -> bool:
        return self.published.agrees(self.recomputed)

    def as_json(self) -> dict:
        return {"figure": self.name, "published": self.published, "recomputed": self.recomputed, "agrees": self.agrees}

    def __str__(self) -> str:
        shown = at_precision(self.recomputed, self.published.decimals)
        return f"{self.name} {shown} (published {self.published}{'' if self.agrees else ': DIFFERS'})"


@dataclass(frozen=True)
class LogSource:
    """One log file: the cases it may belong to, the comparisons, or the reason why there are none."""

    file: Path
    cases: tuple[str, ...] = ()
    compared: tuple[Compared, ...] = ()
    problem: str = ""
    run: int | None = None


@dataclass(frozen=True)
class FromLogs:
    """Comparison of a folder of logs with the published figures."""

    sources: tuple[LogSource, ...]
    medians: dict[str, Compared] = field(default_factory=dict)

    @property
    def agrees(self) -> bool:
        """Whether every figure that could be recomputed is the published one."""
        return all(comparison.agrees for comparison in self._all())

    def _all(self) -> Iterator[Compared]:
        for source in self.sources:
            yield from source.compared
        yield from self.medians.values()

    def as_json(self) -> dict:
        """The comparison for programs; `output.schema.json` describes it."""
        return {
            "agrees": self.agrees,
            "logs": [
                {
                    "file": str(source.file),
                    "cases": list(source.cases),
                    "run": source.run,
                    "compared": [comparison.as_json() for comparison in source.compared],
                    "problem": source.problem,
                }
                for source in self.sources
            ],
            "medians": {case: compared.as_json() for case, compared in self.medians.items()},
        }

    def lines(self) -> list[str]:
        """The comparison as text, one line per file and per median."""
        lines = []
        for source in self.sources:
            run = f" run {source.run}" if source.run else ""
            compared = "; ".join(map(str, source.compared)) or source.problem
            lines.append(f"{source.file}: {' = '.join(source.cases) or 'no case'}{run}: {compared}")
        lines += [f"median of all logs of {case}: {compared}" for case, compared in self.medians.items()]
        return lines


def from_logs(folder: Path, catalogue: Catalogue) -> FromLogs:
    """Match every log under a folder with its published case and recompute the figures by the report's rule.

    A log is matched by the configuration it states, otherwise by the file name printed in the report, or by nodes, GPUs
    and batch size in its path.

    Raises
    ------
    NoLogs
        The folder is missing or none of its files is the log of a published case.
    """
    if not folder.is_dir():
        raise NoLogs(f"LOGS={folder}: no such folder")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    sources = tuple(_source(path, path.relative_to(folder), catalogue) for path in files)
    if not any(source.cases for source in sources):
        problems = "; ".join(f"{source.file}: {source.problem}" for source in sources[:3])
        raise NoLogs(f"LOGS={folder}: none of {len(files)} files is the log of a published case. {problems}")
    return FromLogs(sources, dict(_medians(sources, catalogue)))


def _source(path: Path, name: Path, catalogue: Catalogue) -> LogSource:
    try:
        log = parse(path)
    except LogError as error:
        return LogSource(name, problem=error.reason)
    cases = matching(log, name, catalogue.cases)
    if not cases:
        return LogSource(
            name,
            problem="neither the log nor its path names a published case: "
            "nodes, GPUs per node, batch size or layout are needed",
        )
    try:
        recomputed = cases[0].rule.throughput(log, cases[0].global_batch)
    except LogError as error:
        return LogSource(name, tuple(case.name for case in cases), problem=error.reason)
    nearest = min(cases, key=lambda case: abs(case.published.throughput - recomputed))
    run, compared = _throughput(nearest, recomputed)
    if nearest.published.latency_ms is not None:
        latency = nearest.rule.latency_ms(log, nearest.global_batch)
        compared += (Compared("ms", nearest.published.latency_ms, latency),)
    if nearest.published.memory_mib is not None and log.memory_mib is not None:
        compared += (Compared("MiB", nearest.published.memory_mib, log.memory_mib),)
    return LogSource(name, tuple(case.name for case in cases), compared, run=run)


def _throughput(case: Case, recomputed: float) -> tuple[int | None, tuple[Compared, ...]]:
    """The published run that a throughput is, counted from 1, or else the nearest one, and the comparison."""
    runs = case.published.repeats
    if not runs:
        return None, (Compared("samples/s", case.published.throughput, recomputed),)
    run = min(range(len(runs)), key=lambda index: abs(runs[index] - recomputed))
    return run + 1, (Compared("samples/s", runs[run], recomputed),)


def _medians(sources: Iterable[LogSource], catalogue: Catalogue) -> Iterator[tuple[str, Compared]]:
    """The published throughput against the median, for cases with a log of every repeat."""
    throughputs: dict[str, list[float]] = {}
    for source in sources:
        for name in source.cases if source.run else ():
            throughputs.setdefault(name, []).append(source.compared[0].recomputed)
    for name, values in throughputs.items():
        case = catalogue.case(name)
        if len(values) == case.rule.repeats:
            yield name, Compared("samples/s", case.published.throughput, median(values))


def matching(log: Log, name: Path, cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases, more than one only if they are one configuration, that a log states or its path names."""
    family = [case for case in cases if case.log_generation == log.generation]
    printed = tuple(case for case in family if Path(case.published.printed.get("log", "")).name == name.name)
    stated = _stated(log)
    if not stated:
        return printed or _by(_in_path(name), family)
    return _by(stated if log.generation == "E" else _in_path(name) | stated, family)


def _stated(log: Log) -> dict[str, object]:
    names = STATED["E" if log.generation == "E" else "A"]
    stated = {key: log.configuration[name] for name, key in names.items() if name in log.configuration}
    sharding = str(log.configuration.get("non_distributed_optimizer"))
    if log.generation == "D" and sharding in SHARDED:
        stated["optimizer_sharding"] = SHARDED[sharding]
    return stated if len(stated) >= 3 else {}


def _in_path(name: Path) -> dict[str, int]:
    text = str(name).lower()
    stated: dict[str, int] = {}
    for pattern, keys in IN_NAME:
        if match := re.search(pattern, text):
            stated |= dict(zip(keys, map(int, filter(None, match.groups())), strict=True))
    if match := re.search(r"(?<![a-z])(on|off)(?![a-z])", text):
        stated["optimizer_sharding"] = SHARDED[match[1]]
    return stated


def _by(stated: Mapping[str, object], cases: Iterable[Case]) -> tuple[Case, ...]:
    """Cases of one configuration with everything that is stated; none if several configurations match."""
    described = [(case, {**vars(case), **vars(case.layout), **case.shape}) for case in cases]
    fits = [
        case for case, values in described if stated and all(values.get(key) == value for key, value in stated.items())
    ]
    configurations = {
        (case.report, case.layout, case.micro_batch, case.optimizer_sharding, case.global_batch) for case in fits
    }
    return tuple(fits) if len(configurations) == 1 else ()
