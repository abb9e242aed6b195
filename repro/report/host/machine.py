"""The sections of a host's page on what it ran on: machine and libraries, the runs' commands, and the preflight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from repro.analysis.process_info import readable
from repro.report.document import Block, Cell, Section, Table, Text
from repro.report.host.results import MeasuredHost, clocks, preflight_tables
from repro.report.host.run import KeptRun
from repro.report.method import link
from repro.report.run.environment import commit_text, kernels_text
from repro.report.tables import columns, count, measured, words
from repro.runs.environment import Environment
from repro.utils.i18n import N_, Message, Translate

LARGEST = 3
RESULTS = {"ok": N_("ok"), "warning": N_("warning"), "failed": N_("failed"), "not available": N_("not available")}
"""Results of a preflight's checks."""


def gpus(_: Translate, kept_run: KeptRun) -> str:
    """The GPUs of a run, equal ones counted, and equal nodes; empty if nothing is recorded of its machines."""
    if not kept_run.gpus:
        return _("none") if kept_run.machines else ""
    counts = (Counter(gpu["name"] for gpu in machine.gpus) for machine in kept_run.machines)
    named = Counter(", ".join(f"{n} x {name}" for name, n in of_machine.items()) or _("none") for of_machine in counts)
    return "; ".join(
        gpu_names if n == 1 else _("{n} nodes with {gpus} each").format(n=n, gpus=gpu_names)
        for gpu_names, n in named.items()
    )


def _of_gpus(kept_run: KeptRun, name: str) -> str:
    """The values of a field of a run's GPUs, each once."""
    return ", ".join(dict.fromkeys(value for gpu in kept_run.gpus if (value := gpu.get(name))))


def _of_machines(kept_run: KeptRun, name: str) -> str:
    """What is recorded of a run's machines under this name, each value once."""
    return "; ".join(dict.fromkeys(filter(None, (getattr(machine, name) for machine in kept_run.machines))))


def runs(_: Translate, host: MeasuredHost) -> list[Section]:
    """Every run with its command."""
    if not host.runs:
        return []
    rows = tuple(
        (
            Cell(f"[{kept_run.began}](runs/{kept_run.run.path.name})", anchor=kept_run.run.id),
            *words(
                host.sessions[kept_run.run.id],
                commit_text(_, kept_run.environment),
                f"`{kept_run.description.command}`",
            ),
        )
        for kept_run in host.runs
    )
    titles = columns(_("Run (start, UTC)"), _("Session"), _("Commit"), _("Command"))
    text = _(
        "`make report RUN=<archive>` writes a run's report; `results.csv` has the results of all runs ({method})."
    ).format(method=link(_, "evidence", _("what an archive holds")))
    table = Table("runs", titles, rows, _("Every run, with the command that started it:"))
    return [Section("runs", _("Runs and their commands"), (Text(text), table), folded=True)]


def machine(_: Translate, host: MeasuredHost) -> list[Section]:
    """What the ranks of all runs ran on; where runs differ, how many have each value."""
    if not host.runs:
        return []
    under_load = _clocks(_, host.runs)
    facts: dict[str, Callable[[KeptRun], str]] = {
        "GPU": partial(gpus, _),
        _("GPU memory (MiB)"): partial(_of_gpus, name="memory.total"),
        _("Driver"): partial(_of_gpus, name="driver_version"),
        _("Highest SM clock (MHz)"): partial(_of_gpus, name="clocks.max.sm"),
        _("SM clock under load"): lambda kept_run: under_load,
        _("GPU interconnect"): _ways,
        _("Processor"): partial(_of_machines, name="processor"),
        _("Memory"): partial(_of_machines, name="memory"),
        _("System"): partial(_of_machines, name="system"),
        _("OneFlow software stack"): lambda kept_run: kept_run.environment.stack_name,
        _("Environment variables of the stack"): lambda kept_run: _given(kept_run.environment.stack),
        _("Cache of compiled GPU code at the start"): lambda kept_run: _cache(_, kept_run.environment),
        _("Operators compared with the CPU"): lambda kept_run: kernels_text(_, kept_run.environment.kernels),
    }
    values: dict[str, dict[str, tuple[str, ...]]] = {
        item: {kept_run.run.id: (of(kept_run),) for kept_run in host.runs} for item, of in facts.items()
    }
    caption = _("Hardware and software of all runs; where runs differ, how many have a value is in parentheses.")
    table = Table("machine", columns(_("Item"), _("Value")), _merged(_, values), caption)
    return [Section("machine", _("Machine and libraries"), (table, *_programs(_, host)), folded=True)]


def _merged(_: Translate, facts: dict[str, dict[str, tuple[str, ...]]]) -> tuple:
    """A row for each item that any run has: its values, each with how many runs have it if these are not all."""
    rows = []
    for item, by_run in facts.items():
        runs_by_value = Counter(value for values in by_run.values() for value in set(filter(None, values)))
        texts = [
            value if n == len(by_run) else _("{value} ({n} of {all} runs)").format(value=value, n=n, all=len(by_run))
            for value, n in sorted(runs_by_value.items(), key=lambda counted: (-counted[1], counted[0]))
        ]
        if texts:
            rows.append(words(item, "; ".join(texts)))
    return tuple(rows)


def _clocks(_: Translate, runs: Iterable[KeptRun]) -> str:
    sampled = clocks(runs)
    if not sampled:
        return ""
    message = _("{middle:.0f} MHz at the median of {samples} samples ({low:.0f} to {high:.0f}), at most {heat:.0f} °C")
    return message.format(
        middle=sampled.middle, samples=sampled.samples, low=sampled.lowest, high=sampled.highest, heat=sampled.hottest
    )


def _ways(kept_run: KeptRun) -> str:
    ways = {way for attempt in kept_run.attempts for way in attempt.transport.get("ways", ())}
    return ", ".join(sorted(ways))


def _given(stack: Mapping | None) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in ((stack or {}).get("environment") or {}).items())


def _cache(_: Translate, environment: Environment) -> str:
    """The cache of the machine; those of a cluster's nodes are not recorded."""
    cache = environment.jit_cache
    if not cache or environment.cluster:
        return ""
    return (_("warm, {mib} MiB") if cache["warm"] else _("not known to be warm, {mib} MiB")).format(mib=cache["mib"])


def _programs(_: Translate, host: MeasuredHost) -> list:
    """Versions and files of the libraries that each program's processes loaded, as reported by them."""
    programs: dict[str, dict[str, dict[str, tuple[str, ...]]]] = {}
    for kept_run in host.runs:
        for program, start in kept_run.starts.items():
            items: dict[str, tuple[str, ...]] = {
                name: (str(value),) for name, value in readable(start.get("versions") or {}).items() if value
            }
            items[_("Libraries")] = tuple(Path(path).name for path in start.get("libraries", ()))
            for item, values in items.items():
                every: dict[str, tuple[str, ...]] = dict.fromkeys(
                    (one.run.id for one in host.runs if program in one.starts), ()
                )
                programs.setdefault(program, {}).setdefault(item, every)[kept_run.run.id] = values
    rows = [(Cell(program), *row) for program, facts in programs.items() for row in _merged(_, facts)]
    if not rows:
        return []
    caption = _("What the processes actually loaded, as rank 0 of each program reported at its start:")
    return [Table("programs", columns(_("Program"), _("Item"), _("Value")), tuple(rows), caption)]


def preflight(_: Translate, host: MeasuredHost) -> list[Section]:
    """What the preflights found: operators compared with the CPU, and the all-reduce by size."""
    sections = []
    for number, preflight_run in enumerate(host.preflights, 1):
        tables = preflight_tables(preflight_run)
        rows = tuple(
            words(finding["check"], _(RESULTS.get(finding["result"], finding["result"])), _found(_, finding))
            for finding in tables["findings"]
        )
        caption = _("`make preflight`, kept in [{name}](runs/{name}.zip). What was found is quoted as printed:").format(
            name=preflight_run.id
        )
        blocks: list[Block] = [
            Table(f"preflight-{number}", columns(_("Check"), _("Result"), _("Found")), rows, caption)
        ]
        blocks += [_operators(_, kernels) for kernels in tables["kernels"]]
        for index, table in enumerate(tables["allreduce"], 1):
            blocks += _allreduce(_, table, f"{number}-{index}")
        title = _("Preflight {number}").format(number=number) if len(host.preflights) > 1 else _("Preflight")
        sections.append(Section(f"preflight-{number}", title, tuple(blocks), folded=True))
    return sections


def _found(_: Translate, finding: dict) -> str:
    """The facts of a check; without a message (an old record, another program's output) the text is shown as code."""
    return Message.from_json(finding).text(_) if "message" in finding else f"`{finding['found']}`"


def _operators(_: Translate, kernels: dict) -> Text:
    results = kernels["results"]
    wrong = [result for result in results if result["error"] is None or result["error"] > result["tolerance"]]
    worst = sorted((result for result in results if result not in wrong), key=lambda result: -result["error"])[:LARGEST]
    message = _(
        "{n} results and gradients of operators were compared with the CPU, {wrong} are wrong. The largest errors "
        "within their tolerances: {worst}."
    )
    return Text(
        message.format(
            n=len(results),
            wrong=len(wrong),
            worst=_("; ").join(
                f"`{result['operator']}, {result['part']}` ({result['precision']}) {result['error']:.1e}"
                for result in worst
            )
            or "–",
        )
    )


def _allreduce(_: Translate, table: dict, number: str) -> list[Block]:
    rows = tuple(
        (
            count(row["bytes"]),
            measured(row["seconds"] * 1e6),
            measured(row["algorithm_gbs"]),
            measured(row["bus_gbs"]),
        )
        for row in table["rows"]
    )
    limit = table.get("link_gbs")
    message = _(
        "OneFlow's all-reduce over {ranks} ranks ({way}): at best {bus:.1f} GB/s of bus bandwidth; the links can do "
        "{limit}."
    ).format(
        ranks=table["ranks"],
        way=", ".join(table["transports"]) or "?",
        bus=table["bus_gbs"],
        limit=f"{limit:.1f} GB/s" if limit else "?",
    )
    titles = columns(numeric=(_("Bytes"), _("Time (µs)"), _("Algorithm bandwidth (GB/s)"), _("Bus bandwidth (GB/s)")))
    return [Table(f"allreduce-{number}", titles, rows, message)]
