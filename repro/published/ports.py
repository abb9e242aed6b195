"""Which published programs have a port here: the program of a report, as `repro/models/programs.py` lists it."""

from __future__ import annotations

from repro.models.programs import Program
from repro.models.registry import spec_of


def has_port(model: str, report: str) -> bool:
    """Whether the program that produced a report's figures can be run here."""
    return any(program.report == report for program in spec_of(model).programs)


def published_program(model: str, report: str) -> Program:
    """The program that produced a report's figures, as it was published; ValueError if it has no port."""
    for program in spec_of(model).programs:
        if program.report == report:
            return program
    raise ValueError(f"the program of the report {report} has no port")
