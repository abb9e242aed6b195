"""GPU code inside of libraries: which architectures each fatbin has code for, and what a given one would run of it.

A fatbin holds machine code (SASS) for some architectures and intermediate code (PTX) that the driver compiles for later
ones. The driver takes the machine code with the same major number and the highest minor one that is not above the
GPU's; without any, the newest PTX that is not above it (CUDA C++ Programming Guide, "Application Compatibility").
"""

import mmap
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

MAGIC = 0xBA55ED50
PTX, SASS = 1, 2
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""The code that is loaded as it is, and the relocatable code that is linked when it is loaded (NCCL's)."""


@dataclass(frozen=True)
class Code:
    """Code for one architecture in a fatbin: where its bytes are in the file, and for which architecture, such as 90."""

    kind: int
    architecture: int
    offset: int
    length: int


@dataclass(frozen=True)
class Fatbin:
    """A fatbin of a library, by its section and its place in the file."""

    section: str
    offset: int
    length: int
    codes: tuple[Code, ...]

    def used_on(self, architecture: int) -> tuple[Code, ...]:
        """The code that the driver takes on a GPU of this architecture; none if it cannot run there."""
        own = [code for code in self.codes if code.kind == SASS and fits(code.architecture, architecture)]
        older = [code for code in self.codes if code.kind == PTX and code.architecture <= architecture]
        candidates = own or older
        newest = max((code.architecture for code in candidates), default=0)
        return tuple(code for code in candidates if code.architecture == newest)


def fits(machine_code: int, architecture: int) -> bool:
    """Whether machine code for one architecture runs on another: same major number, minor not above."""
    return machine_code // 10 == architecture // 10 and machine_code <= architecture


def sections(data: bytes | mmap.mmap) -> dict[str, tuple[int, int]]:
    """Name -> (offset, size) of the sections of a 64-bit ELF file; none for any other file."""
    if data[:5] != b"\x7fELF\x02":
        return {}
    (table,) = struct.unpack_from("<Q", data, 40)
    width, count, names = struct.unpack_from("<HHH", data, 58)
    if not table or not count:
        return {}
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * width) for i in range(count)]
    strings = headers[names][4]
    return {bytes(data[strings + h[0] : data.find(b"\0", strings + h[0])]).decode(): (h[4], h[5]) for h in headers}


def fatbins(data: bytes | mmap.mmap) -> Iterator[Fatbin]:
    """The fatbins of a library's content, in the order of the file."""
    found = sections(data)
    for name in SECTIONS:
        at, size = found.get(name, (0, 0))
        end = at + size
        while at <= end - 16:
            magic, _, header, body = struct.unpack_from("<IHHQ", data, at)
            if magic != MAGIC:
                at += 8
                continue
            yield Fatbin(name, at, header + body, tuple(_codes(data, at + header, at + header + body)))
            at += header + body


def _codes(data: bytes | mmap.mmap, at: int, end: int) -> Iterator[Code]:
    while at < end:
        kind, _, header, length = struct.unpack_from("<HHIQ", data, at)
        (architecture,) = struct.unpack_from("<I", data, at + 28)
        yield Code(kind, architecture, at + header, length)
        at += header + length


def unused(found: Iterable[Fatbin], architectures: Sequence[int]) -> Iterator[Code]:
    """The code that no GPU of these architectures takes, of fatbins from which each of them takes some."""
    for fatbin in found:
        used = [fatbin.used_on(each) for each in architectures]
        if all(used):
            kept = {code.offset for codes in used for code in codes}
            yield from (code for code in fatbin.codes if code.offset not in kept)


def leave_out(path: Path, architectures: Sequence[int]) -> int:
    """Overwrite with zeros, in place, a library's code for other architectures; the bytes overwritten."""
    if path.stat().st_size == 0:
        return 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        left_out = list(unused(fatbins(data), architectures))
        for code in left_out:
            data[code.offset : code.offset + code.length] = bytes(code.length)
    return sum(code.length for code in left_out)
