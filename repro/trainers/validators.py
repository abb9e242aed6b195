"""Checks of single values of a configuration; each error is one line that names the key."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

T = TypeVar("T")


class ConfigError(ValueError):
    """The configuration cannot be run; the message is one line that names the key."""


def require_table(name: str, values: object, kind: Any) -> None:
    """Check a table's keys against the fields of a dataclass; fields with a default are optional."""
    required = tuple(field.name for field in fields(kind) if field.default is MISSING)
    require_keys(name, values, required, tuple(field.name for field in fields(kind)))


def require_keys(name: str, values: object, required: tuple, allowed: tuple) -> None:
    prefix = f"{name}." if name else ""
    if not isinstance(values, dict):
        raise ConfigError(f"{name or 'configuration'}: {values!r} is not a table")
    for key in values:
        if key not in allowed:
            raise ConfigError(f"{prefix}{key}: unknown key; known are {', '.join(allowed)}")
    for key in required:
        if key not in values:
            raise ConfigError(f"{prefix}{key}: missing")


def text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{key}: {value!r} is not a non-empty string")
    return value


def flag(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{key}: {value!r} is neither true nor false")
    return value


def whole(key: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{key}: {value!r} is not a whole number of at least {least}")
    return value


def number(key: str, value: object, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise ConfigError(f"{key}: {value!r} is not a number from {least:g} to {most:g}")
    return float(value)


def one_of(key: str, value: object, allowed: tuple[T, ...]) -> T:
    for choice in allowed:
        if not isinstance(value, bool) and value == choice:
            return choice
    raise ConfigError(f"{key}: {value!r} is not one of {', '.join(map(repr, allowed))}")
