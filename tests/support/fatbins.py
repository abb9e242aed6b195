"""Libraries with GPU code for tests: ELF files with a section of fatbins, and nothing else in them."""

import struct
from collections.abc import Sequence
from pathlib import Path

PTX, SASS = 1, 2
Images = Sequence[tuple[int, int]]
"""Of a fatbin: kind and architecture of each piece of code."""
BODY = 64


def fatbin(images: Images) -> bytes:
    """A fatbin whose code is filled with the number of its architecture."""
    body = b""
    for kind, architecture in images:
        header = struct.pack("<HHIQ", kind, 0x101, 64, BODY) + bytes(12) + struct.pack("<I", architecture)
        body += header.ljust(64, b"\0") + bytes([architecture]) * BODY
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(path: Path, fatbins: Sequence[Images], section: str = ".nv_fatbin") -> Path:
    """Write a 64-bit ELF file with these fatbins in a section, and a gap of zeros before each."""
    content = b"".join(bytes(8) + fatbin(images) for images in fatbins)
    names = b"\0" + section.encode() + b"\0.shstrtab\0"
    at, strings = 64, 64 + len(content)
    table = (strings + len(names) + 7) // 8 * 8
    headers = [
        bytes(64),
        struct.pack("<IIQQQQ", 1, 1, 0, 0, at, len(content)).ljust(64, b"\0"),
        struct.pack("<IIQQQQ", len(section) + 2, 3, 0, 0, strings, len(names)).ljust(64, b"\0"),
    ]
    start = b"\x7fELF\x02\x01\x01".ljust(40, b"\0") + struct.pack("<Q", table) + bytes(10)
    start += struct.pack("<HHH", 64, len(headers), 2)
    path.write_bytes((start + content + names).ljust(table, b"\0") + b"".join(headers))
    return path
