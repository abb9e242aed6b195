"""The PyTorch baselines of a run: their command, checked before anything starts."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from repro.models.variants import DEFAULT, VARIANTS
from repro.planning.plan import PlanError
from repro.planning.unit import TF32
from repro.utils.paths import PACKAGE

OF_TF32 = ("pytorch-tf32",)
"""The variants by default beside OneFlow in TF32: those that compute in it."""
SCRIPT = PACKAGE / "baselines" / "run.py"
PATIENCE_S = 120
PROBE = """
import json, numpy, torch
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpus": torch.cuda.device_count()}))
"""


@dataclass(frozen=True)
class BaselineProgram:
    """How baselines are started, the versions reported by their interpreter, and the variants to run.

    `image` is that of their containers on a cluster's nodes, "" without containers.
    """

    command: tuple[str, ...]
    versions: dict = field(default_factory=dict)
    variants: tuple[str, ...] = DEFAULT
    image: str = ""

    def as_json(self) -> dict:
        return asdict(self)


def baseline_program(
    python: str | None, command: tuple[str, ...], names: str | None, gpus: int, precision: str | None = None
) -> BaselineProgram | None:
    """The program of a run's baselines, None if no baseline is asked for.

    Parameters
    ----------
    python : BASELINE_PYTHON, an interpreter that has PyTorch and NumPy.
    command : what replaces that interpreter and the baselines' script, unchecked.
    names : BASELINES, names of variants separated by commas.
    gpus : how many GPUs the run uses; PyTorch must see as many.
    precision : PRECISION, None for each case's own.

    Raises
    ------
    PlanError
        A variant is unknown, or the interpreter cannot run the baselines; the message says what to do.
    """
    default = OF_TF32 if precision == TF32 else DEFAULT
    variants = variants_of((names or "").replace(" ", ",").split(",")) or default
    if command:
        return BaselineProgram(command, variants=variants)
    if not python:
        if names:
            raise PlanError(
                "BASELINES needs BASELINE_PYTHON, an interpreter that has PyTorch: BASELINE_PYTHON=/usr/bin/python3"
            )
        return None
    return BaselineProgram((python, str(SCRIPT)), _checked(python, gpus), variants)


def variants_of(names: Iterable[str]) -> tuple[str, ...]:
    """The variants of these names, each once; PlanError for an unknown one."""
    variants = tuple(dict.fromkeys(name for name in names if name))
    if unknown := [name for name in variants if name not in VARIANTS]:
        raise PlanError(f"BASELINES={','.join(variants)}: no {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    return variants


def recorded_command(baseline: dict, given: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The recorded command of a resumed run: an interpreter with this checkout's program, or what is `given` for tests.

    PlanError if it is another, as a record from elsewhere may have, or if its interpreter no longer exists.
    """
    command = tuple(baseline["command"])
    if not command or (command != given and command[1:] != (str(SCRIPT),)):
        raise PlanError(
            f"this run's baselines were started by `{' '.join(map(str, command))}`, which is not the program of this "
            "checkout; begin a new run"
        )
    if not shutil.which(command[0]):
        raise PlanError(f"this run's baselines were started by {command[0]}, which is no longer there; begin a new run")
    return command


def _checked(python: str, gpus: int) -> dict:
    """The versions that the interpreter reports of its PyTorch."""
    if not shutil.which(python):
        raise PlanError(f"BASELINE_PYTHON={python}: no such program")
    try:
        done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlanError(f"BASELINE_PYTHON={python} cannot be started: {error}") from error
    if done.returncode:
        message = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise PlanError(
            f"BASELINE_PYTHON={python} cannot run the baselines: {message}. Name an interpreter with torch and numpy, "
            "or leave BASELINE_PYTHON out"
        )
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if found["gpus"] < gpus:
        raise PlanError(
            f"BASELINE_PYTHON={python}: PyTorch {found['torch']} sees {found['gpus']} of the {gpus} GPUs here; "
            "its CUDA has to suit the driver"
        )
    return found
