"""What a training's job consists of: operators by type and part of the model, and transfers between signatures.

The census of a published program is committed (`repro/data/census.toml`), written from the published source; a port is
faithful as long as its job has no other.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from repro.trainers.config import Config
from repro.trainers.data.feeder import build_feeder
from repro.trainers.graph.graph import TrainGraph
from repro.trainers.graph.job_proto import maker, tables_of, taken_by
from repro.trainers.layout import Layout
from repro.trainers.models import ops

RECOMPUTED = "OneFlow-System-Checkpointing-Fake-Fw-Op_"
LAYER = re.compile(r"model\.layers\.\d+\b")
GRADIENT = re.compile(r"_grad|System-AutoGrad-")
UPDATE = re.compile(r"System-|_optimizer|adam_bias_correction|WeightDecay|l1_l2")


def job_as_on_cuda(config: Config, model, changes: tuple):
    """The job of a training as its graph compiles it on CUDA, but for what AMP inserts there, built on the CPU."""
    sizes = config.layout
    layout = Layout(sizes.data, sizes.tensor, sizes.pipeline, "cpu")
    graph = TrainGraph(model, None, config, layout, changes)
    with ops.as_on_cuda():
        graph.build_job(*build_feeder(config, layout).batch(0))
    return graph._full_graph_proto


def parts(job) -> dict[str, dict[str, int]]:
    """Operators by part and type.

    Parts are "layers" and "outside" for what goes forward, the same with " gradient" for what goes back, "recomputed",
    and "update" for what follows the gradients.
    """
    found: dict[str, Counter] = defaultdict(Counter)
    for op in job.net.op:
        if op.HasField("user_conf"):
            found[part_of(op)][op.user_conf.op_type_name] += 1
    return {part: dict(sorted(counts.items())) for part, counts in sorted(found.items())}


def part_of(op) -> str:
    if op.name.startswith(RECOMPUTED):
        return "recomputed"
    if "model_diff" in op.user_conf.input or (UPDATE.search(op.name) and not op.name.startswith("System-AutoGrad-")):
        return "update"
    part = "layers" if LAYER.search(op.name) else "outside"
    return f"{part} gradient" if GRADIENT.search(op.name) else part


def transfers(job) -> dict[str, int]:
    """How often a value is taken by another signature than it has, by both, as "P>B"; of a mesh as "(S0,P)>(S0,B)"."""
    table, places = tables_of(job)[1]
    found: Counter = Counter()
    for op in job.net.op:
        if not op.HasField("user_conf") or op.name not in table:
            continue
        taken = getattr(table[op.name], places)
        for key, given in op.user_conf.input.items():
            for number, name in enumerate(given.s):
                made = getattr(table[maker(name)], places)
                before, after = made[name.split("/")[1]], taken[f"{key}_{number}"]
                if before != after:
                    found[f"{spelled(before)}>{spelled(after)}"] += 1
    return dict(sorted(found.items()))


def spelled(signature) -> str:
    names = [
        f"S{each.split_parallel.axis}"
        if each.HasField("split_parallel")
        else "P"
        if each.HasField("partial_sum_parallel")
        else "B"
        for each in signature.sbp_parallel
    ]
    return names[0] if len(names) == 1 else f"({','.join(names)})"


def arguments(job) -> dict[str, int]:
    """How many values the operators take that look at all gradients together."""
    looked = ("multi_count_not_finite", "multi_reduce_sum_pow_abs")
    counts = Counter(op.user_conf.op_type_name for op in job.net.op for _ in taken_by(op))
    return {name: counts[name] for name in looked if counts[name]}
