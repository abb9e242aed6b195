"""OFRecord files: encodes records, writes them to part files without OneFlow, and names the parts of a folder.

A part is a sequence of records, each preceded by its length in 8 bytes. A record is a protocol buffer
(oneflow/core/record/record.proto): a map from a feature's name to a list of bytes, floats or integers.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

BYTES, FLOATS, INTEGERS = 1, 2, 4
"""Field numbers of a feature: bytes_list, float_list and int32_list."""
SMALL = [bytes([value]) for value in range(128)]
PART = re.compile(r"part-(\d+)")


def encode(features: Mapping[str, object]) -> bytes:
    """Encode a record of bytes, floats and 32-bit integers; arrays and sequences of numbers become lists."""
    return b"".join(field(1, field(1, name.encode()) + field(2, feature(value))) for name, value in features.items())


def feature(value: object) -> bytes:
    if isinstance(value, bytes):
        return field(BYTES, field(1, value))
    values = np.asarray(value).reshape(-1)
    if values.dtype.kind == "f":
        return field(FLOATS, field(1, values.astype("<f4").tobytes()))
    return field(
        INTEGERS,
        field(1, b"".join([SMALL[integer] if 0 <= integer < 128 else number(integer) for integer in values.tolist()])),
    )


def field(name: int, content: bytes) -> bytes:
    """A length-delimited protocol buffer field."""
    return number(name << 3 | 2) + number(len(content)) + content


def number(value: int) -> bytes:
    """A protocol buffer varint: 7 bits per byte, lowest first; negative numbers as 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def write_part(path: Path, records: Iterable[bytes]) -> int:
    """Write encoded records; returns their number."""
    count = 0
    with open(path, "wb") as file:
        for record in records:
            file.write(struct.pack("<q", len(record)) + record)
            count += 1
    return count


def part_name(part: int, digits: int) -> str:
    """Name of a part, its number padded to `digits`; 0 means no padding."""
    return f"part-{part:0{digits}d}" if digits else f"part-{part}"


def part_digits(folder: str) -> int | None:
    """Number of digits in a folder's part names, 0 for no padding; None if the first part is missing."""
    for path in Path(folder).glob("part-*") if Path(folder).is_dir() else ():
        match = PART.fullmatch(path.name)
        if match and int(match[1]) == 0:
            return len(match[1]) if len(match[1]) > 1 else 0
    return None


def part_paths(folder: str, parts: int) -> list[Path]:
    """Expected paths of a folder's parts, padded like its first part, or to five digits if there is none."""
    digits = part_digits(folder)
    return [Path(folder) / part_name(part, 5 if digits is None else digits) for part in range(parts)]
