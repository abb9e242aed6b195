"""Knows how each generation of log prints a row, a setting and a memory reading."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Format:
    """Row format of one log generation, or of two that differ only in a time stamp. `start` is a cheap first check."""

    generations: str
    start: bytes
    pattern: re.Pattern
    names: tuple[str, ...]
    example: str
    steps_before: int = 0


INT, NUMBER = rb"(\d{1,18})", rb"([-+]?(?:\d{1,300}(?:\.\d*)?(?:[eE][-+]?\d{1,4})?|inf|nan))"
STAMP = rb"(?: +(\d{1,18}(?:\.\d*)?))?\s*"


def _format(generations: str, start: bytes, pattern: bytes, names: str, example: str, **more: int) -> Format:
    pattern = pattern.replace(b"INT", INT).replace(b"NUMBER", NUMBER).replace(b"STAMP", STAMP)
    return Format(generations, start, pattern=re.compile(pattern), names=tuple(names.split()), example=example, **more)


FORMATS = (
    _format(
        "AB",
        b"train: epoch ",
        pattern=rb"train: epoch INT, iter INT, loss: NUMBER, top_1: NUMBER, top_k: NUMBER, samples/s: NUMBERSTAMP",
        names="epoch step loss top_1 top_k samples_per_s stamp",
        example="train: epoch 0, iter 20, loss: …, top_1: …, top_k: …, samples/s: … [Unix stamp]",
    ),
    _format(
        "C",
        b"step: ",
        pattern=rb"step: INT, total_loss: NUMBER, mlm_loss: NUMBER, nsp_loss: NUMBER, throughput: NUMBERSTAMP",
        names="step loss mlm_loss nsp_loss samples_per_s stamp",
        example="step: 19, total_loss: …, mlm_loss: …, nsp_loss: …, throughput: … [Unix stamp]",
        steps_before=1,
    ),
    _format(
        "D",
        b"step: ",
        pattern=rb"step: INT, loss: NUMBER, throughput: NUMBERSTAMP",
        names="step loss samples_per_s stamp",
        example="step: 10, loss: …, throughput: … [Unix stamp]",
    ),
    _format(
        "E",
        b"| ",
        pattern=rb"\| +INT +\| +INT +\| +INT +\| +NUMBER +\| +NUMBER +\| +NUMBER +\|\s*",
        names="step micro_batches samples samples_per_s latency_s loss",
        example="| batches or step | micro_batches | samples | throughput | latency | loss |",
    ),
)
LETTERS = tuple(letter for form in FORMATS for letter in form.generations)
ROW_STARTS = tuple({form.start for form in FORMATS})
OTHER_STARTS = (b"validation:", b"[N/A],", *(b"%d" % digit for digit in range(10)))
TABLE_HEADER = re.compile(
    rb"\| (?:batches|step) +\| micro_batches +\| samples +\| throughput +\| latency +\| loss +\|\s*"
)
MEMORY = re.compile(rb"(?:\d+ %|\[N/A\]), (\d{1,9}) MiB\s*")
SETTING = re.compile(rb"([A-Za-z_]\w*) = (.+)|  (\w+) \.{2,} (.+)| (\d{1,18}) (iter per epoch)\.\.\.\s*")
ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^-~])")
WORDS = {"True": True, "False": False, "None": None}
EXPECTED = "expected rows of one generation: " + "; ".join(
    f"{'/'.join(form.generations)} '{form.example}'" for form in FORMATS
)


def generation_of(form: Format, stamped: bool) -> str:
    """The letter of a generation: A and B differ by the Unix stamp alone."""
    return form.generations[-1] if stamped else form.generations[0]


def typed(text: str) -> object:
    """A printed setting as a number, a truth value, None, a list, or text."""
    text = text.strip()
    if text in WORDS:
        return WORDS[text]
    if re.fullmatch(r"[-+]?\d{1,18}", text):
        return int(text)
    if re.fullmatch(NUMBER.decode(), text) and math.isfinite(float(text)):
        return float(text)
    return _list(text) if text.startswith("[") and text.endswith("]") else text


def _list(text: str) -> list | str:
    try:
        items = json.loads(text.replace("'", '"'))
    except (ValueError, RecursionError):
        return text
    plain = all(isinstance(item, str | int) or (isinstance(item, float) and math.isfinite(item)) for item in items)
    return items if plain else text


def stated_iterations_per_epoch(configuration: Mapping[str, object]) -> int | None:
    """The printed value, otherwise the samples per epoch divided by the global batch size, rounded up."""
    printed, samples = configuration.get("iterations_per_epoch"), configuration.get("num_examples")
    batch = stated_global_batch(configuration)
    if isinstance(printed, int) and printed > 0:
        return printed
    return -(-samples // batch) if isinstance(samples, int) and samples > 0 and batch else None


def stated_global_batch(configuration: Mapping[str, object]) -> int | None:
    """Samples an iteration, from whichever settings of a generation state it."""
    for names in (
        ("global_batch_size",),
        ("micro_batch_size", "data_parallel_size", "num_accumulation_steps"),
        ("batch_size_per_device", "gpu_num_per_node", "num_nodes"),
    ):
        factors = [factor for factor in map(configuration.get, names) if isinstance(factor, int) and factor > 0]
        if len(factors) == len(names):
            return math.prod(factors)
    return None
