"""The sections of a host's page on what it ran on: machine and libraries, the runs' commands, and the preflight."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from repro.analysis.process_info import readable
from repro.report.document import Block, Cell, Section, Table, Text
from repro.report.host.results import Host, clocks, preflight_tables
from repro.report.host.run import KeptRun
from repro.report.run.verdicts import OUTCOMES
from repro.report.tables import columns, count, measured, words
from repro.utils.i18n import N_, Message, Translate

LARGEST = 3
RESULTS = {"ok": N_("ok"), "warning": N_("warning"), "failed": N_("failed"), "not available": N_("not available")}
"""Results of a preflight's checks."""


def day(kept: KeptRun) -> str:
    """The day on which a run began, UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime(kept.description["created"]))


def commit(_: Translate, kept: KeptRun) -> str:
    """The commit that a run was made from, and whether files differed from it."""
    changed = kept.description["environment"]["git_changed_files"]
    return _("{commit} with {n} changed files").format(commit=kept.commit, n=changed) if changed else kept.commit


def gpus(kept: KeptRun) -> str:
    """The GPUs of a run, equal ones counted."""
    names = [gpu["name"] for gpu in kept.gpus]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def runs(_: Translate, host: Host) -> list[Section]:
    """Every run with its command, and what it came to."""
    if not host.runs:
        return []
    rows = tuple(
        (
            Cell(f"{kept.label} [{kept.run.id}](runs/{kept.run.path.name})", anchor=kept.run.id),
            *words(day(kept), host.sessions[kept.run.id], gpus(kept) or _("none"), commit(_, kept)),
            count(len(kept.attempts)),
            count(sum(attempt["status"] == "failed" for attempt in kept.attempts)),
            *words(_came_to(_, kept), f"`{kept.description['command']}`"),
        )
        for kept in host.runs
    )
    titles = (
        *columns(_("Run"), _("Date"), _("Session"), "GPU", _("Commit")),
        *columns(numeric=(_("Attempts"), _("Failed"))),
        *columns(_("Verdicts on speed"), _("Command")),
    )
    text = _(
        "Each run is kept under `runs/` as one archive: the plan, every attempt with its logs and metrics, and a manifest; "
        "nothing in it is derived. `make report RUN=<archive>` writes its report in both languages, and `results.csv` has "
        "the results of all runs. Host names and GPU UUIDs are replaced and paths are relative to the checkout; "
        "`kept.json` in the archive names every file changed in this way, with its original SHA-256."
    )
    table = Table("runs", titles, rows, _("Every run, with the command that started it and its attempts:"))
    return [Section("runs", _("Runs and their commands"), (Text(text), table), folded=True)]


def _came_to(_: Translate, kept: KeptRun) -> str:
    if not kept.measures_speed or not kept.judgement.verdicts:
        return "–"
    return _("; ").join(
        _("{outcome}: {n}").format(outcome=_(OUTCOMES[outcome][0]), n=n)
        for outcome, n in kept.judgement.counts.items()
        if n
    )


def machine(_: Translate, host: Host) -> list[Section]:
    """What all runs ran on; where they differ each value names its runs."""
    if not host.runs:
        return []
    about = {kept.label: kept.description["environment"] for kept in host.runs}
    facts = {
        "GPU": {kept.label: gpus(kept) or _("none") for kept in host.runs},
        _("GPU memory (MiB)"): {label: _each(each, "memory.total") for label, each in about.items()},
        _("Driver"): {label: _each(each, "driver_version") for label, each in about.items()},
        _("Highest SM clock (MHz)"): {label: _each(each, "clocks.max.sm") for label, each in about.items()},
        _("SM clock under load"): dict.fromkeys(about, _clocks(_, host.runs)),
        _("GPU interconnect"): {kept.label: _ways(kept) for kept in host.runs},
        _("Processor"): {label: f"{each['cpu']}, {each['cpu_count']}" for label, each in about.items()},
        _("Memory"): {label: f"{each['memory_mib']} MiB" for label, each in about.items()},
        _("System"): {label: f"{each['system']}, Linux {each['kernel']}" for label, each in about.items()},
        _("OneFlow software stack"): {
            label: (each.get("stack") or {}).get("name", "") for label, each in about.items()
        },
        _("Environment variables of the stack"): {label: _given(each.get("stack")) for label, each in about.items()},
        _("Cache of compiled GPU code at the start"): {
            label: _cache(_, each.get("jit_cache")) for label, each in about.items()
        },
        _("Operators compared with the CPU"): {
            label: _kernels(_, each.get("kernels")) for label, each in about.items()
        },
    }
    caption = _("Hardware and software of all runs; where runs differ, those that have a value are in brackets.")
    table = Table("machine", columns(_("Item"), _("Value")), _merged(_, facts), caption)
    return [Section("machine", _("Machine and libraries"), (table, *_programs(_, host)), folded=True)]


def _merged(_: Translate, facts: dict[str, dict[str, str]]) -> tuple:
    """A row for each item that any run has: one value if it is the same in all, else each with its runs."""
    rows = []
    for item, values in facts.items():
        by_value: dict[str, list[str]] = {}
        for label, value in values.items():
            if value:
                by_value.setdefault(value, []).append(label)
        one = len(by_value) == 1 and len(next(iter(by_value.values()))) == len(values)
        texts = [value if one else f"{value} ({in_short(labels)})" for value, labels in by_value.items()]
        if texts:
            rows.append(words(item, "; ".join(texts)))
    return tuple(rows)


def in_short(labels: Iterable[str]) -> str:
    """Runs' labels with three or more in a row as a range: R1, R2, R11–R14."""
    counted = sorted(int(label.removeprefix("R")) for label in labels)
    spans: list[list[int]] = []
    for number in counted:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    parts = [f"R{span[0]}–R{span[-1]}" if len(span) > 2 else ", ".join(f"R{n}" for n in span) for span in spans]
    return ", ".join(parts)


def _each(environment: dict, name: str) -> str:
    return ", ".join(dict.fromkeys(gpu[name] for gpu in environment["gpus"] if name in gpu))


def _clocks(_: Translate, runs: Iterable[KeptRun]) -> str:
    found = clocks(runs)
    if not found:
        return ""
    message = _("{middle:.0f} MHz at the median of {samples} samples ({low:.0f} to {high:.0f}), at most {heat:.0f} °C")
    return message.format(
        middle=found.middle, samples=found.samples, low=found.lowest, high=found.highest, heat=found.hottest
    )


def _ways(kept: KeptRun) -> str:
    ways = {way for attempt in kept.attempts for way in (attempt.get("transport") or {}).get("ways", ())}
    return ", ".join(sorted(ways))


def _given(stack: dict | None) -> str:
    return ", ".join(f"`{name}={value}`" for name, value in ((stack or {}).get("environment") or {}).items())


def _cache(_: Translate, cache: dict | None) -> str:
    if not cache:
        return ""
    return (_("warm, {mib} MiB") if cache["warm"] else _("not known to be warm, {mib} MiB")).format(mib=cache["mib"])


def _kernels(_: Translate, kernels: dict | None) -> str:
    if not kernels:
        return ""
    largest = ", ".join(f"{error:.1e} ({precision})" for precision, error in kernels["largest"].items())
    message = _("{count}, results and gradients; largest relative error: {largest}").format(
        count=kernels["operators"], largest=largest
    )
    wrong = (
        _("wrong: {operators}").format(operators="; ".join(f"`{each}`" for each in kernels["wrong"]))
        if kernels["wrong"]
        else ""
    )
    return "; ".join(filter(None, (message, wrong)))


def _programs(_: Translate, host: Host) -> list:
    """Versions and files of the libraries that each program's processes loaded, as reported by them."""
    programs: dict[str, dict[str, dict[str, str]]] = {}
    for run in host.runs:
        for program, start in run.starts.items():
            items = {name: str(value) for name, value in readable(start.get("versions") or {}).items() if value}
            items[_("Libraries")] = ", ".join(Path(path).name for path in start.get("libraries", ()))
            for item, value in items.items():
                every = dict.fromkeys((each.label for each in host.runs if program in each.starts), "")
                programs.setdefault(program, {}).setdefault(item, every)[run.label] = value
    rows = [(Cell(program), *row) for program, facts in programs.items() for row in _merged(_, facts)]
    if not rows:
        return []
    caption = _("What the processes actually loaded, as rank 0 of each program reported at its start:")
    return [Table("programs", columns(_("Program"), _("Item"), _("Value")), tuple(rows), caption)]


def preflight(_: Translate, host: Host) -> list[Section]:
    """What the preflights found: operators compared with the CPU, and the all-reduce by size."""
    found = []
    for number, kept in enumerate(host.preflights, 1):
        tables = preflight_tables(kept)
        rows = tuple(
            words(each["check"], _(RESULTS.get(each["result"], each["result"])), _found(_, each))
            for each in tables["findings"]
        )
        caption = _("`make preflight`, kept in [{name}](runs/{name}.zip). What was found is quoted as printed:").format(
            name=kept.id
        )
        blocks: list[Block] = [
            Table(f"preflight-{number}", columns(_("Check"), _("Result"), _("Found")), rows, caption)
        ]
        blocks += [_operators(_, each, f"{number}-{index}") for index, each in enumerate(tables["kernels"], 1)]
        for index, each in enumerate(tables["allreduce"], 1):
            blocks += _allreduce(_, each, f"{number}-{index}")
        title = _("Preflight {number}").format(number=number) if len(host.preflights) > 1 else _("Preflight")
        found.append(Section(f"preflight-{number}", title, tuple(blocks), folded=True))
    return found


def _found(_: Translate, finding: dict) -> str:
    """The facts of a check; without a message (an old record, another program's output) the text is shown as code."""
    return Message.from_json(finding).text(_) if "message" in finding else f"`{finding['found']}`"


def _operators(_: Translate, kernels: dict, number: str) -> Text:
    results = kernels["results"]
    wrong = [each for each in results if each["error"] is None or each["error"] > each["tolerance"]]
    worst = sorted((each for each in results if each not in wrong), key=lambda each: -each["error"])[:LARGEST]
    message = _(
        "{n} results and gradients of operators were compared with the CPU, {wrong} are wrong. The largest errors "
        "within their tolerances: {worst}."
    )
    return Text(
        message.format(
            n=len(results),
            wrong=len(wrong),
            worst=_("; ").join(
                f"`{each['operator']}, {each['part']}` ({each['precision']}) {each['error']:.1e}" for each in worst
            )
            or "–",
        )
    )


def _allreduce(_: Translate, table: dict, number: str) -> list[Block]:
    rows = tuple(
        (
            count(each["bytes"]),
            measured(each["seconds"] * 1e6),
            measured(each["algorithm_gbs"]),
            measured(each["bus_gbs"]),
        )
        for each in table["rows"]
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
