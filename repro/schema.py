"""What a case file may say: its keys, the kind and bounds of each value, and what must agree with what."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator

Check = Callable[[object], "str | None"]  # the reason a value is refused, or None

TRANSFORMER = ("seq_length", "vocab_size", "layers", "hidden_size", "attention_heads")
SHAPES = {"gpt": TRANSFORMER, "bert": (*TRANSFORMER, "max_predictions"), "resnet50": ("image_size", "classes")}
RULES = {"mean_rows": ("skip_first",), "stamps": ("first_row", "last_row"), "last_rows": ("rows",)}
OPTIMIZERS = {"adamw": ("betas", "eps"), "sgd": ("momentum",)}
SCHEDULES = {
    "constant": (),
    "cosine": ("decay_iterations", "min_lr"),
    "polynomial": ("decay_iterations", "min_lr", "power"),
}
REGULARISATION = {"gpt": "dropout", "bert": "dropout", "resnet50": "label_smoothing"}


def whole(least: int) -> Check:
    """A whole number of at least `least`."""

    def check(value: object) -> str | None:
        fits = type(value) is int and value >= least
        return None if fits else f"is {value!r}; must be a whole number of at least {least}"

    return check


def number(meaning: str, fits: Callable[[float], bool]) -> Check:
    """A finite number that `fits`; `meaning` says in words what that is."""

    def check(value: object) -> str | None:
        finite = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return None if finite and fits(value) else f"is {value!r}; must be a number {meaning}"

    return check


def text(pattern: str = r"(?s)\S.*", meaning: str = "a text") -> Check:
    """A text that matches `pattern` as a whole; `meaning` says in words what that is."""
    matches = re.compile(pattern).fullmatch

    def check(value: object) -> str | None:
        return None if isinstance(value, str) and matches(value) else f"is {value!r}; must be {meaning}"

    return check


def one_of(*allowed: object) -> Check:
    """One of a few values of the same type."""

    def check(value: object) -> str | None:
        fits = type(value) is type(allowed[0]) and value in allowed
        return None if fits else f"is {value!r}; allowed: {', '.join(map(str, allowed))}"

    return check


def listed(item: Check, length: int | None = None) -> Check:
    """A list of at least one value, or of exactly `length`, each of which passes `item`."""

    def check(value: object) -> str | None:
        if not isinstance(value, list) or not value or (length and len(value) != length):
            return f"is {value!r}; must be a list of {length or 'one or more'} values"
        return next((f"value {place} {reason}" for place, each in enumerate(value, 1) if (reason := item(each))), None)

    return check


def table(value: object) -> str | None:
    """Any table."""
    return None if isinstance(value, dict) else f"is {value!r}; must be a table"


FLAG, NAME = one_of(True, False), text(r"[A-Za-z0-9_.-]+", "letters, digits, '_', '.' and '-'")
ABOVE_0, LEAST_0 = number("above 0", lambda value: value > 0), number("of at least 0", lambda value: value >= 0)
SHARE = number("from 0 to 1", lambda value: 0 <= value <= 1)

FILE = {"report": table, "rule": table, "defaults": table, "case": listed(table)}
FILE_OPTIONAL = {"unstated": listed(table), "stray": listed(table), "also_printed": listed(table)}
REPORT = {
    "id": NAME,
    "model": one_of(*SHAPES),
    "date": text(r"\d{4}-\d\d-\d\d", "a date, YYYY-MM-DD"),
    "language": one_of("en", "zh"),
    "title_printed": text(),
    "title": table,
    "precision": one_of("fp32", "amp"),
    "log_generation": one_of("A", "B", "C", "D", "E"),
    "cluster": NAME,
    "oneflow": text(),
    "trainer": table,
    "source": text(),
    "settings_source": listed(text()),
    "environment": table,
    "claims": table,
    "settings": table,
}
REPORT_OPTIONAL = {"repeats_source": text()}
TITLE = dict.fromkeys(("en", "zh"), text())
TRAINER = dict.fromkeys(("repository", "path", "commit", "printed"), text())
UNSTATED = dict.fromkeys(("key", "reason"), text())
STRAY = {**dict.fromkeys(("nodes", "gpus_per_node", "micro_batch"), whole(1)), "throughput": ABOVE_0, "source": text()}
ALSO_PRINTED = {"what": text(), "source": text(), "columns": listed(text()), "rows": listed(listed(lambda _: None))}
RULE = {"kind": one_of(*RULES), "repeats": whole(1), "stated": FLAG, "source": text()}
RULE_KEYS = {"skip_first": whole(0), "first_row": whole(1), "last_row": whole(2), "rows": whole(1)}
CASE = {
    "name": NAME,
    "source": text(),
    "layout": listed(whole(1), 3),
    **dict.fromkeys(("nodes", "gpus_per_node", "micro_batch", "accumulation_steps", "global_batch"), whole(1)),
    **dict.fromkeys(("iterations", "log_interval"), whole(1)),
    "activation_checkpointing": FLAG,
    "optimizer_sharding": one_of(0, 1, 2, 3),
    **dict.fromkeys(("shape", "training", "published"), table),
}
CASE_OPTIONAL = {"printed": table}
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


class Findings:
    """The faults found in one file, each once, a line each: file, place, key, reason."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.said = 0
        self.lines: dict[str, None] = {}

    def say(self, place: str, key: str, reason: str) -> None:
        self.said += 1
        self.lines[f"{self.file}: {place}: {key}: {reason}"] = None

    def keys(self, where, values, required: dict, optional: dict | None = None, prefix: str = "") -> None:
        """Check a table's keys and values; `where` is its place, or a function from a key to its place."""
        if not isinstance(values, dict):
            return
        place = where if callable(where) else lambda _: where
        known = {**required, **(optional or {})}
        for key, value in values.items():
            reason = known[key](value) if key in known else f"unknown key; allowed: {', '.join(known)}"
            if reason:
                self.say(place(key), prefix + key, reason)
        for key in required:
            if key not in values:
                self.say(place(key), prefix + key, "missing")


def check_file(file: str, data: dict) -> list[str]:
    """Every fault of one parsed case file; none if it may be used."""
    found = Findings(file)
    found.keys("file", data, FILE, FILE_OPTIONAL)
    if found.lines:
        return list(found.lines)
    _check_report(found, data)
    _check_rule(found, data["rule"])
    head_holds = not found.said
    for position, case in enumerate(data["case"], 1):
        place, before = f"case {case.get('name', f'number {position}')}", found.said
        _check_case(found, place, case, data["defaults"], data["report"].get("model"))
        if head_holds and found.said == before:
            full = merged(case, data["defaults"])
            for key, reason in _contradictions(full, data["report"]["model"], data["rule"]):
                found.say(place, key, reason)
    return list(found.lines)


def merged(case: dict, defaults: dict) -> dict:
    """A case with the defaults of its file filled in, key by key in `shape` and `training`."""
    full = {**defaults, **case}
    for key in ("shape", "training"):
        if isinstance(case.get(key, {}), dict) and isinstance(defaults.get(key, {}), dict):
            full[key] = {**defaults.get(key, {}), **case.get(key, {})}
    return full


def _check_report(found: Findings, data: dict) -> None:
    report = data["report"]
    found.keys("report", report, REPORT, REPORT_OPTIONAL)
    found.keys("report", report.get("title"), TITLE, prefix="title.")
    found.keys("report", report.get("trainer"), TRAINER, prefix="trainer.")
    for name, keys in (("unstated", UNSTATED), ("stray", STRAY), ("also_printed", ALSO_PRINTED)):
        for position, entry in enumerate(data.get(name, []), 1):
            found.keys(f"{name} number {position}", entry, keys)
            if name == "also_printed" and not found.said and {len(entry["columns"])} != set(map(len, entry["rows"])):
                found.say(f"{name} number {position}", "rows", f"each must have {len(entry['columns'])} values")


def _check_rule(found: Findings, rule: dict) -> None:
    found.keys("rule", rule, {**RULE, **_keys_of(RULES, rule.get("kind"), RULE_KEYS)})
    if rule.get("kind") == "stamps" and not found.said and rule["last_row"] <= rule["first_row"]:
        found.say("rule", "last_row", f"is {rule['last_row']}; must be above first_row, {rule['first_row']}")


def _check_case(found: Findings, place: str, case: dict, defaults: dict, model: object) -> None:
    def origin(name: str = "") -> Callable[[str], str]:
        own, common = (_below(case, name), _below(defaults, name)) if name else (case, defaults)
        return lambda key: "defaults" if key in common and key not in own else place

    full = merged(case, defaults)
    found.keys(origin(), full, CASE, CASE_OPTIONAL)
    found.keys(place, full.get("published"), PUBLISHED, PUBLISHED_OPTIONAL, prefix="published.")
    if isinstance(model, str) and model in SHAPES:
        found.keys(origin("shape"), full.get("shape"), dict.fromkeys(SHAPES[model], whole(1)), prefix="shape.")
        parts = {REGULARISATION[model]: SHARE, "optimizer": table, "schedule": table}
        found.keys(origin("training"), full.get("training"), parts, prefix="training.")
    part_origin, training = origin("training"), _below(full, "training")
    optimizer, schedule = _below(training, "optimizer"), _below(training, "schedule")
    keys = {**OPTIMIZER, **_keys_of(OPTIMIZERS, optimizer.get("name"), OPTIMIZER_KEYS)}
    found.keys(part_origin("optimizer"), optimizer, keys, {"clip_norm": ABOVE_0}, prefix="training.optimizer.")
    keys = {**SCHEDULE, **_keys_of(SCHEDULES, schedule.get("kind"), SCHEDULE_KEYS)}
    found.keys(part_origin("schedule"), schedule, keys, prefix="training.schedule.")


def _keys_of(kinds: dict[str, tuple], kind: object, checks: dict[str, Check]) -> dict[str, Check]:
    return {key: checks[key] for key in kinds.get(kind, ())} if isinstance(kind, str) else {}


def _below(values: dict, key: str) -> dict:
    below = values.get(key)
    return below if isinstance(below, dict) else {}


def _contradictions(case: dict, model: str, rule: dict) -> Iterator[tuple[str, str]]:
    data, tensor, pipeline = case["layout"]
    ranks, gpus = data * tensor * pipeline, case["nodes"] * case["gpus_per_node"]
    if ranks != gpus:
        yield "layout", (
            f"{data}x{tensor}x{pipeline} is {ranks} ranks, but nodes x gpus_per_node is {gpus}; both must be equal"
        )
    batch = case["micro_batch"] * data * case["accumulation_steps"]
    if case["global_batch"] != batch:
        yield "global_batch", (
            f"is {case['global_batch']}; must be micro_batch x data parallel size x accumulation_steps, {batch}"
        )
    if model == "resnet50":
        if tensor * pipeline > 1:
            yield "layout", f"{data}x{tensor}x{pipeline}: resnet50 is data parallel only, allowed: {gpus}x1x1"
    else:
        yield from _indivisible(case["shape"], tensor, pipeline)
    repeats = case["published"].get("repeats")
    if repeats and len(repeats) != rule["repeats"]:
        yield "published.repeats", f"has {len(repeats)} values; must have {rule['repeats']}, as rule.repeats says"
    printed = case["iterations"] // case["log_interval"]
    needed = rule.get("last_row") or rule.get("rows") or rule["skip_first"] + 1
    if printed < needed:
        yield "iterations", f"give {printed} printed rows; the rule {rule['kind']} needs at least {needed}"


def _indivisible(shape: dict, tensor: int, pipeline: int) -> Iterator[tuple[str, str]]:
    layers, heads, hidden = shape["layers"], shape["attention_heads"], shape["hidden_size"]
    if layers % pipeline:
        yield "shape.layers", f"is {layers}; must be a multiple of the pipeline parallel size, {pipeline}"
    if heads % tensor:
        yield "shape.attention_heads", f"is {heads}; must be a multiple of the tensor parallel size, {tensor}"
    if hidden % heads:
        yield "shape.hidden_size", f"is {hidden}; must be a multiple of attention_heads, {heads}"
