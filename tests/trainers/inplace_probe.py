"""Prints of each configuration whether a repeated buffer changes, and whether tensors may be overwritten in place."""

import json
import sys
from pathlib import Path

import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.config import parse
from repro.trainers.data.feeder import build_feeder
from repro.trainers.graph.graph import TrainGraph
from repro.trainers.layout import Layout
from repro.trainers.train import build_program

layout = Layout(1, 1, 1, "cpu")


def judged(config) -> list[bool]:
    flow.manual_seed(config.seed)
    model, changes = build_program(config, layout)
    graph = TrainGraph(model, None, config, layout, changes)
    job, _ = graph.build_graph(*build_feeder(config, layout).batch(0))
    made = {name: op for op in job.net.op for names in op.user_conf.output.values() for name in names.s}
    changed = [op.user_conf.input["moving_mean"].s[0] for op in job.net.op if "moving_mean" in op.user_conf.input]
    repeated = any(name in made and made[name].user_conf.op_type_name == "repeat" for name in changed)
    return [repeated, job.job_conf.enable_inplace]


print(json.dumps([judged(parse(json.loads(config))) for config in sys.argv[1:]]))
