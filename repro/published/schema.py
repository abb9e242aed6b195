"""Schema of case files: keys, type and bounds of each value, and consistency between values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from repro.models import registry
from repro.models.spec import ModelSpec
from repro.published.log_formats import LETTERS
from repro.published.rules import Rule, kinds, rule_of
from repro.published.validators import Check, Faults, any_table, cell, listed, number, one_of, text, whole

LISTED = 20  # names a message lists at most
OPTIMIZERS = {"adamw": ("betas", "eps"), "sgd": ("momentum",)}
SCHEDULES = {
    "constant": (),
    "cosine": ("decay_iterations", "min_lr"),
    "polynomial": ("decay_iterations", "min_lr", "power"),
}

FLAG, NAME = one_of(True, False), text(r"[A-Za-z0-9_.-]+", "letters, digits, '_', '.' and '-'")
ABOVE_0, LEAST_0 = number("above 0", lambda value: value > 0), number("of at least 0", lambda value: value >= 0)
SHARE = number("from 0 to 1", lambda value: 0 <= value <= 1)

FILE = {"report": any_table, "rule": any_table, "defaults": any_table, "case": listed(any_table)}
REPORT = {
    "id": NAME,
    "model": lambda value: one_of(*registry.names())(value),
    "date": text(r"\d{4}-\d\d-\d\d", "a date, YYYY-MM-DD"),
    "language": one_of("en", "zh"),
    "title_printed": text(),
    "title": any_table,
    "precision": one_of("fp32", "amp"),
    "cluster": NAME,
    "framework": text(),
    "version": text(),
    "trainer": any_table,
    "source": text(),
    "settings_source": listed(text()),
    "environment": any_table,
    "claims": any_table,
    "settings": any_table,
}
REPORT_OPTIONAL = {
    "family": NAME,
    "log_generation": one_of(*LETTERS),
    "repeats_source": text(),
    "source_commit": text(r"[0-9a-f]{40}", "a commit in full, 40 hexadecimal digits"),
}
TITLE = dict.fromkeys(("en", "zh"), text())
TRAINER = dict.fromkeys(("repository", "path", "commit", "printed"), text())
UNSTATED = dict.fromkeys(("key", "reason"), text())
STRAY = {**dict.fromkeys(("nodes", "gpus_per_node", "micro_batch"), whole(1)), "throughput": ABOVE_0, "source": text()}
ALSO_PRINTED = {"what": text(), "source": text(), "columns": listed(text()), "rows": listed(listed(cell))}
ENTRIES = {
    "unstated": (UNSTATED, {}),
    "stray": (STRAY, {}),
    "also_printed": (ALSO_PRINTED, {"same_run": FLAG}),
    "heading": ({"table": text(), "columns": listed(text())}, {}),
    "quoted": (dict.fromkeys(("place", "text"), text()), {}),
}
FILE_OPTIONAL = {**dict.fromkeys(ENTRIES, listed(any_table)), "table": any_table}
RESULTS = {"columns": listed(text())}
RESULTS_OPTIONAL = {"by": one_of("micro_batch"), "titles": any_table}
RULE = {
    "kind": lambda value: one_of(*kinds())(value),
    "repeats": whole(1),
    "stated": FLAG,
    "source": text(),
}
CASE = {
    "name": NAME,
    "source": text(),
    "layout": listed(whole(1), 3),
    **dict.fromkeys(("nodes", "gpus_per_node", "micro_batch", "accumulation_steps", "global_batch"), whole(1)),
    **dict.fromkeys(("iterations", "log_interval"), whole(1)),
    "activation_checkpointing": FLAG,
    "optimizer_sharding": one_of(0, 1, 2, 3),
    **dict.fromkeys(("shape", "training", "published"), any_table),
}
CASE_OPTIONAL = {"printed": any_table, "label": text()}
PUBLISHED = {"throughput": ABOVE_0}
PUBLISHED_OPTIONAL = {
    **dict.fromkeys(("latency_ms", "memory_mib", "speedup"), ABOVE_0),
    "gpu_utilisation": number("from 0 to 100", lambda value: 0 <= value <= 100),
    "repeats": listed(ABOVE_0),
}
OPTIMIZER = {"name": one_of(*OPTIMIZERS), "lr": ABOVE_0, "weight_decay": LEAST_0}
OPTIMIZER_KEYS = {"betas": listed(SHARE, 2), "eps": ABOVE_0, "momentum": SHARE}
SCHEDULE = {"kind": one_of(*SCHEDULES), "warmup_iterations": whole(0)}
SCHEDULE_KEYS = {"decay_iterations": whole(1), "min_lr": LEAST_0, "power": ABOVE_0}


def check_file(file: str, data: dict) -> list[str]:
    """Every fault of one parsed case file; none if it may be used."""
    findings = Faults(file)
    findings.keys("file", data, FILE, FILE_OPTIONAL)
    if findings.lines:
        return list(findings.lines)
    rule_holds = _check_rule(findings, data["rule"])
    _check_report(findings, data)
    model, rule = data["report"].get("model"), rule_of(data["rule"]) if rule_holds else None
    for position, case in enumerate(data["case"], 1):
        place = f"case {case.get('name', f'number {position}')}"
        _check_case(findings, place, case=case, defaults=data["defaults"], model=model)
        for key, reason in _contradictions(merged(case, data["defaults"]), model, rule):
            findings.say(place, key, reason)
    return list(findings.lines)


def merged(case: dict, defaults: dict) -> dict:
    """A case with the defaults of its file filled in, key by key in `shape` and `training`."""
    full = {**defaults, **case}
    for key in ("shape", "training"):
        if isinstance(case.get(key, {}), dict) and isinstance(defaults.get(key, {}), dict):
            full[key] = {**defaults.get(key, {}), **case.get(key, {})}
    return full


def _check_report(findings: Faults, data: dict) -> None:
    report = data["report"]
    findings.keys("report", report, REPORT, REPORT_OPTIONAL)
    findings.keys("report", report.get("title"), TITLE, prefix="title.")
    findings.keys("report", report.get("trainer"), TRAINER, prefix="trainer.")
    findings.keys("table", data.get("table"), RESULTS, RESULTS_OPTIONAL)
    for column, titles in _below(_below(data, "table"), "titles").items():
        findings.keys("table", titles, TITLE, prefix=f"titles.{column}.")
    for name, (keys, optional) in ENTRIES.items():
        for position, entry in enumerate(data.get(name, []), 1):
            holds = findings.keys(f"{name} number {position}", entry, keys, optional)
            if holds and name == "also_printed" and {len(entry["columns"])} != set(map(len, entry["rows"])):
                findings.say(f"{name} number {position}", "rows", f"each must have {len(entry['columns'])} values")


def _check_rule(findings: Faults, rule: dict) -> bool:
    kind = kinds().get(str(rule.get("kind")))
    holds = findings.keys("rule", rule, {**RULE, **(kind.keys if kind else {})})
    if holds and kind and (fault := kind.fault(rule)):
        findings.say("rule", *fault)
    return holds


def _check_case(findings: Faults, place: str, case: dict, defaults: dict, model: object) -> None:
    def origin(name: str = "") -> Callable[[str], str]:
        own, common = (_below(case, name), _below(defaults, name)) if name else (case, defaults)
        return lambda key: "defaults" if key in common and key not in own else place

    full = merged(case, defaults)
    findings.keys(origin(), full, CASE, CASE_OPTIONAL)
    findings.keys(place, full.get("published"), PUBLISHED, PUBLISHED_OPTIONAL, prefix="published.")
    if spec := _spec(model):
        findings.keys(origin("shape"), full.get("shape"), dict.fromkeys(spec.shape_keys, whole(1)), prefix="shape.")
        parts = {spec.regularisation: SHARE, "optimizer": any_table, "schedule": any_table}
        findings.keys(origin("training"), full.get("training"), parts, prefix="training.")
    part_origin, training = origin("training"), _below(full, "training")
    optimizer, schedule = _below(training, "optimizer"), _below(training, "schedule")
    keys = {**OPTIMIZER, **_keys_of(OPTIMIZERS, optimizer.get("name"), OPTIMIZER_KEYS)}
    findings.keys(part_origin("optimizer"), optimizer, keys, {"clip_norm": ABOVE_0}, prefix="training.optimizer.")
    keys = {**SCHEDULE, **_keys_of(SCHEDULES, schedule.get("kind"), SCHEDULE_KEYS)}
    findings.keys(part_origin("schedule"), schedule, keys, prefix="training.schedule.")


def _spec(model: object) -> ModelSpec | None:
    """The specification of the model that a file names, None if there is none."""
    return registry.spec_of(model) if isinstance(model, str) and model in registry.names() else None


def _keys_of(kinds: dict[str, tuple], kind: object, checks: dict[str, Check]) -> dict[str, Check]:
    return {key: checks[key] for key in kinds.get(kind, ())} if isinstance(kind, str) else {}


def _below(values: dict, key: str) -> dict:
    below = values.get(key)
    return below if isinstance(below, dict) else {}


def _contradictions(case: dict, model: object, rule: Rule | None) -> Iterator[tuple[str, str]]:
    """Faults in combinations of values; only looks at keys that are valid by themselves."""

    def hold(*keys: str) -> bool:
        return all(key in case and CASE[key](case[key]) is None for key in keys)

    if hold("layout", "nodes", "gpus_per_node"):
        yield from _wrong_ranks(case, model)
    if hold("layout", "micro_batch", "accumulation_steps", "global_batch"):
        batch = case["micro_batch"] * case["layout"][0] * case["accumulation_steps"]
        if case["global_batch"] != batch:
            formula = "micro_batch x data parallel size x accumulation_steps"
            yield "global_batch", f"is {case['global_batch']}; must be {formula}, {batch}"
    spec = _spec(model)
    if hold("layout", "shape") and spec and "attention_heads" in spec.shape_keys:
        yield from _indivisible(case["shape"], *case["layout"][1:])
    if rule and hold("iterations", "log_interval"):
        printed = case["iterations"] // case["log_interval"]
        if printed < rule.least_rows:
            yield "iterations", f"give {printed} printed rows; the rule {rule.kind} needs at least {rule.least_rows}"
    repeats = _below(case, "published").get("repeats")
    if rule and repeats and isinstance(repeats, list) and len(repeats) != rule.repeats:
        yield "published.repeats", f"has {len(repeats)} values; must have {rule.repeats}, as rule.repeats says"


def _wrong_ranks(case: dict, model: object) -> Iterator[tuple[str, str]]:
    data, tensor, pipeline = case["layout"]
    layout, ranks, gpus = f"{data}x{tensor}x{pipeline}", data * tensor * pipeline, case["nodes"] * case["gpus_per_node"]
    if ranks != gpus:
        yield "layout", f"{layout} is {ranks} ranks, but nodes x gpus_per_node is {gpus}; both must be equal"
    spec = _spec(model)
    foreign = [
        axis
        for axis, size in (("tensor", tensor), ("pipeline", pipeline))
        if spec and axis not in spec.axes and size > 1
    ]
    if spec and foreign:
        only = "data parallel only" if spec.axes == ("data",) else f"not {' or '.join(foreign)} parallel"
        yield "layout", f"{layout}: {spec.name} is {only}, allowed: {gpus}x1x1"


def _indivisible(shape: dict, tensor: int, pipeline: int) -> Iterator[tuple[str, str]]:
    for key, divisor, meaning in (
        ("layers", pipeline, "the pipeline parallel size"),
        ("attention_heads", tensor, "the tensor parallel size"),
        ("hidden_size", shape.get("attention_heads"), "attention_heads"),
    ):
        value = shape.get(key)
        if isinstance(value, int) and isinstance(divisor, int) and min(value, divisor) > 0 and value % divisor:
            yield f"shape.{key}", f"is {value}; must be a multiple of {meaning}, {divisor}"


def taken_twice(files: dict[str, dict]) -> Iterator[str]:
    """One fault per report id or case name that occurs twice, in one or several valid files."""
    ids: dict[str, str] = {}
    names: dict[str, tuple[str, int]] = {}
    for file, data in files.items():
        identity, first = data["report"]["id"], ids.setdefault(data["report"]["id"], file)
        if first != file:
            yield f"{file}: report: id: {identity!r} is the id of {first} too; ids must differ"
        for position, case in enumerate(data["case"], 1):
            earlier = names.setdefault(case["name"], (file, position))
            if earlier != (file, position):
                other = f"case number {earlier[1]} of {earlier[0]}"
                yield f"{file}: case {case['name']}: name: is the name of {other} too; names must differ"


def unknown_cases(files: dict[str, dict]) -> Iterator[str]:
    """A fault for every case which a table of sound files names and no file has."""
    names = [case["name"] for data in files.values() for case in data["case"]]
    for file, data in files.items():
        for entry in data.get("also_printed", ()):
            column = entry["columns"].index("case") if "case" in entry["columns"] else None
            for row in entry["rows"] if column is not None else ():
                if row[column] not in names:
                    yield f"{file}: also_printed {entry['what']}: case: {unknown(row[column], names, 'case')}"


def unknown(name: object, known_names: Iterable[str], what: str) -> str:
    """Say that a name is unknown, what may have been meant, and which names exist."""
    import difflib

    known_names = list(known_names)
    core = max(re.split(r"[*?\[\]]", str(name).lower()), key=len)
    close = [candidate for candidate in known_names if core and core in candidate.lower()] or difflib.get_close_matches(
        core, known_names
    )
    hint = f"; did you mean {' or '.join(close[:4])}?" if close else "."
    there_are = (
        ", ".join(known_names) if len(known_names) <= LISTED else f"{len(known_names)}, and `make cases` prints them"
    )
    return f"no {what} {name!r}{hint} There are: {there_are}"
