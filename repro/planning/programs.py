"""Which training programs a run's units run: the published one, the tuned one, or both in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from repro.models.programs import KINDS, PUBLISHED, TUNED
from repro.runs.unit import Unit

Programs = tuple[Literal["published", "tuned"], ...]
"""Members of `repro.models.programs.KINDS`, as the type of an option."""
DEFAULT_PROGRAMS: Programs = ("published",)


def tuned_name(name: str) -> str:
    """The name of the unit that runs the tuned program as the unit of this name runs the published one."""
    return f"{name}.{TUNED}"


def published_name(unit: Unit) -> str:
    """The name of the published program's unit with the configuration of this one, or of the one it is a baseline of."""
    name = unit.baseline_of or unit.name
    return name.removesuffix(tuned_name("")) if unit.program == TUNED else name


def tuned(unit: Unit) -> Unit:
    """The tuned version of a published program's unit; its references are unchanged."""
    name = tuned_name(unit.name)
    return replace(unit, name=name, program=TUNED, config=replace(unit.config, case=name, program=TUNED))


def in_programs(unit: Unit, programs: Sequence[str], same_losses: bool = False) -> tuple[Unit, ...]:
    """A unit of the published program as each of these programs runs it, the published one first.

    The tuned program alone takes the unit's place, also as a reference. Where both run, the tuned unit follows the
    published one; with `same_losses` it must print the same losses.

    Raises
    ------
    ValueError
        There is no program, or one is unknown.
    """
    if not programs or set(programs) - set(KINDS):
        raise ValueError(f"programs {', '.join(programs)}: they are some of {', '.join(KINDS)}")
    if TUNED not in programs:
        return (unit,)
    if PUBLISHED not in programs:
        return (replace(tuned(unit), reference=unit.reference and tuned_name(unit.reference)),)
    return unit, replace(tuned(unit), reference=unit.name if same_losses else None, tuned_of=unit.name)
