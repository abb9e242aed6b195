"""Parts of Megatron-Core's transformer layers that replace kernels of Transformer Engine and Apex.

Neither has a wheel on the package index; without them Megatron-Core has no fused attention, no softmax in one kernel
and no normalisation for sequence parallelism.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from megatron.core.jit import jit_fuser
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.tensor_parallel import get_cuda_rng_tracker
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import nn


class Norm(nn.LayerNorm):
    """PyTorch's layer norm; with sequence parallelism its parameters' gradients are summed over the tensor parallel ranks."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5) -> None:
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


class FusedAttention(DotProductAttention):
    """Attention by PyTorch's fused kernels."""

    def forward(self, query, key, value, attention_mask, **others):
        """Map queries, keys and values (s, b, heads of this rank, size of a head) to (s, b, h of this rank)."""
        length, batch = query.shape[:2]
        query, key, value = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        with get_cuda_rng_tracker().fork():
            context = F.scaled_dot_product_attention(
                query, key, value, dropout_p=self.attention_dropout.p if self.training else 0.0, is_causal=True
            )
        return context.permute(2, 0, 1, 3).reshape(length, batch, -1)


class StoredAttention(DotProductAttention):
    """Megatron-Core's own attention, which stores all scores; mask and softmax are one compiled kernel.

    Megatron-LM of 2021 had a kernel of its own for them, which Apex builds today.
    """

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.scale_mask_softmax = CausalSoftmax()


class CausalSoftmax(nn.Module):
    def forward(self, scores, mask, offset):
        """Weights of scores that are scaled already; this mask and offset of Megatron-Core's are not given."""
        return causal_softmax(scores)


@jit_fuser
def causal_softmax(scores):
    """Softmax of scores (b, heads, s, s) among those up to a position; computed in fp32."""
    places = torch.arange(scores.shape[-1], device=scores.device)
    later = places[None, :] > places[:, None]
    return torch.softmax(scores.float().masked_fill(later, -math.inf), dim=-1).to(scores.dtype)


def layers(config: TransformerConfig, unfused: bool) -> TransformerBlockSubmodules:
    """What Megatron-Core makes the layers of this rank's stage from, and the norm behind the last one."""
    spec = get_gpt_layer_local_spec()
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    spec.submodules.self_attention.submodules.core_attention = StoredAttention if unfused else FusedAttention
    return TransformerBlockSubmodules([spec] * get_num_layers_to_build(config), layer_norm=Norm)
