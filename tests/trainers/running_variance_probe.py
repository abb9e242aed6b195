"""Prints the initial running variance of each batch normalisation of ResNet50, with the initial scale."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.config import parse
from repro.trainers.layout import Layout
from repro.trainers.train import build_program

model, _ = build_program(parse(json.loads(sys.argv[1])), Layout(1, 1, 1, "cpu"))
state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
variances = {name: value.numpy().tolist() for name, value in state.items() if name.endswith(".variance")}
scales = {name: state[name.replace(".variance", ".norm_weight")].numpy().tolist() for name in variances}
print(json.dumps([[name, set(variances[name]) == {1.0}, set(scales[name]) == {1.0}] for name in variances]), flush=True)
