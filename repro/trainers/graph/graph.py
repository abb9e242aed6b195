"""The training graph: forward, backward and update of one iteration, and the settings that make it fast."""

from __future__ import annotations

from ctypes.util import find_library
from pathlib import Path

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.graph.optimizer import build_optimizer, build_scheduler
from repro.trainers.graph.rewrite import RewrittenGraph

LOSS_SCALE_WINDOW = 1000


class TrainGraph(RewrittenGraph):
    """One training iteration, compiled; called with the batch (none where the source reads within the graph).

    On CUDA OneFlow 0.8.0 looks for tensors that an operator may overwrite, and takes it for an error that a buffer is
    changed where it is repeated for each micro-step. So nothing is overwritten where a model that accumulates gradients
    keeps running statistics.

    Gives the model's outputs by name; under gradient accumulation each is stacked over the micro-steps. The `parts` of
    a loss are not given: each has a backward pass of its own.
    """

    def __init__(self, model: nn.Module, source: nn.Module | None, config: Config) -> None:
        super().__init__()
        self.model = model
        self.source = source
        optimizer = build_optimizer(model, config.optimizer)
        self.add_optimizer(optimizer, lr_sch=build_scheduler(optimizer, config.optimizer.lr, config.schedule))
        if config.accumulation_steps > 1:
            self.config.set_gradient_accumulation_steps(config.accumulation_steps)
            self.config.proto.enable_inplace = not config.spec.batch_statistics
        if config.precision == "amp":
            self.config.enable_amp(True)
            self.set_grad_scaler(flow.amp.GradScaler(config.loss_scale, growth_interval=LOSS_SCALE_WINDOW))
        if config.layout.pipeline > 1:
            self.place_stages()
        if config.activation_checkpointing:
            self.checkpoint_layers()
        self.config.allow_fuse_add_to_output(True)
        self.config.allow_fuse_model_update_ops(True)
        self.config.allow_fuse_cast_scale(True)
        self.config.enable_cudnn_conv_heuristic_search_algo(True)

    def build(self, *batch):
        outputs = self.model(*(batch or self.source()))
        for part in outputs.pop("parts", [outputs["loss"]]):
            part.backward()
        return outputs

    def place_stages(self) -> None:
        for part, stage in self.model.stages():
            part.config.set_stage(stage, self.model.layout.placement(stage))

    def checkpoint_layers(self) -> None:
        for layer in self.model.layers:
            layer.config.activation_checkpointing = True


def set_up_device(config: Config) -> None:
    """Choose what OneFlow reads before tensors and the graph are built.

    On CUDA small gradients travel together, and collectives share the compute stream where tensor or pipeline
    parallelism waits for them anyway (as published), or where ZeRO-2 wants gradients freed at once: that is what
    distinguishes stage 2 from 1 in OneFlow. On one GPU there are none, but only so may the update reuse the memory of
    the backward pass. With ZeRO gradients are scattered and parameters gathered together too, which OneFlow would do
    one by one. Between nodes with InfiniBand OneFlow's own transfers use RDMA too.
    """
    if config.device == "cpu":
        return
    sizes = config.layout
    if flow.env.get_node_size() > 1 and has_infiniband():
        flow.env.init_rdma()
    flow.boxing.nccl.set_fusion_threshold_mbytes(64)
    flow.boxing.nccl.set_fusion_max_ops_num(24)
    if config.optimizer_sharding > 0:
        flow.boxing.nccl.allow_fuse_reduce_scatter(True)
        flow.boxing.nccl.allow_fuse_all_gather(True)
        flow.boxing.nccl.allow_fuse_mixed_ops(True)
    if sizes.data == 1 or sizes.tensor * sizes.pipeline > 1 or config.optimizer_sharding == 2:
        flow.boxing.nccl.enable_use_compute_stream(True)


def has_infiniband() -> bool:
    """Whether this node has an adapter and the library that drives it; provisioning makes nodes alike in this."""
    adapters = Path("/sys/class/infiniband")
    return adapters.is_dir() and any(adapters.iterdir()) and find_library("ibverbs") is not None
