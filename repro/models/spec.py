"""The specification of a model: everything that more than one part of the project must know about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.models.programs import KINDS, PUBLISHED, Program

AXES = ("data", "tensor", "pipeline")


def accept(shape: Mapping[str, int], layout: Mapping[str, int]) -> str | None:
    """The check of a model whose sizes need not agree with each other."""
    return None


@dataclass(frozen=True)
class SmallTraining:
    """A training that is short enough for a check: `global_batch` samples per iteration, learning rate `lr`."""

    shape: Mapping[str, int]
    global_batch: int
    lr: float


@dataclass(frozen=True)
class LossCurves:
    """Trainings whose losses are compared between layouts and precisions, on the CPU and on GPUs.

    `optimizer` is that of the configuration without its learning rate. `layouts` are names in
    `repro.planning.loss_curves.LAYOUTS`; without any, all that the model can have are compared. With `reads_text` the data is a real text,
    otherwise synthetic.
    """

    cpu: SmallTraining
    cuda: SmallTraining
    optimizer: Mapping[str, Any]
    layouts: tuple[str, ...] = ()
    label_smoothing: float = 0.0
    reads_text: bool = False


@dataclass(frozen=True)
class ConvergenceTraining(SmallTraining):
    """A training on real data; `goal` says which loss it must reach.

    For a text the goal is the entropy of a byte given the `goal` bytes before it, for labelled pictures the entropy of
    the labels divided by `goal`.
    """

    iterations: int = 1
    goal: int = 1


@dataclass(frozen=True)
class Convergence:
    """How the model shows that it learns real data: `dataset` is a name in `repro.planning.datasets.MAKERS`."""

    cpu: ConvergenceTraining
    cuda: ConvergenceTraining
    optimizer: Mapping[str, Any]
    dataset: str


@dataclass(frozen=True)
class Baseline:
    """What the PyTorch program of a model can do.

    channels_last : whether its inputs and weights have channels.
    attention : whether it has attention, which PyTorch fuses unless told otherwise.
    """

    channels_last: bool = False
    attention: bool = False


@dataclass(frozen=True, eq=False)
class ModelSpec:
    """A model as all parts of the project know it.

    Parameters
    ----------
    name : also that of the model's modules, in configurations and in case files.
    title_words : words, in lower case, by which the title of a published report names the model.
    shape_keys : sizes that a case must give.
    smoke_shape : a shape that trains in seconds on a CPU, as the trainers take it.
    inputs : names of a batch's arrays with their element types, in the order in which the model takes them.
    sample : makes one synthetic sample, a value per input, from a numpy generator and the shape's sizes as attributes.
    programs : the published programs that trained it, the newest last.
    optimizer : "adamw" or "sgd".
    regularisation : "dropout" or "label_smoothing", whichever the published training states.
    optional_shape : further sizes that only a trainer's configuration may give, with their published values.
    check : says what is wrong with a shape and a layout (sizes by axis), as a line that names the key; None if nothing.
    synthetic_batches : how many synthetic batches there are before they repeat.
    last_stage_inputs : inputs that the last stage of a pipeline takes; the first takes all others.
    data_kinds : kinds of data that the trainer reads.
    axes : parallel axes along which the model can be divided.
    options : settings of the trainer that the model supports, of activation_checkpointing, optimizer_sharding and
        clip_norm.
    batch_statistics : whether samples of a micro-batch share statistics (batch normalisation), so that losses depend
        on how a batch is divided.
    vocabulary_block : the vocabulary is padded to a multiple of this times the tensor parallel size.
    curves, convergence, baseline : None where the model has none.
    parameters : trainable parameters of a shape, with `vocab_size` as padded; None where nobody has counted them.
    training_flops : floating-point operations of forward and backward per sample of a shape, a multiply-add counted as
        two, and of a second forward if asked (activation checkpointing); None where nobody has counted them.
    convolutional : whether its work is in convolutions, some of whose algorithms do less than what is counted.
    published_flops : whether equation 3 of Narayanan et al. (arXiv 2104.04473) counts its operations.
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
    published_flops: bool = False

    @property
    def log_generation(self) -> str:
        """The newest form of its logs."""
        return self.programs[-1].log_generation

    @property
    def log_generations(self) -> tuple[str, ...]:
        """Every form of its logs."""
        return tuple(program.log_generation for program in self.programs)

    def program(self, kind: str, log_generation: str) -> Program:
        """The published program whose log has this form, or the tuned one of the same mathematics.

        Raises
        ------
        ValueError
            If there is no such program.
        """
        if kind not in KINDS or log_generation not in self.log_generations:
            raise ValueError(f"{self.name} has no {kind} program with logs of generation {log_generation}")
        published = next(each for each in self.programs if each.log_generation == log_generation)
        return published if kind == PUBLISHED else published.tuned()

    @property
    def has_vocabulary(self) -> bool:
        """Whether the model embeds tokens."""
        return "vocab_size" in self.shape_keys

    def padded_vocab_size(self, vocab_size: int, tensor: int) -> int:
        """Rows of the token embedding: whole rows per tensor parallel rank, in blocks as published."""
        multiple = self.vocabulary_block * tensor
        return -(-vocab_size // multiple) * multiple
