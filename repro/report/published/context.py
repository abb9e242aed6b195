"""Sections of a published report other than its figures: environment, settings, measuring rule, unstated values,
sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from repro.models.registry import spec_of
from repro.report.document import Cell, Code, Items, Section, Table, Text
from repro.report.published.tables import Sheet
from repro.report.run.bench import rule_text
from repro.report.tables import Field, columns, count, decimals, table, words
from repro.utils.i18n import N_, Translate

ENVIRONMENT = {
    "gpus": N_("GPU"),
    "network": N_("Network"),
    "cpu": N_("Processor"),
    "memory": N_("Memory"),
    "os": N_("System"),
    "driver": N_("Driver"),
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "python": "Python",
    "wheel": N_("OneFlow wheel"),
    "wheel_branch": N_("Branch of the wheel"),
    "wheel_commit": N_("Commit of the wheel"),
    "oneflow_commit": N_("OneFlow commit"),
}
SETTINGS = {
    "data": N_("Data"),
    "data_parts": N_("Data parts"),
    "validation_batch_size": N_("Validation batch size"),
    "epochs": N_("Epochs"),
    "node_addresses": N_("Node addresses"),
    "max_positions": N_("Longest sequence"),
    "token_types": N_("Token types"),
    "init_std": N_("Standard deviation of initial weights"),
    "seed": N_("Seed"),
    "query_key_layer_scaling": N_("Query-key layer scaling"),
    "fused_multihead_attention": N_("Fused multi-head attention"),
    "fused_bias_gelu": N_("Fused bias and GELU"),
    "fused_bias_dropout": N_("Fused bias and dropout"),
    "fused_scale_tril_softmax_dropout": N_("Fused scale, mask, softmax and dropout"),
    "loss_scale": N_("Loss scale"),
    "rdma": "RDMA",
    "nccl_on_compute_stream": N_("NCCL on the compute stream"),
    "memory_reading": N_("How memory was read"),
    "sharding_flag": N_("Sharding switch"),
}
SHAPE = {
    "seq_length": N_("sequence length"),
    "max_predictions": N_("masked predictions per sequence"),
    "vocab_size": N_("vocabulary"),
    "layers": N_("layers"),
    "hidden_size": N_("hidden size"),
    "attention_heads": N_("attention heads"),
    "image_size": N_("image size"),
    "classes": N_("classes"),
}


def environment(sheet: Sheet) -> Section:
    """Hardware and software as printed; what the report omits is taken from other reports on the same cluster."""
    _, report = sheet._, sheet.report
    cluster = sheet.result.material.cluster(report)
    hardware = cluster["hardware"]
    cluster_facts = {**hardware, **cluster["software"], "gpus": f"{hardware['gpu']} x {hardware['gpus_per_node']}"}
    own, others = _("this report"), _("other reports on the same cluster")
    rows: list[tuple[Cell, ...]] = [
        (Cell(_("Nodes")), Cell(str(report.claims.get("nodes", cluster_facts["nodes"]))), Cell(own))
    ]
    for key, title in ENVIRONMENT.items():
        if key in report.environment:
            rows.append((Cell(_(title)), _printed(sheet, key), Cell(own)))
        elif key in cluster_facts:
            rows.append((*words(_(title), str(cluster_facts[key])), Cell(others, tone="muted")))
    rows.append(
        (
            Cell(report.framework),
            sheet.cell("environment", "", "oneflow", f"`{report.version}`"),
            Cell(_source_of(sheet, "report.version")),
        )
    )
    trainer = report.trainer
    rows.append((Cell(_("Trainer")), Cell(f"`{trainer['repository']}`, `{trainer['path']}`"), Cell(own)))
    rows.append(
        (
            Cell(_("Trainer version, as printed")),
            sheet.cell("environment", "", "trainer", f"`{trainer['printed']}`"),
            Cell(own),
        )
    )
    if report.ported:
        rows.append(
            (
                Cell(_("Trainer version used here")),
                Cell(f"`{trainer['commit']}`"),
                Cell(_source_of(sheet, "report.trainer")),
            )
        )
    titles = columns(_("Item"), _("Value"), _("Source"))
    printed = Table("environment", titles, tuple(rows), _("Hardware and software:"))
    return Section("environment", _("Environment"), (printed, *_topology(sheet)))


def _printed(sheet: Sheet, key: str) -> Cell:
    findings = sheet.result.at(sheet.report.id, "environment", "", key)
    broken = next((finding.recomputed for finding in findings if finding.kind == "editorial"), None)
    text = (broken or sheet.report.environment[key]).replace("， ", ", ")
    return sheet.cell("environment", "", key, text)


def _source_of(sheet: Sheet, key: str) -> str:
    _ = sheet._
    unstated = any(entry["key"].startswith(key) for entry in sheet.report.unstated)
    return _("see “Not stated in the report”") if unstated else _("this report")


def _topology(sheet: Sheet) -> Iterator[Text | Table | Items]:
    _, report = sheet._, sheet.report
    topology = sheet.result.material.cluster(report).get("topology")
    if topology is None:
        return
    if report.environment.get("topology"):
        yield Text(_("Node topology, by `nvidia-smi topo -m`:"))
    else:
        yield Text(
            _(
                "This report does not print a topology. This is the topology of the same cluster's nodes, by "
                "`nvidia-smi topo -m`, from the other reports:"
            )
        )
    devices = topology["devices"]
    rows = tuple(
        words(device, *links, affinity or "–")
        for device, links, affinity in zip(devices, topology["links"], topology["cpu_affinity"], strict=True)
    )
    titles = columns(_("Device"), *devices, _("CPU affinity"))
    yield Table("topology", titles, rows, _("Links between a node's devices:"))
    yield Items(tuple(f"`{name}`: {_(meaning)}" for name, meaning in topology["legend"].items()))


def settings(sheet: Sheet) -> Section:
    """Model and training settings, from the cases and from the report's further settings."""
    _, rows = sheet._, []
    for title, text in _settings(sheet):
        rows.append(words(_(title), text))
    for key, value in sheet.report.settings.items():
        rows.append(words(_(SETTINGS.get(key, key)), _value(_, value)))
    if "xla" in sheet.report.claims:
        rows.append(words("XLA", _value(_, sheet.report.claims["xla"])))
    note = Text(_("Values that the report does not print are listed below with their sources."))
    settled = Table("settings", columns(_("Item"), _("Value")), tuple(rows))
    return Section("settings", _("Settings"), (note, settled))


def _settings(sheet: Sheet) -> Iterator[tuple[str, str]]:
    _, cases = sheet._, sheet.cases
    first, same = cases[0], len({tuple(case.shape.items()) for case in cases}) == 1
    shape = {key: value for key, value in first.shape.items() if same or key in ("seq_length", "vocab_size")}
    sizes = _("; ").join(f"{_(SHAPE.get(key, key))} {value}" for key, value in shape.items())
    yield N_("Model"), sizes if same else _("{shape}; the rest varies by case").format(shape=sizes)
    spec = spec_of(first.model)
    if spec.vocabulary_block > 1:
        ranks = sorted({case.layout.tensor for case in cases})
        padded = [f"{size}: {spec.padded_vocab_size(first.shape['vocab_size'], size)}" for size in ranks]
        yield N_("Vocabulary after padding, by tensor parallel size"), _("; ").join(padded)
    yield N_("Batch size per GPU or data-parallel rank"), _several(_, (case.micro_batch for case in cases))
    yield N_("Accumulation steps"), _several(_, (case.accumulation_steps for case in cases))
    yield N_("Precision"), _("fp16 mixed precision (AMP)") if first.precision == "amp" else "fp32"
    yield N_("Activation checkpointing"), _value(_, first.activation_checkpointing)
    yield N_("Iterations"), _("{n}, a row every {interval}").format(n=first.iterations, interval=first.log_interval)
    yield from _training(_, first.training)


def _training(_: Translate, training: dict) -> Iterator[tuple[str, str]]:
    optimizer, schedule = dict(training["optimizer"]), dict(training["schedule"])
    name = {"adamw": "AdamW", "sgd": _("SGD with momentum")}[optimizer.pop("name")]
    yield N_("Optimizer"), _("; ").join([name, *(f"`{key}` {_plain(value)}" for key, value in optimizer.items())])
    kind = {"constant": N_("constant"), "cosine": N_("cosine decay"), "polynomial": N_("polynomial decay")}
    name = kind[schedule.pop("kind")]
    rest = [f"`{key}` {_plain(value)}" for key, value in schedule.items()]
    yield N_("Learning-rate schedule"), _("; ").join([_(name), *rest])
    if "dropout" in training:
        yield N_("Dropout"), _plain(training["dropout"])
    if "label_smoothing" in training:
        yield N_("Label smoothing"), _plain(training["label_smoothing"])


def _several(_: Translate, values: Iterable[object]) -> str:
    return _(", ").join(str(value) for value in dict.fromkeys(values))


def _plain(value: object) -> str:
    return ", ".join(map(_plain, value)) if isinstance(value, list) else f"{value:.8g}"


def _value(_: Translate, value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, list):
        return _(", ").join(map(str, value))
    return _(value) if isinstance(value, str) else f"{value:g}"


def rule(sheet: Sheet) -> Section:
    """How a figure was read off its logs."""
    _, measured = sheet._, sheet.report.rule
    stated = _("stated in the report") if measured.stated else _("not stated, or not fully stated, in the report")
    rows = (
        words(_("Rule"), rule_text(_, measured)),
        words(_("Stated"), stated),
        words(_("Source of the rule"), _(measured.source)),
        words(
            _("Log generation"),
            _("{letter} (this project reads the five formats A to E)").format(letter=sheet.report.log_generation)
            if sheet.report.log_generation
            else _("none that this project reads"),
        ),
    )
    return Section("rule", _("Measuring rule"), (Table("rule", columns(_("Item"), _("Value")), rows),))


def example(sheet: Sheet) -> Section | None:
    """The log that a report prints as an example."""
    _, rows = sheet._, sheet.report.also("example log")
    if not rows:
        return None
    fields = (
        Field(_("Iteration"), lambda row: row["iteration"], count),
        Field("Loss", lambda row: row["loss"], decimals(6)),
        Field(_("Top-1 accuracy"), lambda row: row["top_1"], decimals(6)),
        Field(
            _("Throughput (samples/s)"),
            lambda row: sheet.cell("example log", "", f"row-{row['iteration']}", row["throughput"]),
            numeric=True,
        ),
    )
    text = Text(
        _(
            "The report illustrates its rule with this log. The first row is excluded from the mean because its "
            "start time is inaccurate."
        )
    )
    return Section("example", _("Example log"), (text, table("example", rows, fields)))


def open_points(sheet: Sheet) -> Section:
    """Values that the report does not state, and the values used instead."""
    _ = sheet._
    entries = [(entry["key"], entry["reason"]) for entry in sheet.report.unstated]
    rows = tuple(words(f"`{key}`", _(reason)) for key, reason in entries)
    text = Text(_("Names are the keys of this project's case files."))
    titles = columns(_("Name"), _("Value used, and why"))
    return Section("open", _("Not stated in the report"), (text, Table("open", titles, rows)))


def reproduce(sheet: Sheet) -> Section | None:
    """The commands that run these cases; None where their program cannot be run here."""
    _ = sheet._
    if not sheet.report.ported:
        return None
    command = f"make bench CASES={sheet.report.id}\nmake bench CASES={sheet.cases[-1].name}"
    text = Text(
        _(
            "From the root of this repository, all cases of this report or one of them. Without a GPU they run at smoke scale, "
            "which says nothing about speed."
        )
    )
    return Section("reproduce", _("Run it yourself"), (text, Code(command)))


def sources(sheet: Sheet) -> Section:
    """Where the figures and settings come from."""
    _, report = sheet._, sheet.report
    items = [
        _("Report: `{source}`").format(source=report.source),
        *(_("Settings: {source}").format(source=_(source)) for source in report.settings_source),
    ]
    items += [_("Runs: {source}").format(source=_(report.repeats_source))] if report.repeats_source else []
    tables = [(table["what"], table["source"]) for table in report.also_printed]
    items += [_("{what}: {source}").format(what=_(what), source=_(source)) for what, source in tables]
    if "logs" in report.claims:
        items.append(_("Logs, as the report names them: `{address}`").format(address=report.claims["logs"]))
    items.append(_("This file is rendered from `{file}`").format(file=report.path))
    return Section("sources", _("Sources"), (Items(tuple(items)),))
