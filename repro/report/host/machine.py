"""The sections of a host's page on what it ran on: machine and libraries, the runs' commands, and the preflight."""

from __future__ import annotations

import time
from pathlib import Path

from repro.analysis.process_info import readable
from repro.report.document import Block, Cell, Section, Table, Text, figure, words
from repro.report.host.measured import columns, link
from repro.report.host.results import Host, clocks, preflight_tables
from repro.report.host.run import KeptRun
from repro.report.run.verdicts import OUTCOMES
from repro.utils.i18n import Message, Translate

LARGEST = 3


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
            *words(
                day(kept),
                f"`{kept.description['command']}`",
                commit(_, kept),
                gpus(kept) or _("none"),
            ),
            figure(kept.plan.repeats, 0),
            figure(len(kept.attempts), 0),
            figure(sum(attempt["status"] == "failed" for attempt in kept.attempts), 0),
            Cell(_came_to(_, kept)),
        )
        for kept in host.runs
    )
    titles = columns(
        _("Run"),
        _("Date"),
        _("Command"),
        _("Commit"),
        "GPU",
        numeric=(_("Repeats"), _("Attempts"), _("Failed attempts")),
    )
    text = _(
        "Each run is kept under `runs/` as one archive with what was planned, every attempt with its logs and metrics, "
        "and a manifest; nothing in it is derived. `make report RUN=<archive>` writes its report in both languages. "
        "Host names and GPU UUIDs are replaced, and paths of the machine are relative to the checkout; `kept.json` in "
        "the archive names every file that was changed so, with the SHA-256 that it had. `results.csv` has the "
        "results of all runs."
    )
    return [
        Section(
            "runs",
            _("Runs and their commands"),
            (Text(text), Table("runs", (*titles, *columns(_("Verdicts on speed"))), rows)),
        )
    ]


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
        _("SM clock under load"): {kept.label: _clocks(_, [kept]) for kept in host.runs},
        _("Way between GPUs"): {kept.label: _ways(kept) for kept in host.runs},
        _("Processor"): {label: f"{each['cpu']}, {each['cpu_count']}" for label, each in about.items()},
        _("Memory"): {label: f"{each['memory_mib']} MiB" for label, each in about.items()},
        _("System"): {label: f"{each['system']}, Linux {each['kernel']}" for label, each in about.items()},
        _("OneFlow software stack"): {
            label: (each.get("stack") or {}).get("name", "") for label, each in about.items()
        },
        _("Environment of the stack"): {label: _given(each.get("stack")) for label, each in about.items()},
        _("Cache of compiled GPU code at the start"): {
            label: _cache(_, each.get("jit_cache")) for label, each in about.items()
        },
        _("Operators compared with the CPU"): {
            label: _kernels(_, each.get("kernels")) for label, each in about.items()
        },
    }
    table = Table("machine", columns(_("Item"), _("Value")), _merged(_, facts))
    return [Section("machine", _("Machine"), (table, *_programs(_, host)))]


def _merged(_: Translate, facts: dict[str, dict[str, str]]) -> tuple:
    """A row for each item that any run has: one value if it is the same in all, else each with its runs."""
    rows = []
    for item, values in facts.items():
        by_value: dict[str, list[str]] = {}
        for label, value in values.items():
            if value:
                by_value.setdefault(value, []).append(label)
        one = len(by_value) == 1 and len(next(iter(by_value.values()))) == len(values)
        texts = [value if one else f"{value} ({', '.join(labels)})" for value, labels in by_value.items()]
        if texts:
            rows.append(words(item, "; ".join(texts)))
    return tuple(rows)


def _each(environment: dict, name: str) -> str:
    return ", ".join(dict.fromkeys(gpu[name] for gpu in environment["gpus"] if name in gpu))


def _clocks(_: Translate, runs: list[KeptRun]) -> str:
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
    wrong = _("wrong: {operators}").format(operators="; ".join(kernels["wrong"])) if kernels["wrong"] else ""
    return "; ".join(filter(None, (message, wrong)))


def _programs(_: Translate, host: Host) -> list:
    """Versions and files of the libraries that each program's processes had loaded, as they reported them."""
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
    text = Text(_("What the processes had really loaded, as rank 0 of each program told at its start:"))
    return [text, Table("programs", columns(_("Program"), _("Item"), _("Value")), tuple(rows))]


def preflight(_: Translate, host: Host) -> list[Section]:
    """What the preflights found: operators compared with the CPU, and the all-reduce by size."""
    found = []
    for number, kept in enumerate(host.preflights, 1):
        tables = preflight_tables(kept)
        rows = tuple(words(each["check"], *_finding(_, each)) for each in tables["findings"])
        blocks: list[Block] = [
            Text(
                _("`make preflight`, kept in [{name}](runs/{name}.zip); what was found is as it was printed.").format(
                    name=kept.id
                )
            ),
            Table(f"preflight-{number}", columns(_("Check"), _("Result"), _("Found")), rows),
        ]
        blocks += [_operators(_, each, f"{number}-{index}") for index, each in enumerate(tables["kernels"], 1)]
        for index, each in enumerate(tables["allreduce"], 1):
            blocks += _allreduce(_, each, f"{number}-{index}")
        found.append(Section(f"preflight-{number}", _("Preflight"), tuple(blocks)))
    return found


def _finding(_: Translate, finding: dict) -> tuple[str, str]:
    """Result and facts of a check; facts without a message (an old record, a program's output) are shown as code."""
    result = finding["result"]
    facts = Message.from_json(finding).text(_) if "message" in finding else f"`{finding['found']}`"
    return _(result), facts


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
            figure(each["bytes"], 0),
            figure(each["seconds"] * 1e6, 1),
            figure(each["algorithm_gbs"], 2),
            figure(each["bus_gbs"], 2),
        )
        for each in table["rows"]
    )
    limit = table.get("link_gbs")
    message = _(
        "All-reduce of OneFlow over {ranks} ranks by way of {way}: at best {bus:.1f} GB/s of bus bandwidth; the "
        "links can do {limit}."
    ).format(
        ranks=table["ranks"],
        way=", ".join(table["transports"]) or "?",
        bus=table["bus_gbs"],
        limit=f"{limit:.1f} GB/s" if limit else "?",
    )
    titles = columns(numeric=(_("Bytes"), _("Time (µs)"), _("Algorithm bandwidth (GB/s)"), _("Bus bandwidth (GB/s)")))
    return [Text(message), Table(f"allreduce-{number}", titles, rows)]


def memory(_: Translate, host: Host) -> list[Section]:
    """Memory of the published cases that ran as they were published, compared with the published reading."""
    rows = []
    for kept, each in host.comparisons:
        if each.kind == "memory":
            within = each.measured <= each.published
            rows.append(
                (
                    *words(link(kept), each.case),
                    figure(each.published, 0),
                    figure(each.measured, 0),
                    Cell(_("yes"), tone="good") if within else Cell(_("NO"), tone="bad"),
                )
            )
    if not rows:
        return []
    text = _(
        "One reading of what the driver counts, of the same case on a V100 and here: tensors, what the allocator "
        "keeps in reserve, the GPU's context and libraries."
    )
    titles = columns(_("Run"), _("Case"), numeric=(_("Published memory (MiB)"), _("Measured memory (MiB)")))
    return [
        Section(
            "memory",
            _("Memory beside the published"),
            (Text(text), Table("memory", (*titles, *columns(_("At or below the published"))), tuple(rows))),
        )
    ]
