"""What Megatron-Core is set to for a baseline's configuration.

Two variants differ by `unfused`. With it, Megatron-Core computes what Megatron-LM computed in 2021: all scores are
stored, one kernel masks them and takes the softmax, and gradients are exchanged after the backward pass. Without it,
it takes what its users take today: PyTorch's fused attention, sequence parallelism with tensor parallelism (arXiv
2205.05198), a fused cross-entropy, and exchanges that overlap with computation.
"""

from __future__ import annotations

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig
from megatron.core.optimizer.optimizer_config import ParamKey, ParamWithNamePredicate
from megatron.core.optimizer_param_scheduler import ParamGroupOverride
from megatron.core.transformer.transformer_config import TransformerConfig

from repro.baselines.config import BaselineConfig
from repro.baselines.megatron.weights import name_of
from repro.trainers.graph.schedule import decays

OVERFLOWS = 1
"""Iterations in succession whose gradients overflow before the loss scale is halved; Megatron-LM's default is 2."""


def number_type(config: BaselineConfig) -> torch.dtype:
    """The type of the weights that the model computes with; under AMP the optimizer has others, in fp32."""
    return torch.float16 if config.precision == "amp" else torch.float32


def transformer(config: BaselineConfig) -> TransformerConfig:
    """Of the model. Kernels that need Apex or Transformer Engine, which are not on the package index as wheels, are off."""
    shape, layout, fused = config.shape, config.layout, not config.baseline.unfused
    recomputed = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=shape.layers,
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.attention_heads,
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        sequence_parallel=fused and layout.tensor > 1,
        fp16=config.precision == "amp",
        params_dtype=number_type(config),
        pipeline_dtype=number_type(config),
        hidden_dropout=config.dropout,
        attention_dropout=config.dropout,
        bias_dropout_fusion=True,
        bias_activation_fusion=True,
        cross_entropy_loss_fusion=fused,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        **(recomputed if config.activation_checkpointing else {}),
    )


def sharded(config: BaselineConfig) -> bool:
    """Whether the data parallel ranks share the optimizer; of Megatron-Core's, the gradients then too (ZeRO 2)."""
    return config.optimizer_sharding > 0 and config.layout.data > 1


def data_parallel(config: BaselineConfig) -> DistributedDataParallelConfig:
    """Of the exchange of gradients, which travel in the type of the weights."""
    fused = not config.baseline.unfused
    return DistributedDataParallelConfig(
        grad_reduce_in_fp32=False,
        overlap_grad_reduce=fused,
        overlap_param_gather=fused and sharded(config),
        use_distributed_optimizer=sharded(config),
    )


def optimizer(config: BaselineConfig) -> OptimizerConfig:
    settings = config.optimizer
    return OptimizerConfig(
        optimizer="adam",
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.betas[0],
        adam_beta2=settings.betas[1],
        adam_eps=settings.eps,
        clip_grad=settings.clip_norm or 0.0,
        fp16=config.precision == "amp",
        params_dtype=number_type(config),
        initial_loss_scale=config.loss_scale,
        loss_scale_window=config.choices.loss_scale_window,
        hysteresis=OVERFLOWS,
        use_distributed_optimizer=sharded(config),
        overlap_param_gather=data_parallel(config).overlap_param_gather,
    )


def without_decay(config: BaselineConfig) -> dict:
    """Which parameters have no weight decay: those of the published program, whose names are the trainers'."""

    def exempt(parameter: torch.nn.Parameter, name: str) -> bool:
        return not decays(name_of(name), config.choices.not_decayed)

    key = ParamKey(with_name_predicate=ParamWithNamePredicate(name="exempt", fn=exempt))
    return {key: ParamGroupOverride(wd_mult=0.0)}
