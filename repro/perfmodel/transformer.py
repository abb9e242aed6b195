"""Terms common to the transformers: parameters, FLOPs, bytes moved and bytes kept of a rank's share of the layers.

n is the tokens of a micro-batch (s x b), h the hidden size, a the heads, t the tensor parallel size. FLOPs are those
of Narayanan et al. (SC21, appendix), kept activations those of Korthikanti et al. (arXiv 2205.05198, section 4).
Bytes moved are counted kernel by kernel: each tensor read or written once, in the order of the published trainers.
"""

from __future__ import annotations

from dataclasses import dataclass

from repro.models.transformer import parameters, training_flops
from repro.perfmodel.work import KernelWork, ModelJob, Stage


@dataclass(frozen=True)
class Passes:
    """How often a layer's kernels read or write a tensor element: of n·h, of n·h/t and of the n·s·a/t scores."""

    hidden: float
    split: float
    scores: float
    kernels: int


# norms 2 x (read, write), bias and dropout 2 x (read, write, half a byte of mask), residual 2 x (two reads, a write);
# split: bias of q, k, v 6, heads transposed 2, bias and GELU 8; scores: read, softmax, dropped, mask.
FUSED_FORWARD = Passes(hidden=15, split=16, scores=3.5, kernels=20)
# norms 2 x (two reads, a write, and the parameters' gradient), dropout and bias gradient, sums of gradients.
FUSED_BACKWARD = Passes(hidden=23, split=21, scores=3.5, kernels=34)
# besides: bias apart from dropout and from GELU, q, k and v sliced and transposed; scale, mask, softmax, dropout apart.
PLAIN_FORWARD = Passes(hidden=19, split=36, scores=8.5, kernels=32)
PLAIN_BACKWARD = Passes(hidden=27, split=41, scores=9.5, kernels=52)
LAYER_TENSORS = 12
LOGIT_PASSES_BYTES = {"amp": 28, "fp32": 16}
LOGIT_KEPT_BYTES = {("amp", True): 6, ("amp", False): 16, ("fp32", True): 8, ("fp32", False): 12}


@dataclass(frozen=True)
class Head:
    """What follows the layers: `tokens` of a micro-batch are scored over a padded vocabulary of `vocab`.

    `transform` says that a square layer comes before (BERT's masked tokens).
    """

    vocab: int
    tokens: int
    transform: bool = False


def stages(job: ModelJob, head: Head) -> tuple[Stage, ...]:
    """The stages of a transformer; ValueError unless layers, heads and hidden size divide by the layout."""
    shape, layout = dict(job.shape), job.layout
    for name, size in (("layers", layout.pipeline), ("attention_heads", layout.tensor), ("hidden_size", layout.tensor)):
        if shape[name] % size:
            raise ValueError(f"{name} = {shape[name]} cannot be divided by {size} in layout {layout}")
    counts = _Counts(job, shape, head)
    last = layout.pipeline - 1
    if last == 0:
        return (counts.stage(True, True),)
    return (counts.stage(True, False), *(counts.stage(False, False),) * (last - 1), counts.stage(False, True))


def flops(job: ModelJob, vocab: int, scored: float = 1.0) -> float:
    """Floating-point operations of an iteration; `scored` is the share of tokens that the head scores."""
    shape = {**dict(job.shape), "vocab_size": vocab}
    return job.global_batch * training_flops(shape, job.activation_checkpointing, scored)


def memory(job: ModelJob, vocab: int) -> tuple[float, float]:
    """Parameters and bytes of activations of a rank, as Korthikanti et al. (section 4) count them.

    A pipeline's first stage keeps p micro-batches of its l/p layers, as much as one micro-batch of all l.
    """
    shape, t = dict(job.shape), job.layout.tensor
    s, h, a, layers = (shape[name] for name in ("seq_length", "hidden_size", "attention_heads", "layers"))
    tokens = s * job.micro_batch * h
    layer = tokens * (10 + 24 / t + 5 * a * s / (h * t)) * job.element_bytes / 2
    activations = 2 * tokens * layers + layer if job.activation_checkpointing else layer * layers
    return parameters({**shape, "vocab_size": vocab}) / (t * job.layout.pipeline), activations


class _Counts:
    """The counts of a job that all its stages share."""

    def __init__(self, job: ModelJob, shape: dict, head: Head) -> None:
        self.transform = head.transform
        self.job, self.t, self.h = job, job.layout.tensor, shape["hidden_size"]
        self.s, self.a = shape["seq_length"], shape["attention_heads"]
        self.n = self.s * job.micro_batch
        self.layers = shape["layers"] // job.layout.pipeline
        self.vocab, self.predicted = head.vocab, head.tokens
        self.e = job.element_bytes

    def stage(self, first: bool, last: bool) -> Stage:
        forward = self.layer(FUSED_FORWARD if self.job.fused else PLAIN_FORWARD, 1) * self.layers
        backward = self.layer(FUSED_BACKWARD if self.job.fused else PLAIN_BACKWARD, 2) * self.layers
        recompute = forward if self.job.activation_checkpointing else KernelWork()
        if first:
            forward, backward = forward + self.embedding(6.5), backward + self.embedding(6)
        if last:
            forward, backward = forward + self.head(1, 0.5), backward + self.head(2, 0.5)
        table = self.vocab * self.h / self.t
        embedding = table + self.s * self.h if first else 0.0
        head = (table if last and not first else 0.0) + (self.h * self.h if last and self.transform else 0.0)
        tied = table if first or last else 0.0
        all_reduces = (4 + 2 * self.job.activation_checkpointing) * self.layers + first + last
        return Stage(
            forward=forward,
            backward=backward,
            recompute=recompute,
            parameters=self.layers * (12 * self.h * self.h / self.t + 13 * self.h) + embedding + head,
            late_parameters=tied,
            tensors=LAYER_TENSORS * self.layers + 2 * first + 2 * last,
            all_reduces=all_reduces if self.t > 1 else 0,
            all_reduce_bytes=self.e * self.n * self.h,
            sent_bytes=self.e * self.n * self.h,
            kept_bytes=self.activation_bytes() * self.layers,
            layer_bytes=self.layer_activations() if self.job.activation_checkpointing else 0.0,
            head_bytes=self.logit_bytes() if last else 0.0,
        )

    def layer(self, passes: Passes, products: int) -> KernelWork:
        """One layer: 24nh² + 4nsh FLOPs forward and twice that backward, with the operands each product reads."""
        n, s, h, a, t = self.n, self.s, self.h, self.a, self.t
        operands = 4 * n * h + (12 * h * h + 12 * n * h) / t
        scores = n * s * a / t
        moved = passes.hidden * n * h + passes.split * n * h / t + passes.scores * scores
        return KernelWork(
            matrix_flops=products * 24 * n * h * h / t,
            matrix_bytes=products * self.e * operands,
            attention_flops=products * 4 * n * s * h / t,
            attention_bytes=products * self.e * (2 * scores + 4 * n * h / t),
            element_bytes=self.e * moved,
            kernels=passes.kernels,
        )

    def embedding(self, passes: float) -> KernelWork:
        """Look-up, position and dropout, or their gradients with the table's, which is written whole."""
        return KernelWork(element_bytes=self.e * (passes * self.n * self.h + self.vocab * self.h / self.t), kernels=6)

    def head(self, products: int, loss: float) -> KernelWork:
        """Output product over the vocabulary, and `loss`, the share of softmax and cross entropy on this pass."""
        tokens, width = self.predicted, self.vocab / self.t
        transform = 2 * tokens * self.h * self.h if self.transform else 0.0
        return KernelWork(
            matrix_flops=products * (2 * tokens * self.h * width + transform),
            matrix_bytes=products * self.e * (tokens * self.h + self.h * width + tokens * width),
            element_bytes=loss * LOGIT_PASSES_BYTES[self.job.precision] * tokens * width + 4 * self.e * self.n * self.h,
            kernels=10,
        )

    def layer_activations(self) -> float:
        """sbh (10 + 24/t + 5as/ht) bytes in half precision; masks stay bytes in fp32, the rest doubles."""
        whole = self.n * self.h * (10 + 24 / self.t + 5 * self.a * self.s / (self.h * self.t))
        masks = self.n * self.h * (2 + self.a * self.s / (self.h * self.t))
        return masks + (whole - masks) * self.e / 2

    def activation_bytes(self) -> float:
        """Of a layer: everything, or with recompute its input alone (Chen et al., arXiv 1604.06174)."""
        return self.e * self.n * self.h if self.job.activation_checkpointing else self.layer_activations()

    def logit_bytes(self) -> float:
        """Memory of logits and loss: half-precision logits and a single softmax if fused, otherwise all casts too."""
        return LOGIT_KEPT_BYTES[self.job.precision, self.job.fused] * self.predicted * self.vocab / self.t
