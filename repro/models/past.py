"""The operators whose kernels OneFlow 0.8.0 no longer has, and how often an iteration of each program calls them.

A form is the kernels that one release had for an operator: `repro/trainers/past/forms.py` launches them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FORWARD, BACKWARD = DIRECTIONS = ("forward", "backward")
SOFTMAX, DROPOUT, LAYER_NORM = "softmax-kernel", "dropout-kernel", "layer-norm-kernel"
"""Entries of `deviations.toml`; the first has the cross-entropy too, most of which is a softmax."""
BERT, GPT2, GPT = "bert-2020-08-22", "gpt2-small-2020-12", "gpt-3d-2021-05"
"""The reports whose programs called these kernels. That of May 2021 shares softmax and masks with 0.8.0."""


@dataclass(frozen=True)
class Subject:
    """An operator on a matrix, in one of the forms of 2020."""

    deviation: str
    form: str
    rows: int
    columns: int

    @property
    def name(self) -> str:
        return f"{self.form} {self.rows}x{self.columns}"


@dataclass(frozen=True)
class Use:
    """How often an iteration calls an operator on a GPU."""

    subject: Subject
    forward: int
    backward: int


@dataclass(frozen=True)
class Work:
    """What a GPU does in an iteration: samples at a time, how many times, its layers, and whether it recomputes them.

    `shape` is a trainer's, with the padded vocabulary.
    """

    shape: Mapping[str, int]
    samples: int
    times: int = 1
    pipeline: int = 1
    recomputes: bool = False


def uses(report: str, work: Work) -> tuple[Use, ...]:
    """What a GPU of the program of this report calls in an iteration; nothing for other reports."""
    of_report = {BERT: _bert, GPT2: _gpt2, GPT: _gpt}
    return of_report[report](work) if report in of_report else ()


def _bert(work: Work) -> tuple[Use, ...]:
    tokens, scores, layers = _sizes(work)
    predicted = work.samples * work.shape["max_predictions"]
    size, length = work.shape["hidden_size"], work.shape["seq_length"]
    return (
        _use(SOFTMAX, "softmax 2020-08", scores, length, layers, work),
        _use(SOFTMAX, "cross-entropy 2020-08", predicted, work.shape["vocab_size"], 1, work),
        _use(DROPOUT, "dropout fp32", scores, length, layers, work),
        _use(DROPOUT, "dropout fp32", tokens, size, 2 * layers + 1, work),
        _use(LAYER_NORM, "layer norm 2020-08", tokens, size, 2 * layers + 1, work),
        _use(LAYER_NORM, "layer norm 2020-08", predicted, size, 1, work),
    )


def _gpt2(work: Work) -> tuple[Use, ...]:
    tokens, scores, layers = _sizes(work)
    size, length = work.shape["hidden_size"], work.shape["seq_length"]
    return (
        _use(SOFTMAX, "softmax 2020-12", scores, length, layers, work),
        _use(SOFTMAX, "cross-entropy 2020-12", tokens, work.shape["vocab_size"], 1, work),
        _use(DROPOUT, "dropout fp16", scores, length, layers, work),
        _use(DROPOUT, "dropout fp16", tokens, size, 2 * layers + 1, work),
        _use(LAYER_NORM, "layer norm 2020-12", tokens, size, 2 * layers + 1, work),
    )


def _gpt(work: Work) -> tuple[Use, ...]:
    tokens, _, layers = _sizes(work)
    return (_use(LAYER_NORM, "layer norm 2020-12", tokens, work.shape["hidden_size"], 2 * layers, work),)


def _sizes(work: Work) -> tuple[int, int, int]:
    """Rows of the hidden states and of the attention scores, and the layers of a stage."""
    tokens = work.samples * work.shape["seq_length"]
    return tokens, tokens * work.shape["attention_heads"], work.shape["layers"] // work.pipeline


def _use(deviation: str, form: str, rows: int, columns: int, calls: int, work: Work) -> Use:
    backward = calls * work.times
    return Use(Subject(deviation, form, rows, columns), backward * (2 if work.recomputes else 1), backward)
