"""The sections of a run's report on relations within the run: derived cases, tuning gain, baselines, scaling."""

import math
from collections.abc import Iterable

from repro.analysis.ratio import Ratio
from repro.analysis.relations import (
    Relation,
    baseline_relations,
    layout_relations,
    layout_text,
    scaling_relations,
    tuning_relations,
)
from repro.analysis.results import Result
from repro.planning.plan import PUBLISHED
from repro.report.document import Block, Cell, Column, Items, Section, Table, Text, figure, percent, words
from repro.utils.i18n import N_, Translate
from repro.utils.stats import Interval, TooFew

DESCRIPTIONS = {
    "pytorch": N_(
        "eager, true fp32 or AMP, with the fused attention and optimizer of current PyTorch. ResNet50 has no "
        "attention, so in fp32 this computes the same as the published program."
    ),
    "pytorch-unfused": N_(
        "computes the same as the published program: the full score matrix, then mask, softmax, dropout and product "
        "as separate operators, half precision throughout under AMP, and one update per parameter."
    ),
    "pytorch-tf32": N_(
        "like `pytorch`, with TF32, which OneFlow uses only with PRECISION=tf32; ResNet50 in channels_last format."
    ),
    "pytorch-channels-last": N_("like `pytorch`, in fp32 and channels_last format."),
    "pytorch-compiled": N_("like `pytorch`, compiled with torch.compile; in TF32 where OneFlow is."),
    "megatron": N_(
        "Megatron-Core with PyTorch's fused attention, sequence parallelism with tensor parallelism, a fused "
        "cross-entropy, and exchanges that overlap with computation. Kernels of Transformer Engine and Apex are not "
        "used: they have no wheels that a hash could pin."
    ),
    "megatron-unfused": N_(
        "Megatron-Core computing as Megatron-LM did in 2021: all scores are stored, one kernel masks them and takes "
        "the softmax, and gradients are exchanged after the backward pass."
    ),
}
"""Description of each baseline variant."""


def within_sections(_: Translate, scale: str, results: list[Result]) -> list[Section]:
    """The sections that a run at the published scale has figures for; none at another, whose speed says nothing."""
    if scale != PUBLISHED:
        return []
    return [*_derived(_, results), *_gain(_, results), *_baselines(_, results), *_scaling(_, results)]


def _derived(_: Translate, results: list[Result]) -> list[Section]:
    derived = [result for result in results if result.unit.derived_from]
    if not derived:
        return []
    text = Text(
        _(
            "Cases that need more GPUs than available are shrunk by halving the largest parallel size until they "
            "fit. With PRECISION, cases run in that precision; with ITERATIONS, they run for that many iterations if "
            "their rule then reads different ones than in the published run. Model, micro-batch size per "
            "data-parallel rank and accumulation steps are as published; the global batch size follows from the "
            "layout. Cases that become identical run once. The work differs from that of the published cases, so "
            "nothing here is compared with a published throughput."
        )
    )
    columns = (
        *_columns(_("Configuration"), _("Derived from"), _("Layout (data x tensor x pipeline)"), _("Precision")),
        *_numeric(
            _("Iterations"),
            _("Global batch size"),
            _("Throughput (samples/s)"),
            _("Latency (ms)"),
            _("GPU memory (MiB)"),
        ),
    )
    rows = tuple(
        (
            *words(each.unit.name, ", ".join(each.unit.derived_from), layout_text(each.unit), each.unit.precision),
            figure(each.unit.config["iterations"], 0),
            figure(each.unit.global_batch, 0),
            figure(each.throughput, 2),
            figure(each.latency_ms, 2),
            figure(each.memory_mib, 0),
        )
        for each in derived
    )
    return [Section("derived", _("Cases derived from published ones"), (text, Table("derived", columns, rows)))]


def _baselines(_: Translate, results: list[Result]) -> list[Section]:
    if not any(result.unit.baseline_of for result in results):
        return []
    text = Text(
        _(
            "PyTorch trained the same models: same initial weights, shapes, batch sizes and precision, "
            "interleaved with OneFlow in every repeat so that machine drift affects both equally, and read by the "
            "same rule. PyTorch and the tuned program train on synthetic batches that stay on the GPU; where the "
            "port reads its input from files, its ratio includes reading and decoding. "
            'The options it really used, as reported by PyTorch, are in "Environment". A ratio above 1 '
            "means that OneFlow is faster. The baselines are:"
        )
    )
    memory = Text(
        _(
            "Memory in use is the driver's count for a GPU, read at the same iterations for both frameworks. It "
            "includes what each framework's allocator keeps in reserve, so a lower figure does not necessarily mean "
            "a lower need. Memory of tensors is the peak of PyTorch's tensors; OneFlow 0.8.0 does not report its own."
        )
    )
    columns = (
        *_columns(_("Configuration"), _("Baseline")),
        *_numeric(
            "OneFlow (samples/s)",
            "PyTorch (samples/s)",
            "OneFlow / PyTorch",
            _("Steady state"),
            _("Interval (confidence)"),
            _("OneFlow: memory in use (MiB)"),
            _("PyTorch: memory in use (MiB)"),
            _("PyTorch: memory of tensors (MiB)"),
        ),
    )
    relations = baseline_relations(results)
    rows = tuple(_baseline_row(_, relation) for relation in relations)
    described = descriptions(_, (relation.base.unit.label for relation in relations))
    blocks: list[Block] = [text, described, Table("baselines", columns, rows), memory]
    return [Section("baselines", _("Compared with PyTorch in the same run"), tuple(blocks))]


def descriptions(_: Translate, variants: Iterable[str]) -> Items:
    """What those of the variants are that have a description, each once and in the order of DESCRIPTIONS."""
    found = set(variants)
    return Items(tuple(f"`{name}`: {_(text)}" for name, text in DESCRIPTIONS.items() if name in found))


def _baseline_row(_: Translate, relation: Relation) -> tuple[Cell, ...]:
    ours, baseline = relation.result, relation.base
    return (
        *words(ours.unit.name, baseline.unit.label),
        figure(ours.throughput, 2),
        figure(baseline.throughput, 2),
        figure(relation.ratio.value, 3),
        figure(relation.steady, 3),
        interval(_, relation.ratio),
        figure(ours.memory_mib, 0),
        figure(baseline.memory_mib, 0),
        figure(baseline.allocated_mib, 0),
    )


def _gain(_: Translate, results: list[Result]) -> list[Section]:
    """Gain of the tuned program over the published one, if both ran interleaved."""
    relations = tuning_relations(results)
    if not relations:
        return []
    text = Text(
        _(
            "In every repeat the tuned program ran right after the port, so machine drift affects both "
            "equally. Both are read by the same rule. A gain above 1 means that the tuned program is faster."
        )
    )
    numeric = (
        _("Port (samples/s)"),
        _("Tuned program (samples/s)"),
        _("Tuned / port"),
        _("Steady state"),
        _("Interval (confidence)"),
        _("Port: memory (MiB)"),
        _("Tuned program: memory (MiB)"),
    )
    columns = (Column(_("Configuration")), *(Column(title, numeric=True) for title in numeric))
    table = Table("gain", columns, tuple(_gain_row(_, each) for each in relations))
    return [Section("gain", _("Gain of the tuned program"), (text, table))]


def _gain_row(_: Translate, relation: Relation) -> tuple[Cell, ...]:
    tuned, published = relation.result, relation.base
    return (
        Cell(published.unit.name),
        figure(published.throughput, 2),
        figure(tuned.throughput, 2),
        figure(relation.ratio.value, 3),
        figure(relation.steady, 3),
        interval(_, relation.ratio),
        figure(published.memory_mib, 0),
        figure(tuned.memory_mib, 0),
    )


def _scaling(_: Translate, results: list[Result]) -> list[Section]:
    scaled, layouts = scaling_relations(results), layout_relations(results)
    blocks: list[Block] = []
    if scaled:
        columns = (
            *_columns(_("Configuration"), _("Against")),
            *_numeric(
                _("GPUs"),
                _("Throughput (samples/s)"),
                _("Speed-up"),
                _("Efficiency"),
                _("Steady state"),
                _("Interval (confidence)"),
            ),
        )
        rows = tuple(
            (
                *words(each.result.unit.name, each.base.unit.name),
                figure(each.result.unit.world_size, 0),
                figure(each.result.throughput, 2),
                figure(each.ratio.value * each.result.unit.world_size, 2),
                percent(each.ratio.value, 1),
                percent(each.steady, 1),
                interval(_, each.ratio),
            )
            for each in scaled
        )
        blocks += [
            Text(
                _(
                    "Data parallelism with a constant batch size per GPU, relative to one GPU in this run. At an "
                    "efficiency of 100%, throughput grows in proportion to the number of GPUs."
                )
            ),
            Table("scaling", columns, rows, _("Scaling of data parallelism:")),
        ]
    if layouts:
        columns = (
            *_columns(_("Configuration"), _("Against")),
            *_numeric(
                _("GPUs"),
                _("Global batch size"),
                _("The other layout's global batch size"),
                _("Ratio of throughput"),
                _("Interval (confidence)"),
            ),
        )
        rows = tuple(
            (
                *words(each.result.unit.name, each.base.unit.name),
                figure(each.result.unit.world_size, 0),
                figure(each.result.unit.global_batch, 0),
                figure(each.base.unit.global_batch, 0),
                figure(each.ratio.value, 3),
                interval(_, each.ratio),
            )
            for each in layouts
        )
        blocks += [
            Text(
                _(
                    "Other layouts of the same model compared with data parallelism on the same number of GPUs, in "
                    "samples/s. A larger batch spreads the update and the gradient exchange over more samples."
                )
            ),
            Table("layouts", columns, rows, _("Other layouts relative to data parallelism:")),
        ]
    return [Section("scaling", _("Scaling and layouts in this run"), tuple(blocks))] if blocks else []


def interval(_: Translate, ratio: Ratio | None, decimals: int = 3) -> Cell:
    """A ratio's interval with its confidence, or a message if the repeats yield none; a dash without a ratio."""
    if ratio is None:
        return figure(None, decimals)
    found = ratio.interval
    if isinstance(found, TooFew):
        message = _("too few repeats: {samples}, at least {needed} needed")
        if found.equal:
            message = _("the repeats are all equal, so their spread is unknown")
        return Cell(message.format(samples=min(found.samples), needed=found.needed), float("-inf"))
    return Cell(f"{found.low:.{decimals}f} … {found.high:.{decimals}f} ({confidence(found)})", found.low)


def confidence(found: Interval) -> str:
    """The confidence of an interval in per cent, rounded down."""
    return f"{math.floor(1000 * found.confidence) / 10:.1f}%"


def _columns(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title) for title in titles)


def _numeric(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, numeric=True) for title in titles)
