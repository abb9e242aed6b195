"""What `make` and the set-up know of the tasks before anything is installed. Standard library only, Python 3.8+.

Which environments a task needs, and the variables of make's command line. The tasks themselves are in `repro.cli`, which
needs Python 3.11.
"""

from __future__ import annotations

import difflib
import re
import shlex
import sys
from collections.abc import Mapping, Sequence

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
NO_BASELINE = "none"
"""What BASELINES names where none is to run, whatever BASELINE_PYTHON names, whose libraries OneFlow may still use."""


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
    named = set(names(variables.get("BASELINES", ""))) - {"0", NO_BASELINE}
    return PINNED_BASELINES[0] if named and not python and not in_image else None


def names(text: str) -> tuple[str, ...]:
    """The value of an option that may name several, separated by commas or blanks."""
    return tuple(dict.fromkeys(text.replace(",", " ").split()))


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


def unknown_task(name: str, targets: Sequence[str]) -> str:
    """What to say of a target that is none of those that the Makefile has."""
    (nearest,) = difflib.get_close_matches(name, [*targets, "setup", "clean", "help"], 1, cutoff=0.0)
    return f"make {name}: no such target; did you mean {nearest}? `make` lists them all"


if __name__ == "__main__":
    print(unknown_task(sys.argv[1], sys.argv[2:]), file=sys.stderr)
    sys.exit(2)
