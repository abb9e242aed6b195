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
WRAPPER_MAGIC, LINKED = 0x466243B1, 2
"""What the code of a library registers: a pointer to a fatbin, and whether that is one linked from relocatable code."""
PTX, SASS = 1, 2
COMPRESSED = 0x2000
PLAIN = 0x11
"""The flags of code for 64-bit Linux."""
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
"""The code that is loaded as it is, and the relocatable code that is linked when it is loaded (NCCL's)."""


@dataclass(frozen=True)
class FatbinCode:
    """Code for one architecture, such as 90, in a fatbin: where its bytes are in the file, and how to read them.

    `packed` and `size` are its bytes as an LZ4 block and without compression, both 0 where it is not compressed;
    `options` is what its compiler was given.
    """

    kind: int
    architecture: int
    offset: int
    length: int
    header: int = 64
    packed: int = 0
    size: int = 0
    options: str = ""

    def content(self, data: bytes | mmap.mmap) -> bytes:
        """The code itself, of PTX without the zeros behind it."""
        stored = bytes(data[self.offset : self.offset + self.length])
        content = _decompressed(stored[: self.packed], self.size) if self.packed else stored
        return content.rstrip(b"\0") if self.kind == PTX else content


def _decompressed(block: bytes, size: int) -> bytes:
    """The content of an LZ4 block; ValueError if it does not hold these many bytes."""
    from lz4.block import LZ4BlockError, decompress

    try:
        content = decompress(block, uncompressed_size=size)
    except LZ4BlockError as error:
        raise ValueError(f"a fatbin's LZ4 block is damaged: {error}") from None
    if len(content) != size:
        raise ValueError(f"a fatbin's LZ4 block holds {len(content)} bytes instead of {size}")
    return content


@dataclass(frozen=True)
class Fatbin:
    """A fatbin of a library, by its section and its place in the file."""

    section: str
    offset: int
    length: int
    codes: tuple[FatbinCode, ...]
    header: int = 16
    linked: bool = False

    def used_on(self, architecture: int) -> tuple[FatbinCode, ...]:
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
    return {name: (offset, size) for name, (_, offset, size) in _sections(data).items()}


def _sections(data: bytes | mmap.mmap) -> dict[str, tuple[int, int, int]]:
    """Name -> (address, offset, size)."""
    if data[:5] != b"\x7fELF\x02":
        return {}
    (table,) = struct.unpack_from("<Q", data, 40)
    width, count, names = struct.unpack_from("<HHH", data, 58)
    if not table or not count:
        return {}
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * width) for i in range(count)]
    strings = headers[names][4]
    return {bytes(data[strings + h[0] : data.find(b"\0", strings + h[0])]).decode(): h[3:6] for h in headers}


def fatbins(data: bytes | mmap.mmap) -> Iterator[Fatbin]:
    """The fatbins of a library's content, in the order of the file."""
    by_name, linked = sections(data), _linked(data)
    for name in SECTIONS:
        at, size = by_name.get(name, (0, 0))
        end = at + size
        while (at := _next(data, at, end)) <= end - 16:
            _, _, header, body = struct.unpack_from("<IHHQ", data, at)
            codes = tuple(_codes(data, at + header, at + header + body))
            yield Fatbin(name, at, length=header + body, codes=codes, header=header, linked=at in linked)
            at += header + body


def _next(data: bytes | mmap.mmap, at: int, end: int) -> int:
    """Where the next fatbin begins, in steps of eight bytes from a place; `end` if there is none before it."""
    magic = struct.pack("<I", MAGIC)
    place = data.find(magic, at, end)
    while place >= 0 and (place - at) % 8:
        place = data.find(magic, place + 1, end)
    return place if place >= 0 else end


def _codes(data: bytes | mmap.mmap, at: int, end: int) -> Iterator[FatbinCode]:
    while at < end:
        kind, _, header, length, packed, described = struct.unpack_from("<HHIQII", data, at)
        architecture, flags, _, size = struct.unpack_from("<I8xQQQ", data, at + 28)
        options = ""
        if kind == PTX and described and header >= described + 8:
            start, count = struct.unpack_from("<II", data, at + described)
            options = bytes(data[at + start : at + start + count]).decode("ascii", "replace") if start else ""
        compressed = bool(flags & COMPRESSED)
        yield FatbinCode(
            kind,
            architecture,
            offset=at + header,
            length=length,
            header=header,
            packed=packed * compressed,
            size=size * compressed,
            options=options.strip("\0 "),
        )
        at += header + length


def _linked(data: bytes | mmap.mmap) -> set[int]:
    """Where the fatbins are that were linked from relocatable code."""
    by_name = _sections(data)
    _, at, size = by_name.get(".nvFatBinSegment", (0, 0, 0))
    address, offset, _ = by_name.get(SECTIONS[0], (0, 0, 0))
    wrappers = (struct.unpack_from("<IIQQ", data, place) for place in range(at, at + size - 23, 24))
    return {
        pointer - address + offset
        for magic, version, pointer, _ in wrappers
        if (magic, version) == (WRAPPER_MAGIC, LINKED)
    }


def machine_code(content: bytes, architecture: int, room: int) -> bytes | None:
    """Machine code as it is in a fatbin, compressed if it needs to be; None if there is no room for it."""
    flags, packed, size, body = PLAIN, 0, 0, content
    if 64 + len(content) > room:
        from lz4.block import compress

        body = compress(content, mode="high_compression", store_size=False)
        flags, packed, size = PLAIN | COMPRESSED, len(body), len(content)
    body += bytes(-len(body) % 8)
    header = struct.pack("<HHIQIIHHI8xQQQ", SASS, 0x101, 64, len(body), packed, 0, 7, 1, architecture, flags, 0, size)
    return header + body if len(header) + len(body) <= room else None


def replace(data: mmap.mmap, fatbin: Fatbin, code: bytes) -> None:
    """Make this, as `machine_code` gives it, the only code of a fatbin of a library; nothing in the library moves."""
    start, end = fatbin.offset + fatbin.header, fatbin.offset + fatbin.length
    data[start:end] = code + bytes(end - start - len(code))
    struct.pack_into("<Q", data, fatbin.offset + 8, len(code))


def unused(library_fatbins: Iterable[Fatbin], architectures: Sequence[int]) -> Iterator[FatbinCode]:
    """The code that no GPU of these architectures takes, of fatbins from which each of them takes some."""
    for fatbin in library_fatbins:
        used = [fatbin.used_on(architecture) for architecture in architectures]
        if all(used):
            used_offsets = {code.offset for codes in used for code in codes}
            yield from (code for code in fatbin.codes if code.offset not in used_offsets)


def leave_out(path: Path, architectures: Sequence[int]) -> int:
    """Overwrite with zeros, in place, a library's code for other architectures; the bytes overwritten."""
    if path.stat().st_size == 0:
        return 0
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        left_out = list(unused(fatbins(data), architectures))
        for code in left_out:
            data[code.offset : code.offset + code.length] = bytes(code.length)
    return sum(code.length for code in left_out)
