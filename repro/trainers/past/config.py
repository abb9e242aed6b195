"""Configurations of the measurement, parsed from JSON without OneFlow."""

from __future__ import annotations

from dataclasses import dataclass

from repro.models.past import Subject
from repro.trainers.config import Sizes, parse_layout
from repro.trainers.past.forms import FORMS
from repro.trainers.validators import ConfigError, one_of, require_table, text, whole


@dataclass(frozen=True)
class Timing:
    """The operators to time, each `calls` times; `code` is the compiled `docker/past/kernels.cu`."""

    device: str
    layout: Sizes
    code: str
    calls: int
    subjects: tuple[Subject, ...]
    output: str


def parse_timing(values: dict) -> Timing:
    """Build a Timing from the decoded JSON; ConfigError names the first key that is wrong."""
    require_table("", values, Timing)
    layout = parse_layout(values["layout"])
    if layout.world_size != 1:
        raise ConfigError("layout: kernels are timed in one process")
    subjects = values["subjects"]
    if not isinstance(subjects, list) or not subjects:
        raise ConfigError(f"subjects: {subjects!r} is not a list of operators")
    return Timing(
        device=one_of("device", values["device"], ("cuda",)),
        layout=layout,
        code=text("code", values["code"]),
        calls=whole("calls", values["calls"], 1),
        subjects=tuple(_subject(f"subjects[{place}]", subject) for place, subject in enumerate(subjects)),
        output=text("output", values["output"]),
    )


def _subject(key: str, value: object) -> Subject:
    require_table(key, value, Subject)
    assert isinstance(value, dict)
    return Subject(
        deviation=text(f"{key}.deviation", value["deviation"]),
        form=one_of(f"{key}.form", value["form"], tuple(FORMS)),
        rows=whole(f"{key}.rows", value["rows"], 1),
        columns=whole(f"{key}.columns", value["columns"], 1),
    )
