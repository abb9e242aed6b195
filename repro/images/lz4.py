"""LZ4 blocks, in which fatbins hold their code compressed: a block has no header, and its reader knows its size."""

FARTHEST = 65535
UNMATCHED = 5
"""So many bytes at the end of a block are as they are."""
LAST_MATCH = 12
"""No repetition begins as near to the end as this."""


def decompress(block: bytes, size: int) -> bytes:
    """The `size` bytes that a block holds; ValueError if it holds anything else."""
    out = bytearray()
    at, end = 0, len(block)
    try:
        while at < end:
            token = block[at]
            count, at = _read(block, at + 1, token >> 4)
            out += block[at : at + count]
            at += count
            if at >= end:
                break
            distance = block[at] | block[at + 1] << 8
            count, at = _read(block, at + 2, token & 15)
            start, count = len(out) - distance, count + 4
            if not 0 <= start < len(out):
                raise ValueError("the LZ4 block is damaged")
            piece = bytes(out[start : start + count])
            out += piece if len(piece) == count else (piece * (count // distance + 1))[:count]
    except IndexError as error:
        raise ValueError("the LZ4 block is damaged") from error
    if len(out) != size:
        raise ValueError(f"the LZ4 block holds {len(out)} bytes instead of {size}")
    return bytes(out)


def _read(block: bytes, at: int, length: int) -> tuple[int, int]:
    """A length that begins in four bits of the token, and where what follows it is."""
    more = 255 if length == 15 else 0
    while more == 255:
        more = block[at]
        length, at = length + more, at + 1
    return length, at


def compress(data: bytes) -> bytes:
    """A block that holds `data`, each repetition as the last place with the same four bytes."""
    out = bytearray()
    seen: dict[bytes, int] = {}
    at = start = 0
    while at < len(data) - LAST_MATCH:
        key = data[at : at + 4]
        before = seen.get(key, -1)
        seen[key] = at
        if before < 0 or at - before > FARTHEST:
            at += 1
            continue
        count = _equal(data, before, at)
        _write(out, data[start:at], count - 4)
        out += (at - before).to_bytes(2, "little") + _rest(count - 4)
        at = start = at + count
    _write(out, data[start:], 0)
    return bytes(out)


def _equal(data: bytes, before: int, at: int) -> int:
    """How many bytes from two places on are the same, at least four."""
    count, step, most = 4, 4096, len(data) - UNMATCHED - at
    while step:
        while (
            count + step <= most
            and data[before + count : before + count + step] == data[at + count : at + count + step]
        ):
            count += step
        step //= 4
    return count


def _write(out: bytearray, literals: bytes, repeated: int) -> None:
    """The token and the bytes that are as they are."""
    out.append(min(len(literals), 15) << 4 | min(repeated, 15))
    out += _rest(len(literals)) + literals


def _rest(length: int) -> bytes:
    """What of a length does not fit into the token."""
    if length < 15:
        return b""
    return b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])
