"""The section on loss curves: method, comparisons, and a figure with all models."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from repro.analysis.loss_curves import (
    FACTOR,
    FLOOR,
    HALF_ROUNDING,
    HALF_ROUNDINGS,
    WINDOW,
    CurveComparison,
    Curves,
    CurveTolerance,
    compare,
)
from repro.models.registry import spec_of
from repro.planning.loss_curves import CONTROL, ERROR, KIND, LAYOUT, RATE_ERROR, ROUNDING
from repro.published.trainer_config import SYNTHETIC
from repro.report.charts.figure import FigureSpec, stacked
from repro.report.charts.loss_curves import SMALLEST, CurveChart, Group
from repro.report.document import Block, Cell, Items, Section, Table, Text
from repro.report.names import listed, name
from repro.report.run.kinds import Kind, register
from repro.report.tables import Field, decimals, scientific, table
from repro.runs.unit import Unit
from repro.utils.i18n import N_, Translate

ROLES = {LAYOUT: N_("layout"), CONTROL: N_("control perturbation"), ERROR: N_("injected error")}


def curve_section(_: Translate, curves: Curves, datasets: Iterable[Mapping]) -> Section:
    """The verdict first, then the rule, the tolerances and all comparisons."""
    blocks = (*_verdict(_, curves), *_method(_, curves, datasets), _tolerances(_, curves), _comparisons(_, curves))
    return Section("curves", _("Same loss curves in every layout and precision"), blocks)


def _verdict(_: Translate, curves: Curves) -> list[Block]:
    layouts, errors = curves.of(LAYOUT), curves.of(ERROR)
    return [
        Text(
            _(
                "Loss curves that agree with one device in fp32 within the tolerance: {good} of {all}. Injected errors that "
                "were detected: {seen} of {errors}."
            ).format(
                good=sum(comparison.holds for comparison in layouts),
                all=len(layouts),
                seen=sum(comparison.holds for comparison in errors),
                errors=len(errors),
            )
        )
    ]


def _method(_: Translate, curves: Curves, datasets: Iterable[Mapping]) -> list[Block]:
    """How this run's curves are compared: a paragraph for each thing that it has."""
    units = [comparison.unit for comparison in curves.comparisons]
    per_shard = [unit for unit in units if spec_of(unit.model).batch_statistics]
    method = _(
        "All configurations of a model have the same initial weights, batches, schedule and global batch size; "
        "dropout is off. Each iteration's loss is compared with the reference: |loss − reference| / reference. The "
        "criterion is the largest mean of these deviations over {window} consecutive iterations, so a single odd "
        "iteration is not decisive and deviations of opposite sign do not cancel out."
    ).format(window=WINDOW)
    shards = _(
        "Batch statistics of {models} are computed per shard, so the reference is one device with as many separate shards as "
        "there are ranks."
    )
    power = _(
        "A tolerance that everything passes would be worthless, so errors are injected on one device: a learning "
        "rate that is {rate:.0%} too high, and another seed, i.e. different weights and a different order of the "
        "data. Each must deviate by more than the widest tolerance of its model."
    ).format(rate=RATE_ERROR - 1)
    return [
        Text(method),
        *([Text(shards.format(models=_models(_, per_shard)))] if per_shard else []),
        *_noise(_, [unit for unit in units if unit.role == CONTROL]),
        *_half_precision(_, [unit for unit in units if unit.config.precision == "amp"]),
        *([Text(power)] if curves.of(ERROR) else []),
        *_data(_, units, datasets),
    ]


def _models(_: Translate, units: Iterable[Unit]) -> str:
    return listed(_, dict.fromkeys(name(unit.model) for unit in units))


def _noise(_: Translate, controls: Sequence[Unit]) -> list[Block]:
    """How the tolerance follows from the control perturbations."""
    derived = _(
        "The tolerance is derived in the run itself. It is {factor} times the largest deviation of a control perturbation "
        "from its reference for the same model and precision, and at least {floor}. Control perturbations measure the noise "
        "floor:"
    ).format(factor=FACTOR, floor=f"{FLOOR:.0e}")
    rate = _(
        "The learning rate is changed by {ulp}: where gradients are clipped, OneFlow 0.8.0 computes their norm no more "
        "consistently than that between one and several ranks."
    ).format(ulp=f"{ROUNDING:.0e}")
    split = _("The batch is split into micro-batches whose gradients are averaged, which only reorders sums.")
    splits = any(unit.config.accumulation_steps > 1 and not spec_of(unit.model).batch_statistics for unit in controls)
    return [Text(derived), Items((rate, split) if splits else (rate,))] if controls else []


def _half_precision(_: Translate, units: Sequence[Unit]) -> list[Block]:
    """What AMP adds to the tolerance."""
    if not units:
        return []
    text = _(
        "AMP computes in fp16, which rounds by {half}; a batch goes through about 100 independent roundings before its "
        "loss, so {n} times that is added to the tolerance. The loss scale starts at {scale:.0f}, chosen so that no gradient "
        "overflows: skipped iterations, whose number differs between layouts, would change the curves."
    )
    scale = max(unit.config.loss_scale or 1 for unit in units)
    return [Text(text.format(half=f"{HALF_ROUNDING:.1e}", n=HALF_ROUNDINGS, scale=scale))]


def _data(_: Translate, units: Sequence[Unit], datasets: Iterable[Mapping]) -> list[Block]:
    """What the models of the run train on."""
    synthetic = [unit for unit in units if unit.config.data.kind == SYNTHETIC]
    reading = [unit for unit in units if unit.config.data.kind != SYNTHETIC]
    read = _(
        "The Python source of {sources} is read byte by byte by {models}; all layouts see the same samples."
    ).format(sources=", ".join(dataset["source"] for dataset in datasets), models=_models(_, reading))
    memorised = _(
        "A few random batches are memorised by {models}: OneFlow distributes file records over the ranks, so no two layouts "
        "would see real data in the same order."
    ).format(models=_models(_, synthetic))
    return [*([Text(read)] if reading else []), *([Text(memorised)] if synthetic else [])]


def _tolerances(_: Translate, curves: Curves) -> Table:
    tolerances: dict[tuple[str, str], CurveTolerance] = {}
    for comparison in curves.comparisons:
        if comparison.tolerance and comparison.unit.role != ERROR:
            tolerances.setdefault((comparison.unit.model, comparison.unit.config.precision), comparison.tolerance)
    fields = (
        Field(_("Model"), lambda row: row[0][0]),
        Field(_("Precision"), lambda row: row[0][1]),
        Field(_("Largest control deviation"), lambda row: row[1].noise, scientific),
        Field(_("Added for fp16"), lambda row: row[1].rounding, scientific),
        Field(_("Tolerance"), lambda row: row[1].value, scientific),
    )
    return table("tolerances", tolerances.items(), fields, _("Tolerances:"))


def _comparisons(_: Translate, curves: Curves) -> Table:
    fields = (
        Field(_("Loss curve"), lambda comparison: comparison.unit.name),
        Field(_("Reference"), lambda comparison: comparison.unit.reference or "–"),
        Field(_("Type"), lambda comparison: _(ROLES[comparison.unit.role])),
        Field(
            _("Final loss"), lambda comparison: _last(comparison.losses[0]) if comparison.losses else None, decimals(5)
        ),
        Field(_("Final reference loss"), lambda comparison: _last(comparison.reference_losses), decimals(5)),
        Field(
            _("Largest deviation"), lambda comparison: comparison.deviation and comparison.deviation.largest, scientific
        ),
        Field(_("Mean deviation"), lambda comparison: comparison.deviation and comparison.deviation.mean, scientific),
        Field(
            _("Over {n} iterations").format(n=WINDOW),
            lambda comparison: comparison.deviation and comparison.deviation.windowed,
            scientific,
        ),
        Field(_("Tolerance"), lambda comparison: comparison.tolerance and comparison.tolerance.value, scientific),
        Field(_("Agrees"), lambda comparison: _holds(_, comparison)),
    )
    return table("curves", curves.comparisons, fields, _("Each loss curve and its reference:"))


def _last(losses: Sequence[float]) -> float | None:
    return losses[-1] if losses else None


def _holds(_: Translate, comparison: CurveComparison) -> Cell:
    if comparison.holds:
        return Cell(_("detected") if comparison.unit.role == ERROR else _("yes"), tone="good")
    note = comparison.problem.text(_) if comparison.problem else ""
    return Cell(_("NOT DETECTED") if comparison.unit.role == ERROR and not note else _("NO"), note=note, tone="bad")


def curve_figures(curves: Curves) -> list[FigureSpec]:
    """All curves above, their deviations below, for each model that has a comparison."""
    whole = [comparison for comparison in curves.comparisons if comparison.deviation]
    models = dict.fromkeys(comparison.unit.model for comparison in whole)
    errors = any(comparison.unit.role == ERROR for comparison in whole)

    def caption(_: Translate) -> str:
        return _(
            "First repeat of each configuration. The lower part compares each curve with its own reference: curves "
            "that agree stay below the dashed line of their precision{errors}. A deviation of zero is drawn as {smallest}."
        ).format(errors=_(", injected errors rise above it") if errors else "", smallest=f"{SMALLEST:.0e}")

    charts = [_chart(model, [comparison for comparison in whole if comparison.unit.model == model]) for model in models]
    return [stacked("curves", [FigureSpec("curves", chart, caption) for chart in charts])] if charts else []


def _chart(model: str, comparisons: list[CurveComparison]) -> Callable[[Translate], CurveChart]:
    tolerances = {
        comparison.unit.config.precision: comparison.tolerance.value
        for comparison in comparisons
        if comparison.tolerance and comparison.unit.role != ERROR
    }
    references = {
        comparison.reference_losses for comparison in comparisons if comparison.unit.config.precision == "fp32"
    }

    def chart(_: Translate) -> CurveChart:
        kinds = (
            (_("layouts in fp32"), lambda unit: (unit.role, unit.config.precision) == (LAYOUT, "fp32")),
            (_("layouts in AMP"), lambda unit: (unit.role, unit.config.precision) == (LAYOUT, "amp")),
            (_("control perturbations"), lambda unit: unit.role == CONTROL),
            (_("injected errors"), lambda unit: unit.role == ERROR),
        )
        groups = tuple(
            Group(
                label,
                tuple(
                    (comparison.losses[0], comparison.reference_losses)
                    for comparison in comparisons
                    if belongs(comparison.unit)
                ),
            )
            for label, belongs in kinds
        )
        label = _("tolerance, {precision}")
        limits = tuple((label.format(precision=name), value) for name, value in tolerances.items())
        return CurveChart(
            _("Loss curves of {model}").format(model=model),
            _("loss above; below, its relative deviation as a mean over {n} iterations").format(n=WINDOW),
            x_label=_("iteration"),
            reference_label=_("reference"),
            groups=groups,
            references=tuple(references),
            limits=limits,
            window=WINDOW,
        )

    return chart


register(
    Kind(
        KIND,
        N_("curves: loss curves of every layout and precision, compared with one device's"),
        analyse=lambda run, plan, attempts, results: compare(plan, attempts, run.files),
        sections=lambda _, data: [curve_section(_, data.findings, data.description.datasets)],
        figures=lambda data, files: curve_figures(data.findings),
        figures_after="curves",
        side_by_side=True,
    )
)
