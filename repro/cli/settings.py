"""Options and exit statuses of tasks: types and texts of options, and one mapping from errors to statuses.

A task is a function whose first parameter is an `Invocation`; each further parameter is an option with a type and a
default, or a group of options that tasks share (`repro.cli.options`). Fabric shows it as `--max-gpus` (`repro.cli.fab`), make takes it as `MAX_GPUS=` (`repro.cli.make`); both are
checked here in the same way. Its text is in `OPTIONS` unless the task defines one.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import inspect
import os
import shutil
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NewType

from repro.images.runtime import IMAGE
from repro.models.variants import DEFAULT, VARIANTS
from repro.runs.digests import UNSIGNED
from repro.targets import CU102, command_line, names
from repro.utils.errors import BAD_INPUT, FAILED, INTERRUPTED, ReproError
from repro.utils.paths import in_home
from repro.utils.printable import one_line, printable
from repro.utils.typed_numbers import number_of

SHOWN = 200
"""How much of a value is shown where it is refused, in characters."""
OPTIONS = {
    "arch": "architectures of the host's GPUs, such as 90 or 80,90 (default: those of the GPUs here)",
    "base": "base image in place of the pinned one: any Debian 11, for STACK=baseline 12",
    "baseline_python": "an interpreter with PyTorch for the baselines, which run interleaved with OneFlow, or cu102 for the "
    "pinned PyTorch 1.12.1 of CUDA 10.2 (default with baselines: the pinned one of docker/baseline.lock)",
    "attempt_timeout": "seconds after which an attempt is ended, whatever it prints (default: 3600)",
    "baselines": f"baselines to run: {', '.join(VARIANTS)}; or none (default with baseline_python: {', '.join(DEFAULT)})",
    "batch": "global batch size (default: 4 per GPU)",
    "bundle": "folder of the offline bundle, which `make bundle` writes",
    "ca": "file with CA certificates that the build trusts",
    "cases": "names or patterns of published cases, separated by commas, such as 'DP_*' (default: all)",
    "cluster": "run on the nodes of an inventory, by its name or folder",
    "cublas": "a newer cuBLAS, as a library or the folder that has it",
    "cudnn": "a newer cuDNN, as a library or the folder that has it",
    "cupti": "the CUPTI that traces kernels, as a library or the folder that has it; with a cluster, on its nodes",
    "data": "audit the copy of repro/data in this folder, and write nothing",
    "debian": "mirror of Debian in place of the pinned snapshot",
    "debian_security": "mirror of Debian's security updates in place of the pinned snapshot",
    "dry_run": "print every command, with a cluster those of every node, and start nothing",
    "format": "table for a terminal, or json for programs",
    "host": "name of the host whose page the runs belong to, such as h200x8",
    "image": "the image for RUNTIME: a name or ID in Docker, the file of a SIF (default: what `make image` makes)",
    "images": "take along what `make image` built last",
    "iterations": "iterations per case; measuring other iterations than published makes a derived case",
    "jobs": "maximum number of attempts at a time (default: as many as fit without sharing GPUs; 1 on the CPU)",
    "kit": "folder of the kit",
    "launcher": "ssh or slurm, in place of the inventory's",
    "libraries": "0 leaves out the newer cuBLAS and cuDNN, for a host that has its own",
    "limit": "only these nodes, separated by commas",
    "max_gpus": "shrink cases that need more GPUs to this number, as derived cases; 2,4 runs both sizes",
    "model": "one model, or all",
    "nccl": "2.7.8 from a wheel, or 2.7.3 from NVIDIA's repository",
    "part_mib": "largest size of a piece in MiB",
    "port": "rendezvous port (default: a free one)",
    "program": "what trains: published, the program of the report; tuned, the same with faster operators and settings; or "
    "published,tuned for both in turn, with the gain",
    "precision": "run every case in fp32, tf32 (GPUs newer than Turing) or amp; those published in another become derived cases",
    "repeats": "runs of each case (default: 6 to 12, until its verdict is decided; 2 in a smoke run)",
    "retries": "how many times to retry a failed attempt",
    "run": "a run, by its name or folder",
    "runs": "folder that runs are kept in",
    "runtime": "what ranks run with: venv, docker or apptainer; with a cluster also pyxis (default: venv, or the "
    "inventory's)",
    "scale": "smoke for tiny shapes on the CPU, published for the published ones (default: by the GPUs that are here)",
    "side_by_side": "0 runs one attempt at a time on a cluster, 1 insists on several, each on nodes of its own (default: "
    "several over SSH, one under Slurm)",
    "stack": "cu102, cu102-modern or cpu (default: by the GPU)",
    "stall_timeout": "seconds without output after which a run counts as hanging (default: 900; 120 in a smoke run)",
    "tolerance": "per cent in place of every tolerance that the verdicts derive; named in every outcome",
}
"""Texts of the options for `--help`, unless a task defines its own."""


REMEDIES = {
    errno.EFBIG: "this account may write no file that large; raise the limit fsize (ulimit -f)",
    errno.EMFILE: "this account may open no more files; raise the limit nofile (ulimit -n)",
    errno.ENFILE: "this machine may open no more files; end what has them open (fs.file-nr says how many are)",
    errno.EIO: "the disk, or the server of a network file system, fails; the kernel's log says more (dmesg)",
    errno.ESTALE: "the server of a network file system has lost this file; start again",
}
"""What to do about errors of files that are no fault of the project, by their numbers."""


FileThere = NewType("FileThere", str)
"""An option that names a plain file which is there; `FAULTS` has the check of this kind, and of each below."""
FolderThere = NewType("FolderThere", Path)
"""One that names a folder which is there."""
PathThere = NewType("PathThere", str)
"""One that names a file or folder which is there."""
ImageName = NewType("ImageName", str)
"""One that names an image."""
BaselinePython = NewType("BaselinePython", str)
"""One that names an interpreter which is there, or a pinned one."""
KeyFile = NewType("KeyFile", str)
"""One that names the file of an SSH key which is there, or none."""


class Exit(ReproError):
    """A task ends with this message for a person, and with this exit status."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.message, self.status = printable(message), code


class OptionError(ReproError):
    """An option that a task does not have, or a value that the option cannot have."""


@dataclass(frozen=True)
class Option:
    """An option of a task: its annotated type, its default and its text."""

    name: str
    kind: Any
    default: Any
    help: str

    @property
    def variable(self) -> str:
        """As make has it."""
        return self.name.upper()

    @property
    def flag(self) -> str:
        """As Fabric has it."""
        return "--" + self.name.replace("_", "-")

    def parse(self, text: str, label: str) -> Any:
        """The value of a text; OptionError names the option by `label`.

        An empty text is the default, or itself where the default is None and the option is a text: an answer may be
        empty, as that there is no GPU.
        """
        if text == "":
            return "" if self.kind is str and self.default is None else self.default
        try:
            kind = getattr(self.kind, "__supertype__", self.kind)
            if kind in BOUNDED:
                return BOUNDED[kind](text, self.variable)
            return PARSERS[kind](text) if kind in PARSERS else _chosen(kind, text)
        except ValueError as error:
            raise OptionError(f"{label}{one_line(text, SHOWN)}: {error}") from None

    def check(self, value: Any) -> None:
        """OptionError for a value, the default as well, that is not what options of this kind have to be."""
        if value and self.kind in FAULTS and (fault := FAULTS[self.kind](value)):
            raise OptionError(f"{self.variable}={one_line(str(value), SHOWN)}: {fault} ({self.help})")

    def show(self, value: Any) -> str:
        """The text of a value, as `parse` reads it."""
        if isinstance(value, bool):
            return str(int(value))
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _chosen(kind: Any, text: str) -> Any:
    """One value of a Literal, or several of a tuple of them in the Literal's order."""
    if typing.get_origin(kind) is not tuple:
        return _choice(kind, text)
    choices, chosen = typing.get_args(typing.get_args(kind)[0]), names(text)
    if not chosen or set(chosen) - set(choices):
        raise ValueError(f"it is {' or '.join(choices)}, or {','.join(choices)}")
    return tuple(choice for choice in choices if choice in chosen)


def _choice(kind: Any, text: str) -> str:
    choices = typing.get_args(kind)
    if text not in choices:
        raise ValueError(f"it is {' or '.join(choices)}")
    return text


MOST = {
    "ARCH": 999,
    "ATTEMPT_TIMEOUT": 30 * 24 * 3600,
    "BATCH": 1_000_000,
    "ITERATIONS": 1_000_000,
    "JOBS": 1024,
    "MAX_GPUS": 4096,
    "MAX_RANKS": 4096,
    "NODES": 64,
    "PART_MIB": 4096,
    "PORT": 65535,
    "REPEATS": 1000,
    "RETRIES": 100,
    "STALL_TIMEOUT": 7 * 24 * 3600,
    "TOLERANCE": 5,  # frameworks in the published comparison differ by more
}
"""The largest value of each variable that is a number: a plan of 10^9 repeats would fill the memory before it begins."""
LEAST = {"RETRIES": 0}
"""The least value of such a variable where that is not 1."""


def whole_number(text: str, variable: str) -> int:
    """The value of an option that is a number, by its variable."""
    least, most, value = LEAST.get(variable, 1), MOST[variable], number_of(text)
    if not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"it is a whole number from {least} to {most}")
    return value


def flag(text: str) -> bool:
    """The value of an option that is on or off."""
    if text not in ("0", "1"):
        raise ValueError("it is 0 or 1")
    return text == "1"


def percentage(text: str, variable: str) -> float:
    """The value of an option that is given in per cent, as a share of 1."""
    value = number_of(text.removesuffix("%"))
    if value is None or value > MOST[variable]:
        raise ValueError(f"it is a number of per cent from 0 to {MOST[variable]}, such as 2.5")
    return value / 100


def numbers(text: str, variable: str) -> tuple[int, ...]:
    """The value of an option that may be several numbers, by its variable."""
    try:
        return tuple(sorted({whole_number(part, variable) for part in names(text)}))
    except ValueError as error:
        raise ValueError(f"{error}, or several such as 2,4") from None


def _absence(there: Callable[[Any], bool], noun: str) -> Callable[[Any], str | None]:
    """What says why a path is refused that is not `there`."""
    return lambda path: None if there(path) else f"{'it is no' if os.path.exists(path) else 'no such'} {noun}"


no_file = _absence(os.path.isfile, "file")
"""What is wrong with the path of a plain file; None if nothing is."""
FAULTS: dict[Any, Callable[[Any], str | None]] = {
    FileThere: no_file,
    FolderThere: _absence(os.path.isdir, "folder"),
    PathThere: _absence(os.path.exists, "file or folder"),
    ImageName: lambda text: (
        None
        if IMAGE.fullmatch(text)
        else "it is an image's name, ID or file: letters, digits, spaces and _ / . : @ ~ + -, no dash first"
    ),
    BaselinePython: _absence(
        lambda text: text == CU102 or shutil.which(text) is not None, "program that can be started"
    ),
    KeyFile: lambda text: None if text == UNSIGNED else no_file(in_home(text)),
}
"""By kind of option, what is wrong with a value; None if nothing is."""
PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    bool: flag,
    Path: Path,
    tuple[str, ...]: names,
}
Check = Callable[[Mapping[str, Any]], object]
BOUNDED: dict[Any, Callable[[str, str], Any]] = {int: whole_number, float: percentage, tuple[int, ...]: numbers}
"""Numbers, whose bounds are those of their variable."""


def _plain(kind: Any) -> Any:
    """The type of an option that may be None, without the None."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (alternative for alternative in typing.get_args(kind) if alternative is not types.NoneType)
    return kind


@dataclass(frozen=True)
class Invocation:
    """A task as it was started: its name, and the texts of the options that differ from their defaults."""

    task: str
    texts: Mapping[str, str]

    @property
    def command(self) -> str:
        """The make command that does the same, with what of the environment decides over GPUs and threads."""
        places = {name: os.environ[name] for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS") if name in os.environ}
        return command_line(self.task, {**self.texts, **places})


class OptionTask:
    """A task that parses its options and ends with a status for every error that a person can cause."""

    def __init__(self, body: Callable, texts: Mapping[str, str]) -> None:
        self.body, self.name, self.__doc__ = body, body.__name__, body.__doc__
        self._checks: list[Check] = []
        hints = typing.get_type_hints(body)
        self.options: dict[str, Option] = {}
        self._groups: dict[str, type] = {}
        for parameter in list(inspect.signature(body).parameters.values())[1:]:
            kind = hints[parameter.name]
            if isinstance(kind, type) and is_dataclass(kind):
                self._groups[parameter.name] = kind
                self._checks += [kind.check] if hasattr(kind, "check") else []
                types_of_fields = typing.get_type_hints(kind)
                declared = [(field.name, types_of_fields[field.name], field.default) for field in fields(kind)]
            else:
                declared = [(parameter.name, kind, parameter.default)]
            self.options |= {
                name: Option(name, _plain(type_), default, texts.get(name) or OPTIONS[name])
                for name, type_, default in declared
            }
        if unused := texts.keys() - self.options.keys():
            raise TypeError(f"{self.name} has no option {', '.join(sorted(unused))}")

    @property
    def target(self) -> str:
        """The task's name as make and Fabric have it."""
        return self.name.replace("_", "-")

    def of_variables(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """The values of variables of make; OptionError names a variable that this task does not have."""
        by_variable = {option.variable: option for option in self.options.values()}
        if unknown := [name for name in texts if name not in by_variable]:
            raise OptionError(unknown_variable(unknown[0], self.target, by_variable))
        return {by_variable[name].name: by_variable[name].parse(text, f"{name}=") for name, text in texts.items()}

    def checks(self, function: Check) -> Check:
        """Have a function refuse values of the options before anything is installed: it imports no other package."""
        self._checks.append(function)
        return function

    def check(self, values: Mapping[str, Any]) -> None:
        """ReproError for values that the task would refuse, as far as that can be told before anything is installed."""
        every = {name: option.default for name, option in self.options.items()} | dict(values)
        if {"model", "runs"} <= every.keys():  # it makes runs
            from repro.runs.record import check_creatable

            check_creatable(every["runs"])
        for option in self.options.values():
            option.check(every[option.name])
        for function in self._checks:
            function(every)

    def __call__(self, **given: Any) -> Any:
        """Run the task with texts or values of options; Exit with its status unless that is 0."""
        with exit_statuses():
            values = {
                name: self.options[name].parse(value, f"{self.options[name].flag} ")
                if isinstance(value, str)
                else value
                for name, value in given.items()
            }
            texts = {
                option.variable: option.show(given[option.name])
                for option in self.options.values()
                if values.get(option.name, option.default) not in (option.default, "")
            }
            self.check(values)
            check_set_up(self.target, texts)
            grouped = {}
            for parameter, group in self._groups.items():
                own = {field.name for field in fields(group)} & values.keys()
                grouped[parameter] = group(**{name: values.pop(name) for name in own})
            return self.body(Invocation(self.target, texts), **values, **grouped)


def unknown_variable(name: str, task: str, known_names: Iterable[str]) -> str:
    """What to say of a variable that a task does not have."""
    known_names = sorted(known_names)
    if not known_names:
        return f"{name}: make {task} takes no variables"
    (nearest,) = difflib.get_close_matches(name.upper(), known_names, 1, cutoff=0.0)
    return f"{name}: make {task} has no such variable; the nearest is {nearest}. It has: {', '.join(known_names)}"


def task(**texts: str) -> Callable[[Callable], OptionTask]:
    """Make a task of a function; `texts` are those of its options that differ from `OPTIONS`."""
    return lambda body: OptionTask(body, texts)


def check_set_up(task: str, variables: Mapping[str, str]) -> None:
    """OptionError if a dependency of a task is not installed; make installs it, Fabric uses what is installed."""
    from repro.bootstrap import CONTROLLER, TRAINER, needs_of, read_marker

    missing = []
    for environment, groups in needs_of(task, variables):
        if environment == TRAINER and not (TRAINER / "bin" / "python").exists():
            missing.append(f"{TRAINER.name}, the trainers' environment")
        if environment == CONTROLLER and Path(sys.prefix).resolve() == CONTROLLER.resolve():
            missing += [f"the dependency group {group}" for group in sorted(groups - read_marker(CONTROLLER)[1])]
    if missing:
        command = f"python3 -m repro.bootstrap --for {task}"
        raise OptionError(
            f"{task} needs {' and '.join(missing)}, not installed here: `make {task}` or `{command}` does it"
        )


@contextlib.contextmanager
def exit_statuses(status: int | None = None) -> Iterator[None]:
    """Turn errors that a person can cause and fix into a message and an exit status.

    `status` is for parts of a task where the same errors mean something else: reading a run that is wrong input is
    BAD_INPUT, but once the task has begun to write, FAILED.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise Exit("interrupted", INTERRUPTED) from None
    except Exit:
        raise
    except ReproError as error:
        raise Exit(str(error), status or error.status) from error
    except MemoryError as error:
        raise Exit(
            "there is no more memory: end what else uses it, or raise the limit as (ulimit -v)", FAILED
        ) from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            name = one_line(str(error.filename), SHOWN)
            raise Exit(f"{name}: no file or folder can have so long a name; give a shorter one", BAD_INPUT) from error
        if error.errno in REMEDIES:
            what = f"{error.filename}: " if error.filename else ""
            raise Exit(f"{what}{error.strerror}: {REMEDIES[error.errno]}", FAILED) from error
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            if not error.filename or isinstance(error, BrokenPipeError):
                raise
            raise Exit(f"{error.filename}: {error.strerror}", status or FAILED) from error
        where = f"{error.filename} could" if error.filename else "a file could"
        raise Exit(f"the disk is full: {where} not be written; free some space and start again", FAILED) from error
