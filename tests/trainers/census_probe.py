"""Prints what test_census.py judges: the census of the jobs that configurations ask for, with a switch or without.

That is operators by type and part of the model, transfers between signatures, and what was changed in the job.
"""

import json
import os
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.config import parse
from repro.trainers.data.feeder import build_feeder
from repro.trainers.graph.changes import CHANGES
from repro.trainers.graph.graph import TrainGraph
from repro.trainers.graph.job_proto import maker, tables_of, taken_by
from repro.trainers.layout import Layout
from repro.trainers.models import gpt, ops
from repro.trainers.models.parameters import Parameters
from repro.trainers.train import build_program
from repro.trainers.tuning import gpt as tuned
from repro.trainers.tuning import rewrite
from repro.trainers.tuning.parameters import TunedParameters
from repro.trainers.tuning.recomputation import RECOMPUTED

LAYER = re.compile(r"model\.layers\.\d+\b")
GRADIENT = re.compile(r"_grad|System-AutoGrad-")
UPDATE = re.compile(r"System-|_optimizer|adam_bias_correction|WeightDecay|l1_l2")


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
    looked = ("multi_count_not_finite", "multi_square_sum", "square_sum")
    counts = Counter(op.user_conf.op_type_name for op in job.net.op for _ in taken_by(op))
    return {name: counts[name] for name in looked if counts[name]}


class Blocks(gpt.GPT):
    """The published GPT but for its layers."""

    def build_layer(self, config, make, index, stage):
        return tuned.Layer(config, make, index, stage)


class Parts(gpt.GPT):
    """The published GPT but for its head."""

    def build_head(self, config, make, stage):
        return tuned.Head(config, make, stage)

    def outputs(self, losses):
        return {"loss": sum(losses[1:], losses[0]), "objectives": losses}


class Positions(gpt.GPT):
    """The published GPT but for its embedding."""

    def build_embedding(self, config, make):
        return tuned.Embedding(config, make)


MODELS = {"blocks": Blocks, "parts": Parts, "positions": Positions}


def build(config, switch: str) -> tuple:
    """The job of a training as its graph compiles it on CUDA, but for what AMP inserts there, and its changes."""
    layout = Layout(config.layout.data, config.layout.tensor, config.layout.pipeline, "cpu")
    model, changes = build_program(config, layout)
    if switch in MODELS:
        make = TunedParameters if switch == "blocks" else Parameters
        model = MODELS[switch](config, make(layout, config))
    elif switch:
        changes = (*CHANGES, getattr(rewrite, switch))
    graph = TrainGraph(model, None, config, layout, changes)
    with ops.as_on_cuda():
        graph.build_job(*build_feeder(config, layout).batch(0))
    return graph._full_graph_proto, changes


def judged(task: dict) -> dict:
    config, switch = parse(task["config"]), task.get("switch", "")
    tuned.MANY_LOGITS = 1
    job, changes = build(config, switch)
    return {
        "parts": parts(job),
        "transfers": transfers(job),
        "arguments": arguments(job),
        "changes": [change.__name__ for change in changes],
    }


if __name__ == "__main__":
    flow.manual_seed(1)
    found = [judged(task) for task in json.loads(sys.argv[1])]
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(found), flush=True)
    os._exit(0)
