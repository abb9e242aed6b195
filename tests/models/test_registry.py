"""The models' specifications: complete, consistent with themselves, and found by name."""

from importlib.util import find_spec

import numpy as np
import pytest

from repro.models.registry import ModelError, module_of, names, spec_of, specs
from repro.models.spec import AXES
from repro.planning.datasets import MAKERS
from repro.planning.loss_curves import LAYOUTS
from repro.trainers.config import Shape
from tests.support.paths import ROOT

SINGLE = dict.fromkeys(AXES, 1)


def shapes(spec) -> list:
    """Every shape that a specification gives."""
    trainings = [each for part in (spec.curves, spec.convergence) if part for each in (part.cpu, part.cuda)]
    return [spec.smoke_shape, *(training.shape for training in trainings)]


@pytest.mark.parametrize("spec", specs(), ids=names())
def test_every_shape_is_one_of_the_model(spec):
    for shape in shapes(spec):
        assert set(spec.shape_keys) <= set(shape) <= {*spec.shape_keys, *spec.optional_shape}
        assert spec.check(shape, SINGLE) is None


@pytest.mark.parametrize("spec", specs(), ids=names())
def test_a_sample_has_a_value_per_input(spec):
    shape = Shape(**{**spec.optional_shape, **spec.smoke_shape})
    values = spec.sample(np.random.default_rng(1), shape)
    assert len(values) == len(spec.inputs)
    for value, kind in zip(values, spec.inputs.values(), strict=True):
        assert np.can_cast(np.asarray(value).dtype, kind, "same_kind"), "no value is rounded to a whole number"
    assert set(spec.last_stage_inputs) <= set(spec.inputs)


@pytest.mark.parametrize("spec", specs(), ids=names())
def test_what_it_names_exists(spec):
    assert set(spec.axes) <= set(AXES)
    assert spec.curves is None or set(spec.curves.layouts) <= set(LAYOUTS)
    assert spec.convergence is None or spec.convergence.dataset in MAKERS
    assert callable(module_of("repro.perfmodel", spec.name).stages)
    assert find_spec(f"repro.trainers.models.{spec.name}") and find_spec(f"repro.baselines.{spec.name}")


def test_no_list_of_models_is_anywhere_else():
    quoted = [f'"{name}"' for name in names()]
    sources = [path for path in (ROOT / "repro").rglob("*.py") if path.parent != ROOT / "repro" / "models"]
    naming = [path for path in sources if any(name in path.read_text() for name in quoted)]
    assert naming == []


@pytest.mark.parametrize(("tensor", "rows"), [(1, 50304), (2, 50432), (4, 50688), (8, 51200), (16, 51200), (32, 53248)])
def test_the_vocabulary_is_padded_as_published(tensor, rows):
    assert spec_of("gpt").padded_vocab_size(50257, tensor) == rows
    assert spec_of("bert").padded_vocab_size(30522, 1) == 30522


def test_an_unknown_model_is_named():
    with pytest.raises(ModelError, match="no model 'vgg'; there are bert, gpt, resnet50"):
        spec_of("vgg")


def test_a_missing_part_is_named():
    with pytest.raises(ModelError, match=r"gpt: there is no module repro\.utils\.gpt"):
        module_of("repro.utils", "gpt")
