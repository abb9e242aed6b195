"""The data of published programs in a bench: a stand-in, files named by DATA, or synthetic batches."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from repro.models.programs import PUBLISHED, TEXT_FILES, Program
from repro.models.token_files import TokenFileError, read_index
from repro.planning.trainer_config import reference_config
from repro.published.cases import Case, Layout, load_catalogue
from repro.published.ports import published_program
from repro.published.trainer_config import SYNTHETIC, TrainingData
from repro.runs.plan import SMOKE, Plan
from repro.runs.unit import Unit
from repro.utils.errors import PlanError
from repro.utils.paths import CACHE, in_home

STANDINS = CACHE / "standins"
"""Where stand-ins are kept on this machine."""
PART = re.compile(r"part-(\d+)")
FORMS = {
    "ofrecord": "a folder with the parts of an OFRecord data set, part-00000 or part-0 and so on",
    "megatron": "the prefix of Megatron's token files, PREFIX.idx and PREFIX.bin",
    "text": "a folder with texts, *.txt or wikiextractor's wiki_00 and so on, and GPT-2's encoder.json and vocab.bpe",
}
"""What DATA must name, by the kind of data."""


class DataError(PlanError):
    """DATA cannot be read, or is ambiguous about its program."""


def check_choices(choices: Sequence[str], scale: str | None, here: bool) -> None:
    """DataError for values of DATA that no plan can have; `here` tells whether ranks see this machine's files."""
    _refuse_in_smoke_run(choices, scale)
    for choice, name, path in _parts_of(choices):
        if name and not _cases_of(name):
            raise DataError(f"DATA={choice}: there is no model or report {name}")
        there = in_home(path)
        if here and path != SYNTHETIC and not any(os.path.exists(file) for file in (there, f"{there}.idx")):
            raise DataError(
                f"DATA={choice}: no such folder, and no {there.name}.idx of token files next to it; correct the path, or leave "
                "DATA out for a stand-in"
            )


def with_data(
    plan: Plan,
    choices: Sequence[str] = (),
    here: bool = True,
    refusal: Callable[[str], str | None] = lambda path: None,
) -> Plan:
    """The plan of a bench with the data that its published programs read.

    The tuned program and the baselines keep their synthetic batches. So does a smoke run, where all layouts must see
    the same batches to print the same losses. It gets an additional unit per program, which reads a small stand-in and
    has no reference.

    Parameters
    ----------
    choices : values of DATA: "synthetic", a path, or either after the name of a model or report and "=".
    here : whether ranks see this machine's files, so that missing files are detected now.
    refusal : returns why ranks cannot see a path, or None.

    Raises
    ------
    DataError
        A path does not have the program's kind of data, or its program is ambiguous.
    """
    _refuse_in_smoke_run(choices, plan.scale)
    programs = {program.report: program for _unit, program in _published(plan)}
    models = {program.report: unit.model for unit, program in _published(plan)}
    chosen = _chosen(choices, programs, models, plan)
    if plan.scale == SMOKE:
        read = [program for report, program in programs.items() if report not in chosen]
        return replace(plan, units=(*plan.units, *(_reading(plan, program) for program in read)))
    settings = {}
    for report, program in programs.items():
        path = chosen.get(report)
        if path not in (None, SYNTHETIC) and (reason := refusal(path)):
            raise DataError(f"DATA={path}: {reason}")
        settings[report] = _setting(program, path, here)
    data = {unit.name: settings[program.report] for unit, program in _published(plan)}
    units = tuple(
        replace(unit, config=replace(unit.config, data=data[unit.name])) if unit.name in data else unit
        for unit in plan.units
    )
    if here:
        for unit in units:
            _check_length(unit)
    return replace(plan, units=units)


def _check_length(unit: Unit) -> None:
    """DataError if token files of this machine do not have the samples that a unit reads of them."""
    prefix = unit.config.data.prefix
    if prefix:
        try:
            samples = unit.config.iterations * unit.global_batch
            read_index(prefix).check(unit.config.shape["seq_length"], samples)
        except (TokenFileError, OSError) as error:
            raise DataError(f"DATA={prefix}: {unit.name}: {error}") from error


def standin_of(program: Program, scale: str) -> TrainingData:
    """The `data` of a trainer's configuration for a program's stand-in."""
    return TrainingData(program.data, parts=program.data_parts or None, standin=program.standin, scale=scale)


def own_files(plan: Plan) -> list[str]:
    """A file or folder of each user-supplied data set in a plan."""
    return list(dict.fromkeys(path for unit in plan.units if (path := unit.config.data.own_file)))


def _program(unit: Unit) -> Program:
    return published_program(unit.model, unit.report)


def _published(plan: Plan) -> list[tuple[Unit, Program]]:
    """Units of published programs whose data can be read, each with its program."""
    pairs = [(unit, _program(unit)) for unit in plan.units]
    return [
        (unit, program)
        for unit, program in pairs
        if program.standin and unit.config.program == PUBLISHED and not unit.baseline_of
    ]


def _chosen(choices: Iterable[str], programs: dict[str, Program], models: dict[str, str], plan: Plan) -> dict[str, str]:
    """The path or "synthetic" chosen for each report; programs that read no data may be given synthetic batches."""
    chosen: dict[str, str] = {}
    for choice, name, path in _parts_of(choices):
        reports = [report for report in programs if name in ("", report, models.get(report))]
        if not reports:
            if path == SYNTHETIC and _cases_of(name):
                continue
            raise DataError(f"DATA={choice}: {_why_unread(name, plan)}; it is for {_names(programs, models)}")
        kinds = {programs[report].standin for report in reports}
        if path != SYNTHETIC and len(kinds) > 1:
            raise DataError(f"DATA={choice}: {', '.join(reports)} read different data; name one of them: REPORT={path}")
        chosen |= dict.fromkeys(reports, path)
    return chosen


def _parts_of(choices: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Each value of DATA, its model or report, "" without one, and its path."""
    for choice in choices:
        name, equals, path = choice.partition("=")
        if equals and not (name and path):
            raise DataError(f"DATA={choice}: it is a path or {SYNTHETIC}, or NAME=path with a model or report")
        yield choice, name if equals else "", path if equals else choice


def _refuse_in_smoke_run(choices: Iterable[str], scale: str | None) -> None:
    """DataError for files in a smoke run, which has no use for them."""
    if scale == SMOKE and any(choice.rpartition("=")[2] != SYNTHETIC for choice in choices):
        raise DataError("DATA: for the published shapes on GPUs; a smoke run reads a small stand-in of its own")


def _cases_of(name: str) -> dict[str, Case]:
    """The published cases of a model or report by their names, all without a name."""
    return {case.name: case for case in load_catalogue().cases if name in ("", case.report, case.model)}


def _why_unread(name: str, plan: Plan) -> str:
    """Why no unit of a plan reads the data of a model or report, or any at all without a name."""
    if not name:
        return "no program of this run reads data"
    if not (cases := _cases_of(name)):
        return f"there is no model or report {name}"
    if any(name in (unit.model, unit.report) for unit in plan.units):
        return f"no program of {name} in this run reads data"
    skipped = next((f", as {skip.case} {skip.reason.text()}" for skip in plan.skipped if skip.case in cases), "")
    return f"no case of {name} is in this run{skipped}"


def _names(programs: dict[str, Program], models: dict[str, str]) -> str:
    return ", ".join(dict.fromkeys([*models.values(), *programs])) or "published programs"


def _setting(program: Program, path: str | None, here: bool) -> TrainingData:
    """The `data` of a trainer's configuration."""
    if path == SYNTHETIC:
        return TrainingData(SYNTHETIC)
    if path is None:
        return standin_of(program, "published")
    parts = program.data_parts or None
    if here:
        path = str(in_home(path).absolute())
        if program.data_parts:
            parts = _parts_in(program, Path(path))
        elif missing := _missing(program, path):
            raise DataError(f"DATA={path}: there is no {missing}; {program.report} reads {FORMS[program.data]}")
    if program.data == "megatron":
        return TrainingData(program.data, prefix=path, parts=parts)
    return TrainingData(program.data, path, parts=parts)


def _parts_in(program: Program, folder: Path) -> int:
    """Number of parts in a folder; DataError if there are none or there is a gap."""
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    numbers = {int(match[1]) for name in names if (match := PART.fullmatch(name))}
    missing = next((number for number in range(max(numbers, default=0) + 1) if number not in numbers), None)
    if missing is not None:
        raise DataError(f"DATA={folder}: there is no part {missing}; {program.report} reads {FORMS[program.data]}")
    return len(numbers)


def _missing(program: Program, path: str) -> str | None:
    """The name of a missing file, or None."""
    if program.data == "megatron":
        files = [Path(f"{path}.idx"), Path(f"{path}.bin")]
    else:
        files = [Path(path) / name for name in ("encoder.json", "vocab.bpe")]
        if not any(next(Path(path).rglob(name), None) for name in TEXT_FILES):
            return str(Path(path) / TEXT_FILES[0])
    return next((str(file) for file in files if not file.is_file()), None)


def _reading(plan: Plan, program: Program) -> Unit:
    """A unit on one process that reads a small stand-in for the program's data."""
    unit = next(unit for unit, published in _published(plan) if published.report == program.report)
    name = f"smoke_{program.report}_data"
    data = standin_of(program, "small")
    alone = reference_config(replace(unit.config, layout=Layout()))
    return replace(
        unit,
        name=name,
        config=replace(alone, case=name, data=data),
        stands_for=(),
        case=None,
        reference=None,
    )
