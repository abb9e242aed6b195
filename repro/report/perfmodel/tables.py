"""The tables of the performance model's report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict

from repro.perfmodel.calibration import Outcome, Summary, summary
from repro.perfmodel.constants import BOUNDS, Constants, Uncertainty
from repro.perfmodel.hardware import Cluster
from repro.perfmodel.megatron_baseline import Baseline, memory_mib
from repro.perfmodel.predict import predict
from repro.perfmodel.scaling_study import Point
from repro.perfmodel.validation import Check
from repro.perfmodel.work import Job
from repro.report.document import Cell, Column, Table, figure
from repro.utils.i18n import N_

MEANINGS = {
    "matrix_tensor": N_("share of the tensor cores' peak that matrix products reach"),
    "matrix_fp32": N_("share of the fp32 peak that products and convolutions reach"),
    "memory": N_("share of the memory bandwidth that kernels reach"),
    "network": N_("share of a port's rate that collectives reach"),
    "interference": N_("how much a hidden transfer slows the computation beside it, as a share of its own time"),
    "jitter": N_("standard deviation of the ranks' speeds, as all wait for the slowest"),
    "launch_us": N_("what a kernel costs besides its work, µs"),
    "context_mib": N_("CUDA context, libraries and their workspaces, MiB"),
    "communicator_mib": N_("NCCL and the network layer where there is more than one rank, MiB"),
}
KINDS = {
    "data": N_("data parallelism"),
    "sharded": N_("data parallelism with a sharded optimizer"),
    "tensor": N_("tensor parallelism, alone or with data parallelism"),
    "pipeline": N_("pipeline parallelism, alone or with others"),
    "other_transformers": N_("transformers on other GPUs than the V100"),
    "other_convolutions": N_("ResNet50 on other GPUs than the V100"),
}
SPENT = {
    "matrix": N_("matrix"),
    "attention": N_("attention"),
    "element": N_("norm and element-wise"),
    "launch": N_("launches"),
    "tensor_parallel": N_("tensor-parallel all-reduces"),
    "bubble": N_("pipeline idle"),
    "transfer": N_("transfers"),
    "data_parallel": N_("gradients' sum"),
    "update": N_("optimizer"),
    "waiting": N_("slowest rank"),
}


def constants_table(_: Callable, constants: Constants) -> Table:
    """Each constant with its meaning, bounds and value."""
    columns = (Column(_("Constant")), Column(_("Meaning")), Column(_("Bounds")), Column(_("Fitted"), numeric=True))
    rows = []
    for name, value in asdict(constants).items():
        low, high = BOUNDS[name]
        texts = (f"`{name}`", _(MEANINGS[name]), f"{low:g} – {high:g}")
        rows.append((*map(Cell, texts), Cell(f"{value:.4g}", value)))
    return Table("constants", columns, tuple(rows))


def errors_table(_: Callable, name: str, results: Sequence[Outcome], baseline: Baseline, cluster: Cluster) -> Table:
    """Each case's throughput and memory, published and modelled, with both models' errors."""
    titles = (
        _("Published (samples/s)"),
        _("Modelled (samples/s)"),
        _("Error"),
        _("Megatron-LM's error"),
        _("Published (MiB)"),
        _("Modelled (MiB)"),
        _("Memory error"),
        _("Megatron-LM's memory error"),
    )
    columns = (Column(_("Case")), *(Column(title, numeric=True) for title in titles))
    return Table(name, columns, tuple(_error_row(each, baseline, cluster) for each in results))


def _error_row(each: Outcome, baseline: Baseline, cluster: Cluster) -> tuple[Cell, ...]:
    published = each.case.published
    theirs, their_memory = _baseline_errors(each, baseline, cluster)
    return (
        Cell(each.case.name),
        figure(published.throughput, 2),
        figure(each.throughput, 2),
        _signed(each.error),
        _signed(theirs),
        figure(published.memory_mib, 0),
        figure(None if published.memory_mib is None else each.memory_mib, 0),
        _signed(each.memory_error),
        _signed(their_memory),
    )


def _baseline_errors(each: Outcome, baseline: Baseline, cluster: Cluster) -> tuple[float, float | None]:
    job, published = Job.of(each.case), each.case.published
    speed = baseline.throughput(job, cluster) / published.throughput - 1
    return speed, None if published.memory_mib is None else memory_mib(job) / published.memory_mib - 1


def _signed(error: float | None) -> Cell:
    return Cell("–", float("-inf")) if error is None else Cell(f"{error:+.1%}", abs(error))


def baseline_summaries(results: Iterable[Outcome], baseline: Baseline, cluster: Cluster) -> tuple[Summary, Summary]:
    """The summaries of the baseline's throughput and memory errors."""
    errors = [_baseline_errors(each, baseline, cluster) for each in results]
    return summary(speed for speed, _memory in errors), summary(memory for _speed, memory in errors)


def uncertainty_table(_: Callable, uncertainty: dict[str, Uncertainty]) -> Table:
    """Each kind of case with the error to allow for."""
    columns = (
        Column(_("Kind of case")),
        Column(_("Throughput error"), numeric=True),
        Column(_("Memory error"), numeric=True),
    )
    rows = tuple(
        (Cell(_(KINDS[kind])), *(Cell(f"± {value:.1%}", value) for value in (level.throughput, level.memory)))
        for kind, level in uncertainty.items()
    )
    return Table("uncertainty", columns, rows)


def elsewhere_table(_: Callable, found: Iterable[Check]) -> Table:
    """Each measurement on other hardware beside its prediction."""
    columns = (
        Column(_("Measurement")),
        Column("GPU"),
        Column(_("Unit")),
        *(Column(title, numeric=True) for title in (_("Measured"), _("Modelled"), _("Error"))),
    )
    units = {"TFLOP/s a GPU": _("TFLOP/s a GPU")}
    rows = tuple(
        (
            *(Cell(text) for text in (each.name, each.gpu, units.get(each.unit, each.unit))),
            figure(each.measured, 1),
            figure(each.modelled, 1),
            _signed(each.error),
        )
        for each in found
    )
    return Table("elsewhere", columns, rows)


def spent_table(_: Callable, results: Iterable[Outcome], cluster: Cluster, constants: Constants) -> Table:
    """How an iteration of each case divides, in per cent."""
    columns = (Column(_("Case")), *(Column(_(title), numeric=True) for title in SPENT.values()))
    rows = []
    for each in results:
        seconds = predict(Job.of(each.case), cluster, constants).seconds
        shares = [getattr(seconds, kind) / seconds.total for kind in SPENT]
        cells = (Cell(f"{share:.0%}" if share >= 0.005 else "–", share) for share in shares)
        rows.append((Cell(each.case.name), *cells))
    return Table("spent", columns, tuple(rows))


def study_table(_: Callable, name: str, lines: dict[str, tuple[Point, ...]]) -> Table:
    """For each number of GPUs and kind of node the best layout, its samples/s and model TFLOP/s a GPU."""
    columns = (Column(_("GPUs"), numeric=True), *(Column(node) for node in lines))
    sizes = [point.gpus for point in next(iter(lines.values()))]
    rows = tuple(
        (Cell(f"{gpus:,}", gpus), *(_point(_, points[index]) for points in lines.values()))
        for index, gpus in enumerate(sizes)
    )
    caption = _("Data x tensor x pipeline: modelled samples/s (model TFLOP/s a GPU)")
    return Table(name, columns, rows, caption)


def _point(_: Callable, point: Point) -> Cell:
    if point.best is None:
        return Cell(_("does not fit"))
    throughput = point.best.prediction.throughput
    return Cell(f"{point.best.job.layout}: {throughput:,.0f} ({point.best.tflops:.0f})", throughput)
