"""Dataclasses as records have them: a reader and a writer that keep what the class does not know under `further`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields
from typing import Any


def values_of(kind: Any, content: Mapping) -> dict:
    """The values of a dataclass in a record, those that it does not know under `further`; KeyError if it lacks one."""
    names = {entry.name for entry in fields(kind)} - {"further"}
    required = [entry.name for entry in fields(kind) if entry.default is entry.default_factory is MISSING]
    values = {name: content[name] for name in required}
    values |= {name: value for name, value in content.items() if name in names and value is not None}
    return {**values, "further": {name: value for name, value in content.items() if name not in names}}


def as_json(record: Any, also_none: Collection[str] = ()) -> dict:
    """The values of a dataclass in its order, then those that it does not know; of those that are None, `also_none`."""
    values = {entry.name: getattr(record, entry.name) for entry in fields(record) if entry.name != "further"}
    plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}
    return {name: value for name, value in plain.items() if value is not None or name in also_none} | dict(
        record.further
    )
