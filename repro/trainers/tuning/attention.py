"""Fused causal attention: cuDNN's, as OneFlow operators from a library that is loaded if the environment names it.

OneFlow's Python functions know none of its operators, so the model takes a third of its products in their place, and
`fuse_attention` puts the operators into the compiled job. `docker/attention/attention_operator.cpp` defines them.
"""

from __future__ import annotations

import os
import zlib
from functools import lru_cache

import oneflow as flow
from oneflow import nn
from oneflow.core.common import data_type_pb2

from repro.models.gpt import SPEC
from repro.trainers.config import Config
from repro.trainers.graph.changes import Change
from repro.trainers.graph.job_proto import operators_of, signatures_of, tables_of, users_of
from repro.trainers.models.layers import RowLinear
from repro.trainers.models.parameters import Parameters
from repro.trainers.tuning.layers import Column
from repro.trainers.tuning.recomputation import RECOMPUTED

LIBRARY = "ATTENTION_OPERATOR"
"""The environment variable that names the compiled library."""
FORWARD, BACKWARD = "repro_attention", "repro_attention_grad"
HEAD = 3
"""Axis of the vectors in products (b, s, n, 3d)."""
MOST_HEAD, HEAD_STEP = 128, 8
"""The longest vectors of a head that cuDNN's kernels take, and what divides their length."""


@lru_cache(1)
def loaded() -> bool:
    """Whether the operators are available; the library is loaded at the first call."""
    path = os.environ.get(LIBRARY)
    if path:
        flow.utils.load_library(path)
    return bool(path)


def usable(config: Config) -> bool:
    """Whether a configuration's attention is fused: causal, on CUDA in half precision, with vectors that cuDNN takes.

    The CPU has a plain kernel in the library, for tests.
    """
    if config.spec.name != SPEC.name or (config.device == "cuda" and config.precision != "amp"):
        return False
    size = config.shape.hidden_size // config.shape.attention_heads
    return size <= MOST_HEAD and size % HEAD_STEP == 0 and loaded()


class FusedAttention(nn.Module):
    """Multi-head causal self-attention on x (b, s, h), with heads split over the tensor parallel ranks.

    No tensor is permuted or cut: cuDNN reads queries, keys and values where the product has them. The bias is returned,
    not added.
    """

    def __init__(self, make: Parameters, name: str, size: int, heads: int, std: float, stage: int = 0) -> None:
        super().__init__()
        self.heads = heads
        self.inward = Column(make, f"{name}.inward", size, 3 * size, stage)
        self.outward = RowLinear(make, f"{name}.outward", size, size, std, stage)

    def forward(self, x):
        y, bias = self.inward(x)
        batch, length, size = y.shape
        products = (y + bias).view(batch, length, self.heads, size // self.heads)
        return self.outward(attend(products).reshape(batch, length, size // 3))


def attend(products):
    """Stand-in for the context (b, s, n, d) of products (b, s, n, 3d): their queries, until they are replaced."""
    return flow._C.narrow(products, HEAD, 0, products.shape[HEAD] // 3)


def fusing(dropout: float) -> Change:
    """The change to a job that replaces each stand-in for attention, and its gradient, by cuDNN's.

    With recomputation, the gradient takes what the second forward pass gave: the same random numbers belong to both.
    """

    def fuse_attention(job) -> None:
        users, forward = users_of(job), {}
        for op in operators_of(job, "narrow"):
            source = op.user_conf.input["in"].s[0]
            if is_stand_in(job, op, users[source]):
                forward[source] = op
        for gradient in operators_of(job, "narrow_grad"):
            source = gradient.user_conf.input["like"].s[0]
            if source in forward:
                fuse_backward(job, gradient, forward[source], dropout)
        for op in forward.values():
            fuse_forward(job, op, dropout)

    return fuse_attention


def is_stand_in(job, op, users: list) -> bool:
    """Whether an operator takes the first third of its input's vectors, and no other takes another."""
    takers = [user for user in users if user.user_conf.op_type_name == "narrow"]
    shape, about = job.helper.lbn2logical_blob_desc[op.user_conf.input["in"].s[0]].shape.dim, op.user_conf.attr
    return (
        len(takers) == 1
        and len(shape) == HEAD + 1
        and about["dim"].at_int64 == HEAD
        and about["start"].at_int64 == 0
        and 3 * about["length"].at_int64 == shape[HEAD]
    )


def fuse_forward(job, op, dropout: float) -> None:
    source, context, stats = op.user_conf.input["in"].s[0], op.user_conf.output["out"].s[0], f"{op.name}/stats_0"
    become(op, FORWARD, dropout, seed_of(op.name))
    op.user_conf.output["stats"].s[:] = [stats]
    op.user_conf.output_order.append("stats")
    shapes = job.helper.lbn2logical_blob_desc
    batch, length, heads, size = shapes[source].shape.dim
    describe(shapes[context], (batch, length, heads, size // 3), shapes[source].data_type)
    shapes[stats].CopyFrom(shapes[context])
    describe(shapes[stats], (batch, heads, length), data_type_pb2.kFloat)
    for signatures in signatures_of(job, op.name):
        signatures["stats_0"].CopyFrom(signatures["out_0"])
    of_heads(job, op.name, "stats_0")


def fuse_backward(job, gradient, op, dropout: float) -> None:
    """Make the gradient of a stand-in that of attention; `op` is the forward operator whose results it takes."""
    source, conf = gradient.user_conf.input["like"].s[0], gradient.user_conf
    become(gradient, BACKWARD, dropout, seed_of(op.name))
    taken = {"in": source, "out": op.user_conf.output["out"].s[0], "stats": f"{op.name}/stats_0"}
    del conf.input["like"]
    for name, value in taken.items():
        conf.input[name].s[:] = [value]
    conf.input_order[:] = ["dy", *taken]
    for signatures in signatures_of(job, gradient.name):
        original = signatures["dy_0"]
        for name in taken:
            signatures[f"{name}_0"].CopyFrom(original)
        del signatures["like_0"]
    of_heads(job, gradient.name, "stats_0")


def become(op, kind: str, dropout: float, seed: int) -> None:
    op.user_conf.op_type_name = kind
    op.user_conf.attr.clear()
    op.user_conf.attr["dropout"].at_float = dropout
    op.user_conf.attr["seed"].at_int64 = seed


def seed_of(name: str) -> int:
    """The seed of a layer's random numbers, from its path in the model: the same when the layer is recomputed."""
    layer = name.removeprefix(RECOMPUTED).rpartition("-narrow-")[0]
    return flow.initial_seed() ^ zlib.crc32(layer.encode())


def describe(blob, shape: tuple, data_type: int) -> None:
    blob.shape.dim[:] = shape
    blob.stride.dim[:] = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        blob.stride.dim[axis] = blob.stride.dim[axis + 1] * shape[axis + 1]
    blob.data_type = data_type


def of_heads(job, name: str, place: str) -> None:
    """Signature of a value (b, n, s) that was copied from one (b, s, n, d): heads are axis 1 there, not 2."""
    for table, places in tables_of(job):
        if name in table:
            signature = getattr(table[name], places)[place]
            for sbp in getattr(signature, "sbp_parallel", [signature]):
                if sbp.HasField("split_parallel") and sbp.split_parallel.axis == 2:
                    sbp.split_parallel.axis = 1
