"""The specification of a model: everything about it that more than one part of the project needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.models.programs import KINDS, PUBLISHED, Program

AXES = ("data", "tensor", "pipeline")


def accept(shape: Mapping[str, int], layout: Mapping[str, int]) -> str | None:
    """Accept any shape and layout: the check for models without constraints."""
    return None


@dataclass(frozen=True)
class SmallTraining:
    """A short training for checks: `global_batch` samples per iteration, learning rate `lr`."""

    shape: Mapping[str, int]
    global_batch: int
    lr: float


@dataclass(frozen=True)
class LossCurves:
    """Trainings whose losses are compared between layouts and precisions, on the CPU and on GPUs.

    `optimizer` is the configuration's optimizer without its learning rate. `layouts` are names in
    `repro.planning.loss_curves.LAYOUTS`; if empty, all layouts that the model supports are compared. With `reads_text`
    the data is a real text, otherwise synthetic.
    """

    cpu: SmallTraining
    cuda: SmallTraining
    optimizer: Mapping[str, Any]
    layouts: tuple[str, ...] = ()
    label_smoothing: float = 0.0
    reads_text: bool = False


@dataclass(frozen=True)
class ConvergenceTraining(SmallTraining):
    """A training on real data, with the loss that it must reach.

    For a text, this is the entropy of a byte given the `goal` bytes before it; for labelled pictures, the entropy of
    the labels divided by `goal`.
    """

    iterations: int = 1
    goal: int = 1


@dataclass(frozen=True)
class Convergence:
    """The model's convergence trainings on real data; `dataset` is a name in `repro.planning.datasets.MAKERS`."""

    cpu: ConvergenceTraining
    cuda: ConvergenceTraining
    optimizer: Mapping[str, Any]
    dataset: str


@dataclass(frozen=True)
class Baseline:
    """Properties of a model's baselines.

    channels_last : whether its inputs and weights have channels.
    attention : whether it has attention, which PyTorch fuses by default.
    megatron : whether Megatron-Core trains it too (`repro.baselines.megatron`).
    """

    channels_last: bool = False
    attention: bool = False
    megatron: bool = False


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A model's specification.

    Parameters
    ----------
    name : the model's name in configurations and case files, and the name of its modules.
    title_words : lower-case words that identify the model in a published report's title.
    shape_keys : sizes that a case must give.
    smoke_shape : a shape that trains in seconds on a CPU, as the trainers take it.
    inputs : names and element types of a batch's arrays, in the model's input order.
    sample : generates one synthetic sample, a value per input, from a NumPy generator and the shape (as attributes).
    programs : the published programs that trained it, the newest last.
    optimizer : "adamw" or "sgd".
    regularisation : "dropout" or "label_smoothing", as stated for the published training.
    optional_shape : further sizes, allowed only in a trainer's configuration, with their published values.
    tiny_shape : the shape that trains quickest in a layout of any size; `smoke_shape` if None.
    check : returns the error in a shape and a layout (sizes by axis) as one line that names the key, or None.
    synthetic_batches : number of synthetic batches before they repeat.
    last_stage_inputs : inputs of the last pipeline stage; the first stage takes all others.
    data_kinds : kinds of data that the trainer reads.
    axes : parallel axes that the model supports.
    options : supported settings out of activation_checkpointing, optimizer_sharding and clip_norm.
    batch_statistics : whether a micro-batch shares statistics (batch normalisation), so that losses depend on how a
        batch is divided.
    vocabulary_block : the vocabulary is padded to a multiple of this times the tensor parallel size.
    curves, convergence, baseline : None where the model has none.
    parameters : number of trainable parameters of a shape, with the padded `vocab_size`; None if not counted.
    training_flops : floating-point operations of forward and backward per sample of a shape, plus a second forward with
        activation checkpointing; a multiply-add counts as two. None if not counted.
    convolutional : whether its work is in convolutions, some of whose algorithms need fewer operations than counted.
    throughput_units : how reports write samples/s of this model; nothing is said of units if empty.
    published_flops : whether equation 3 of Narayanan et al. (arXiv 2104.04473) gives its operations.
    """

    name: str
    title_words: tuple[str, ...]
    shape_keys: tuple[str, ...]
    smoke_shape: Mapping[str, int]
    inputs: Mapping[str, str]
    sample: Callable[[Any, Any], Iterable[Any]]
    programs: tuple[Program, ...]
    optimizer: str
    regularisation: str
    optional_shape: Mapping[str, int] = field(default_factory=dict)
    tiny_shape: Callable[[Mapping[str, int]], Mapping[str, int]] | None = None
    check: Callable[[Mapping[str, int], Mapping[str, int]], str | None] = accept
    synthetic_batches: int = 8
    last_stage_inputs: tuple[str, ...] = ()
    data_kinds: tuple[str, ...] = ("synthetic",)
    axes: tuple[str, ...] = ("data",)
    options: tuple[str, ...] = ()
    batch_statistics: bool = False
    vocabulary_block: int = 1
    curves: LossCurves | None = None
    convergence: Convergence | None = None
    baseline: Baseline | None = None
    parameters: Callable[[Mapping[str, int]], float] | None = None
    training_flops: Callable[[Mapping[str, int], bool], float] | None = None
    convolutional: bool = False
    throughput_units: tuple[str, ...] = ()
    published_flops: bool = False

    @property
    def log_generation(self) -> str:
        """The newest log generation of its programs."""
        return self.programs[-1].log_generation

    @property
    def log_generations(self) -> tuple[str, ...]:
        """All log generations of its programs."""
        return tuple(program.log_generation for program in self.programs)

    def program(self, kind: str, log_generation: str) -> Program:
        """The published program of this log generation, or its tuned version.

        Raises
        ------
        ValueError
            If the program does not exist.
        """
        if kind not in KINDS or log_generation not in self.log_generations:
            raise ValueError(f"{self.name} has no {kind} program with logs of generation {log_generation}")
        published = next(program for program in self.programs if program.log_generation == log_generation)
        return published if kind == PUBLISHED else published.tuned()

    @property
    def has_vocabulary(self) -> bool:
        """Whether the model embeds tokens."""
        return "vocab_size" in self.shape_keys

    def rehearsal_shape(self, layout: Mapping[str, int]) -> Mapping[str, int]:
        """The shape in which a layout (sizes by axis) is rehearsed."""
        return self.tiny_shape(layout) if self.tiny_shape else self.smoke_shape

    def padded_vocab_size(self, vocab_size: int, tensor: int) -> int:
        """Rows of the token embedding: a multiple of `vocabulary_block` times the tensor parallel size."""
        multiple = self.vocabulary_block * tensor
        return -(-vocab_size // multiple) * multiple
