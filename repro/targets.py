"""What `make` and the set-up know of the tasks before anything is installed. Standard library only, Python 3.8+.

Which environments a task needs, and the variables of make's command line with what can be said against them so early. The tasks themselves are in `repro.cli`; their options are read here from its source,
which needs none of the packages that it imports.
"""

from __future__ import annotations

import ast
import difflib
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

CLI = Path(__file__).resolve().parent / "cli"

TESTING = ("cluster", "export", "image", "test")
"""The dependency groups that the tests need, and with which every target but `mutation` runs."""

GROUPS = (*TESTING, "mutation")
"""The dependency groups of pyproject.toml; without any, the controller is what `make bench` needs."""

TASK_GROUPS = {
    "archive": ("export",),
    "base": ("image",),
    "bundle": ("image",),
    "compile-kernels": ("image",),
    "convergence": ("cluster",),
    "curves": ("cluster",),
    "deprovision": ("cluster",),
    "e2e": TESTING,
    "fingerprint": ("cluster",),
    "image": ("image",),
    "image-check": ("image",),
    "image-reproduce": ("image",),
    "image-test": TESTING,
    "kit": ("cluster", "export"),
    "mutation": ("mutation", "test"),
    "new-cluster": ("cluster",),
    "pins": ("image",),
    "provision": ("cluster",),
    "report": ("export",),
    "reproduce": ("cluster", "export"),
    "sbom": ("image",),
    "setup": TESTING,
    "sim": ("cluster", "image"),
    "sim-down": ("cluster", "image"),
    "test": TESTING,
    "unlock": ("cluster",),
}
"""The groups that a task needs; one that is not named here needs none. The text that models learn is ansible-core's
source, and a kit holds what all tasks need that a host without a network can do."""

VARIABLE_GROUPS = {"CLUSTER": ("cluster",), "RUN": ("cluster",), "TESTS": TESTING}
"""The groups that any task needs where this variable is given: inventories are read through ansible-inventory, also that
of a run which is gone on with, and a kit for the tests holds what they need."""

TRAINER_TASKS = (
    "bench",
    "compile-cache",
    "compile-kernels",
    "convergence",
    "curves",
    "e2e",
    "effects",
    "image-test",
    "kit",
    "preflight",
    "profile",
    "rehearse",
    "reproduce",
    "setup",
    "test",
)
"""The tasks that also need the trainer environment."""

ENVIRONMENT = (
    "CUDA_VISIBLE_DEVICES",
    "DOCKER",
    "DOCKER_HOST",
    "OMP_NUM_THREADS",
    "PYTHON",
    "TRAINER_PYTHON",
    "UV_DEFAULT_INDEX",
)
"""Variables of make's command line that go to the environment of the processes instead of a task's options."""


OF_OTHER_PYTHONS = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONINSPECT")
"""Variables by which a site's modules put other packages into every Python; they never reach ours."""

ELSEWHERE = ("CLUSTER", "DRY_RUN")
"""Variables with which nothing is trained on this machine: on nodes, or nowhere."""


BASELINE_TASKS = ("bench", "kit", "profile", "reproduce")
"""The tasks that run baselines, or take their environment along."""

PINNED_BASELINES = ("baseline", "baseline-cu102")
"""The environments of the baselines, by the names of their locks; BASELINE_PYTHON may name the second by its CUDA."""

CU102 = "cu102"


DATA_TASKS = ("convergence", "curves", "reproduce")
"""The tasks that need the trainer environment with CLUSTER too: it writes the data sets that nodes are brought."""


def needs_trainers(task: str, variables: Mapping[str, str]) -> bool:
    """Whether a task needs the trainer environment of this machine when it is given these variables."""
    elsewhere = {name for name in ELSEWHERE if variables.get(name, "") not in ("", "0")}
    return task in TRAINER_TASKS and not elsewhere - ({"CLUSTER"} if task in DATA_TASKS else set())


def pinned_baseline(task: str, variables: Mapping[str, str]) -> str | None:
    """Which of PINNED_BASELINES a task needs on this machine when it is given these variables; None if neither.

    Where ranks run in images, one of them has the first; the second has no image.
    """
    python, in_image = variables.get("BASELINE_PYTHON", ""), variables.get("RUNTIME", "") not in ("", "venv")
    if task not in BASELINE_TASKS or any(variables.get(name, "") not in ("", "0") for name in ELSEWHERE):
        return None
    if python == CU102:
        return PINNED_BASELINES[1]
    wanted = variables.get("BASELINES", "") not in ("", "0", "none") and not python and not in_image
    return PINNED_BASELINES[0] if wanted else None


def make_variables(flags: str) -> list[tuple[str, str]]:
    """The variables of make's command line as pairs of name and value, decoded from MAKEFLAGS.

    make writes them behind a word `--`, with a backslash before each blank and backslash and `$` doubled, and has not
    expanded the values. The variables that it exports to recipes, in contrast, it does expand.
    """
    arguments = re.findall(r"(?:[^\\ ]|\\.)+", flags, re.DOTALL)
    assignments = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    pairs = (re.sub(r"\\(.)", r"\1", word, flags=re.DOTALL).replace("$$", "$").partition("=") for word in assignments)
    return [(name.rstrip(":"), value) for name, equals, value in pairs if equals]


def groups_of(task: str, variables: Mapping[str, str] | None = None) -> set[str]:
    """The dependency groups of the controller that a task needs when it is given these variables, a dict."""
    groups = set(TASK_GROUPS.get(task, ()))
    for name, value in (variables or {}).items():
        groups.update(VARIABLE_GROUPS.get(name, ()) if value not in ("", "0") else ())
    return groups


def command_line(task: str, texts: Mapping[str, str]) -> str:
    """The make command with these values, for a shell."""
    return shlex.join(["make", task] + [f"{name}={value}" for name, value in texts.items()])


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
}
"""The largest value of each variable that is a number: a plan of 10^9 repeats would fill the memory before it begins."""
LEAST = {"RETRIES": 0}
"""The least value of such a variable where that is not 1."""


def whole_number(text: str, variable: str) -> int:
    """The value of an option that is a number, by its variable."""
    least, most = LEAST.get(variable, 1), MOST[variable]
    if not re.fullmatch("[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise ValueError(f"it is a whole number from {least} to {most}")
    return int(text)


def flag(text: str) -> bool:
    """The value of an option that is on or off."""
    if text not in ("0", "1"):
        raise ValueError("it is 0 or 1")
    return text == "1"


def percentage(text: str) -> float:
    """The value of an option that is given in per cent, as a share of 1."""
    try:
        share = float(text[:-1] if text.endswith("%") else text) / 100
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ValueError("it is a number of per cent from 0 to 100, such as 2.5")
    return share


def names(text: str) -> tuple[str, ...]:
    """The value of an option that may name several, separated by commas or blanks."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


def numbers(text: str, variable: str) -> tuple[int, ...]:
    """The value of an option that may be several numbers, by its variable."""
    try:
        return tuple(sorted({whole_number(part, variable) for part in names(text)}))
    except ValueError as error:
        raise ValueError(f"{error}, or several such as 2,4") from None


PARSERS: dict[tuple[str, ...], Callable[[str], Any]] = {
    ("bool",): flag,
    ("float",): percentage,
    ("tuple", "str"): names,
}
"""What reads the text of an option, by the names in the annotation of its parameter."""
BOUNDED: dict[tuple[str, ...], Callable[[str, str], Any]] = {("int",): whole_number, ("tuple", "int"): numbers}
"""Likewise for numbers, whose bounds are those of their variable."""


def options_of(task: str) -> dict[str, tuple[str, ...]] | None:
    """The variables of a task, each with the names in its annotation; None if there is no such task."""
    for path in sorted(CLI.glob("*.py")):
        for statement in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(statement, ast.FunctionDef)
                and statement.name == task.replace("-", "_")
                and _is_task(statement)
            ):
                groups = _option_groups()
                options: dict[str, tuple[str, ...]] = {}
                for argument in (*statement.args.args[1:], *statement.args.kwonlyargs):
                    kind = _names(argument.annotation or argument)
                    options.update(groups.get(kind[-1] if kind else "", {argument.arg.upper(): kind}))
                return options
    return None


def _option_groups() -> dict[str, dict[str, tuple[str, ...]]]:
    """The options of each group in `repro.cli.options`, by its class, as `options_of` gives those of a task."""
    groups: dict[str, dict[str, tuple[str, ...]]] = {}
    for statement in ast.parse((CLI / "options.py").read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.ClassDef):
            groups[statement.name] = {}
            for base in statement.bases:
                groups[statement.name].update(groups.get(base.id, {}) if isinstance(base, ast.Name) else {})
            for field in statement.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    groups[statement.name][field.target.id.upper()] = _names(field.annotation)
    return groups


def _names(annotation: ast.AST) -> tuple[str, ...]:
    return tuple(name.id for name in ast.walk(annotation) if isinstance(name, ast.Name))


def tasks() -> list[str]:
    """The names of all tasks, sorted."""
    parsed = (ast.parse(path.read_text(encoding="utf-8")).body for path in CLI.glob("*.py"))
    functions = (function for body in parsed for function in body if isinstance(function, ast.FunctionDef))
    return sorted(function.name.replace("_", "-") for function in functions if _is_task(function))


def unknown_task(name: str) -> str:
    """What to say of a target that the Makefile does not have."""
    (nearest,) = difflib.get_close_matches(name, [*tasks(), "setup", "clean", "help"], 1, cutoff=0.0)
    return f"make {name}: no such target; the nearest is {nearest}. `make` lists them all"


def _is_task(function: ast.FunctionDef) -> bool:
    calls = (decorator.func for decorator in function.decorator_list if isinstance(decorator, ast.Call))
    return any(isinstance(called, ast.Name) and called.id == "task" for called in calls)


def unknown_variable(name: str, task: str, known_names: Iterable[str]) -> str:
    """What to say of a variable that a task does not have."""
    known_names = sorted(known_names)
    if not known_names:
        return f"{name}: make {task} takes no variables"
    (nearest,) = difflib.get_close_matches(name.upper(), known_names, 1, cutoff=0.0)
    return f"{name}: make {task} has no such variable; the nearest is {nearest}. It has: {', '.join(known_names)}"


def refusal(task: str, variables: Mapping[str, str]) -> str | None:
    """What is wrong with a task's variables, as far as that can be told before anything is installed; None if nothing."""
    options = options_of(task)
    for name, text in variables.items():
        if options is None or name in ENVIRONMENT:
            continue
        if name not in options:
            return unknown_variable(name, task, options)
        try:
            if text and options[name] in PARSERS:
                PARSERS[options[name]](text)
            if text and options[name] in BOUNDED:
                BOUNDED[options[name]](text, name)
        except ValueError as error:
            return f"{name}={text}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(f"{unknown_task(sys.argv[1])}")
