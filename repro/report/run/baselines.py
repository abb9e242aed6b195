"""The sections of a run's report on what was measured within it: derived cases, the gain of tuning, baselines, scaling."""

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
        "eager, true fp32 or AMP, with the fused attention and optimizer of today's PyTorch. ResNet50 has no attention: "
        "in fp32 this computes what the published program computes."
    ),
    "pytorch-unfused": N_(
        "computes what the published program computes: the whole matrix of scores, its mask, softmax, dropout and product "
        "one after another, under AMP in half precision throughout, and an update for each parameter."
    ),
    "pytorch-tf32": N_("as `pytorch`, with TF32, which OneFlow 0.8.0 never uses; ResNet50 with the channels last."),
    "pytorch-channels-last": N_("as `pytorch`, in fp32 with the channels last."),
    "pytorch-compile": N_("as `pytorch`, compiled by torch.compile."),
}
"""What each variant of a baseline is."""


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
            "A case that needs more GPUs than are here runs with its largest parallel size halved until it fits. One that "
            "was asked for in another precision runs in that, and one that was asked for with so many iterations that its "
            "rule reads others than the published ones runs with those. Model, micro-batch of each data parallel rank and "
            "steps of accumulation are the published ones, and the global batch follows from the layout. Cases that "
            "become the same are run once. They are other work than the published cases, so nothing here is compared with "
            "a published throughput."
        )
    )
    columns = (
        *_columns(_("Configuration"), _("Derived from"), _("Layout (data x tensor x pipeline)"), _("Precision")),
        *_numeric(
            _("Iterations"), _("Global batch"), _("Throughput (samples/s)"), _("Latency (ms)"), _("Memory (MiB)")
        ),
    )
    rows = tuple(
        (
            *words(
                each.unit.name, ", ".join(each.unit.derived_from), layout_text(each.unit), each.unit.config["precision"]
            ),
            figure(each.unit.config["iterations"], 0),
            figure(each.unit.global_batch, 0),
            figure(each.throughput, 2),
            figure(each.latency_ms, 2),
            figure(each.memory_mib, 0),
        )
        for each in derived
    )
    return [Section("derived", _("Cases derived from the published ones"), (text, Table("derived", columns, rows)))]


def _baselines(_: Translate, results: list[Result]) -> list[Section]:
    if not any(result.unit.baseline_of for result in results):
        return []
    text = Text(
        _(
            "PyTorch trained the same models beside OneFlow: same initial weights, data, shapes, batches and precision, in "
            "turn with OneFlow in every repeat, so that a machine's drift hits both, and read by the same rule. What it "
            'was allowed to do, as PyTorch itself reports it, stands under "Environment". A ratio above 1 means that '
            "OneFlow is faster. The baselines are:"
        )
    )
    memory = Text(
        _(
            "Memory in use is what the driver counts on a GPU, read for both at the same iterations. It holds "
            "what each framework's allocator keeps in reserve, so a lower figure need not mean that less is needed. Memory "
            "of tensors is the most that PyTorch's tensors took; OneFlow 0.8.0 does not tell its own."
        )
    )
    columns = (
        *_columns(_("Configuration"), _("Baseline")),
        *_numeric(
            "OneFlow (samples/s)",
            "PyTorch (samples/s)",
            "OneFlow / PyTorch",
            _("In the steady state"),
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
    return [Section("baselines", _("Beside PyTorch in the same run"), tuple(blocks))]


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
    """What the tuned program gains over the published one, where both ran in turn."""
    relations = tuning_relations(results)
    if not relations:
        return []
    text = Text(
        _(
            "The tuned program ran right after the published one in every repeat, so that a machine's drift affects both "
            "equally, and is read by the same rule. A gain above 1 means that the tuned program is faster."
        )
    )
    numeric = (
        _("Published program (samples/s)"),
        _("Tuned program (samples/s)"),
        _("Tuned / published"),
        _("In the steady state"),
        _("Interval (confidence)"),
        _("Published program: memory (MiB)"),
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
                _("In the steady state"),
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
                    "Data parallelism with the same batch on each GPU, against one GPU in this run; an "
                    "efficiency of 100% is a throughput in proportion to the number of GPUs."
                )
            ),
            Table("scaling", columns, rows),
        ]
    if layouts:
        columns = (
            *_columns(_("Configuration"), _("Against")),
            *_numeric(
                _("GPUs"),
                _("Global batch"),
                _("The other's global batch"),
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
                    "Other layouts of the same model against data parallelism on equally many GPUs, in "
                    "samples/s. A larger batch spreads the update and the exchange of gradients over more "
                    "samples."
                )
            ),
            Table("layouts", columns, rows),
        ]
    return [Section("scaling", _("Scaling and layouts in this run"), tuple(blocks))] if blocks else []


def interval(_: Translate, ratio: Ratio | None, decimals: int = 3) -> Cell:
    """A ratio's interval with its confidence, or that the repeats give none; a dash without a ratio."""
    if ratio is None:
        return figure(None, decimals)
    found = ratio.interval
    if isinstance(found, TooFew):
        message = _("too few repeats: {samples}, at least {needed} are needed")
        if found.equal:
            message = _("the repeats are all equal, which says nothing of their spread")
        return Cell(message.format(samples=min(found.samples), needed=found.needed), float("-inf"))
    return Cell(f"{found.low:.{decimals}f} … {found.high:.{decimals}f} ({confidence(found)})", found.low)


def confidence(found: Interval) -> str:
    """The confidence that an interval reaches, in per cent, cut off: never more than it is."""
    return f"{math.floor(1000 * found.confidence) / 10:.1f}%"


def _columns(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title) for title in titles)


def _numeric(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, numeric=True) for title in titles)
