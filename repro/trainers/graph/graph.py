"""The training graph: forward, backward and update of one iteration, with the settings of its program."""

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
    """A graph whose job is changed before it is compiled, at its first call; `census` then says what was compiled."""

    changes: tuple[Change, ...] = CHANGES

    def _compile(self, *batch):
        outputs = self.build_job(*batch)
        self.finish_complie_and_init_runtime()
        return outputs

    def build_job(self, *batch):
        """Build the job and change it, without compiling it; gives what the graph will give."""
        job, outputs = self.build_graph(*batch)
        for change in self.changes:
            change(job)
        self._full_graph_proto = job
        self.census = census(job)
        return outputs


def census(job) -> dict[str, int]:
    """How many operators of each type a job has, by OneFlow's names for the types."""
    kinds = (op.user_conf.op_type_name for op in job.net.op if op.HasField("user_conf"))
    return dict(sorted(Counter(kinds).items()))


class TrainGraph(ChangedGraph):
    """One training iteration, compiled; called with the batch (none where the source reads within the graph).

    On CUDA OneFlow 0.8.0 looks for tensors that an operator may overwrite, and takes it for an error that a buffer is
    changed where it is repeated for each micro-step. So nothing is overwritten where a model that accumulates gradients
    keeps running statistics.

    Gives the model's outputs by name, gathered on rank 0 as published; under gradient accumulation each is stacked over
    the micro-steps. A model's `objectives`, each with a backward pass of its own, are not given; without them it is the
    loss that has one.
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
        return {name: self.gathered(value) for name, value in outputs.items()}

    def gathered(self, value):
        """A value on rank 0; on a mesh on all of the first stage, as OneFlow moves values only to a mesh like theirs."""
        if self.layout.nested:
            return value.to_global(placement=self.layout.placement(0), sbp=[BROADCAST, BROADCAST])
        return value.to_global(placement=flow.placement(self.layout.device, ranks=[0]), sbp=[BROADCAST])

    def scale_losses(self, config: Config) -> None:
        """Keep gradients in the range of half precision under AMP.

        Where the published loss was a vector each gradient was divided by the number of samples; a loss that is their
        mean, multiplied before the backward pass and divided after it, makes the same operators.
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


def set_up_device(config: Config) -> None:
    """Choose what OneFlow reads before tensors and the graph are built.

    Between nodes with InfiniBand OneFlow's own transfers use RDMA, as published.
    """
    if config.device == "cpu":
        return
    if flow.env.get_node_size() > 1 and has_infiniband():
        flow.env.init_rdma()
    program, nccl = config.choices, flow.boxing.nccl
    nccl.set_fusion_threshold_mbytes(program.fusion_mib)
    nccl.set_fusion_max_ops_num(program.fusion_ops)
    nccl.set_stream_num(program.nccl_streams)
    nccl.enable_use_buffer_to_fuse_all_reduce(program.copy_buffer)
    if program.fuse_sharded == "always" or (program.fuse_sharded == "sharded" and config.optimizer_sharding > 0):
        nccl.allow_fuse_reduce_scatter(True)
        nccl.allow_fuse_all_gather(True)
        nccl.allow_fuse_mixed_ops(True)
    nccl.enable_use_compute_stream(uses_compute_stream(config))
    if program.merge_chains:
        flow.framework.config_util.api_enable_mem_chain_merge(True)


def uses_compute_stream(config: Config) -> bool:
    """Whether collectives share the stream of the computation.

    They may where tensor or pipeline parallelism waits for them anyway. The tuned program also has them do so where no
    gradients are exchanged, since only then the update reuses the memory of the backward pass, and under ZeRO stage 2:
    to free gradients at once is what distinguishes it from stage 1 in OneFlow.
    """
    sizes, choice = config.layout, config.choices.compute_stream
    divided = sizes.tensor * sizes.pipeline > 1
    return (choice != "never" and divided) or (
        choice == "no data" and (sizes.data == 1 or config.optimizer_sharding == 2)
    )


def has_infiniband() -> bool:
    """Whether this node has an adapter and the library that drives it; provisioning makes nodes alike in this."""
    adapters = Path("/sys/class/infiniband")
    return adapters.is_dir() and any(adapters.iterdir()) and find_library("ibverbs") is not None
