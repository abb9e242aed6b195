"""The sections of a run's report on relations within the run: derived cases, tuning gain, baselines, scaling."""

import math
from collections.abc import Iterable

from repro.analysis.ratio import Ratio
from repro.analysis.relations import (
    baseline_relations,
    layout_relations,
    layout_text,
    scaling_relations,
    tuning_relations,
)
from repro.analysis.results import Result
from repro.report.document import Block, Cell, Items, Section, Text
from repro.report.tables import Field, count, decimals, figure, percents, table
from repro.runs.plan import PUBLISHED
from repro.utils.i18n import N_, Translate
from repro.utils.stats import Interval, TooFew

DESCRIPTIONS = {
    "pytorch": N_(
        "eager, in fp32 without TF32 or under AMP, with the fused attention and optimizer of current PyTorch. ResNet50 has no "
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
    fields = (
        Field(_("Configuration"), lambda result: result.unit.name),
        Field(_("Derived from"), lambda result: ", ".join(result.unit.derived_from)),
        Field(_("Layout (data x tensor x pipeline)"), lambda result: layout_text(result.unit)),
        Field(_("Precision"), lambda result: result.unit.precision),
        Field(_("Iterations"), lambda result: result.unit.config.iterations, count),
        Field(_("Global batch size"), lambda result: result.unit.global_batch, count),
        Field(_("Throughput (samples/s)"), lambda result: result.throughput, decimals(2)),
        Field(_("Latency (ms)"), lambda result: result.latency_ms, decimals(2)),
        Field(_("GPU memory (MiB)"), lambda result: result.memory_mib, count),
    )
    return [Section("derived", _("Cases derived from published ones"), (text, table("derived", derived, fields)))]


def _baselines(_: Translate, results: list[Result]) -> list[Section]:
    if not any(result.unit.baseline_of for result in results):
        return []
    text = Text(
        _(
            "The baselines trained the same models: same initial weights, shapes, batch sizes and precision, "
            "interleaved with OneFlow in every repeat so that machine drift affects both equally, and read by the "
            "same rule. "
            'The options they really used, as PyTorch reported them, are in "Environment". A ratio above 1 '
            "means that OneFlow is faster. The baselines are:"
        )
    )
    memory = _(
        "Memory in use is the driver's count for a GPU, read at the same iterations for both frameworks. It includes what "
        "each framework's allocator keeps in reserve, so a lower figure does not necessarily mean a lower need. The peak "
        "of tensors is the most that a baseline's tensors took at any moment since the start, also between these readings. "
        "OneFlow 0.8.0 does not report such a peak."
    )
    exceeded = _(
        "Where it exceeds memory in use, PyTorch has since given memory back: to choose convolution algorithms, it times each "
        "of them once, in a large workspace."
    )
    fields = (
        Field(_("Configuration"), lambda comparison: comparison.result.unit.name),
        Field(_("Baseline"), lambda comparison: comparison.base.unit.label),
        Field("OneFlow (samples/s)", lambda comparison: comparison.result.throughput, decimals(2)),
        Field(_("Baseline (samples/s)"), lambda comparison: comparison.base.throughput, decimals(2)),
        Field(_("OneFlow / baseline"), lambda comparison: comparison.ratio.value, decimals(3)),
        Field(_("Steady state"), lambda comparison: comparison.steady, decimals(3)),
        Field(_("Interval (confidence)"), lambda comparison: interval(_, comparison.ratio), numeric=True),
        Field(_("OneFlow: memory in use (MiB)"), lambda comparison: comparison.result.memory_mib, count),
        Field(_("Baseline: memory in use (MiB)"), lambda comparison: comparison.base.memory_mib, count),
        Field(_("Baseline: peak of tensors (MiB)"), lambda comparison: comparison.base.allocated_mib, count),
    )
    relations = baseline_relations(results)
    described = descriptions(_, (relation.base.unit.label for relation in relations))
    peaks = [(relation.base.allocated_mib, relation.base.memory_mib) for relation in relations]
    above = any(peak and in_use and peak > in_use for peak, in_use in peaks)
    remarks = [Text(memory), *([Text(exceeded)] if above else [])]
    blocks: list[Block] = [text, described, table("baselines", relations, fields), *remarks]
    return [Section("baselines", _("Compared with baselines in the same run"), tuple(blocks))]


def descriptions(_: Translate, variants: Iterable[str]) -> Items:
    """What those of the variants are that have a description, each once and in the order of DESCRIPTIONS."""
    wanted = set(variants)
    return Items(
        tuple(
            _("`{name}`: {text}").format(name=name, text=_(text))
            for name, text in DESCRIPTIONS.items()
            if name in wanted
        )
    )


def _gain(_: Translate, results: list[Result]) -> list[Section]:
    """Gain of the tuned program over the published one, if both ran interleaved."""
    relations = tuning_relations(results)
    if not relations:
        return []
    text = Text(
        _(
            "In every repeat the two programs ran one after the other, at most with baselines of the same configuration "
            "between them, so machine drift affects both equally. Both are read by the same rule. A gain above 1 means "
            "that the tuned program is faster."
        )
    )
    fields = (
        Field(_("Configuration"), lambda relation: relation.base.unit.name),
        Field(_("Port (samples/s)"), lambda relation: relation.base.throughput, decimals(2)),
        Field(_("Tuned program (samples/s)"), lambda relation: relation.result.throughput, decimals(2)),
        Field(_("Tuned / port"), lambda relation: relation.ratio.value, decimals(3)),
        Field(_("Steady state"), lambda relation: relation.steady, decimals(3)),
        Field(_("Interval (confidence)"), lambda relation: interval(_, relation.ratio), numeric=True),
        Field(_("Port: memory (MiB)"), lambda relation: relation.base.memory_mib, count),
        Field(_("Tuned program: memory (MiB)"), lambda relation: relation.result.memory_mib, count),
    )
    return [Section("gain", _("Gain of the tuned program"), (text, table("gain", relations, fields)))]


def _scaling(_: Translate, results: list[Result]) -> list[Section]:
    scaled, layouts = scaling_relations(results), layout_relations(results)
    blocks: list[Block] = []
    fields: tuple[Field, ...]
    named = (
        Field(_("Configuration"), lambda relation: relation.result.unit.name),
        Field(_("Against"), lambda relation: relation.base.unit.name),
        Field(_("GPUs"), lambda relation: relation.result.unit.world_size, count),
    )
    within = Field(_("Interval (confidence)"), lambda relation: interval(_, relation.ratio), numeric=True)
    if scaled:
        fields = (
            *named,
            Field(_("Throughput (samples/s)"), lambda relation: relation.result.throughput, decimals(2)),
            Field(_("Speed-up"), lambda relation: relation.ratio.value * relation.result.unit.world_size, decimals(2)),
            Field(_("Efficiency"), lambda relation: relation.ratio.value, percents(1)),
            Field(_("Steady state"), lambda relation: relation.steady, percents(1)),
            within,
        )
        blocks += [
            Text(
                _(
                    "Data parallelism with a constant batch size per GPU, relative to one GPU in this run. At an "
                    "efficiency of 100%, throughput grows in proportion to the number of GPUs."
                )
            ),
            table("scaling", scaled, fields, _("Scaling of data parallelism:")),
        ]
    if layouts:
        fields = (
            *named,
            Field(_("Global batch size"), lambda relation: relation.result.unit.global_batch, count),
            Field(_("The other layout's global batch size"), lambda relation: relation.base.unit.global_batch, count),
            Field(_("Ratio of throughput"), lambda relation: relation.ratio.value, decimals(3)),
            within,
        )
        blocks += [
            Text(
                _(
                    "Other layouts of the same model compared with data parallelism on the same number of GPUs, in "
                    "samples/s. A larger batch spreads the update and the gradient exchange over more samples."
                )
            ),
            table("layouts", layouts, fields, _("Other layouts relative to data parallelism:")),
        ]
    return [Section("scaling", _("Scaling and layouts in this run"), tuple(blocks))] if blocks else []


def interval(_: Translate, ratio: Ratio | None, decimals: int = 3) -> Cell:
    """A ratio's interval with its confidence, or a message if the repeats yield none; a dash without a ratio."""
    if ratio is None:
        return figure(None, decimals)
    bounds = ratio.interval
    if isinstance(bounds, TooFew):
        message = _("too few repeats: {samples}, at least {needed} needed")
        return Cell(message.format(samples=min(bounds.samples), needed=bounds.needed), float("-inf"))
    return Cell(f"{bounds.low:.{decimals}f} … {bounds.high:.{decimals}f} ({confidence(bounds)})", bounds.low)


def confidence(bounds: Interval) -> str:
    """The confidence of an interval in per cent, rounded down."""
    return f"{math.floor(1000 * bounds.confidence) / 10:.1f}%"
