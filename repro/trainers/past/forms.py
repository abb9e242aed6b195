"""The kernels that OneFlow had for an operator in 2020, with their launches: `docker/past/kernels.cu`, and cuDNN's.

Blocks and threads are those of 0.1.9 (ec8df10e) and 05fdee7d. Where nothing else is said, a kernel has a thread per
element, in blocks of 1024: at most 4096 of them, or as many as the GPU runs at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from repro.models.past import BACKWARD, FORWARD

THREADS, MOST_BLOCKS, WARP = 1024, 4096, 32
ROW_THREADS, SOFTMAX_THREADS, SUM_THREADS, MASK_THREADS = 256, 128, 512, 128
MOST_SUM_BLOCKS = 256
MOST_COLUMNS = MOST_BLOCKS * WARP // 2
MASK_BYTES = 16
EPSILON = 1e-5
RATE = 0.1
BYTES = {"f16": 2, "f32": 4, "i32": 4, "i64": 8, "i8": 1, "random": 24}


class Long(int):
    """An argument of 64 bits."""


class Double(float):
    """An argument of 64 bits."""


@dataclass(frozen=True)
class Gpu:
    """What launches depend on: multiprocessors, and the threads that one runs at a time."""

    multiprocessors: int
    threads: int


@dataclass(frozen=True)
class Launch:
    """A kernel: its arguments are numbers and names of buffers, `reads` and `writes` the buffers that it passes over."""

    kernel: str
    blocks: int
    threads: int
    arguments: tuple
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    shared: int = 0


@dataclass(frozen=True)
class BatchNorm:
    """cuDNN's batch normalisation over the rows of a matrix, as channels of one sample, whose scale is `ones`."""

    direction: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]


@dataclass(frozen=True)
class Form:
    """The buffers of an operator, by name with elements and type, and its steps in both directions.

    `given` are filled before it runs; the backward pass finds what the forward pass left.
    """

    precision: str
    rows: int
    columns: int
    buffers: dict[str, tuple[int, str]]
    given: tuple[str, ...]
    steps: dict[str, tuple[Launch | BatchNorm, ...]]

    def size(self, buffer: str) -> int:
        """Bytes of a buffer."""
        elements, kind = self.buffers[buffer]
        return elements * BYTES[kind]

    def bytes(self, step: Launch | BatchNorm) -> int:
        """Bytes that a step reads and writes, each element once for each pass."""
        return sum(map(self.size, (*step.reads, *step.writes)))

    def passes(self, direction: str) -> int:
        """How often the steps of a direction pass over as many elements as the operator's input has."""
        whole = self.rows * self.columns
        named = (name for step in self.steps[direction] for name in (*step.reads, *step.writes))
        return sum(self.buffers[name][0] == whole for name in named)


def form(name: str, rows: int, columns: int, gpu: Gpu) -> Form:
    """A form of `repro/models/past.py` by its name; KeyError if there is none."""
    return FORMS[name](rows, columns, gpu)


def softmax_2020_12(rows: int, columns: int, gpu: Gpu) -> Form:
    return _softmax("f16", rows, columns, SOFTMAX_THREADS)


def softmax_2020_08(rows: int, columns: int, gpu: Gpu) -> Form:
    return _softmax("f32", rows, columns, ROW_THREADS)


def _softmax(precision: str, rows: int, columns: int, threads: int) -> Form:
    """A block per row in shared memory, as long as that holds two rows in fp32: one kernel in each direction."""
    buffers = {name: (rows * columns, precision) for name in ("x", "y", "dy", "dx")}
    blocks, arguments = min(rows, MOST_BLOCKS), (rows, columns, "dy", "y", "dx")
    forward = Launch(
        f"softmax_forward_{precision}", blocks, threads, (rows, columns, "x", "y"), ("x",), ("y",), 4 * columns
    )
    backward = Launch(f"softmax_backward_{precision}", blocks, threads, arguments, ("dy", "y"), ("dx",), 8 * columns)
    return Form(precision, rows, columns, buffers, ("x", "dy"), {FORWARD: (forward,), BACKWARD: (backward,)})


def cross_entropy_2020_12(rows: int, columns: int, gpu: Gpu) -> Form:
    blocks, sizes = min(rows, MOST_BLOCKS), (Long(rows), Long(columns))
    reads = ("x", "row")
    softmax = (
        _of_rows("reduce_max", rows, columns, "x", "row"),
        Launch("subtract_and_exp", blocks, SOFTMAX_THREADS, (*sizes, "x", "row", "y"), reads, ("y",)),
        _of_rows("reduce_sum", rows, columns, "y", "row"),
        Launch("divide_rows", blocks, SOFTMAX_THREADS, (*sizes, "y", "row", "y"), ("y", "row"), ("y",)),
    )
    return _cross_entropy(rows, columns, "i64", softmax)


def cross_entropy_2020_08(rows: int, columns: int, gpu: Gpu) -> Form:
    matrix, several = rows * columns, _at_a_time(rows * columns, gpu)
    softmax = (
        _of_rows("reduce_max", rows, columns, "x", "row"),
        Launch("subtract_rows", several, THREADS, (matrix, columns, "x", "row", "y"), ("x", "row"), ("y",)),
        Launch("exp_in_place", several, THREADS, (matrix, "y"), ("y",), ("y",)),
        _of_rows("reduce_sum", rows, columns, "y", "row"),
        Launch("divide_by_rows", several, THREADS, (matrix, columns, "row", "y"), ("y", "row"), ("y",)),
    )
    return _cross_entropy(rows, columns, "i32", softmax)


def _cross_entropy(rows: int, columns: int, label: str, softmax: tuple[Launch, ...]) -> Form:
    matrix = rows * columns
    buffers = {
        **{name: (matrix, "f32") for name in ("x", "y", "dx")},
        **{name: (rows, "f32") for name in ("row", "loss", "dy")},
        "labels": (rows, label),
    }
    arguments = (rows, Long(columns), "y", "labels", "loss")
    logarithm = Launch(f"log_of_label_{label}", _blocks(rows), THREADS, arguments, ("labels",), ("loss",))
    arguments = (Long(matrix), Long(columns), "y", "labels", "dy", "dx")
    back = Launch(f"cross_entropy_back_{label}", _blocks(matrix), THREADS, arguments, ("y", "labels", "dy"), ("dx",))
    steps = {FORWARD: (*softmax, logarithm), BACKWARD: (back,)}
    return Form("f32", rows, columns, buffers, ("x", "dy", "labels"), steps)


def dropout_f16(rows: int, columns: int, gpu: Gpu) -> Form:
    return _dropout("f16", rows, columns, gpu, _blocks((rows * columns + 1) // 2))


def dropout_f32(rows: int, columns: int, gpu: Gpu) -> Form:
    return _dropout("f32", rows, columns, gpu, _blocks(rows * columns))


def _dropout(precision: str, rows: int, columns: int, gpu: Gpu, blocks: int) -> Form:
    matrix, scale = rows * columns, 1.0 / (1.0 - RATE)
    buffers = {
        **{name: (matrix, precision) for name in ("x", "y", "dy", "dx")},
        "mask": (matrix, "i8"),
        "states": (gpu.multiprocessors * MASK_THREADS, "random"),
    }
    few = min(_ceil(matrix, MASK_THREADS * MASK_BYTES * 2), gpu.multiprocessors)
    draw = Launch("draw_mask", few, MASK_THREADS, ("states", Long(matrix), RATE, "mask"), (), ("mask",))

    def drop(x: str, y: str) -> Launch:
        arguments = (Long(matrix), scale, x, "mask", y)
        return Launch(f"drop_{precision}", blocks, THREADS, arguments, (x, "mask"), (y,))

    steps = {FORWARD: (draw, drop("x", "y")), BACKWARD: (drop("dy", "dx"),)}
    return Form(precision, rows, columns, buffers, ("x", "dy", "states"), steps)


def layer_norm_2020_12(rows: int, columns: int, gpu: Gpu) -> Form:
    matrix = rows * columns
    parts = min(_ceil(matrix, SUM_THREADS), MOST_SUM_BLOCKS)
    buffers = {
        **_layer_norm_buffers("f16", rows, columns),
        **{name: (parts * columns, "f16") for name in ("gamma_parts", "beta_parts")},
    }
    written = ("means", "inverses", "normalized", "y")
    arguments = (rows, columns, Double(EPSILON), "x", "gamma", "beta", *written)
    reads = ("x", "gamma", "beta")
    forward = Launch("layer_norm_forward", min(rows, MOST_BLOCKS), ROW_THREADS, arguments, reads, written, 4 * columns)
    reads, written = ("dy", "normalized", "gamma"), ("gamma_parts", "beta_parts", "dnormalized")
    arguments = (matrix, columns, *reads, *written)
    backward = (
        Launch("layer_norm_sums", parts, SUM_THREADS, arguments, reads, written, 8 * columns),
        *_sum_columns("f16", parts, columns, "gamma_parts", "dgamma"),
        *_sum_columns("f16", parts, columns, "beta_parts", "dbeta"),
        *_centred(rows, gpu),
    )
    steps = {FORWARD: (forward,), BACKWARD: backward}
    return Form("f16", rows, columns, buffers, ("x", "gamma", "beta", "dy"), steps)


def layer_norm_2020_08(rows: int, columns: int, gpu: Gpu) -> Form:
    matrix, several = rows * columns, _at_a_time(rows * columns, gpu)
    buffers = _layer_norm_buffers("f32", rows, columns)

    def by_columns(kernel: str, *names: str) -> Launch:
        return Launch(kernel, several, THREADS, (matrix, columns, *names), names[:-1], names[-1:])

    forward = (
        _fill("ones", rows, 1.0, gpu),
        _fill("zeros", rows, 0.0, gpu),
        BatchNorm(FORWARD, ("x",), ("normalized",)),
        by_columns("multiply_columns", "normalized", "gamma", "y"),
        Launch("add_columns", several, THREADS, (matrix, columns, "beta", "y"), ("y", "beta"), ("y",)),
    )
    arguments = (matrix, "normalized", "dy", "scratch")
    backward = (
        *_sum_columns("f32", rows, columns, "dy", "dbeta"),
        Launch("multiply_f32", several, THREADS, arguments, ("normalized", "dy"), ("scratch",)),
        *_sum_columns("f32", rows, columns, "scratch", "dgamma"),
        by_columns("multiply_columns", "dy", "gamma", "dnormalized"),
        *_centred(rows, gpu),
    )
    steps = {FORWARD: forward, BACKWARD: backward}
    return Form("f32", rows, columns, buffers, ("x", "gamma", "beta", "dy"), steps)


def _layer_norm_buffers(precision: str, rows: int, columns: int) -> dict[str, tuple[int, str]]:
    matrices, vectors = (
        ("x", "normalized", "y", "dy", "dnormalized", "dx", "scratch"),
        ("gamma", "beta", "dgamma", "dbeta"),
    )
    of_rows = ("means", "inverses", "ones", "zeros", "row_scale", "row_bias")
    return {
        **{name: (rows * columns, precision) for name in matrices},
        **{name: (columns, precision) for name in vectors},
        **{name: (rows, "f32") for name in of_rows},
    }


def _centred(rows: int, gpu: Gpu) -> tuple[Launch | BatchNorm, ...]:
    """From the gradient of the normalised values to that of the input."""
    return _fill("ones", rows, 1.0, gpu), BatchNorm(BACKWARD, ("x", "dnormalized"), ("dx",))


def _fill(name: str, elements: int, value: float, gpu: Gpu) -> Launch:
    return Launch("fill", _at_a_time(elements, gpu), THREADS, (elements, value, name), (), (name,))


def _of_rows(kernel: str, rows: int, columns: int, x: str, y: str) -> Launch:
    return Launch(kernel, rows, ROW_THREADS, (columns, x, y), (x,), (y,))


def _sum_columns(precision: str, rows: int, columns: int, x: str, y: str) -> tuple[Launch, ...]:
    """Sums of columns: of a tall matrix first those of a wider one with fewer rows, into `scratch`."""
    shift = 0
    while rows >> shift >= WARP * WARP and columns << shift + 1 <= MOST_COLUMNS:
        shift += 1
    if not shift:
        return (_sum_once(precision, rows * columns, columns, x, y, (x,)),)
    wide = columns << shift
    return (
        _sum_once(precision, rows * columns, wide, x, "scratch", (x,)),
        _sum_once(precision, wide, columns, "scratch", y, ()),
    )


def _sum_once(precision: str, elements: int, columns: int, x: str, y: str, reads: tuple[str, ...]) -> Launch:
    if elements // columns < WARP:
        kernel, blocks = "sum_columns_by_threads", _ceil(columns, THREADS)
    else:
        kernel, blocks = "sum_columns_by_blocks", _ceil(columns, WARP)
    return Launch(f"{kernel}_{precision}", blocks, THREADS, (elements, columns, x, y), reads, ())


def _blocks(elements: int) -> int:
    return min(_ceil(elements, THREADS), MOST_BLOCKS)


def _at_a_time(elements: int, gpu: Gpu) -> int:
    return min(_ceil(elements, THREADS), _ceil(gpu.multiprocessors * gpu.threads, THREADS))


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


FORMS: dict[str, Callable[[int, int, Gpu], Form]] = {
    "softmax 2020-12": softmax_2020_12,
    "softmax 2020-08": softmax_2020_08,
    "cross-entropy 2020-12": cross_entropy_2020_12,
    "cross-entropy 2020-08": cross_entropy_2020_08,
    "dropout fp16": dropout_f16,
    "dropout fp32": dropout_f32,
    "layer norm 2020-12": layer_norm_2020_12,
    "layer norm 2020-08": layer_norm_2020_08,
}
"""By the name that `repro/models/past.py` gives them."""
