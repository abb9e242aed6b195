"""Loads the trainers' initial weights into Megatron-Core's parameters, each rank its own shard.

A linear weight is (inputs, outputs) in the trainers and (outputs, inputs) here. Queries, keys and values are neighbours
within a head in both. Where the head is on another pipeline stage than the embedding, it has a copy of the token table.
"""

from __future__ import annotations

import re

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from torch import nn

from repro.baselines.config import BaselineConfig
from repro.baselines.gpt import positions_std, residual_std
from repro.baselines.layers import INITIAL_STD
from repro.trainers.models.initial import normal_values

NAMES = {
    "embedding.word_embeddings": "tokens",
    "embedding.position_embeddings": "positions",
    "output_layer": "tokens",
    "decoder.final_layernorm": "norm",
    "input_layernorm": "norm1",
    "self_attention.linear_qkv": "attention.inward",
    "self_attention.linear_proj": "attention.outward",
    "pre_mlp_layernorm": "norm2",
    "mlp.linear_fc1": "perceptron.inward",
    "mlp.linear_fc2": "perceptron.outward",
}
"""The trainers' names of modules; those of a layer are relative to it."""


def name_of(name: str, first_layer: int = 0) -> str:
    """The trainers' name of a parameter.

    Parameters
    ----------
    name : Megatron-Core's name, with or without those of wrappers before it.
    first_layer : number of the first layer of this rank's pipeline stage, where Megatron-Core counts from 0.
    """
    path, kind = re.sub(r"^(module\.)*", "", name).rsplit(".", 1)
    layer = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", path)
    if layer is None:
        return f"{NAMES[path]}.{kind}"
    return f"layer{int(layer[1]) + first_layer}.{NAMES[layer[2]]}.{kind}"


def load_weights(model: GPTModel, config: BaselineConfig) -> None:
    """Give every parameter of this rank's stage its initial value; biases begin at 0 and normalisation at 1."""
    layers = model.decoder.layers
    first = layers[0].layer_number - 1 if layers else 0
    for name, parameter in model.named_parameters():
        ours = name_of(name, first)
        if parameter.ndim == 1:
            parameter.data.fill_(1.0 if "norm" in ours and ours.endswith("weight") else 0.0)
        else:
            parameter.data.copy_(part(parameter, whole(ours, config)))


def whole(name: str, config: BaselineConfig) -> np.ndarray:
    """All of a matrix, as Megatron-Core lays it out."""
    shape = config.shape
    size, wide = shape.hidden_size, 4 * shape.hidden_size
    tables = {
        "tokens.weight": ((config.padded_vocab_size, size), INITIAL_STD),
        "positions.weight": ((shape.seq_length, size), positions_std(config)),
    }
    if name in tables:
        return normal_values(config.seed, name, *tables[name])
    sizes, std = {
        "attention.inward": ((size, 3 * size), INITIAL_STD),
        "attention.outward": ((size, size), residual_std(config)),
        "perceptron.inward": ((size, wide), INITIAL_STD),
        "perceptron.outward": ((wide, size), residual_std(config)),
    }[name.split(".", 1)[1].removesuffix(".weight")]
    return normal_values(config.seed, name, sizes, std).T


def part(parameter: nn.Parameter, values: np.ndarray) -> torch.Tensor:
    """This tensor parallel rank's part of a matrix."""
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if not getattr(parameter, "tensor_model_parallel", False):
        return tensor
    ranks = parallel_state.get_tensor_model_parallel_world_size()
    rank = parallel_state.get_tensor_model_parallel_rank()
    return tensor.chunk(ranks, dim=parameter.partition_dim)[rank]
