"""Finds the models' specifications, and their modules of the same name in other packages."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from repro import models
from repro.models.extensions import VARIABLE, files_of_one_name, missing_folders
from repro.models.spec import ModelSpec


class ModelError(ValueError):
    """The model does not exist or a part of it is missing; the message lists the available ones."""


@cache
def specs() -> tuple[ModelSpec, ...]:
    """The specifications of all models, sorted by name: `SPEC` of each module in this package that defines it.

    Raises
    ------
    ModelError
        A folder of REPRO_MODELS does not exist or has a file with the name of an earlier one, or a module there cannot
        be imported, or its specification is none or has another name than its module.
    """
    if missing := missing_folders():
        raise ModelError(f"{VARIABLE}: there is no folder {missing[0]}")
    if same := files_of_one_name():
        raise ModelError(
            "\n".join(f"{VARIABLE}: {file} has the name of {earlier}; give it another" for file, earlier in same)
        )
    loaded = []
    for name in sorted(module.name for module in iter_modules(models.__path__)):
        try:
            spec = getattr(import_module(f"{models.__name__}.{name}"), "SPEC", None)
        except Exception as error:
            raise ModelError(f"{models.__name__}.{name} cannot be imported: {type(error).__name__}: {error}") from error
        if spec and not isinstance(spec, ModelSpec):
            raise ModelError(f"{models.__name__}.{name}: SPEC is a {type(spec).__name__}; it has to be a ModelSpec")
        if spec and spec.name != name:
            raise ModelError(f"{models.__name__}.{name}: its specification is named {spec.name!r}; name it {name!r}")
        loaded += [spec] if spec else []
    return tuple(loaded)


def names() -> tuple[str, ...]:
    """The names of all models."""
    return tuple(spec.name for spec in specs())


def spec_of(name: str) -> ModelSpec:
    """The specification of a model; ModelError if it does not exist."""
    for spec in specs():
        if spec.name == name:
            return spec
    raise ModelError(f"no model {name!r}; there are {', '.join(names())}")


def module_of(package: str, name: str) -> ModuleType:
    """A model's module in a package such as "repro.perfmodel"; ModelError if the package has none."""
    module = f"{package}.{spec_of(name).name}"
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModelError(
            f"{name}: there is no module {module}; CONTRIBUTING.md lists what a model consists of"
        ) from error
