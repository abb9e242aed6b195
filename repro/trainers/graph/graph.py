"""The training graph: forward, backward and update of one iteration, with its program's settings."""

from __future__ import annotations

from collections import Counter
from ctypes.util import find_library
from pathlib import Path

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.graph.changes import CHANGES, Change
from repro.trainers.graph.optimizer import build_optimizer, build_scheduler
from repro.trainers.layout import BROADCAST, Layout


class ChangedGraph(nn.Graph):
    """A graph that changes its job before compiling it at the first call; `census` then has the operator counts."""

    changes: tuple[Change, ...] = CHANGES

    def _compile(self, *batch):
        outputs = self.build_job(*batch)
        self.finish_complie_and_init_runtime()
        return outputs

    def build_job(self, *batch):
        """Build and change the job without compiling it; returns the graph's symbolic outputs."""
        job, outputs = self.build_graph(*batch)
        for change in self.changes:
            change(job)
        self._full_graph_proto = job
        self.census = census(job)
        return outputs


def census(job) -> dict[str, int]:
    """Number of operators in a job by OneFlow's type name."""
    kinds = (op.user_conf.op_type_name for op in job.net.op if op.HasField("user_conf"))
    return dict(sorted(Counter(kinds).items()))


class EvaluationGraph(ChangedGraph):
    """The forward pass on random images, which the published ResNet50 compiled besides its training and never ran.

    Like OneFlow 0.1.8, 0.8.0 lets the jobs of a process share memory for intermediate values. Sources:
    OneFlow-Benchmark@892f87e6:Classification/cnns/of_cnn_train_val.py#L89-L104,
    oneflow@17a2bdc9:oneflow/core/job/inter_job_mem_sharing_util.cpp#L73-L146,
    oneflow@v0.8.0:oneflow/core/job/plan_util.cpp#L75-L187.
    """

    def __init__(self, model: nn.Module, config: Config, layout: Layout) -> None:
        super().__init__()
        self.model = model
        self.samples = config.micro_batch * config.layout.data
        self.size = config.shape.image_size
        self.where = {"placement": layout.placement(0), "sbp": layout.batch_signature()}
        self.layout = layout

    def compile(self) -> None:
        self.model.eval()
        self._compile()
        self.model.train()

    def build(self):
        images = flow.rand(self.samples, self.size, self.size, 3, **self.where).permute(0, 3, 1, 2)
        labels = flow.zeros(self.samples, dtype=flow.int32, **self.where)
        return {name: gathered(value, self.layout) for name, value in self.model(images, labels).items()}


class TrainGraph(ChangedGraph):
    """One compiled training iteration; called with the batch, or without arguments if a reader is part of the graph.

    Returns the model's outputs by name, gathered on rank 0. With gradient accumulation, each output is
    stacked over the accumulation steps. If the model has `objectives`, the backward pass starts from each of them
    instead of the loss; they are not returned.

    In-place operators are disabled if a model with running statistics accumulates gradients: on CUDA, OneFlow 0.8.0
    rejects a buffer that is modified while it is repeated for each accumulation step.
    """

    def __init__(
        self,
        model: nn.Module,
        source: nn.Module | None,
        config: Config,
        layout: Layout,
        changes: tuple[Change, ...] = CHANGES,
    ) -> None:
        super().__init__()
        self.changes = changes
        self.layout = layout
        self.model = model
        self.source = source
        program = config.choices
        optimizer = build_optimizer(model, config.optimizer, program)
        scheduler = build_scheduler(optimizer, config.optimizer.lr, config.schedule, program.warmup_to_base)
        self.add_optimizer(optimizer, lr_sch=scheduler)
        if config.accumulation_steps > 1:
            self.config.set_gradient_accumulation_steps(config.accumulation_steps)
            self.config.proto.enable_inplace = not config.spec.batch_statistics
        self.scale_losses(config)
        if config.layout.pipeline > 1:
            self.place_stages()
        if config.activation_checkpointing:
            self.checkpoint_layers()
        if config.optimizer_sharding and not program.own_zero:
            self.config.enable_zero(True, stage=config.optimizer_sharding, shard_restore_level=1)
        self.config.allow_fuse_add_to_output(program.fuse_add_to_output)
        self.config.allow_fuse_model_update_ops(program.fuse_model_update)
        self.config.allow_fuse_cast_scale(program.fuse_cast_scale)
        self.config.enable_cudnn_conv_heuristic_search_algo(program.cudnn_search == "heuristic")
        self.config.proto.enable_gradients_stats_aggregation = program.norm_in_one_kernel

    def build(self, *batch):
        outputs = self.model(*(batch or self.source()))
        for objective in outputs.pop("objectives", [outputs["loss"]]):
            objective.backward()
        return {name: gathered(value, self.layout) for name, value in outputs.items()}

    def scale_losses(self, config: Config) -> None:
        """Keep gradients in the range of half precision under AMP.

        If the published loss was a vector, each gradient was divided by the number of samples. A mean loss that is
        multiplied before the backward pass and divided after it produces the same operators.
        """
        if config.precision == "amp":
            self.config.enable_amp(True)
            window = config.choices.loss_scale_window
            self.set_grad_scaler(flow.amp.GradScaler(config.loss_scale, growth_interval=window))
        elif config.choices.loss_per_sample:
            self.set_grad_scaler(flow.amp.StaticGradScaler(float(config.global_batch)))

    def place_stages(self) -> None:
        for part, stage in self.model.stages():
            part.config.set_stage(stage, self.layout.placement(stage))

    def checkpoint_layers(self) -> None:
        for layer in self.model.layers:
            layer.config.activation_checkpointing = True


def gathered(value, layout: Layout):
    """Gather a value on rank 0; on a mesh, on all ranks of stage 0, since OneFlow needs meshes of equal shape."""
    if layout.nested:
        return value.to_global(placement=layout.placement(0), sbp=[BROADCAST, BROADCAST])
    return value.to_global(placement=flow.placement(layout.device, ranks=[0]), sbp=[BROADCAST])


def set_up_device(config: Config) -> None:
    """Apply the settings that OneFlow reads before tensors and the graph are built."""
    program, nccl = config.choices, flow.boxing.nccl
    if program.merge_chains:
        flow.framework.config_util.api_enable_mem_chain_merge(True)
    if program.rdma and flow.env.get_node_size() > 1 and has_adapter():
        flow.env.init_rdma()
    if config.device == "cpu":
        return
    nccl.set_fusion_threshold_mbytes(program.fusion_mib)
    nccl.set_fusion_max_ops_num(program.fusion_ops)
    nccl.set_stream_num(program.nccl_streams)
    nccl.enable_use_buffer_to_fuse_all_reduce(program.copy_buffer)
    if program.fuse_sharded == "always" or (program.fuse_sharded == "sharded" and config.optimizer_sharding > 0):
        nccl.allow_fuse_reduce_scatter(True)
        nccl.allow_fuse_all_gather(True)
        nccl.allow_fuse_mixed_ops(True)
    nccl.enable_use_compute_stream(uses_compute_stream(config))


def uses_compute_stream(config: Config) -> bool:
    """Whether collectives run on the compute stream.

    They may if tensor or pipeline parallelism waits for the collectives anyway. The tuned program also shares the
    stream if no gradients are exchanged, because only then the update reuses the memory of the backward pass, and under
    ZeRO stage 2, which differs from stage 1 in OneFlow only by freeing gradients at once.
    """
    sizes, choice = config.layout, config.choices.compute_stream
    divided = sizes.tensor * sizes.pipeline > 1
    return (choice != "never" and divided) or (
        choice == "no data" and (sizes.data == 1 or config.optimizer_sharding == 2)
    )


def has_adapter() -> bool:
    """Whether this node has an RDMA adapter and its library; provisioning makes all nodes equal in this."""
    adapters = Path("/sys/class/infiniband")
    return adapters.is_dir() and any(adapters.iterdir()) and find_library("ibverbs") is not None
