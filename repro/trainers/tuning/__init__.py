"""The tuned program: what makes training faster than the published program does it.

The module of a model has `MODEL`, which builds on that of `trainers/models`, and `operators` of its own for the kernel
check; a model without one here is tuned by its settings alone (`repro.models.programs.TUNING`). `rewrite.py` changes
the compiled job. Nothing outside imports this package but `train.py` and the kernel check: import-linter holds that no
published program can.
"""

from types import ModuleType

from repro.models.extensions import folders_of
from repro.models.registry import ModelError, module_of

__path__.extend(folders_of("trainers/tuning"))


def tuned_module(name: str) -> ModuleType:
    """The module of a model's tuned program; that of the published one where only settings are tuned."""
    try:
        return module_of("repro.trainers.tuning", name)
    except ModelError:
        return module_of("repro.trainers.models", name)
