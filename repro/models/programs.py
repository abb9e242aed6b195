"""The programs that train the models: the five published ones, and what the tuned program changes of each.

A program is a set of choices, so that two programs can be compared line by line. A published program has the choices of
the sources at the commits that its report names; `repro/models/deviations.toml` says what a port to oneflow 0.8.0 cannot
keep of them. The tuned program of a model is its published program with `TUNING` on top: the same mathematics, in other
operators and with other settings. What the operators are is code: `repro/trainers/models` has the published ones,
`repro/trainers/tuning` the tuned ones, and the former does not import the latter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

PUBLISHED, TUNED = "published", "tuned"
KINDS = (PUBLISHED, TUNED)
"""What PROGRAM and the configuration of a trainer may name."""


@dataclass(frozen=True)
class Program:
    """The choices of one program; a default is what most published programs have.

    Mathematics, which the tuned program leaves alone:

    report : the published report whose figures it made.
    log_generation : form of its log, and so its name in configurations: A to E.
    form : name of the model's form, where reports trained several.
    inputs : the model's inputs that it was fed; without any, all of them.
    loss_per_sample : the loss is a vector, one value per sample, so each gradient is divided by the global batch.
    bias_correction : whether Adam corrects its moments for starting at 0.
    not_decayed : weight decay passes over parameters with these words in their names.
    l2_on_all : the weight decay is also added, as an L2 penalty, to the gradient of every parameter.
    warmup_to_base : the warm-up rises to the base rate, and not to where the decay stands at its end.
    data : kind of the data that it read (`repro.trainers.data.settings`); what is trained outside a bench may have other.
    data_parts : into how many parts they were divided, 0 for kinds without parts.
    standin : what stands in for them where nobody has them (`repro.trainers.data.standin`).
    loss_scale, loss_scale_window : first loss scale under AMP, and iterations without overflow after which it doubles.

    Graph:

    fuse_add_to_output, fuse_model_update, fuse_cast_scale : fusions that OneFlow's compiler makes when allowed.
    cudnn_search : how convolutions choose their algorithm, "heuristic" or "exhaustive".
    norm_in_one_kernel : the squares of all gradients are summed up together to clip them, not gradient by gradient.
    rewritten : whether operators of the compiled job are replaced by faster ones.

    Communication and memory:

    fusion_mib, fusion_ops, nccl_streams : most MiB and operators that collectives take together, on how many streams.
    copy_buffer : all-reduces are fused by way of a buffer into which gradients are copied.
    fuse_sharded : reduce-scatters and all-gathers are fused too: "never", "always", or "sharded" for only where the
        optimizer is.
    compute_stream : where collectives share the stream of the computation: "never", "tensor or pipeline" for where a
        layout has either, or "no data" for there and where no gradients are exchanged.
    own_zero : the optimizer is sharded by the signatures of its parameters, not by OneFlow's pass.
    half_gradients : gradients under AMP are cast to half precision for their exchange by operators of the model.
    merge_chains : tensors of independent parts of the graph share memory.

    Process:

    switches : environment variables ONEFLOW_… that are set to 1.
    one_update : all parameters are updated by few kernels (of flat layouts on one stage, elsewhere OneFlow ends).
    keep_batches : a few synthetic batches stay on the device; else each iteration moves a new one there.
    fetch_each : outputs are fetched in each iteration, one iteration late; else only those that are printed.
    """

    report: str
    log_generation: str
    form: str = ""
    inputs: tuple[str, ...] = ()
    loss_per_sample: bool = False
    bias_correction: bool = True
    not_decayed: tuple[str, ...] = ("bias", "norm")
    l2_on_all: bool = False
    warmup_to_base: bool = True
    data: str = "synthetic"
    data_parts: int = 0
    standin: str = ""
    loss_scale: float = 2.0**20
    loss_scale_window: int = 1000

    fuse_add_to_output: bool = False
    fuse_model_update: bool = False
    fuse_cast_scale: bool = False
    cudnn_search: str = "heuristic"
    norm_in_one_kernel: bool = True
    rewritten: bool = False

    fusion_mib: int = 16
    fusion_ops: int = 64
    nccl_streams: int = 1
    copy_buffer: bool = False
    fuse_sharded: str = "never"
    compute_stream: str = "never"
    own_zero: bool = False
    half_gradients: bool = False
    merge_chains: bool = False

    switches: tuple[str, ...] = ()
    one_update: bool = False
    keep_batches: bool = False
    fetch_each: bool = True

    def tuned(self) -> Program:
        """The tuned program that trains the same model."""
        return replace(self, **TUNING)


TUNING: dict[str, Any] = {
    "fuse_add_to_output": True,
    "fuse_model_update": True,
    "fuse_cast_scale": True,
    "cudnn_search": "heuristic",
    "norm_in_one_kernel": True,
    "rewritten": True,
    "fusion_mib": 64,
    "fusion_ops": 24,
    "nccl_streams": 1,
    "copy_buffer": False,
    "fuse_sharded": "sharded",
    "compute_stream": "no data",
    "own_zero": True,
    "half_gradients": True,
    "merge_chains": False,
    "switches": (
        "ACTOR_ENABLE_LIGHT_ACTOR",
        "THREAD_ENABLE_LOCAL_MESSAGE_QUEUE",
        "KERNEL_DISABLE_BLOB_ACCESS_CHECKER",
        "KERNEL_REDUCE_SUM_USE_MATMUL",
    ),
    "one_update": True,
    "keep_batches": True,
    "fetch_each": False,
}
"""The choices of the tuned program, whatever it tunes."""

RESNET50_8_AUGUST = Program(
    "resnet50-2020-08-08",
    "A",
    data="ofrecord",
    data_parts=44,
    standin="images",
    loss_per_sample=True,
    l2_on_all=True,
    not_decayed=("norm",),
    nccl_streams=2,
    copy_buffer=True,
)
RESNET50_21_AUGUST = replace(
    RESNET50_8_AUGUST,
    report="resnet50-2020-08-21",
    log_generation="B",
    data_parts=32,
    loss_per_sample=False,
    cudnn_search="exhaustive",
)
BERT = Program(
    "bert-2020-08-22",
    "C",
    data="ofrecord",
    data_parts=32,
    standin="features",
    loss_per_sample=True,
    bias_correction=False,
    norm_in_one_kernel=False,
    nccl_streams=2,
    copy_buffer=True,
)
GPT_2_SMALL = Program(
    "gpt2-small-2020-12",
    "D",
    form="gpt-2",
    inputs=("ids",),
    data="text",
    standin="text",
    not_decayed=("inward.bias", "outward.bias"),
    loss_scale=2.0**15,
    loss_scale_window=20,
    fuse_add_to_output=True,
    fuse_model_update=True,
    fuse_sharded="always",
)
GPT = Program(
    "gpt-3d-2021-05",
    "E",
    form="gpt-3d",
    data="megatron",
    standin="tokens",
    fuse_add_to_output=True,
    fuse_model_update=True,
    fuse_cast_scale=True,
    compute_stream="tensor or pipeline",
    merge_chains=True,
)
