"""Libraries with GPU code for tests: ELF files with a section of fatbins, and nothing else in them."""

import base64
import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path

PTX, SASS = 1, 2
Images = Sequence[tuple[int, int]]
"""Of a fatbin: kind and architecture of each piece of code."""
BODY = 64
SEGMENT = ".nvFatBinSegment"


def fatbin(images: Images) -> bytes:
    """A fatbin whose code is filled with the number of its architecture."""
    body = b""
    for kind, architecture in images:
        header = struct.pack("<HHIQ", kind, 0x101, 64, BODY) + bytes(12) + struct.pack("<I", architecture)
        body += header.ljust(64, b"\0") + bytes([architecture]) * BODY
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def entry(kind: int, architecture: int, content: bytes, options: str = "", packed: bytes = b"") -> bytes:
    """Code of a fatbin as nvcc writes it; `packed` is the content as an LZ4 block."""
    more = b""
    if options:
        text = options.encode().ljust(-(-len(options) // 8) * 8, b"\0")
        more = struct.pack("<II", 72, len(options)) + text
    body = packed or content
    body += bytes(-len(body) % 8)
    sizes = (len(packed), 64 if options else 0, 7, 1, architecture, 0x2011 if packed else 0x11, 0)
    header = struct.pack(
        "<HHIQIIHHI8xQQQ", kind, 0x101, 64 + len(more), len(body), *sizes, len(content) if packed else 0
    )
    return header + more + body


def fatbin_of(*entries: bytes) -> bytes:
    """A fatbin of what `entry` gives."""
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def linked_at(offset: int) -> bytes:
    """The content of section SEGMENT of a library in which the fatbin at this offset was linked from relocatable code."""
    return struct.pack("<IIQQ", 0x466243B1, 1, 0, 0) + struct.pack("<IIQQ", 0x466243B1, 2, offset, 0)


def wheel(site: Path, libraries: dict[str, bytes]) -> Path:
    """Write an installed wheel like OneFlow's with these libraries."""
    files = {"oneflow/__init__.py": b"from oneflow.core import NAME\n", "oneflow/core.py": b"NAME = 'oneflow'\n"}
    files |= {f"oneflow.libs/{name}": content for name, content in libraries.items()}
    lines = []
    for name, content in files.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_bytes(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}\n")
    (site / "oneflow-0.8.0.dist-info").mkdir()
    (site / "oneflow-0.8.0.dist-info" / "RECORD").write_text("".join(lines))
    return site


def library(path: Path, fatbins: Sequence[Images], section: str = ".nv_fatbin") -> Path:
    """Write a 64-bit ELF file with these fatbins in a section, and a gap of zeros before each."""
    path.write_bytes(elf({section: b"".join(bytes(8) + fatbin(images) for images in fatbins)}))
    return path


def elf(sections: dict[str, bytes]) -> bytes:
    """A 64-bit ELF file with these sections, which are in memory where they are in the file."""
    content, names, headers = b"\x7fELF\x02\x01\x01".ljust(64, b"\0"), b"\0", [bytes(64)]
    for name, data in sections.items():
        headers.append(struct.pack("<IIQQQQ", len(names), 1, 0, len(content), len(content), len(data)).ljust(64, b"\0"))
        content, names = content + data + bytes(-len(data) % 8), names + name.encode() + b"\0"
    headers.append(
        struct.pack("<IIQQQQ", len(names), 3, 0, 0, len(content), len(names) + len(b".shstrtab\0")).ljust(64, b"\0")
    )
    content += names + b".shstrtab\0"
    content += bytes(-len(content) % 8)
    start = content[:40] + struct.pack("<Q", len(content)) + content[48:58]
    start += struct.pack("<HHH", 64, len(headers), len(headers) - 1)
    return start + content[64:] + b"".join(headers)
