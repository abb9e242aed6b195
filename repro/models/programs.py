"""The programs that train the models: the five published ones, and the changes that the tuned program makes to each.

A program is a set of choices, so two programs can be compared line by line. A published program has the choices of the
source code at its report's commits; `repro/models/deviations.toml` lists those that the port to oneflow 0.8.0 changes.
A model's tuned program is its published program with `TUNING` applied: the same mathematics with other operators and
settings. The operators are in `repro/trainers/models` (published) and `repro/trainers/tuning` (tuned); the former does
not import the latter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

PUBLISHED, TUNED = "published", "tuned"
KINDS = (PUBLISHED, TUNED)
"""What PROGRAM and the configuration of a trainer may name."""
TEXT_FILES = ("*.txt", "wiki_[0-9]*")
"""Names of the files in a folder of text; wikiextractor, which wrote the published text, names its output wiki_00."""


@dataclass(frozen=True)
class Program:
    """The choices of one program; the defaults are those of most published programs.

    Mathematics, which the tuned program does not change:

    report : the published report whose figures this program produced.
    log_generation : format of its log, A to E; configurations select the program by it.
    form : name of the model's form, if the reports trained several.
    inputs : the model's inputs that it was fed; all if empty.
    loss_per_sample : the loss is a vector, one value per sample, so each gradient is divided by the global batch.
    bias_correction : whether Adam corrects its moments for starting at 0.
    not_decayed : parameters with one of these words in their names have no weight decay.
    l2_on_all : the weight decay is also added, as an L2 penalty, to the gradient of every parameter.
    warmup_to_base : the warm-up ends at the base rate, not at the decayed rate of that iteration.
    data : kind of data that it read (`repro.trainers.data.settings`); trainings other than a bench may use another.
    data_parts : number of parts of the data, 0 for kinds without parts.
    standin : the stand-in to use if the data is not available (`repro.trainers.data.standin`).
    loss_scale, loss_scale_window : first loss scale under AMP, and iterations without overflow after which it doubles.

    Graph:

    fuse_add_to_output, fuse_model_update, fuse_cast_scale : fusions that OneFlow's compiler is allowed to make.
    cudnn_search : how convolutions choose their algorithm, "heuristic" or "exhaustive".
    norm_in_one_kernel : clipping sums the squares of all gradients in one kernel instead of one per gradient.
    rewritten : whether operators of the compiled job are replaced by faster ones.
    evaluation_job : a second job, for evaluation on random inputs, is compiled but never run.

    Communication and memory:

    rdma : OneFlow's own transfers between nodes with InfiniBand use RDMA.
    fusion_mib, fusion_ops, nccl_streams : maximum MiB and operators per fused collective, and number of NCCL streams.
    copy_buffer : fused all-reduces copy gradients into one buffer.
    fuse_sharded : whether reduce-scatters and all-gathers are fused too: "never", "always", or "sharded" for only with
        a sharded optimizer.
    compute_stream : when collectives run on the compute stream: "never", "tensor or pipeline" for layouts with either,
        or "no data" for those and for layouts that exchange no gradients.
    own_zero : the optimizer is sharded by the SBP signatures of its parameters, not by OneFlow's pass.
    half_gradients : under AMP, operators of the model cast gradients to half precision for their exchange.
    merge_chains : tensors of independent parts of the graph share memory.

    Process:

    switches : environment variables ONEFLOW_… that are set to 1.
    one_update : few kernels update all parameters; only for flat layouts on one stage, since OneFlow aborts otherwise.
    keep_batches : a few synthetic batches stay on the device; otherwise each iteration transfers one.
    fetch_each : outputs are fetched in each iteration, one iteration late; otherwise only printed ones are.
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
    evaluation_job: bool = False

    rdma: bool = False
    fusion_mib: int = 16
    fusion_ops: int = 64
    nccl_streams: int = 1
    copy_buffer: bool = False
    fuse_sharded: str = "never"
    compute_stream: str = "never"
    own_zero: bool = False
    half_gradients: bool = False
    merge_chains: bool = True

    switches: tuple[str, ...] = ()
    one_update: bool = False
    keep_batches: bool = False
    fetch_each: bool = True

    def tuned(self) -> Program:
        """The tuned program for the same model."""
        return replace(self, **TUNING)


TUNING: dict[str, Any] = {
    "fuse_add_to_output": True,
    "fuse_model_update": True,
    "fuse_cast_scale": True,
    "cudnn_search": "heuristic",
    "norm_in_one_kernel": True,
    "rewritten": True,
    "evaluation_job": False,
    "rdma": True,
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

UNLIMITED_OPS = 128
"""Of operators per fused collective: 0.1.8 and 0.1.9 had no maximum, and 0.8.0 takes no larger one
(oneflow@v0.8.0:oneflow/core/job/collective_boxing/nccl_executor_backend.cu#L59, #L547)."""

RESNET50_8_AUGUST = Program(
    "resnet50-2020-08-08",
    "A",
    data="ofrecord",
    data_parts=44,
    standin="images",
    loss_per_sample=True,
    l2_on_all=True,
    not_decayed=("norm",),
    evaluation_job=True,
    fusion_ops=UNLIMITED_OPS,
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
    fusion_ops=UNLIMITED_OPS,
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
    rdma=True,
    compute_stream="tensor or pipeline",
)
