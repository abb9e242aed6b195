"""Prints what test_rewrite.py judges: operators of graphs, rewritten and not, and how far the results are apart."""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.checks.accuracy import gradient, operators
from repro.trainers.checks.one_step import in_a_graph, tensor
from repro.trainers.graph.graph import ChangedGraph
from repro.trainers.graph.job_proto import maker, operators_of
from repro.trainers.tuning import recomputation, rewrite

PARTS = {"whole": [(0, 2), (2, 4)], "gap": [(0, 2), (4, 2)], "overlap": [(0, 4), (2, 4)], "short": [(0, 2), (2, 3)]}
"""First place and length of the parts of six."""
RATE = 1.0
"""So large a step that a parameter's rounding is small beside it."""
TRANSFER = "hierarchical_parallel_cast"


class Parts(flow.nn.Module):
    def __init__(self, parts: list) -> None:
        super().__init__()
        self.weight = flow.nn.Parameter(flow.tensor(np.arange(24.0, dtype=np.float32).reshape(4, 6)))
        self.parts = parts

    def forward(self, x):
        y = self.weight * x
        cuts = [flow.narrow(y, 1, *part) for part in self.parts]
        return sum((index + 1) * (cut * cut).sum() for index, cut in enumerate(cuts))


class Graph(ChangedGraph):
    changes = rewrite.REWRITES

    def __init__(self, model: Parts) -> None:
        super().__init__()
        self.model = model
        self.add_optimizer(flow.optim.SGD(model.parameters(), lr=RATE))

    def build(self, x):
        loss = self.model(x).mean()
        loss.backward()
        return loss


def distance(graph: Graph, model: flow.nn.Module, twin: flow.nn.Module, x) -> float:
    """Of the gradients of a model in a graph from those of its twin in none, relative to them; the largest."""
    before = [each.numpy().copy() for each in model.parameters()]
    graph(x)
    twin(x).mean().backward()
    pairs = [
        ((old - new.numpy()) / RATE, other.grad.numpy())
        for old, new, other in zip(before, model.parameters(), twin.parameters(), strict=True)
    ]
    return max(float(np.abs(found - expected).max() / np.abs(expected).max()) for found, expected in pairs)


def joined(parts: list) -> tuple:
    """Operators of the graph, and the distance of its gradient."""
    model = Parts(parts)
    graph = Graph(model)
    apart = distance(graph, model, Parts(parts), flow.randn(4, 6))
    count = Counter(op.user_conf.op_type_name for op in graph._full_graph_proto.net.op)
    return count["concat"], count["narrow_grad"], apart


def through_a_graph() -> float:
    """Distance of an operator's result and gradients, taken in a graph, from those taken without, relative to them."""
    operator = next(each for each in operators("small", "cpu") if each.name.startswith("bias, GELU"))
    inputs = [tensor(each, flow.placement("cpu", ranks=[0]), flow.float32) for each in operator.inputs]
    result = operator.call(*inputs)
    back = gradient(result, 0, [0])
    expected = [result, *flow.autograd.grad(result, inputs, back)]
    found, gradients = in_a_graph(operator, inputs, back)
    pairs = [(a.numpy(), b.numpy()) for a, b in zip((found, *gradients), expected, strict=True)]
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


class Layer(flow.nn.Module):
    """A residual of a perceptron in double precision, with dropout at its end."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.weight = flow.nn.Parameter(flow.tensor(np.arange(0.1, 0.5, 0.1, np.float32).reshape(2, 2)))
        self.bias = flow.nn.Parameter(flow.zeros(2, dtype=flow.float64))
        self.p = p

    def forward(self, x):
        weight = flow.cast(self.weight, flow.float64)
        y = flow.matmul(flow.tanh(flow.matmul(x, weight)), weight)
        return x + flow._C.fused_bias_add_dropout(y, self.bias, p=self.p, axis=1)


class Checkpointed(Graph):
    def __init__(self, model: flow.nn.Sequential, steps: int = 1) -> None:
        super().__init__(model)
        for layer in self.model:
            layer.config.activation_checkpointing = True
        if steps > 1:
            self.config.set_gradient_accumulation_steps(steps)


def checkpointed(steps: int) -> tuple:
    """What casts of a graph's parameters take, and the distance of their gradients."""
    model, twin = (flow.nn.Sequential(Layer(0.0), Layer(0.0)) for _ in range(2))
    graph = Checkpointed(model, steps)
    apart = distance(graph, model, twin, flow.randn(6, 2).to(flow.float64))
    sources = [op.user_conf.input["in"].s[0] for op in operators_of(graph._full_graph_proto, "cast")]
    return sorted(source for source in sources if "weight" in source), apart


class Spread(Layer):
    """A layer whose weight crosses over to where it is."""

    def forward(self, x):
        weight = self.weight.to_global(sbp=flow.sbp.broadcast, grad_sbp=flow.sbp.broadcast)
        return flow.tanh(flow.matmul(x, weight))


def transfers(stored) -> tuple:
    """How many transfers of parameters stored so are computed again: as OneFlow builds it, and as is left."""
    place, shared = flow.placement("cpu", ranks=[0]), flow.sbp.broadcast
    layers = flow.nn.Sequential(Spread(0.0), Spread(0.0)).to_global(placement=place, sbp=stored)
    job, _ = Checkpointed(layers).build_graph(flow.randn(3, 2).to_global(placement=place, sbp=shared))
    built = len(operators_of(job, TRANSFER))
    recomputation.skip_transfers(job)
    return built, len(operators_of(job, TRANSFER))


def spared() -> tuple:
    """What the first of two layers computes again: as OneFlow builds it, and as is left; the last mask's shape."""
    job, _ = Checkpointed(flow.nn.Sequential(Layer(0.1), Layer(0.1))).build_graph(flow.randn(3, 2).to(flow.float64))
    found = []
    for _ in range(2):
        again = [op for op in job.net.op if op.name.startswith(f"{recomputation.RECOMPUTED}model.0-")]
        found.append(sorted(op.user_conf.op_type_name for op in again))
        recomputation.spare_recomputation(job)
    like = next(op for op in again if op.user_conf.op_type_name == recomputation.MASK).user_conf.input["like"].s[0]
    return *found, list(job.helper.lbn2logical_blob_desc[like].shape.dim)


class Pooled(flow.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = flow.nn.Parameter(flow.tensor(np.linspace(-1.0, 1.0, 6 * 6, dtype=np.float32).reshape(6, 6)))

    def forward(self, x):
        pooled = flow.nn.functional.max_pool2d(x * self.weight, 3, 2, 1)
        return (pooled * pooled).sum()


def pooled() -> tuple:
    """What the gradient of max pooling takes the places from and that waits for, and the distance of the gradient."""
    model = Pooled()
    graph = Graph(model)
    apart = distance(graph, model, Pooled(), flow.randn(2, 3, 6, 6))
    job = graph._full_graph_proto
    back = operators_of(job, "max_pool_2d_grad")[0]
    again = next(op for op in job.net.op if f"{op.name}/indice_0" in back.user_conf.input["indice"].s)
    return list(again.ctrl_in_op_name), [maker(name) for name in back.user_conf.input["dy"].s], apart


class Scaled(Graph):
    """With a loss scale and clipping, as under AMP."""

    def __init__(self, model: Parts) -> None:
        flow.nn.Graph.__init__(self)
        self.model = model
        group = {"params": list(model.parameters()), "clip_grad_max_norm": 1.0, "clip_grad_norm_type": 2.0}
        self.add_optimizer(flow.optim.AdamW([group], lr=0.1))
        self.config.enable_amp(True)
        self.set_grad_scaler(flow.amp.GradScaler(2.0**10))


def skipped() -> tuple:
    """What says whether gradients overflowed, and whether each of some iterations changed the parameters."""
    model, moved = Parts(PARTS["whole"]), []
    graph = Scaled(model)
    for value in (1.0, float("inf"), 2.0, float("nan"), 3.0):
        before = model.weight.numpy().copy()
        graph(flow.full((4, 6), value))
        moved.append(not np.array_equal(before, model.weight.numpy()))
    check = operators_of(graph._full_graph_proto, "multi_count_not_finite")[0]
    return list(check.user_conf.input["x"].s), moved, bool(np.isfinite(model.weight.numpy()).all())


flow.manual_seed(1)
print(
    json.dumps(
        {
            "joined": {name: joined(parts) for name, parts in PARTS.items()},
            "checkpointed": [checkpointed(1), checkpointed(2)],
            "transfers": [transfers(flow.sbp.broadcast), transfers(flow.sbp.split(0))],
            "spared": spared(),
            "pooled": pooled(),
            "skipped": skipped(),
            "graph": through_a_graph(),
        }
    )
)
