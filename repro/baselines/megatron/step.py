"""One training iteration of Megatron-Core, with the outputs of `repro.baselines.step`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.optimizer import MegatronOptimizer, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import Float16Module

from repro.baselines.config import BaselineConfig
from repro.baselines.gpt import GPT_2
from repro.baselines.megatron import settings
from repro.baselines.megatron.layers import layers
from repro.baselines.megatron.weights import load_weights
from repro.trainers.graph.schedule import learning_rate


class MegatronStep:
    """Trains this rank's part of the model for an iteration when called.

    Neighbouring ranks are tensor parallel, then data parallel, then stages of the pipeline.
    """

    def __init__(self, config: BaselineConfig, device: torch.device) -> None:
        layout = config.layout
        parallel_state.initialize_model_parallel(layout.tensor, layout.pipeline, create_gloo_process_groups=False)
        tensor_parallel.model_parallel_cuda_manual_seed(config.seed)
        self.config, self.device = config, device
        self.has_loss = parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0
        self.data_rank = parallel_state.get_data_parallel_rank()
        transformer = settings.transformer(config)
        model = build_model(config, transformer).to(device)
        load_weights(model, config)
        self.parameter_count = parameters_of_all_ranks(model)
        model = Float16Module(transformer, model) if transformer.fp16 else model
        self.model = DistributedDataParallel(transformer, settings.data_parallel(config), model)
        self.model.train()
        self.optimizer = build_optimizer(config, self.model)
        transformer.grad_scale_func = self.optimizer.scale_loss
        transformer.finalize_model_grads_func = finalize_model_grads
        if settings.data_parallel(config).overlap_grad_reduce:
            transformer.no_sync_func = self.model.no_sync
        self.forward_backward = get_forward_backward_func()
        self.positions = torch.arange(config.shape.seq_length, device=device).expand(config.micro_batch, -1)

    def __call__(self, iteration: int, micro_batches: list) -> dict:
        config = self.config
        rate = learning_rate(iteration, config.optimizer.lr, config.schedule, config.choices.warmup_to_base)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
            group["weight_decay"] = config.optimizer.weight_decay * group["wd_mult"]
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        losses = self.forward_backward(
            forward_step_func=self.forward,
            data_iterator=iter(micro_batches),
            model=self.model,
            num_microbatches=config.accumulation_steps,
            seq_length=config.shape.seq_length,
            micro_batch_size=config.micro_batch,
            forward_only=False,
        )
        self.optimizer.step()
        if not self.has_loss:
            return {"loss": torch.zeros((), device=self.device)}
        return {"loss": torch.stack([output["loss"] for output in losses])}

    @property
    def half_precision(self) -> bool:
        """Whether the model computes in half precision."""
        return isinstance(self.model.module, Float16Module)

    def forward(self, micro_batches: Iterator, model: torch.nn.Module) -> tuple:
        """Outputs of a micro-batch, and what takes the loss of them; the first and last stages need its samples."""
        ids, *labels = next(micro_batches)
        labels = labels[0] if labels else ids.roll(-1, dims=1)
        return model(ids, self.positions, None, labels=labels), self.loss

    def loss(self, losses: torch.Tensor) -> tuple:
        """The mean of losses (b, s), in the form of GPT-2 without those of the last position."""
        counted = losses[:, :-1] if self.config.choices.form == GPT_2 else losses
        mean = counted.float().mean()
        return mean, {"loss": mean.detach().clone()}


def parameters_of_all_ranks(model: GPTModel) -> int:
    """The number of parameters of the whole model: each counted once, and the token table once too."""
    first_of_data = parallel_state.get_data_parallel_rank() == 0
    first_of_tensor = parallel_state.get_tensor_model_parallel_rank() == 0
    copied = parallel_state.get_pipeline_model_parallel_world_size() > 1
    own = (
        parameter.numel()
        for name, parameter in model.named_parameters()
        if (first_of_tensor or getattr(parameter, "tensor_model_parallel", False))
        and not (copied and name == "output_layer.weight")
    )
    counted = torch.tensor(sum(own) if first_of_data else 0, device=next(model.parameters()).device)
    torch.distributed.all_reduce(counted)
    return int(counted)


def build_model(config: BaselineConfig, transformer: settings.TransformerConfig) -> GPTModel:
    """This rank's stage of the model, with the token table tied to the head."""
    return GPTModel(
        transformer,
        layers(transformer, config.baseline.unfused),
        config.padded_vocab_size,
        config.shape.seq_length,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=True,
    )


def build_optimizer(config: BaselineConfig, model: DistributedDataParallel) -> MegatronOptimizer:
    """AdamW by PyTorch's fused kernel, where Megatron-Core would take Apex's."""
    optimizer = get_megatron_optimizer(
        settings.optimizer(config), [model], settings.without_decay(config), use_gloo_process_groups=False
    )
    for part in optimizer.chained_optimizers:
        for group in part.optimizer.param_groups:
            group.update(fused=True, foreach=False)
    return optimizer
