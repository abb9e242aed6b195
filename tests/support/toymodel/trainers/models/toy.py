"""The perceptron as a OneFlow program."""

from __future__ import annotations

import oneflow as flow
from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.models import ops
from repro.trainers.models.parameters import Parameters

STD = 0.1


class Perceptron(nn.Module):
    """Mean loss of a batch of features (b, features) with labels (b,)."""

    def __init__(self, config: Config, make: Parameters) -> None:
        super().__init__()
        shape = config.shape
        self.inward = make.normal("inward.weight", (shape.features, shape.hidden_size), STD)
        self.inward_bias = make.constant((shape.hidden_size,), 0.0)
        self.outward = make.normal("outward.weight", (shape.hidden_size, shape.classes), STD)
        self.outward_bias = make.constant((shape.classes,), 0.0)
        self.dropout = config.dropout

    def forward(self, features, labels):
        hidden = flow.relu(flow.matmul(features, self.inward) + self.inward_bias)
        logits = flow.matmul(ops.dropout(hidden, self.dropout), self.outward) + self.outward_bias
        return {"loss": flow._C.sparse_softmax_cross_entropy(logits, labels).mean()}


MODEL = Perceptron
