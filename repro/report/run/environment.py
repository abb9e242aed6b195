"""The sections of a run's report on where it ran: machine, code, reported versions, and the nodes of its attempts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from repro.analysis.process_info import readable
from repro.report.document import Section, Table, Text
from repro.report.tables import columns, words
from repro.runs.attempts import AttemptRecord
from repro.runs.description import BaselineProgram
from repro.runs.environment import Environment, RankMachine
from repro.runs.plan import Plan
from repro.utils.i18n import Counted, Translate


def environment_section(
    _: Translate, environment: Environment, starts: dict[str, dict], baseline: BaselineProgram | None = None
) -> Section:
    """The machine or the nodes as they were when the run was planned, and each program's versions as it reported them.

    Of the controller of a cluster, where no rank runs, there is only what decides what it planned. `baseline` is how
    baselines were started.
    """
    locks = tuple((f"SHA-256 {name}", f"`{value}`") for name, value in environment.locks_sha256.items())
    ran_with = (
        *_stack(_, environment.stack),
        *_cache(_, environment.jit_cache),
        *(
            [(_("Operators compared with the CPU"), kernels_text(_, environment.kernels))]
            if environment.kernels
            else []
        ),
        *_baseline(_, baseline),
    )
    own = ((_("Controller's Python"), environment.controller_python), *locks)
    if environment.cluster:
        controller = ((_("Host"), environment.host), *own)
        tables = [
            _table(_, "environment", (*_cluster(_, environment), *ran_with), _("Nodes and set-up:")),
            _table(_, "controller", controller, _("Controller, which starts the ranks and runs none of them:")),
        ]
    else:
        tables = [_table(_, "environment", (*_machine(_, environment), *ran_with, *own), _("Machine and set-up:"))]
    return Section("environment", _("Environment"), (*tables, *([_programs(_, starts)] if starts else [])))


def _table(_: Translate, name: str, rows: Iterable[tuple[str, str]], caption: str) -> Table:
    return Table(name, columns(_("Item"), _("Value")), tuple(words(*row) for row in rows), caption)


def _machine(_: Translate, environment: Environment) -> list[tuple[str, str]]:
    """The one machine that the ranks ran on."""
    gpus = [_gpu(gpu) for gpu in environment.gpus]
    processor = _("{model}; logical CPUs: {count}, usable: {usable}").format(
        model=environment.cpu, count=environment.cpu_count, usable=environment.cpu_affinity
    )
    return [
        (_("Host"), environment.host),
        (_("System"), f"{environment.system}, Linux {environment.kernel}"),
        (_("Processor"), processor),
        (_("Memory"), f"{environment.memory_mib} MiB"),
        ("GPU", ", ".join(gpus) or _("none")),
        *([(_("Driver"), environment.gpus[0]["driver_version"])] if gpus else []),
        *_runtime(_, environment.runtime),
    ]


def _cluster(_: Translate, environment: Environment) -> list[tuple[str, str]]:
    """The nodes that the ranks ran on, each value once, and how ranks start there."""
    cluster, nodes = environment.cluster or {}, environment.nodes
    machines = [RankMachine.of_node(node["fields"]) for node in nodes.values()]
    gpus = Counter(_gpu(gpu) for gpu in environment.gpus)
    facts = {
        _("System"): [machine.system for machine in machines],
        _("Processor"): [machine.processor for machine in machines],
        _("Memory"): [machine.memory for machine in machines],
        "GPU": [f"{count} × {gpu}" for gpu, count in gpus.items()] or ([_("none")] if nodes else []),
        _("Driver"): [gpu.get("driver_version", "") for gpu in environment.gpus],
    }
    value_of = {item: "; ".join(dict.fromkeys(filter(None, values))) for item, values in facts.items()}
    network = f"`{cluster['interface']}`" + (f", InfiniBand `{cluster['hca']}`" if cluster["hca"] else "")
    image = cluster["image"]
    runtime = cluster.get("runtime", "docker")
    identity = f"SHA-256 {image['sha256']}" if image.get("file") else image["digest"]
    ran = f"`{image['name']}` {identity} ({runtime})" if cluster["containers"] else _("none: the ranks ran from a venv")
    return [
        (_("Cluster"), cluster["name"]),
        (_("Node names"), ", ".join(nodes) or _("not known: no fingerprint was taken")),
        *((item, value) for item, value in value_of.items() if value),
        (_("Network"), network),
        (_("Image"), ran),
    ]


def _gpu(gpu: Mapping[str, str]) -> str:
    memory = gpu.get("memory.total")
    return f"{gpu['name']} ({memory} MiB)" if memory else gpu["name"]


def _runtime(_: Translate, runtime: Mapping | None) -> list[tuple[str, str]]:
    """The image that the ranks of one machine ran in."""
    if not runtime:
        return []
    identity = runtime.get("id") or f"SHA-256 {runtime['sha256']}"
    return [(_("Image"), f"`{runtime['image']}` {identity} ({runtime['version']})")]


def _stack(_: Translate, stack: Mapping | None) -> list[tuple[str, str]]:
    """Libraries and settings for OneFlow besides its wheel; baselines only get NCCL's settings."""
    if not stack:
        return []
    given = [f"`{name}={value}`" for name, value in stack.get("environment", {}).items()]
    notes = "; ".join(f"`{note}`" for note in stack.get("notes", ()))
    return [
        (_("OneFlow software stack"), f"{stack['name']} ({notes})" if notes else stack["name"]),
        *([(_("Environment of the stack"), ", ".join(given))] if given else []),
    ]


def _cache(_: Translate, cache: Mapping | None) -> list[tuple[str, str]]:
    """Warm or cold: it decides the time to the first row, not the throughput."""
    if not cache:
        return []
    state = _("warm, {mib} MiB in `{path}`") if cache["warm"] else _("not known to be warm, {mib} MiB in `{path}`")
    return [(_("Cache of compiled GPU code at the start"), state.format(mib=cache["mib"], path=cache["path"]))]


def kernels_text(_: Translate, kernels: Mapping | None) -> str:
    """What `repro.launch.kernels.Kernels.record` kept of the comparison of a GPU with the CPU; empty without one."""
    if not kernels:
        return ""
    largest = ", ".join(f"{error:.1e} ({precision})" for precision, error in kernels["largest"].items())
    text = _("{count}, results and gradients; largest relative error: {largest}")
    parts = [text.format(count=kernels["operators"], largest=largest)]
    if kernels["wrong"]:
        wrong = "; ".join(f"`{operator}`" for operator in kernels["wrong"])
        parts.append(_("wrong: {operators}").format(operators=wrong))
    return "; ".join(parts)


def commit_text(_: Translate, environment: Environment) -> str:
    """The commit that a run was made from, shortened, and whether files differed from it."""
    commit, changed = environment.commit[:12], environment.git_changed_files
    return (
        _("{commit} with {n:changed file|changed files}").format(commit=commit, n=Counted(changed))
        if changed
        else commit
    )


def _baseline(_: Translate, baseline: BaselineProgram | None) -> list[tuple[str, str]]:
    """The environment of the baselines: pinned by a lock of this project, or one that the user named."""
    if not baseline:
        return []
    by_hash = _("`{lock}`, by hash, in image `{image}`") if baseline.image else _("`{lock}`, by hash")
    own = _("the user's: `{python}`").format(python=baseline.command[0])
    ours = by_hash.format(lock=baseline.lock, image=baseline.image)
    return [(_("Environment of the baselines"), ours if baseline.lock else own)]


def _programs(_: Translate, starts: dict[str, dict]) -> Table:
    """One column per program; libraries are the files that its process had loaded."""
    reported = {name: _reported(_, start) for name, start in starts.items()}
    items = dict.fromkeys(item for facts in reported.values() for item in facts)
    rows = tuple(words(item, *(facts.get(item, "–") for facts in reported.values())) for item in items)
    caption = _("Versions and libraries that each program reported:")
    return Table("programs", columns(_("Item"), *reported), rows, caption)


def _reported(_: Translate, start: dict) -> dict[str, str]:
    versions = {name: str(value) for name, value in sorted(readable(start.get("versions") or {}).items()) if value}
    settings = {name: _("yes") if value else _("no") for name, value in (start.get("settings") or {}).items()}
    files = [Path(path).name for path in start.get("libraries", ())]
    return {**versions, **settings, **({_("Libraries"): ", ".join(files)} if files else {})}


def nodes_section(_: Translate, plan: Plan, attempts: list[AttemptRecord]) -> list[Section]:
    """The nodes that each configuration ran on, and how often beside others; nothing if no attempts ran side by side."""
    if not any(attempt.beside for attempt in attempts if attempt.nodes):
        return []
    rows = []
    for unit in plan.units:
        own = [attempt for attempt in attempts if attempt.unit == unit.name]
        names = dict.fromkeys(", ".join(attempt.nodes) for attempt in own if attempt.nodes)
        beside = [len(attempt.beside) for attempt in own]
        count = _("{n} of {all}").format(n=sum(map(bool, beside)), all=len(own))
        rows.append(words(unit.name, "; ".join(names) or "–", count, str(max(beside, default=0))))
    text = _(
        "Attempts ran at the same time, each on nodes of its own. Only one at a time communicated between nodes, so "
        "none shared GPUs, processors or the network with another. `attempts.jsonl` has the nodes of every attempt "
        "and what ran at the same time; `SIDE_BY_SIDE=0` runs one attempt at a time."
    )
    titles = columns(_("Configuration"), _("Ran on"), numeric=(_("Attempts with others"), _("Most others at once")))
    return [Section("nodes", _("Nodes of the attempts"), (Text(text), Table("nodes", titles, tuple(rows))))]
