"""The baselines of a run: their command and its environment, checked before anything starts."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.bootstrap import BASELINES
from repro.images.recipes import BASELINE
from repro.images.runtime import IMAGE_PYTHON
from repro.models.variants import DEFAULT, MEGATRON, VARIANTS
from repro.runs.description import BaselineProgram
from repro.runs.unit import TF32
from repro.targets import CU102, NO_BASELINE, PINNED_BASELINES
from repro.utils.errors import PlanError
from repro.utils.paths import PACKAGE

OF_TF32 = ("pytorch-tf32",)
"""The variants by default beside OneFlow in TF32: those that compute in it."""
SCRIPT = PACKAGE / "baselines" / "run.py"
PATIENCE_S = 120
PROBE = """
import importlib.metadata, json, os, pathlib, shutil, sys, sysconfig, numpy, torch
megatron = [each.version for each in importlib.metadata.distributions(name="megatron-core")]
headers = pathlib.Path(sysconfig.get_paths()["include"], "Python.h").exists()
compilers = [shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang")]
print(json.dumps({
    "python": sys.version_info[:2],
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "gpus": torch.cuda.device_count(),
    "megatron_core": megatron[0] if megatron else None,
    "fused_attention": hasattr(torch.nn.functional, "scaled_dot_product_attention"),
    "compiles": hasattr(torch, "compile") and headers and any(compilers),
    "compiles_for_cpu": bool(shutil.which("g++")) and " " not in torch.__file__,
}))
"""
OLDEST_PYTHON = (3, 10)
"""The oldest Python that repro/baselines runs on."""
OF_ERA = ("pytorch-unfused",)
"""The variants by default in the pinned environment of the published era, whose PyTorch has no fused attention."""
COMPILED = ("pytorch-compiled", *MEGATRON)


@dataclass(frozen=True)
class PinnedImage:
    """An image that has a pinned environment, by ID or file, and the words that start a program in it."""

    image: str
    words: tuple[str, ...]


def baseline_program(
    python: str | None,
    command: tuple[str, ...],
    names: str | None,
    gpus: int,
    precision: str | None = None,
    image: Callable[[], PinnedImage | None] = lambda: None,
) -> BaselineProgram | None:
    """The program of a run's baselines, None if no baseline is asked for.

    Parameters
    ----------
    python : BASELINE_PYTHON, an interpreter that has PyTorch and NumPy, or "cu102" for the pinned one of the published
        era; without it, the pinned one of today.
    command : what replaces that interpreter and the baselines' script, unchecked.
    names : BASELINES, names of variants separated by commas, or NO_BASELINE.
    gpus : how many GPUs the run uses; PyTorch must see as many.
    precision : PRECISION, None for each case's own.
    image : gives the image of today's pinned environment, where ranks run in images.

    Raises
    ------
    PlanError
        A variant is unknown, or the interpreter cannot run the baselines; the message says what to do.
    """
    asked = (names or "").replace(" ", ",").split(",")
    if asked == [NO_BASELINE]:
        return None
    variants = variants_of(asked) or variants_by_default(python, precision)
    if command:
        return BaselineProgram(command, variants=variants)
    if not python and not names:
        return None
    lock = "" if python and python != CU102 else f"docker/{PINNED_BASELINES[python == CU102]}.lock"
    inside = image() if lock and not python else None
    if inside:
        named, advice = "the image of the baselines", f"`make image-check STACK={BASELINE}` shows what it has"
        words, interpreter = inside.words, IMAGE_PYTHON
    else:
        words, interpreter = (), str(pinned_python(lock)) if lock else str(python)
        named, advice = _named(interpreter), "Name an interpreter with torch and numpy, or leave BASELINE_PYTHON out"
    versions = _checked(named, (*words, interpreter), gpus, advice)
    if missing := lacking(versions, variants, gpus):
        raise PlanError(f"{named}: {missing}")
    return BaselineProgram((interpreter, str(SCRIPT)), versions, variants, inside.image if inside else "", lock)


def variants_by_default(python: str | None, precision: str | None) -> tuple[str, ...]:
    """The variants where BASELINES names none, in the environment of BASELINE_PYTHON and beside OneFlow in this precision."""
    return OF_ERA if python == CU102 else OF_TF32 if precision == TF32 else DEFAULT


def pinned_python(lock: str) -> Path:
    """The interpreter of a pinned environment; PlanError if it is not set up."""
    name = Path(lock).stem
    python = BASELINES[name] / "bin" / "python"
    if not python.exists():
        raise PlanError(
            f"BASELINES needs the environment that {lock} pins, not installed here: `make` installs it for a task with "
            f"BASELINES, `python3 -m repro.bootstrap {name}` at any time; BASELINE_PYTHON= names another interpreter"
        )
    return python


def lacking(versions: Mapping, variants: Sequence[str], gpus: int) -> str:
    """What an environment with these versions, as PROBE gives them, lacks for the variants on `gpus` GPUs; "" if nothing."""
    python = tuple(versions.get("python") or OLDEST_PYTHON)
    if python < OLDEST_PYTHON:
        return f"it has Python {'.'.join(map(str, python))}, and the baselines need {'.'.join(map(str, OLDEST_PYTHON))} or newer"
    if not versions.get("fused_attention", True) and (needing := set(variants) - set(OF_ERA)):
        return (
            f"PyTorch {versions['torch']} has no fused attention, which {', '.join(sorted(needing))} needs; it runs "
            f"BASELINES={','.join(OF_ERA)}"
        )
    if "megatron_core" in versions and not versions["megatron_core"] and (needing := set(variants) & set(MEGATRON)):
        return f"Megatron-Core is not installed, which {', '.join(sorted(needing))} needs"
    if not versions.get("compiles", True) and (needing := set(variants) & set(COMPILED)):
        return (
            f"{', '.join(sorted(needing))} compiles kernels, which needs a C compiler and Python.h, such as Debian's gcc "
            "and python3-dev"
        )
    if not gpus and not versions.get("compiles_for_cpu", True) and "pytorch-compiled" in variants:
        return (
            "pytorch-compiled compiles for the CPU, which needs g++ and a path to PyTorch without blanks: install g++, or "
            "set PyTorch up in another folder"
        )
    return ""


def _named(python: str) -> str:
    """How a message names an interpreter."""
    pinned = [name for name, environment in BASELINES.items() if python.startswith(f"{environment}/")]
    return f"the baselines' environment {pinned[0]}" if pinned else f"BASELINE_PYTHON={python}"


def variants_of(names: Iterable[str]) -> tuple[str, ...]:
    """The variants of these names, each once, none for NO_BASELINE alone; PlanError for an unknown one."""
    variants = tuple(dict.fromkeys(name for name in names if name))
    if variants == (NO_BASELINE,):
        return ()
    if unknown := [name for name in variants if name not in VARIANTS]:
        choice = f"there are {', '.join(VARIANTS)}, or {NO_BASELINE} by itself"
        raise PlanError(f"BASELINES={','.join(variants)}: no {', '.join(unknown)}; {choice}")
    return variants


def recorded_command(baseline: BaselineProgram, given: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The recorded command of a resumed run: an interpreter with this checkout's program, or what is `given` for tests.

    PlanError if it is another, as a record from elsewhere may have, or if its interpreter no longer exists.
    """
    command = baseline.command
    if not command or (command != given and command[1:] != (str(SCRIPT),)):
        raise PlanError(
            f"this run's baselines were started by `{' '.join(command)}`, which is not the program of this "
            "checkout; begin a new run"
        )
    if not baseline.image and not shutil.which(command[0]):
        raise PlanError(f"this run's baselines were started by {command[0]}, which is no longer there; begin a new run")
    return command


def _checked(named: str, interpreter: tuple[str, ...], gpus: int, advice: str) -> dict:
    """What PROBE says of an interpreter, started by these words; `advice` is for one that cannot run the baselines."""
    if not shutil.which(interpreter[0]):
        raise PlanError(f"{named}: no such program")
    try:
        done = subprocess.run([*interpreter, "-c", PROBE], capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"{named} cannot be started: {error}") from error
    if done.returncode:
        message = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise PlanError(f"{named} cannot run the baselines: {message}. {advice}")
    try:
        versions = json.loads(done.stdout.strip().splitlines()[-1])
        seen = versions["gpus"]
    except (ValueError, LookupError, TypeError):
        raise PlanError(
            f"{named} cannot run the baselines: it answers as no Python with PyTorch does. {advice}"
        ) from None
    if seen < gpus:
        raise PlanError(
            f"{named}: PyTorch {versions['torch']} sees {seen} of the {gpus} GPUs here; its CUDA {versions['cuda']} "
            f"has to suit the driver. Drivers before 525 run BASELINE_PYTHON={CU102}"
        )
    return versions
