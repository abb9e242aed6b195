"""The report of the performance model in Chinese and English: its constants, its errors case by case, its limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from repro.perfmodel.calibration import fit, fit_without, target
from repro.perfmodel.constants import ELSEWHERE, FILE, JUDGES_WITHIN, Calibration, as_toml, load_calibration
from repro.perfmodel.errors import error_frame, summary, uncertainties
from repro.perfmodel.hardware import Cluster, describe
from repro.perfmodel.megatron_baseline import Baseline, fit_baseline
from repro.perfmodel.scaling_study import Study, study
from repro.perfmodel.training import training_cases
from repro.perfmodel.validation import FILE as VALIDATION
from repro.perfmodel.validation import (
    LEAST,
    Check,
    check_frame,
    load_measurements,
    measured_uncertainties,
    megatron_checks,
)
from repro.perfmodel.validation import as_toml as measurements_as_toml
from repro.published.cases import load_catalogue
from repro.report.document import Block, Cell, Column, Document, Items, Section, Table, Text, markdown
from repro.report.perfmodel import tables
from repro.report.perfmodel.figures import figures
from repro.report.perfmodel.kept import kept_measurements
from repro.runs.record import write_text
from repro.utils.i18n import LANGUAGES, catalogue

FOLDER = Path("reports/model")
PUBLISHED_CLUSTER = "v100x32"
TARGETS = {"median": 0.08, "worst": 0.25, "memory": 0.10}


@dataclass(frozen=True)
class ReportData:
    """All that the report tells, computed once for both languages.

    results: `errors.error_frame` of the published cases; kept: `validation.check_frame` of the kept runs.
    """

    calibration: Calibration
    cluster: Cluster
    results: pd.DataFrame
    baseline: Baseline
    kept: pd.DataFrame
    megatron: list[Check]
    study: Study

    @property
    def held_out(self) -> pd.DataFrame:
        return self.results[~self.results["trained"]]

    @property
    def trained(self) -> pd.DataFrame:
        return self.results[self.results["trained"]]


def calibrate(file: Path = FILE) -> Calibration:
    """Fit the constants on the training cases, find how far off they are elsewhere, and write all of it to `file`."""
    cases, cluster = load_catalogue().cases, describe(PUBLISHED_CLUSTER)
    training = [target(case) for case in training_cases(cases)]
    constants, without = fit(training, cluster), fit_without(cases, cluster)
    here = uncertainties(error_frame(cases, cluster, constants, without, fit_baseline(training, cluster)))
    measured, elsewhere = measured_uncertainties(check_frame(load_measurements(), constants))
    write_text(file, as_toml(Calibration(constants, here | {ELSEWHERE: elsewhere}, measured, without)))
    return load_calibration(file)


def render(folder: Path = FOLDER) -> list[Path]:
    """Read the kept runs, calibrate, and write the report and its figures in both languages; the reports' paths."""
    write_text(VALIDATION, measurements_as_toml(kept_measurements()))
    story = tell(calibrate())
    written = []
    for language in LANGUAGES:
        drawn = figures(story.results, story.study, folder, language)
        path = folder / f"model.{language}.md"
        write_text(path, markdown(build(story, language, drawn), folder))
        written.append(path)
    return written


def tell(calibration: Calibration) -> ReportData:
    """Everything for the report, by the constants of a calibration."""
    cases, cluster = load_catalogue().cases, describe(PUBLISHED_CLUSTER)
    constants = calibration.constants
    baseline = fit_baseline([target(case) for case in training_cases(cases)], cluster)
    return ReportData(
        calibration,
        cluster,
        error_frame(cases, cluster, constants, calibration.without, baseline),
        baseline,
        check_frame(load_measurements(), constants),
        megatron_checks(constants),
        study(calibration),
    )


def build(story: ReportData, language: str, drawn: dict) -> Document:
    """The report in one language, with that language's figures by id."""
    _ = catalogue(language).gettext
    lead = _(
        "What to expect of a case before it runs, from formulas and {constants} fitted constants. Every figure in the "
        'columns "modelled" is computed, none is measured. All of this page is written by `make model`.'
    ).format(constants=len(asdict(story.calibration.constants)))
    sections = (
        _outcome(_, story),
        _constants(_, story),
        _held_out(_, story, drawn),
        _training(_, story),
        _uncertainty(_, story),
        _elsewhere(_, story),
        _spent(_, story),
        _scale(_, story, drawn),
        _limits(_),
    )
    title = _("Performance and memory model: how well it predicts the published figures")
    return Document(language, title, lead, sections)


def _outcome(_: Callable, story: ReportData) -> Section:
    held_out = story.held_out
    speed, memory = summary(held_out["model_error"]), summary(held_out["model_memory_error"])
    rows = (
        _goal(_("Throughput, median error"), TARGETS["median"], speed.median),
        _goal(_("Throughput, worst error"), TARGETS["worst"], speed.worst),
        _goal(_("Memory, median error"), TARGETS["memory"], memory.median),
        _goal(_("Memory, worst error"), None, memory.worst),
    )
    titles = (_("Held-out cases"), _("Goal"), _("This model"))
    columns = tuple(Column(title, numeric=index > 0) for index, title in enumerate(titles))
    beyond = held_out[held_out["model_error"].abs() > TARGETS["worst"]]
    texts = [
        _(
            "The constants were fitted on {cases} cases, {trained} different trainings: those on one GPU and the data-parallel ones over several "
            "nodes, of each report and shape only the first batch size. The other {held_out} were held out; memory was "
            "published for {printed} of them. Cases that are one training, such as `2D_8x1x1_16_1536x16` and "
            "`DP_8x1x1_16_1536x16`, count once, with the mean of their figures."
        ).format(
            cases=sum(story.trained["names"].str.count(", ") + 1),
            trained=len(story.trained),
            held_out=speed.cases,
            printed=memory.cases,
        )
    ]
    if len(beyond):
        texts.append(
            _(
                "The goal for the worst error is missed by {n} of {cases}: {names}. All others lie within {worst}."
            ).format(
                n=len(beyond),
                cases=speed.cases,
                names=_(", ").join(f"`{row.name}` ({row.model_error:+.1%})" for row in _rows(beyond)),
                worst=f"{held_out.drop(beyond.index)['model_error'].abs().max():.1%}",
            )
        )
    by_kind = _(
        "Most of the held-out cases are easy: plain data parallelism of a shape that the fit saw, at another batch or "
        'number of GPUs. So they are told apart from all others, and from what costs nothing to say: "nearest" is what '
        "each GPU did and held in the training case of the same shape that is nearest in GPUs, then in batch; where no "
        'training case has the shape there is none, so that its column is of fewer cases. "Without its family" is this model '
        "fitted on no case of the same family: both reports of ResNet50, BERT, GPT-2 small, and the GPTs of 2021 are one "
        "each. Each cell has the median and the largest error."
    )
    blocks: tuple[Block, ...] = (
        Table("outcome", columns, rows),
        *(Text(text) for text in texts),
        Text(by_kind),
        tables.kinds_table(_, held_out, "throughput", ""),
        tables.kinds_table(_, held_out, "memory", "_memory"),
    )
    return Section("outcome", _("Outcome"), blocks)


def _rows(frame: pd.DataFrame) -> Iterator[Any]:
    """The rows of a frame as named tuples; their column "name" keeps its name since the index is left out."""
    return frame.itertuples(index=False)


def _goal(what: str, goal: float | None, ours: float) -> tuple[Cell, ...]:
    tone = "" if goal is None else "good" if ours <= goal else "bad"
    limit = Cell("–") if goal is None else Cell(f"≤ {goal:.0%}", goal)
    return Cell(what), limit, Cell(f"{ours:.1%}", ours, tone=tone)


def _constants(_: Callable, story: ReportData) -> Section:
    text = _(
        "Everything else comes from data sheets, NCCL's published tables and counts of what the networks do. Where the "
        "training cases leave a constant open (a slower network and less interference explain the same times), a weak "
        "pull towards the middle of its bounds decides. Bounds were set before their constant was first fitted."
    )
    return Section("constants", _("Constants"), (Text(text), tables.constants_table(_, story.calibration.constants)))


def _held_out(_: Callable, story: ReportData, drawn: dict) -> Section:
    text = _(
        "Errors are modelled over published, less one. Megatron-LM's formulas: FLOPs over a sustained rate with the "
        "pipeline's idle share (Narayanan et al., SC21), 18 bytes a parameter under mixed precision and the "
        "activations of Korthikanti et al. (arXiv 2205.05198); the sustained rate is fitted on the same training "
        "cases, {amp} of the tensor cores' peak and {fp32} of the fp32 peak."
    ).format(amp=f"{story.baseline.share['amp']:.1%}", fp32=f"{story.baseline.share['fp32']:.1%}")
    blocks = (
        Text(text),
        drawn["throughput"],
        tables.errors_table(_, "held-out", story.held_out),
        drawn["memory"],
    )
    return Section("held-out", _("Held-out cases"), blocks)


def _training(_: Callable, story: ReportData) -> Section:
    table = tables.errors_table(_, "training", story.trained)
    return Section("training", _("Training cases"), (Text(_("Only these were seen by the fit.")), table))


def _uncertainty(_: Callable, story: ReportData) -> Section:
    text = _(
        "Uncertainties are factors, the same either way: × 1.10 says that nine in ten lie between the expectation over "
        "1.10 and 1.10 times the expectation; of fewer than 19 cases it is the factor of the worst. For the published "
        "programs on V100s they come from the held-out cases above, for shapes that the fit did not see from the fits "
        "without a family; for a program on another GPU from what kept runs measured there, and where fewer than "
        "{least} trainings were measured, from the worst that was measured anywhere; a kept run is itself among those that "
        "its uncertainty comes from. Where the uncertainty is above × {limit:.2f}, an expectation is shown, but says "
        "nothing of whether a measurement deviates."
    ).format(least=LEAST, limit=1 + JUDGES_WITHIN)
    table = tables.uncertainty_table(_, story.calibration)
    return Section("uncertainty", _("Uncertainty of an expectation"), (Text(text), table))


def _elsewhere(_: Callable, story: ReportData) -> Section:
    kept, here = story.kept, story.calibration.uncertainty
    factors = kept["error"].map(lambda error: math.exp(abs(math.log1p(error))) - 1)
    beyond = (factors > kept["kind"].map(lambda kind: here[kind].throughput)).sum()
    texts = (
        _(
            "The same constants, fitted on V100s, on GPUs that the fit never saw. Measured is what the kept runs of "
            "`reports/reproduced/` gave, by the program that the table names: each training once, with the figures of the "
            "newest run. `make model` reads them from the runs' archives into `repro/data/validation.toml`."
        ),
        _(
            "Constants do not simply carry over: {beyond} of {n} trainings lie further off than published cases of their "
            "kind do on V100s. Launches are the share of the modelled iteration in which kernels are only started, at the "
            "time that was fitted on the V100s' hosts: where that is large, the host decides and not the GPU."
        ).format(beyond=beyond, n=len(kept)),
    )
    megatron = _(
        "What others published of a program of their own, Megatron-LM on A100s, shows how far the formulas for tensor and "
        "pipeline parallelism reach. No uncertainty is taken from it."
    )
    blocks: tuple[Block, ...] = (
        *(Text(text) for text in texts),
        tables.kept_kinds_table(_, kept),
        tables.kept_table(_, kept),
        Text(megatron),
        tables.megatron_table(_, story.megatron),
    )
    return Section("elsewhere", _("On other hardware"), blocks)


def _spent(_: Callable, story: ReportData) -> Section:
    text = _("Shares of the modelled iteration; what is hidden behind computation is not counted.")
    chosen = story.results[story.results["family"] == "gpt-3d"]
    table = tables.spent_table(_, chosen, story.cluster, story.calibration.constants)
    return Section("spent", _("Where the time goes"), (Text(text), table))


def _scale(_: Callable, story: ReportData, drawn: dict) -> Section:
    text = _(
        "MODELLED: no such run was made. For each size the quickest layout that fits, found by the search behind `make "
        "explore`, with ports and links as `repro/data/hardware/` describes them. Beyond 32 GPUs nothing published "
        "here tests the V100 lines; what the A100 line rests on is tested up to 3,072 GPUs above."
    )
    blocks = (Text(text), drawn["scale-weak"], tables.study_table(_, "scale-weak-table", story.study.weak))
    more = (drawn["scale-strong"], tables.study_table(_, "scale-strong-table", story.study.strong))
    return Section("scale", _("On paper: GPT from 8 to 8,192 GPUs"), (*blocks, *more))


def _limits(_: Callable) -> Section:
    items = (
        _(
            "The fit saw no held-out figure, and a test proves it. The formulas, however, were written by people who "
            "knew all published figures, and the pull, the jitter of the ranks, Winograd's saving and the count of "
            "collectives were added after a first look at all errors. So the structure is chosen with hindsight, and "
            "only the section on other hardware, to which nothing was tuned, is free of it."
        ),
        _(
            "The host's own work is not modelled: where GPUs wait for it, as with a batch of one sample and a sharded "
            "optimizer (the report prints 43 % GPU utilisation there), the model is too quick."
        ),
        _("The share of the memory bandwidth stands at its upper bound: some bytes are counted that caches save."),
        _(
            "Memory is the published single reading of nvidia-smi, which is no peak; the model gives what is allocated "
            "at the worst moment."
        ),
        _("Congestion between nodes, slow disks and data loading are not modelled; nodes are taken as equal."),
    )
    return Section("limits", _("What it does not say"), (Items(items),))
