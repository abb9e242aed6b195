"""The tables of the performance model's report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter

import pandas as pd

from repro.perfmodel.constants import BOUNDS, ELSEWHERE, JUDGES_WITHIN, Calibration, Constants, Uncertainty
from repro.perfmodel.errors import MODELS, summary
from repro.perfmodel.hardware import ClusterModel
from repro.perfmodel.predict import predict
from repro.perfmodel.validation import PublishedRate
from repro.report import numbers
from repro.report.document import Cell, Column, Table
from repro.report.tables import Field, count, decimals, factor, figure, percents, table
from repro.utils.i18n import N_

MEANINGS = {
    "matrix_tensor": N_("share of the tensor cores' peak reached by matrix products"),
    "matrix_fp32": N_("share of the fp32 peak reached by products and convolutions"),
    "memory": N_("share of the memory bandwidth reached by kernels"),
    "network": N_("share of the port rate reached by collectives"),
    "interference": N_("slowdown of computation by a hidden transfer, as a share of the transfer's own time"),
    "jitter": N_("standard deviation of the ranks' speeds (all wait for the slowest)"),
    "launch_us": N_("fixed overhead per kernel, µs"),
    "context_mib": N_("CUDA context, libraries and their workspaces, MiB"),
    "communicator_mib": N_("NCCL and the network layer with more than one rank, MiB"),
}
KINDS = {
    "data": N_("plain data parallelism, shape used for the fit"),
    "untrained": N_("plain data parallelism, other shapes"),
    "sharded": N_("data parallelism with a sharded optimizer"),
    "tensor": N_("tensor parallelism, alone or with data parallelism"),
    "pipeline": N_("pipeline parallelism, alone or with others"),
}
SHORT = {
    "data": N_("data"),
    "untrained": N_("other shape"),
    "sharded": N_("sharded"),
    "tensor": N_("tensor"),
    "pipeline": N_("pipeline"),
}
SPENT = {
    "matrix": N_("matrix"),
    "attention": N_("attention"),
    "element": N_("norm and element-wise"),
    "launch": N_("launches"),
    "tensor_parallel": N_("tensor-parallel all-reduces"),
    "bubble": N_("pipeline bubble"),
    "transfer": N_("transfers"),
    "data_parallel": N_("gradient reduction"),
    "update": N_("optimizer"),
    "waiting": N_("slowest rank"),
}


def constants_table(_: Callable, constants: Constants) -> Table:
    """Each constant with its meaning, bounds and value."""
    fields = (
        Field(_("Constant"), lambda row: f"`{row[0]}`"),
        Field(_("Meaning"), lambda row: _(MEANINGS[row[0]])),
        Field(_("Bounds"), lambda row: "{:g} – {:g}".format(*BOUNDS[row[0]])),
        Field(_("Fitted"), lambda row: Cell(f"{row[1]:.4g}", row[1]), numeric=True),
    )
    return table("constants", asdict(constants).items(), fields)


def errors_table(_: Callable, name: str, results: pd.DataFrame) -> Table:
    """Each training's throughput and memory, published and modelled, with the errors of the model and of its rivals."""

    def printed(name: str) -> Callable[[pd.Series], float | None]:
        return lambda row: None if math.isnan(row["memory"]) else row[name]

    titles = {
        "model": _("Error"),
        "left_out": _("Without its family"),
        "nearest": _("Nearest"),
        "megatron": _("Megatron-LM's error"),
    }
    fields = (
        Field(_("Case"), lambda row: row["names"]),
        Field(_("Kind of case"), lambda row: _(SHORT[row.kind]), minor=True),
        Field(_("Published (samples/s)"), lambda row: row["throughput"], decimals(2)),
        Field(_("Modelled (samples/s)"), lambda row: row["model_throughput"], decimals(2)),
        *(Field(titles[name], itemgetter(f"{name}_error"), _signed, minor=name != "model") for name in MODELS),
        Field(_("Published (MiB)"), printed("memory"), count, minor=True),
        Field(_("Modelled (MiB)"), printed("model_memory"), count, minor=True),
        Field(_("Memory error"), lambda row: row["model_memory_error"], _signed),
        Field(_("Megatron-LM's memory error"), lambda row: row["megatron_memory_error"], _signed, minor=True),
    )
    return table(name, (row for _index, row in results.iterrows()), fields)


def _signed(error: float) -> Cell:
    return Cell("–", float("-inf")) if math.isnan(error) else Cell(f"{error:+.1%}", abs(error))


def kinds_table(_: Callable, results: pd.DataFrame, name: str, of: str) -> Table:
    """For each kind of case the errors of the model and its rivals: of throughput, or `of` "_memory"."""
    captions = {"": N_("Throughput errors, median and largest"), "_memory": N_("Memory errors, median and largest")}
    titles = {
        "model": _("This model"),
        "left_out": _("Without its family"),
        "nearest": _("Nearest"),
        "megatron": _("Megatron-LM's formulas"),
    }
    others = results["kind"] != "data"
    groups = [
        *((_(KINDS[kind]), results[results["kind"] == kind]) for kind in KINDS if (results["kind"] == kind).any()),
        (_("everything except plain data parallelism"), results[others]),
        (_("all"), results),
    ]
    error = f"model{of}_error"
    fields = (
        Field(_("Kind of case"), itemgetter(0)),
        Field(_("Trainings"), lambda group: int(group[1][error].notna().sum()), count),
        *(
            Field(titles[model], partial(_median_and_worst, _, f"{model}{of}_error", error), numeric=True)
            for model in MODELS
        ),
    )
    shown = [group for group in groups if group[1][error].notna().any()]
    return table(f"kinds-{name}", shown, fields, _(captions[of]))


def _median_and_worst(_: Callable, name: str, of: str, group: tuple[str, pd.DataFrame]) -> Cell:
    errors, among = group[1][name], group[1][of]
    if not errors.notna().any():
        return Cell("–")
    error_summary = summary(errors)
    fewer = error_summary.cases < among.notna().sum()
    text = f"{error_summary.median:.1%}, {error_summary.worst:.1%}"
    return Cell(
        _("{errors} (of {n})").format(errors=text, n=error_summary.cases) if fewer else text, error_summary.median
    )


def uncertainty_table(_: Callable, calibration: Calibration) -> Table:
    """Each kind of case, and each program on a GPU, with the factor to allow for."""
    of_kind = (
        (_("V100, published programs: {kind}").format(kind=_(KINDS[kind])), level) for kind, level in _here(calibration)
    )
    of_group = (
        (_("{gpu}, program `{program}`: {family}").format(gpu=gpu.capitalize(), program=program, family=model), level)
        for (gpu, program, model), level in calibration.measured.items()
    )
    rest = (_("everything else"), calibration.uncertainty[ELSEWHERE])
    fields = (
        Field(_("Kind of case"), lambda row: row[0]),
        Field(_("Trainings"), lambda row: row[1].cases, count),
        Field(_("Throughput, factor"), lambda row: row[1].throughput, factor),
        Field(_("Memory, factor"), lambda row: row[1].memory, factor),
        Field(_("Used to judge"), lambda row: _("yes") if row[1].throughput <= JUDGES_WITHIN else _("no")),
    )
    return table("uncertainty", (*of_kind, *of_group, rest), fields)


def _here(calibration: Calibration) -> list[tuple[str, Uncertainty]]:
    return [(kind, calibration.uncertainty[kind]) for kind in KINDS]


def kernels_table(_: Callable, calibration: Calibration) -> Table:
    """What the kernels of each program and model reach on a generation of GPUs."""
    fields = (
        Field(_("Generation"), lambda row: row[0][0].capitalize()),
        Field(_("Program"), lambda row: row[0][1]),
        Field(_("Model"), lambda row: row[0][2]),
        Field(_("Launch cost (µs)"), lambda row: row[1].launch_us, decimals(1)),
        Field(_("Factor on the peak's share"), lambda row: row[1].matrix, decimals(2)),
        Field(_("Factor on the bandwidth's share"), lambda row: row[1].memory, decimals(2)),
    )
    return table("kernels", calibration.kernels.items(), fields, _("Fitted for each program and model:"))


def coverage_table(_: Callable, calibration: Calibration) -> Table:
    """How well each generation's expectations hold for the trainings that they were not fitted on."""
    fields = (
        Field(_("Generation"), lambda row: row[0].capitalize()),
        Field(_("Trainings fitted"), lambda row: row[1].fitted, count),
        Field(_("Throughput, factor"), lambda row: row[1].factor, factor),
        Field(_("Other trainings"), lambda row: row[1].checked, count),
        Field(_("Within the factor"), lambda row: row[1].within, count),
        Field(_("Used to judge"), lambda row: _("yes") if row[1].factor <= JUDGES_WITHIN else _("no")),
    )
    return table("coverage", calibration.generations.items(), fields, _("How the expectations hold:"))


def kept_kinds_table(_: Callable, checks: pd.DataFrame) -> Table:
    """For each program, GPU and family the median and the largest error on what the kernels were not fitted on."""
    titles = (_("Trainings"), _("Throughput, median error"), _("Throughput, worst error"), _("Memory, median error"))
    words = (_("Program"), "GPU", _("Family"))
    columns = (
        *(Column(title) for title in words),
        *(Column(title, numeric=True) for title in (*titles, _("Memory, worst error"))),
    )
    rows = []
    for group, members in checks[~checks["fitted"]].groupby(["program", "gpu", "family"]):
        errors = summary(members["error"]), summary(members["memory_error"])
        shares = [share for error_summary in errors for share in (error_summary.median, error_summary.worst)]
        cells = (Cell(f"{share:.1%}", share) for share in shares)
        rows.append((*(Cell(str(name)) for name in group), figure(len(members), 0), *cells))
    return Table("kept-kinds", columns, tuple(rows), _("Trainings that check the fit, by program, GPU and family:"))


def kept_table(_: Callable, checks: pd.DataFrame) -> Table:
    """Each training measured by kept runs, with its prediction."""
    fields = (
        Field(_("Measurement"), itemgetter("name")),
        Field(_("Program"), itemgetter("program"), minor=True),
        Field("GPU", itemgetter("gpu")),
        Field(_("Used for"), lambda row: _("fit") if row["fitted"] else _("check"), minor=True),
        Field(_("Newest run"), itemgetter("run"), minor=True),
        Field(_("Measured (samples/s)"), _measured, numeric=True),
        Field(_("Modelled (samples/s)"), itemgetter("modelled"), decimals(1)),
        Field(_("Error"), itemgetter("error"), _signed),
        Field(_("Launches"), itemgetter("launch"), percents(0), minor=True),
        Field(_("Measured (MiB)"), itemgetter("memory_mib"), count, minor=True),
        Field(_("Modelled (MiB)"), itemgetter("modelled_memory"), count, minor=True),
        Field(_("Memory error"), itemgetter("memory_error"), _signed, minor=True),
    )
    rows = (row for _index, row in checks.iterrows())
    caption = _("Every training that kept runs measured, in parentheses its lowest and highest repeat in n runs:")
    return table("kept", rows, fields, caption)


def _measured(row: pd.Series) -> Cell:
    """The throughput of the newest run, with those of all repeats of all runs where there are several."""
    several = len(row["runs"]) > 1 or row["lowest"] < row["highest"]
    span = numbers.span(numbers.fixed(row[end], 1) for end in ("lowest", "highest"))
    return replace(figure(row["throughput"], 1), note=f"{span}, n\u00a0=\u00a0{len(row['runs'])}" if several else "")


def megatron_table(_: Callable, checks: Iterable[PublishedRate]) -> Table:
    """Each figure of Megatron-LM with its prediction, TFLOP/s per GPU."""
    fields = (
        Field(_("Measurement"), lambda check: check.name),
        Field("GPU", lambda check: check.gpu),
        Field(_("Published (TFLOP/s per GPU)"), lambda check: check.measured, decimals(1)),
        Field(_("Modelled (TFLOP/s per GPU)"), lambda check: check.modelled, decimals(1)),
        Field(_("Error"), lambda check: check.error, _signed),
    )
    return table("megatron", checks, fields, _("Figures published for Megatron-LM:"))


def spent_table(_: Callable, results: pd.DataFrame, cluster: ClusterModel, constants: Constants) -> Table:
    """How an iteration of each training divides, in per cent."""
    columns = (Column(_("Case")), *(Column(_(title), numeric=True) for title in SPENT.values()))
    rows = []
    for name, job in zip(results["name"], results["job"], strict=True):
        seconds = predict(job, cluster, constants).seconds
        shares = [getattr(seconds, kind) / seconds.total for kind in SPENT]
        cells = (Cell(f"{share:.0%}" if share >= 0.005 else "–", share) for share in shares)
        rows.append((Cell(name), *cells))
    return Table("spent", columns, tuple(rows))
