"""Prints what test_census.py judges: the census of the jobs that configurations ask for, with a switch or without."""

import json
import os
import sys
from pathlib import Path

import oneflow as flow

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from repro.trainers.checks import census
from repro.trainers.config import parse
from repro.trainers.graph.changes import CHANGES
from repro.trainers.layout import Layout
from repro.trainers.models import gpt
from repro.trainers.models.parameters import Parameters
from repro.trainers.train import build_program
from repro.trainers.tuning import gpt as tuned
from repro.trainers.tuning import rewrite
from repro.trainers.tuning.parameters import TunedParameters


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


def build(config, switch: str):
    layout = Layout(config.layout.data, config.layout.tensor, config.layout.pipeline, "cpu")
    model, changes = build_program(config, layout)
    if switch in MODELS:
        make = TunedParameters if switch == "blocks" else Parameters
        model = MODELS[switch](config, make(layout, config))
    elif switch:
        changes = (*CHANGES, getattr(rewrite, switch))
    return census.job_as_on_cuda(config, model, changes), changes


def judged(task: dict) -> dict:
    config, switch = parse(task["config"]), task.get("switch", "")
    tuned.MANY_LOGITS = 1
    job, changes = build(config, switch)
    return {
        "parts": census.parts(job),
        "transfers": census.transfers(job),
        "arguments": census.arguments(job),
        "changes": [change.__name__ for change in changes],
    }


if __name__ == "__main__":
    flow.manual_seed(1)
    found = [judged(task) for task in json.loads(sys.argv[1])]
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(found), flush=True)
    os._exit(0)
