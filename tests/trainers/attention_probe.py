"""Prints in how many blocks causal attention was computed, and how far its results are from those of one piece.

The results are the contexts, then each input's gradient.
"""

import json
import sys
from pathlib import Path

import numpy as np
import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.tuning import layers

LENGTH = layers.SHORTEST_CUT
SHAPE = (2, 3, LENGTH, 4)
computed = []
"""Shapes of the scores that were computed, (queries, keys)."""


def scaled_scores(*inputs, scores=layers.scaled_scores):
    found = scores(*inputs)
    computed.append(list(found.shape[2:]))
    return found


def spread(values):
    return flow.tensor(values).to_global(placement=flow.placement("cpu", ranks=[0]), sbp=flow.sbp.broadcast)


def results(blocks: int) -> list:
    draw = np.random.default_rng(1).standard_normal
    inputs = [spread(draw(SHAPE, np.float32)).requires_grad_() for _ in range(3)]
    context = layers.causal_attention(*inputs, layer=1, blocks=blocks, p=0.0)
    (context * spread(draw(SHAPE, np.float32))).sum().backward()
    return [context.numpy(), *(each.grad.numpy() for each in inputs)]


layers.scaled_scores = scaled_scores
pairs = zip(results(1), results(layers.attention_blocks(LENGTH, nested=False)), strict=True)
apart = [float(np.linalg.norm(blocked - whole) / np.linalg.norm(whole)) for whole, blocked in pairs]
print(json.dumps({"scores": computed, "apart": apart}))
