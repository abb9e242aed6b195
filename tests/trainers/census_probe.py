"""Prints what test_census.py judges: the census of the jobs that configurations ask for, with switches or without.

That is operators by type and part of the model, transfers between signatures, and what was changed in the job.
"""

import json
import re
import sys
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from pathlib import Path

import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.config import parse
from repro.trainers.data.feeder import build_feeder
from repro.trainers.data.readers import build_reader
from repro.trainers.data.standin.sets import make
from repro.trainers.graph.changes import CHANGES
from repro.trainers.graph.graph import TrainGraph
from repro.trainers.graph.job_proto import add, maker, remove, tables_of, taken_by
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
MICRO_STEPS = re.compile(r"System-(GradientAccumulation|Pipeline)-")
OF_EACH_GRADIENT = ("multi_count_not_finite", "multi_square_sum", "square_sum")
NORM_OR_OVERFLOW = re.compile(r"System-(ClipGradient|DynamicLossScale|Train)-")
UPDATE = re.compile(r"System-|_optimizer|adam_bias_correction|WeightDecay|l1_l2")


def parts(job) -> dict[str, dict[str, int]]:
    """Operators by part and type.

    Parts are "layers" and "outside" for what goes forward, the same with " gradient" for what goes back, "recomputed",
    "micro-steps" for what repeats, buffers and adds up, and "update" for what follows the gradients.
    """
    found: dict[str, Counter] = defaultdict(Counter)
    for op in job.net.op:
        if op.HasField("user_conf"):
            found[part_of(op)][op.user_conf.op_type_name] += 1
    return {part: dict(sorted(counts.items())) for part, counts in sorted(found.items())}


def part_of(op) -> str:
    if op.name.startswith(RECOMPUTED):
        return "recomputed"
    if MICRO_STEPS.match(op.name):
        return "micro-steps"
    if "model_diff" in op.user_conf.input or (UPDATE.search(op.name) and not op.name.startswith("System-AutoGrad-")):
        return "update"
    part = "layers" if LAYER.search(op.name) else "outside"
    return f"{part} gradient" if GRADIENT.search(op.name) else part


def transfers(job) -> dict[str, int]:
    """How many values are taken by another signature than they are made with, by both: "P>B", on a mesh "(S0,P)>(S0,B)".

    A value that several operators of a stage take alike moves once. What is the same on all ranks does not move, and
    the single numbers from which overflow and norm are made are left out: no source says how they move.
    """
    table, places = tables_of(job)[1]
    ranks = {
        name: tuple(group.parallel_conf.device_name)
        for group in job.placement.placement_group
        for name in group.op_set.op_name
    }
    moved = set()
    for op in job.net.op:
        if op.name not in table or NORM_OR_OVERFLOW.match(op.name):
            continue
        taken = getattr(table[op.name], places)
        for place, name in inputs_of(op):
            made = getattr(table[maker(name)], places)
            before, after = spelled(made[name.split("/")[1]]), spelled(taken[place])
            if len(ranks[maker(name)]) > 1 and before != after and set(before) - set("(,B)"):
                moved.add((name, before, after, ranks[op.name]))
    return dict(sorted(Counter(f"{before}>{after}" for _, before, after, _ in moved).items()))


def inputs_of(op) -> list[tuple[str, str]]:
    """Places and names of what an operator takes."""
    if op.HasField("output_conf"):
        return [("in", getattr(op.output_conf, "in"))]
    given = op.user_conf.input.items() if op.HasField("user_conf") else ()
    return [(f"{key}_{number}", name) for key, values in given for number, name in enumerate(values.s)]


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


def gradients_taken(job) -> dict[str, int]:
    """How many values the operators take that take all gradients."""
    counts = Counter(op.user_conf.op_type_name for op in job.net.op for _ in taken_by(op))
    return {name: counts[name] for name in OF_EACH_GRADIENT if counts[name]}


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
        changes = (*CHANGES, *(getattr(rewrite, name) for name in switch.split()))
    reader = build_reader(config, layout)
    batch = () if reader else build_feeder(config, layout).batch(0)
    graph = TrainGraph(model, reader, config, layout, changes)
    with ops.as_on_cuda(), looked_at_by_rank_0():
        graph.build_job(*batch)
    return graph._full_graph_proto, changes


class NotLookedAt(Exception):
    """Ends a job that nobody looks at."""


@contextmanager
def looked_at_by_rank_0():
    """Complete the job on rank 0 alone: each rank would pass over its own copy, which takes most of the time.

    The others take part until then, as the ranks compare what they have described of each tensor.
    """
    if flow.env.get_rank() == 0:
        yield
        return

    def stop():
        raise NotLookedAt

    complete = flow._oneflow_internal.CurJobBuildAndInferCtx_Complete
    flow._oneflow_internal.CurJobBuildAndInferCtx_Complete = stop
    try:
        with suppress(NotLookedAt):
            yield
    finally:
        flow._oneflow_internal.CurJobBuildAndInferCtx_Complete = complete


def judged(task: dict) -> dict:
    config, switch = parse(task["config"]), task.get("switch", "")
    if config.data.standin:
        make(config.data.standin, config.data.path)
    tuned.MANY_LOGITS = 1
    job, changes = build(config, switch)
    if flow.env.get_rank() > 0:
        return {}
    found = {
        "parts": parts(job),
        "transfers": transfers(job),
        "gradients taken": gradients_taken(job),
        "changes": [change.__name__ for change in changes],
    }
    return {**found, "with one more": parts(with_one_more(job)), "with one less": parts(with_one_less(job))}


def with_one_more(job):
    """The job with one of the model's operators twice."""
    op = next(op for op in job.net.op if op.HasField("user_conf") and part_of(op) == "outside")
    changed = type(job)()
    changed.CopyFrom(job)
    add(changed, f"{op.name}-again", op).user_conf.CopyFrom(op.user_conf)
    return changed


def with_one_less(job):
    """The job without one operator that goes back."""
    op = next(op for op in job.net.op if op.HasField("user_conf") and part_of(op) == "outside gradient")
    changed = type(job)()
    changed.CopyFrom(job)
    remove(changed, {op.name: ""})
    return changed


if __name__ == "__main__":
    flow.manual_seed(1)
    found = [judged(task) for task in json.loads(sys.argv[1])]
    if flow.env.get_rank() == 0:
        print(json.dumps(found), flush=True)
