"""The tuned program: everything that makes training faster than the published program.

A model's module defines `MODEL`, which extends the one in `trainers/models`, and `operators` for the kernel check. A
model without a module here is tuned by settings alone (`repro.models.programs.TUNING`). `rewrite.py` changes the
compiled job. `train.py` imports this package for the tuned program alone, and the kernel check does; import-linter
keeps the published programs from doing so.
"""

from types import ModuleType

from repro.models.extensions import folders_of
from repro.models.registry import ModelError, module_of

__path__.extend(folders_of("trainers/tuning"))


def tuned_module(name: str) -> ModuleType:
    """The module of a model's tuned program, or of the published one if only settings are tuned."""
    try:
        return module_of("repro.trainers.tuning", name)
    except ModelError:
        return module_of("repro.trainers.models", name)
