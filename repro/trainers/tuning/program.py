"""The tuned program of a model: what `train.py` runs in place of the published one."""

from oneflow import nn

from repro.trainers.config import Config
from repro.trainers.graph.changes import Change
from repro.trainers.layout import Layout
from repro.trainers.tuning import tuned_module
from repro.trainers.tuning.attention import fusing, usable
from repro.trainers.tuning.parameters import TunedParameters
from repro.trainers.tuning.rewrite import REWRITES


def build(config: Config, layout: Layout) -> tuple[nn.Module, tuple[Change, ...]]:
    """The configured model with its initial parameters, and the changes to its training job."""
    changes = (fusing(config.dropout), *REWRITES) if usable(config) else REWRITES
    return tuned_module(config.model).MODEL(config, TunedParameters(layout, config)), changes
