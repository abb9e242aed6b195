"""Prints what test_channels_last.py judges: jobs of ResNet50 as built for CUDA, but for what AMP inserts there, and
errors of the operators that the kernel check compares on CUDA, here on the CPU in fp32.
"""

import json
import os
import sys
from collections import Counter
from pathlib import Path

import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.checks.accuracy import errors
from repro.trainers.config import parse
from repro.trainers.data.feeder import build_feeder
from repro.trainers.graph.graph import TrainGraph
from repro.trainers.layout import Layout
from repro.trainers.models import ops
from repro.trainers.models.operators import SINGLE
from repro.trainers.models.resnet50 import COMPARED
from repro.trainers.train import build_program
from repro.trainers.tuning.channels_last import TF32
from repro.trainers.tuning.resnet50 import with_channels_last


def built(config) -> tuple:
    """A training's operators of the forward pass, places of channels, axes of normalisation, and parameters."""
    layout = Layout(1, 1, 1, "cpu")
    model, changes = build_program(config, layout)
    graph = TrainGraph(model, None, config, layout, changes)
    with ops.as_on_cuda():
        graph.build_job(*build_feeder(config, layout).batch(0))
    net = [op for op in graph._full_graph_proto.net.op if op.HasField("user_conf")]
    forward = Counter(op.user_conf.op_type_name for op in net if op.name.startswith("model") and "grad" not in op.name)
    formats = {op.user_conf.attr["data_format"].at_string for op in net if "data_format" in op.user_conf.attr}
    axes = {op.user_conf.attr["axis"].at_int32 for op in net if op.user_conf.op_type_name.startswith("normalization")}
    parameters = {name: sorted(each.shape) for name, each in model.named_parameters()}
    return dict(forward), sorted(formats), sorted(axes), parameters


flow.manual_seed(1)
jobs = []
for config, tf32 in json.loads(sys.argv[1]):
    os.environ[TF32] = tf32
    jobs.append(built(parse(config)))
compared = with_channels_last(COMPARED["small"], SINGLE)
found = {operator.name: dict(errors(operator, "cpu")) for operator in compared}
print(json.dumps({"jobs": jobs, "errors": found}), flush=True)
os._exit(0)
