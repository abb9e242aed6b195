"""Prints what parts of the baselines compute, as JSON; test_models.py runs it with the name of one of its functions."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import distributed

from repro.baselines.bert import MaskedTokens
from repro.baselines.config import parse
from repro.baselines.gpt import GPT
from repro.baselines.layers import MASKED, Attention
from repro.baselines.parameters import Parameters
from repro.baselines.unfused import CausalAttention, PaddedAttention

MAKE = Parameters(seed=1)
SIZES = ("attention", 32, 4, 0.5, 0.0)


def padded_attention(task):
    """Contexts of texts with padding, fused and unfused."""
    x, valid = torch.randn(2, 5, 32), torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    fused = Attention(MAKE, *SIZES)(x, ((1.0 - valid) * MASKED)[:, None, None])
    unfused = PaddedAttention(MAKE, *SIZES)(x, valid.unsqueeze(1).repeat(1, 5, 1))
    return [fused.tolist(), unfused.tolist()]


def causal_attention(task):
    x = torch.randn(2, 5, 32)
    unfused = CausalAttention(MAKE, *SIZES)(x.transpose(0, 1), torch.ones(5, 5, dtype=torch.bool).triu(1))
    return [Attention(MAKE, *SIZES)(x).tolist(), unfused.transpose(0, 1).tolist()]


def masked_tokens(task):
    """Losses of two samples on this rank, for each weighting of its tokens; with RANK among several."""
    if "world" in task:
        distributed.init_process_group("gloo")
    config = parse(task["config"])
    module, table = MaskedTokens(config, MAKE), torch.randn(config.padded_vocab_size, 32)
    inputs = torch.randn(2, 16, 32), table, torch.tensor([[0, 3, 5], [1, 2, 9]]), torch.tensor([[7, 8, 9], [1, 2, 3]])
    rank = distributed.get_rank() if "world" in task else 0
    return [module(*inputs, torch.tensor(each[rank])).tolist() for each in task["weights"]]


def last_label(task):
    """Losses of a text under two different last labels, in each form of GPT."""
    found = {}
    for generation in ("D", "E"):
        config = parse({**task["config"], "log_generation": generation})
        ids = torch.arange(16).repeat(2, 1)
        labels = [ids + 1, torch.cat([ids[:, 1:], ids[:, :1] + 99], dim=1)]
        model = GPT(config, MAKE)
        found[generation] = [model(ids, each)["loss"].item() for each in labels]
    return found


if __name__ == "__main__":
    torch.manual_seed(1)
    with torch.no_grad():
        print(json.dumps(globals()[sys.argv[1]](json.loads(sys.argv[2]))))
