"""The report of the performance model in Chinese and English: its constants, its errors case by case, its limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from repro.perfmodel.calibration import fit, fit_without, target
from repro.perfmodel.constants import ELSEWHERE, FILE, JUDGES_WITHIN, Calibration, Coverage, as_toml, load_calibration
from repro.perfmodel.errors import error_frame, summary, uncertainties
from repro.perfmodel.hardware import ClusterModel, describe
from repro.perfmodel.kernels import calibrate as kernel_calibration
from repro.perfmodel.kernels import fitted_trainings
from repro.perfmodel.megatron_baseline import MegatronShare, fit_baseline
from repro.perfmodel.training import training_cases
from repro.perfmodel.validation import FILE as VALIDATION
from repro.perfmodel.validation import (
    PublishedRate,
    check_frame,
    elsewhere,
    load_measurements,
    measured_uncertainties,
    megatron_checks,
)
from repro.perfmodel.validation import as_toml as measurements_as_toml
from repro.published.cases import load_catalogue
from repro.report.charts.figure import FigureSpec, write_figures
from repro.report.charts.rows import DotChart
from repro.report.document import Block, Cell, Column, Document, Figure, Items, Section, Table, Text, markdown
from repro.report.host.results import load
from repro.report.perfmodel import tables
from repro.report.perfmodel.kept import kept_measurements
from repro.runs.digests import hosts
from repro.runs.record import write_text
from repro.utils.i18n import LANGUAGES, Translate, catalogue

FOLDER = Path("reports/model")
PUBLISHED_CLUSTER = "v100x32"
GOALS = {"median": 0.08, "worst": 0.25, "memory": 0.10}


@dataclass(frozen=True)
class ModelReportData:
    """All that the report tells, computed once for both languages.

    results: `errors.error_frame` of the published cases; checks: `validation.check_frame` of the kept runs, with `fitted`;
    exchanged: the coverage of each generation with the halves of the kept trainings exchanged.
    """

    calibration: Calibration
    cluster: ClusterModel
    results: pd.DataFrame
    baseline: MegatronShare
    checks: pd.DataFrame
    exchanged: dict[str, Coverage]
    megatron: list[PublishedRate]

    @property
    def held_out(self) -> pd.DataFrame:
        return self.results[~self.results["trained"]]

    @property
    def trained(self) -> pd.DataFrame:
        return self.results[self.results["trained"]]


def calibrate(file: Path = FILE) -> Calibration:
    """Fit the constants on the training cases, find how far off they are elsewhere, and write all of it to `file`."""
    cases, cluster = load_catalogue().ported, describe(PUBLISHED_CLUSTER)
    training = [target(case) for case in training_cases(cases)]
    constants, without = fit(training, cluster), fit_without(cases, cluster)
    here = uncertainties(
        error_frame(cases, cluster, constants=constants, without=without, baseline=fit_baseline(training, cluster))
    )
    measurements = load_measurements()
    plain = Calibration(constants, here, without)
    here |= {ELSEWHERE: elsewhere(check_frame(measurements, plain))}
    kernels, generations = kernel_calibration(measurements, constants)
    fitted = Calibration(constants, here, without, kernels, generations)
    measured = measured_uncertainties(check_frame(measurements, fitted), fitted)
    write_text(file, as_toml(replace(fitted, measured=measured)))
    return load_calibration(file)


def render(folder: Path = FOLDER) -> list[Path]:
    """Read the kept runs, calibrate, and write the report and its figures in both languages; the reports' paths."""
    write_text(VALIDATION, measurements_as_toml(kept_measurements(map(load, hosts()))))
    story = tell(calibrate())
    written = []
    for language in LANGUAGES:
        drawn = figures(story.results, folder, language)
        path = folder / f"model.{language}.md"
        write_text(path, markdown(build(story, language, drawn), folder))
        written.append(path)
    return written


def tell(calibration: Calibration) -> ModelReportData:
    """Everything for the report, by the constants of a calibration."""
    cases, cluster = load_catalogue().ported, describe(PUBLISHED_CLUSTER)
    constants, measurements = calibration.constants, load_measurements()
    baseline = fit_baseline([target(case) for case in training_cases(cases)], cluster)
    return ModelReportData(
        calibration,
        cluster,
        results=error_frame(cases, cluster, constants, calibration.without, baseline),
        baseline=baseline,
        checks=check_frame(measurements, calibration).assign(
            fitted=[(measurement.program, measurement.job) in fitted_trainings() for measurement in measurements]
        ),
        exchanged=kernel_calibration(measurements, constants, exchanged=True)[1],
        megatron=megatron_checks(constants),
    )


def build(story: ModelReportData, language: str, drawn: dict) -> Document:
    """The report in one language, with that language's figures by id."""
    _ = catalogue(language).gettext
    lead = _(
        'Predicts a case before it runs, from formulas and {constants} fitted constants. Every "modelled" figure is '
        "computed, none is measured. This page is generated by `make model`."
    ).format(constants=len(asdict(story.calibration.constants)))
    sections = (
        _outcome(_, story),
        _constants(_, story),
        _held_out(_, story, drawn),
        _training(_, story),
        _uncertainty(_, story),
        _elsewhere(_, story),
        _spent(_, story),
        _limits(_),
    )
    title = _("Performance and memory model: how well it predicts the published figures")
    return Document(language, title, lead, sections)


def _outcome(_: Callable, story: ModelReportData) -> Section:
    held_out = story.held_out
    speed, memory = summary(held_out["model_error"]), summary(held_out["model_memory_error"])
    rows = (
        _goal(_("Throughput, median error"), GOALS["median"], speed.median),
        _goal(_("Throughput, worst error"), GOALS["worst"], speed.worst),
        _goal(_("Memory, median error"), GOALS["memory"], memory.median),
        _goal(_("Memory, worst error"), None, memory.worst),
    )
    titles = (_("Held-out cases"), _("Goal"), _("This model"))
    columns = tuple(Column(title, numeric=index > 0) for index, title in enumerate(titles))
    beyond = held_out[held_out["model_error"].abs() > GOALS["worst"]]
    texts = [
        _(
            "The constants were fitted on {fitted} of the {all} published cases: single-GPU cases and data-parallel cases on "
            "several nodes and, for each report and model shape, only the first batch size. The other {held_out} were held "
            "out. This page counts trainings: cases that are the same training, such as `2D_8x1x1_16_1536x16` and "
            "`DP_8x1x1_16_1536x16`, count once, with the mean of their figures. So the {fitted} cases are {trained} trainings "
            "and the {held_out} held-out cases {checked}; the memory of {printed} of these was published."
        ).format(
            fitted=_cases(story.trained),
            all=_cases(story.results),
            held_out=_cases(held_out),
            trained=len(story.trained),
            checked=speed.cases,
            printed=memory.cases,
        )
    ]
    if len(beyond):
        texts.append(
            _(
                "The goal for the worst error is missed by {n} of {trainings} trainings: {names}. All others lie within {worst}."
            ).format(
                n=len(beyond),
                trainings=speed.cases,
                names=_(", ").join(f"`{row.name}` ({row.model_error:+.1%})" for row in _rows(beyond)),
                worst=f"{held_out.drop(beyond.index)['model_error'].abs().max():.1%}",
            )
        )
    by_kind = _(
        "Most of the held-out cases are easy: plain data parallelism of a shape used for the fit, at another batch "
        "size or number of GPUs. They are therefore shown separately from the others and next to a trivial "
        'prediction. "Nearest" takes samples/s and memory per GPU from the training case of the same shape with the '
        "closest number of GPUs, then the closest batch size; without such a case there is no prediction, so this "
        'column has fewer trainings. "Without its family" is this model fitted without any case of the same family: both '
        "ResNet50 reports, BERT, GPT-2 small, and the GPTs of 2021 are one family each. Each cell has the median and "
        "the largest error."
    )
    blocks: tuple[Block, ...] = (
        Table("outcome", columns, rows, _("Goals and errors:")),
        *(Text(text) for text in texts),
        Text(by_kind),
        tables.kinds_table(_, held_out, "throughput", ""),
        tables.kinds_table(_, held_out, "memory", "_memory"),
    )
    return Section("outcome", _("Outcome"), blocks)


def _cases(trainings: pd.DataFrame) -> int:
    """How many published cases these trainings are."""
    return int((trainings["names"].str.count(", ") + 1).sum())


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame as named tuples; their column "name" keeps its name since the index is left out."""
    return frame.itertuples(index=False)


def _goal(what: str, goal: float | None, ours: float) -> tuple[Cell, ...]:
    tone = "" if goal is None else "good" if ours <= goal else "bad"
    limit = Cell("–") if goal is None else Cell(f"≤ {goal:.0%}", goal)
    return Cell(what), limit, Cell(f"{ours:.1%}", ours, tone=tone)


def _constants(_: Callable, story: ModelReportData) -> Section:
    text = _(
        "Everything else comes from data sheets, NCCL's published tables and operation counts of the networks. Where "
        "the training cases do not determine a constant (a slower network and less interference explain the same "
        "times), a weak penalty pulls it to the middle of its bounds. The bounds were set before the constant was "
        "first fitted."
    )
    return Section("constants", _("Constants"), (Text(text), tables.constants_table(_, story.calibration.constants)))


def _held_out(_: Callable, story: ModelReportData, drawn: dict) -> Section:
    text = _(
        "Error = modelled / published − 1. Megatron-LM's formulas: FLOPs at a sustained rate plus the pipeline "
        "bubble (Narayanan et al., SC21), 18 bytes per parameter under mixed precision and the activations of "
        "Korthikanti et al. (arXiv 2205.05198). The sustained rate is fitted on the same training cases: {amp} of "
        "the tensor cores' peak and {fp32} of the fp32 peak."
    ).format(amp=f"{story.baseline.share['amp']:.1%}", fp32=f"{story.baseline.share['fp32']:.1%}")
    blocks = (
        Text(text),
        drawn["throughput"],
        tables.errors_table(_, "held-out", story.held_out),
    )
    return Section("held-out", _("Held-out cases"), blocks)


def _training(_: Callable, story: ModelReportData) -> Section:
    table = tables.errors_table(_, "training", story.trained)
    return Section("training", _("Training cases"), (Text(_("The only cases used for the fit.")), table))


def _uncertainty(_: Callable, story: ModelReportData) -> Section:
    text = _(
        "Uncertainties are factors in either direction: × 1.10 means that nine in ten results are between the "
        "expectation / 1.10 and the expectation × 1.10; with fewer than 19 cases it is the factor of the worst one. "
        "For the published programs on V100s the factors come from the held-out cases above, and for shapes not used "
        "for the fit from the fits without a family. For a program and model that kept runs measured on a generation of "
        "GPUs, the factor is that of the generation, from the section on other hardware; for everything else it is "
        "the worst of all measured groups without fitted kernels. Expectations above × {limit:.2f} judge nothing and are "
        "not shown on the pages of hosts."
    ).format(limit=1 + JUDGES_WITHIN)
    table = tables.uncertainty_table(_, story.calibration)
    return Section("uncertainty", _("Uncertainty of the expectations"), (Text(text), table))


def _elsewhere(_: Callable, story: ModelReportData) -> Section:
    checks = story.checks
    texts = (
        _(
            "On other GPUs the errors of the constants fitted on V100s are not scattered but biased, by program and model. "
            "So three numbers are fitted for each program and model on a generation of GPUs: the launch cost, and factors on "
            "the shares of the peak and of the bandwidth that kernels reach. The factor on the bandwidth exceeds what a GPU "
            "has where fused kernels move fewer bytes than are counted."
        ),
        _(
            "Measured values are from the kept runs in `reports/reproduced/`, of the program shown: each training once, with "
            "the figures of the newest run, whose code may be older than the program's newest. `make model` copies them from the runs' archives into "
            "`repro/data/validation.toml`. Every second training of a program and family is used for the fit, and the others "
            "check it; a training on several GPU models is on one side with all of them."
        ),
    )
    after = _(
        "Nine in ten trainings of a half lie within the factor when each is left out of the fit; one on several GPU "
        "models counts once, where it is furthest off. The factor is that of the half where it is larger. With the two halves "
        "exchanged, {exchanged}. Launches: the share of the modelled iteration spent only on launching kernels; where it "
        "is large, the host is the bottleneck rather than the GPU."
    ).format(exchanged=_("; ").join(_exchanged(_, story)))
    megatron = _(
        "Figures that others published for their own program, Megatron-LM on A100s, show how far the formulas for "
        "tensor and pipeline parallelism carry. They do not contribute to any uncertainty."
    )
    blocks: tuple[Block, ...] = (
        *(Text(text) for text in texts),
        tables.kernels_table(_, story.calibration),
        tables.coverage_table(_, story.calibration),
        Text(after),
        tables.kept_kinds_table(_, checks),
        tables.kept_table(_, checks),
        Text(megatron),
        tables.megatron_table(_, story.megatron),
    )
    return Section("elsewhere", _("On other hardware"), blocks)


def _exchanged(_: Callable, story: ModelReportData) -> Iterator[str]:
    text = _("{generation}: {within} of {checked} lie within it")
    for generation, coverage in story.exchanged.items():
        yield text.format(
            generation=generation.capitalize(),
            within=coverage.within,
            checked=coverage.checked,
        )


def _spent(_: Callable, story: ModelReportData) -> Section:
    text = _("Shares of the modelled iteration, excluding what is hidden behind computation.")
    chosen = story.results[story.results["family"] == "gpt-3d"]
    table = tables.spent_table(_, chosen, story.cluster, story.calibration.constants)
    return Section("spent", _("Where the time goes"), (Text(text), table))


def _limits(_: Callable) -> Section:
    items = (
        _(
            "No held-out figure entered the fit, and a test proves it. However, the authors of the formulas knew all "
            "published figures, and the penalty, the jitter of the ranks, Winograd's savings and the count of "
            "collectives were added after a first look at all errors. So the structure was chosen with hindsight; "
            "only the trainings on other hardware that check the kernels fitted there are free of it."
        ),
        _(
            "Host overhead is not modelled: where GPUs wait for the host, as with batch size 1 and a sharded "
            "optimizer (the report prints 43% GPU utilisation there), the model overestimates throughput."
        ),
        _("The memory bandwidth share is at its upper bound: some of the bytes counted are saved by caches."),
        _(
            "The published memory is a single reading of nvidia-smi, not a peak; the model predicts the peak "
            "allocation."
        ),
        _("Congestion between nodes, slow disks and data loading are not modelled; all nodes are assumed to be equal."),
    )
    return Section("limits", _("Limitations"), (Items(items),))


def figures(results: pd.DataFrame, folder: Path, language: str) -> dict[str, Figure]:
    """Write the SVG files of the page in one language into a folder; their blocks by id."""
    (block,) = write_figures([_errors(results)], folder, language, "model-")
    return {"throughput": block}


def _errors(results: pd.DataFrame) -> FigureSpec:
    """Published and modelled throughput of the held-out cases."""
    held_out = results[~results["trained"]]

    def throughput(_: Translate) -> DotChart:
        errors = held_out["model_throughput"] / held_out["throughput"] - 1
        return DotChart(
            _("Throughput, published and modelled"),
            _("modelled over published, deviation in per cent; held-out cases"),
            tuple(held_out["name"]),
            tuple((100 * float(error),) for error in errors),
            marks=(0.0,) * len(errors),
            decimals=1,
        )

    return FigureSpec("throughput", throughput, lambda _: _("None of these cases was used to fit the constants."))
