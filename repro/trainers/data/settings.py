"""The `data` setting of a trainer's configuration: parses it, checks its files, and describes them for the record.

    {"kind": "synthetic"}
    {"kind": "ofrecord", "path": FOLDER, "parts": COUNT}
    {"kind": "megatron", "prefix": PREFIX}      token files, by OneFlow's reader
    {"kind": "tokens", "prefix": PREFIX}        the same files, with the same samples in every layout
    {"kind": "text", "path": FOLDER}

Instead of `path` or `prefix`, `standin`, `scale` and `folder` select a stand-in and the folder in which it is generated
(`repro.trainers.data.standin`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.models.spec import ModelSpec
from repro.trainers.data.bpe import files_of_text, missing_of_text
from repro.trainers.data.ofrecord import part_paths
from repro.trainers.data.standin.sets import SCALES, WRITERS, StandIn, facts_of
from repro.trainers.validators import ConfigError, one_of, require_keys, text, whole

PLACES = {"synthetic": (), "ofrecord": ("path",), "megatron": ("prefix",), "tokens": ("prefix",), "text": ("path",)}
"""The keys that say where data of a kind are."""
STANDIN_KEYS = ("standin", "scale", "folder")


@dataclass(frozen=True)
class Data:
    """`path` is a folder, or the prefix of token files; with a `standin`, it exists once the stand-in is generated."""

    kind: str
    path: str = ""
    parts: int = 0
    standin: StandIn | None = None


def parse_data(spec: ModelSpec, shape: Any, values: Any) -> Data:
    """Parse a model's data setting; `shape` has the model's sizes as attributes. ConfigError names the wrong key."""
    if not isinstance(values, dict) or "kind" not in values:
        raise ConfigError("data.kind: missing")
    kind = one_of("data.kind", values["kind"], spec.data_kinds)
    places = STANDIN_KEYS if "standin" in values else PLACES[kind]
    keys = ("kind", *places, *(("parts",) if kind == "ofrecord" else ()))
    require_keys("data", values, keys, keys)
    parts = whole("data.parts", values["parts"], 1) if kind == "ofrecord" else 0
    if "standin" in values:
        standin = StandIn.of(
            one_of("data.standin", values["standin"], tuple(WRITERS)),
            one_of("data.scale", values["scale"], tuple(SCALES)),
            parts,
            vars(shape),
        )
        return Data(kind, str(standin.path(text("data.folder", values["folder"]))), parts, standin)
    return Data(kind, *(text(f"data.{key}", values[key]) for key in places), parts=parts)


def check_data(data: Data, ranks: int, tensor: int, micro_batch: int) -> None:
    """Raise ConfigError if files (not a stand-in's) are missing, or parts or records cannot be dealt to the ranks."""
    if data.standin is None and (missing := missing_file(data)):
        raise ConfigError(f"data.{PLACES[data.kind][0]}: there is no file {missing}")
    if data.kind != "ofrecord":
        return
    if data.parts < ranks:
        raise ConfigError(f"data.parts: {data.parts} cannot be dealt to {ranks} ranks")
    if micro_batch % tensor:
        raise ConfigError(f"micro_batch: {micro_batch} records cannot be dealt to {tensor} tensor ranks")


def missing_file(data: Data) -> str | None:
    """The first missing file, or None."""
    if data.kind == "text":
        missing = missing_of_text(data.path)
        return missing and str(Path(data.path) / missing)
    return next((str(path) for path in files_of(data) if not path.is_file()), None)


def described(data: Data) -> dict:
    """The data's description in a run's record: a stand-in's facts, or the path and size in bytes of other files."""
    if data.standin:
        return {"kind": data.kind, **facts_of(data.standin.folder_of(data.path))}
    if data.kind == "synthetic":
        return {"kind": data.kind}
    return {"kind": data.kind, "path": data.path, "parts": data.parts, "bytes": sum(map(size_of, files_of(data)))}


def files_of(data: Data) -> list[Path]:
    """The data's files; for token files and parts, including missing ones."""
    if data.kind == "ofrecord":
        return part_paths(data.path, data.parts)
    if data.kind in ("megatron", "tokens"):
        return [Path(f"{data.path}.idx"), Path(f"{data.path}.bin")]
    return files_of_text(data.path) if data.kind == "text" else []


def size_of(path: Path) -> int:
    return path.stat().st_size
