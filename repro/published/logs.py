"""Knows the five generations (A to E) of training log that OneFlow's benchmarks printed, and reads them in one pass."""

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from io import BufferedIOBase
from itertools import chain
from typing import BinaryIO, cast

from repro.published.log_formats import (
    ESCAPE,
    EXPECTED,
    FORMATS,
    MEMORY,
    OTHER_STARTS,
    ROW_STARTS,
    SETTING,
    TABLE_HEADER,
    Format,
    generation_of,
    stated_global_batch,
    stated_iterations_per_epoch,
    typed,
)
from repro.utils.errors import ReproError

BLOCK_BYTES = 1 << 20
ROWS_KEPT = 50_000
"""Rows kept from each end of a log: published logs hold at most 1,000, a longer log must still fit in memory."""


class LogError(ReproError):
    """A log cannot be read, or is not one of the known generations."""

    def __init__(self, message: str, path: str | None = None, line: int | None = None):
        self.path, self.line, self.reason = path, line, message
        super().__init__(f"{path or 'log'}{f', line {line}' if line else ''}: {message}")


@dataclass(frozen=True, slots=True)
class LogRow:
    """One printed row of training progress.

    ``step`` counts the iterations done since training began, from 1, whatever the generation prints; it is None
    in later epochs of a log that does not show the iterations per epoch. ``other`` holds the remaining
    printed values under their printed names.
    """

    step: int | None
    printed_step: int
    samples_per_s: float
    loss: float
    latency_s: float | None = None
    stamp: float | None = None
    other: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """What a training log says.

    ``rows`` holds every row, or the first and the last `ROWS_KEPT` of a very long log; ``row_count`` and
    ``samples_per_s_sum`` cover all of them. ``broken_rows`` begin like a row but are not whole, ``repeated_rows``
    do not come after the row before them (another rank's copy, or a second run in the same file): both are
    passed over. ``memory_mib`` is the largest reading over the node's GPUs. ``notes`` are sentences for a person.
    """

    path: str | None
    generation: str
    rows: tuple[LogRow, ...]
    row_count: int
    samples_per_s_sum: float
    configuration: Mapping[str, object]
    memory_mib: int | None
    validation_lines: int
    noise_lines: int
    broken_rows: int
    repeated_rows: int
    notes: tuple[str, ...]

    @property
    def global_batch(self) -> int | None:
        """Samples an iteration as the log states them, or None."""
        stated = stated_global_batch(self.configuration)
        first = self.rows[0]
        if stated is None and self.generation == "E" and first.step and first.other["samples"] % first.step == 0:
            return int(first.other["samples"]) // first.step
        return stated


def parse(
    source: str | os.PathLike[str] | BinaryIO | Iterable[str | bytes],
    configuration: Mapping[str, object] | None = None,
) -> Log:
    """Read a training log of any generation in one pass and bounded memory.

    Parameters
    ----------
    source : path, binary stream, or iterable of str or bytes
        A str is a path. Items of an iterable are whole lines.
    configuration : mapping, optional
        What the caller knows of the run; it goes before what the log states.

    Raises
    ------
    LogError
        The file is missing, unreadable, a folder, empty, binary, holds no row, or mixes generations.
    """
    if isinstance(source, BufferedIOBase):
        name = getattr(source, "name", None)
        return _Reader(name).read(_file_blocks(cast(BinaryIO, source), name), configuration)
    if not isinstance(source, str | os.PathLike):
        return _Reader(None).read(_given_blocks(source), configuration)
    path = os.fspath(source)
    try:
        with open(path, "rb") as stream:
            return _Reader(path).read(_file_blocks(stream, path), configuration)
    except OSError as error:
        reason = "is a folder" if os.path.isdir(path) else f"cannot be read ({error.strerror})"
        raise LogError(f"{reason}; expected a training log file", path) from error


def _given_blocks(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    for line in lines:
        text = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        yield text.rstrip(b"\r\n") + b"\n"


def _file_blocks(stream: BinaryIO, path: str | None) -> Iterator[bytes]:
    """Yield blocks that end at a line's end, but for the last; a line longer than a block loses its text."""
    first = stream.read(BLOCK_BYTES)
    if not first:
        raise LogError(f"is empty; {EXPECTED}", path)
    if b"\0" in first[:4096] or first.startswith(b"\x1f\x8b"):
        raise LogError("is a binary or compressed file, or UTF-16 text; expected a plain text log", path, 1)
    rest = b""
    for block in chain([first.removeprefix(b"\xef\xbb\xbf")], iter(lambda: stream.read(BLOCK_BYTES), b"")):
        end = block.rfind(b"\n") + 1 or block.rfind(b"\r") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest = rest + block if len(block) < BLOCK_BYTES else b"\0"
    if rest:
        yield rest


class _Reader:
    """State of one pass over a log."""

    def __init__(self, path: str | None):
        self.path = path
        self.form: Format | None = None
        self.stamped = self.in_table = self.cut = self.half_written = False
        self.first_line = self.row_count = self.not_finite = 0
        self.noise = self.validation = self.broken = self.repeated = 0
        self.total = 0.0
        self.head: list[tuple] = []
        self.tail: deque[tuple] = deque(maxlen=ROWS_KEPT)
        self.settings: dict[str, object] = {}
        self.memory_mib: int | None = None
        self.last = (-1, -1)
        self.epoch_ends: set[int] = set()

    def read(self, blocks: Iterable[bytes], configuration: Mapping[str, object] | None) -> Log:
        number = 0
        for number, line in self._lines(blocks):
            if line.startswith(ROW_STARTS):
                self._take_candidate(number, line)
            elif line.startswith(OTHER_STARTS):
                self._take_reading(line)
            elif self.form or not self._take_setting(line):
                self.noise += 1
        if self.form is None or not self.row_count:
            raise LogError(f"holds no whole row in {number} lines; {EXPECTED}", self.path)
        return self._log(self.form, {**self.settings, **(configuration or {})})

    def _lines(self, blocks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Yield (line number, text) of what is not blank; text after a carriage return counts by itself."""
        number = 1
        for block in blocks:
            self.cut = not block.endswith((b"\n", b"\r"))
            if b"\x1b" in block:
                block = ESCAPE.sub(b"", block)
            lines = block.split(b"\n")
            returns = b"\r" in block
            for index, line in enumerate(lines, number):
                if returns:
                    yield from ((index, piece) for piece in line.split(b"\r") if piece)
                elif line:
                    yield index, line
            number += len(lines) - 1

    def _take_candidate(self, number: int, line: bytes) -> None:
        form = self.form
        match = form.pattern.fullmatch(line) if form else None
        if form is None or match is None:
            self._take_unusual(number, line)
        elif self.cut and not self._is_whole(form, match.groups()):
            self.half_written = True
        else:
            self._take_row(form, number, match.groups())

    def _take_unusual(self, number: int, line: bytes) -> None:
        """Take the first row, or what begins like a row and is none of this log's generation."""
        for form in FORMATS:
            match = form.pattern.fullmatch(line)
            if match and (self.in_table or form.generations != "E"):
                if self.form:
                    raise self._mixed(number, form, self.form, match.groups())
                self.form, self.first_line, self.stamped = form, number, match.groups()[-1] is not None
                self.step_at, self.rate_at, self.loss_at = map(form.names.index, ("step", "samples_per_s", "loss"))
                return self._take_candidate(number, line)
        if TABLE_HEADER.fullmatch(line):
            self.in_table = True
        elif line.startswith(b"| ") and not (self.in_table and line[2:3].isdigit()):
            self.noise += bool(line.strip(b"| -\t"))
        elif self.cut:
            self.half_written = True
        else:
            self.broken += 1

    def _is_whole(self, form: Format, values: tuple) -> bool:
        """Tell whether a row without a line end is complete, or lacks less than a thousandth.

        E closes a row with a bar. Other rows must have the fields of the row before, and in the last number as
        many decimals, or three.
        """
        if form.generations == "E" or not self.row_count:
            return True
        before = (self.tail or self.head)[-1]
        last = next(value for value in reversed(before) if value is not None)
        decimals = len(next(value for value in reversed(values) if value is not None).partition(b".")[2])
        return (values[-1] is None) == (before[-1] is None) and decimals >= min(3, len(last.partition(b".")[2]))

    def _take_row(self, form: Format, number: int, values: tuple) -> None:
        epochs = form.generations == "AB"
        if epochs and (values[-1] is not None) != self.stamped:
            raise self._mixed(number, form, form, values)
        place = (int(values[0]) if epochs else 0, int(values[self.step_at]))
        if place <= self.last:
            self.repeated += 1
            return
        if self.row_count and place[0] != self.last[0]:
            self.epoch_ends.add(self.last[1])
        self.last = place
        self.row_count += 1
        self.total += float(values[self.rate_at])
        self.not_finite += b"n" in values[self.loss_at]
        (self.head if self.row_count <= ROWS_KEPT else self.tail).append(values)

    def _mixed(self, number: int, form: Format, before: Format, values: tuple) -> LogError:
        generation, previous = generation_of(form, values[-1] is not None), generation_of(before, self.stamped)
        return LogError(
            f"found a row of generation {generation} after rows of generation {previous} (from line "
            f"{self.first_line}); expected rows of one generation: split the file",
            self.path,
            number,
        )

    def _take_reading(self, line: bytes) -> None:
        match = MEMORY.fullmatch(line)
        if match:
            self.memory_mib = max(self.memory_mib or 0, int(match[1]))
        elif line.startswith(b"validation:"):
            self.validation += 1
        else:
            self.noise += 1

    def _take_setting(self, line: bytes) -> bool:
        if not (b" = " in line or b" .." in line or b" iter per epoch" in line):
            return False
        match = SETTING.fullmatch(line)
        if match:
            name, value, dotted, dotted_value, iterations, _ = (
                part.decode("utf-8", "replace") if part else "" for part in match.groups()
            )
            self.settings[name or dotted or "iterations_per_epoch"] = typed(value or dotted_value or iterations)
        return bool(match)

    def _log(self, form: Format, configuration: dict[str, object]) -> Log:
        stated = stated_iterations_per_epoch(configuration)
        per_epoch = stated or (min(self.epoch_ends) if len(self.epoch_ends) == 1 else None)
        rows = tuple(self._row(form, values, per_epoch) for values in chain(self.head, self.tail))
        return Log(
            self.path,
            generation_of(form, self.stamped),
            rows=rows,
            row_count=self.row_count,
            samples_per_s_sum=self.total,
            configuration=configuration,
            memory_mib=self.memory_mib,
            validation_lines=self.validation,
            noise_lines=self.noise,
            broken_rows=self.broken,
            repeated_rows=self.repeated,
            notes=tuple(self._notes(stated, per_epoch)),
        )

    def _row(self, form: Format, values: tuple, per_epoch: int | None) -> LogRow:
        printed = dict(zip(form.names, values, strict=True))
        step, epoch = int(printed.pop("step")), int(printed.get("epoch", 0))
        numbers = {name: float(value) for name, value in printed.items() if value is not None}
        before = 0 if epoch == 0 else epoch * per_epoch if per_epoch else None
        return LogRow(
            step=None if before is None else before + step + form.steps_before,
            printed_step=step,
            samples_per_s=numbers.pop("samples_per_s"),
            loss=numbers.pop("loss"),
            latency_s=numbers.pop("latency_s", None),
            stamp=numbers.pop("stamp", None),
            other=numbers,
        )

    def _notes(self, stated: int | None, per_epoch: int | None) -> Iterator[str]:
        if self.not_finite:
            yield f"{self.not_finite} rows print a loss that is nan or inf"
        if self.broken:
            yield f"{self.broken} lines begin like a row but are not whole: passed over"
        if self.half_written:
            yield "the last line is half-written: passed over"
        if self.repeated:
            yield (
                f"{self.repeated} rows do not come after the row before them (another rank's copy, or a second run "
                "in the same file): passed over"
            )
        if self.row_count > 2 * ROWS_KEPT:
            yield f"of {self.row_count} rows the first and the last {ROWS_KEPT} are kept"
        if self.last[0] > 0 and per_epoch is None:
            yield "the iterations per epoch are not known: rows of later epochs have no continuous step"
        elif self.epoch_ends and stated is None:
            yield f"an epoch is taken to be {per_epoch} iterations, the last it prints: the log does not state it"
