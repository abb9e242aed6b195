"""OFRecord files: encodes records and writes them into parts, without OneFlow; and what the parts of a folder are called.

A part is a sequence of records, each after its length in 8 bytes. A record is a protocol buffer,
oneflow/core/record/record.proto: a map from a feature's name to a list of bytes, floats or integers.
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
    """A record of bytes, floats and integers of 32 bits; arrays and lists of numbers become lists."""
    return b"".join(field(1, field(1, name.encode()) + field(2, feature(value))) for name, value in features.items())


def feature(value: object) -> bytes:
    if isinstance(value, bytes):
        return field(BYTES, field(1, value))
    values = np.asarray(value).reshape(-1)
    if values.dtype.kind == "f":
        return field(FLOATS, field(1, values.astype("<f4").tobytes()))
    return field(
        INTEGERS, field(1, b"".join([SMALL[each] if 0 <= each < 128 else number(each) for each in values.tolist()]))
    )


def field(name: int, content: bytes) -> bytes:
    """A field of protocol buffers with its length before it."""
    return number(name << 3 | 2) + number(len(content)) + content


def number(value: int) -> bytes:
    """A number as protocol buffers have it: 7 bits a byte, the lowest first, negative ones in 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def write_part(path: Path, records: Iterable[bytes]) -> int:
    """Write encoded records; gives their number."""
    count = 0
    with open(path, "wb") as file:
        for record in records:
            file.write(struct.pack("<q", len(record)) + record)
            count += 1
    return count


def part_name(part: int, digits: int) -> str:
    """Name of a part; `digits` of 0 pad nothing."""
    return f"part-{part:0{digits}d}" if digits else f"part-{part}"


def part_digits(folder: str) -> int | None:
    """How many digits the numbers in the names of a folder's parts have, 0 for no padding; None without a first part."""
    for path in Path(folder).glob("part-*") if Path(folder).is_dir() else ():
        found = PART.fullmatch(path.name)
        if found and int(found[1]) == 0:
            return len(found[1]) if len(found[1]) > 1 else 0
    return None


def part_paths(folder: str, parts: int) -> list[Path]:
    """Where the parts of a folder must be: with the padding of the first part there, or five digits where there is none."""
    digits = part_digits(folder)
    return [Path(folder) / part_name(part, 5 if digits is None else digits) for part in range(parts)]
