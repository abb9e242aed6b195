"""Tables on training programs: options of the port and the tuned program, and deviations of the ports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields

from repro.models.programs import Program
from repro.published.deviations import LOSS, MEMORY, SPEED, Deviation
from repro.report.document import Cell, Column, Table
from repro.report.tables import words
from repro.utils.i18n import N_, Translate

KINDS = {
    "speed": N_("same mathematics, different speed"),
    "mathematics": N_("different mathematics"),
    "data": N_("different input"),
    "runtime": N_("runtime"),
}
MATTERS = {SPEED: N_("speed"), MEMORY: N_("memory"), LOSS: N_("loss")}
EVIDENCE = {
    "measured": N_("measurement"),
    "published": N_("published figures"),
    "estimated": N_("estimate"),
    "source": N_("source code"),
}
NAMES = ("report", "log_generation", "form")
"""Fields that identify a program rather than configure it."""
CHOICES = {
    "loss_per_sample": N_("Per-sample loss; gradients divided by the global batch size"),
    "bias_correction": N_("Adam with bias correction"),
    "not_decayed": N_("No weight decay for parameters whose names contain"),
    "l2_on_all": N_("Weight decay also applied as an L2 penalty to every parameter"),
    "warmup_to_base": N_("Warm-up up to the base learning rate"),
    "loss_scale": N_("Initial loss scale under AMP"),
    "loss_scale_window": N_("Overflow-free iterations before the loss scale doubles"),
    "inputs": N_("Inputs fed (if not all)"),
    "data": N_("Input data format"),
    "data_parts": N_("Data parts"),
    "standin": N_("Stand-in for unavailable data"),
    "fuse_add_to_output": N_("Additions fused into the preceding operator"),
    "fuse_model_update": N_("Scaling and clipping fused into the update"),
    "fuse_cast_scale": N_("Casts and scaling fused"),
    "cudnn_search": N_("Selection of convolution algorithms"),
    "norm_in_one_kernel": N_("Norm of all gradients computed together"),
    "rewritten": N_("Operators of the compiled job replaced by faster ones"),
    "evaluation_job": N_("A job for evaluation compiled as well, but never run"),
    "rdma": N_("RDMA for OneFlow's own transfers between nodes"),
    "fusion_mib": N_("Largest fused collective (MiB)"),
    "fusion_ops": N_("Most operators per fused collective"),
    "nccl_streams": N_("NCCL streams"),
    "copy_buffer": N_("All-reduces fused through a copy buffer"),
    "fuse_sharded": N_("Reduce-scatters and all-gathers fused"),
    "compute_stream": N_("Collectives on the compute stream"),
    "own_zero": N_("Optimizer sharded by parameter signatures rather than by OneFlow's pass"),
    "half_gradients": N_("Gradients cast to half precision by operators of the model"),
    "merge_chains": N_("Independent parts of the graph share memory"),
    "switches": N_("ONEFLOW_… environment variables set"),
    "one_update": N_("All parameters updated by a few kernels"),
    "keep_batches": N_("Synthetic batches stay on the GPU"),
    "fetch_each": N_("Outputs fetched in each iteration"),
}
"""Description of each option of `repro.models.programs.Program`."""


def choice_table(_: Translate, id: str, published: Program) -> Table:
    """The options of the port of a published program and of its tuned program."""
    tuned = published.tuned()
    pairs = [
        (field.name, getattr(published, field.name), getattr(tuned, field.name))
        for field in fields(Program)
        if field.name not in NAMES
    ]
    rows = tuple(
        (Cell(_(CHOICES[name])), Cell(_value(_, ours)), Cell(_value(_, other), tone="muted" if ours == other else ""))
        for name, ours, other in pairs
    )
    columns = (Column(_("Option")), Column(_("Port of the published program")), Column(_("Tuned program")))
    return Table(id, columns, rows)


def _value(_: Translate, value: object) -> str:
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value) or "–"
    return f"`{value}`" if isinstance(value, str) else f"{value:.0f}"


def deviation_table(
    _: Translate,
    language: str,
    id: str,
    deviations: Iterable[Deviation],
    having: Mapping[str, str] | None = None,
    measured: Mapping[str, str] | None = None,
) -> Table:
    """Deviations in one language, one row each.

    `having` names the programs of a run that have a deviation, `measured` is the effect that was measured, both by the
    deviation's id. Without the first, a column names the configurations that have it.
    """
    measured = measured or {}
    scope = _("Configurations") if having is None else _("Programs")
    titles = (
        *(_("Deviation"), scope, _("Kind"), _("What differs"), _("Expected effect")),
        *(_("Evidence"), _("Affects"), _("Sources")),
    )
    rows = []
    for deviation in deviations:
        where = ", ".join(f"`{name}={value}`" for name, value in deviation.where.items()) or _("all of them")
        row = words(
            deviation.id,
            where if having is None else having[deviation.id],
            _(KINDS[deviation.kind]),
            deviation.what[language],
            " ".join(filter(None, (deviation.effect[language], measured.get(deviation.id)))),
            _(EVIDENCE["measured" if deviation.id in measured else deviation.evidence]),
            _(", ").join(_(MATTERS[matter]) for matter in deviation.matters) or "–",
            ", ".join(f"`{source}`" for source in deviation.sources),
        )
        rows.append(row)
    caption = "" if having is None else _("Deviations of what was run:")
    return Table(id, tuple(map(Column, titles)), tuple(rows), caption)
