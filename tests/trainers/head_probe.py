"""Prints what test_rewrite.py judges of a head in parts: the losses of some iterations, and what waits for what."""

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
from repro.trainers.tuning import gpt

config = parse(json.loads(sys.argv[1]))
layout = Layout(1, 1, 1, "cpu")


def trained(most: int) -> dict:
    gpt.MOST_LOGITS = most
    flow.manual_seed(config.seed)
    model, changes = build_program(config, layout)
    graph, feeder = TrainGraph(model, None, config, layout, changes), build_feeder(config, layout)
    losses = [float(graph(*feeder.batch(i))["loss"].numpy().mean()) for i in range(config.iterations)]
    waits = {op.name: list(op.ctrl_in_op_name) for op in graph._full_graph_proto.net.op if op.ctrl_in_op_name}
    return {"parts": model.head.parts, "losses": losses, "waits": waits}


print(json.dumps([gpt.head_parts(samples * 2048 * 50304, 2048) for samples in (1, 2, 4, 8)]))
logits = config.micro_batch * config.shape.seq_length * config.padded_vocab_size
print(json.dumps([trained(logits), trained(logits // int(sys.argv[2]))]))
