"""Under AMP and in TF32 the tuned ResNet50 computes with channels last; neither does more than that on the CPU."""

import json

import pytest

from tests.trainers.conftest import configuration

HALF = {
    "bias_add",
    "conv2d",
    "matmul",
    "normalization",
    "normalization_add_relu",
    "reshape",
    "tf_avg_pool_2d",
    "tf_max_pool_2d",
    "transpose",
}
"""Operators that AMP computes in half precision, some only between others that it does."""
ROUNDING = 1e-5
LOSS = {"momentum_update", "one_hot", "reduce_sum", "scalar_mul", "softmax_cross_entropy"}
TENSORS = ("data", "weight", "bias", "addend")
TUNED = {"program": "tuned"}
PROGRAMS = {
    "published": ({}, "1"),
    "tuned": (TUNED, "0"),
    "tf32": (TUNED, "1"),
    "amp": ({**TUNED, "precision": "amp"}, "0"),
}
"""Changes to a configuration, and whether cuDNN may take TF32."""
LAST = ("amp", "tf32")


@pytest.fixture(scope="module")
def probed(probe):
    configs = [({**configuration("resnet50", **changes), "output": "."}, tf32) for changes, tf32 in PROGRAMS.values()]
    return json.loads(probe("channels_last_probe.py", json.dumps(configs))[-1])


@pytest.fixture(scope="module")
def jobs(probed):
    return dict(zip(PROGRAMS, probed["jobs"], strict=True))


@pytest.mark.parametrize("name", LAST)
def test_all_operators_have_their_channels_last_and_only_the_images_are_transposed(jobs, name):
    forward, formats, axes, _ = jobs[name]
    assert (formats, axes, forward["transpose"]) == (["channels_last"], [3], 1)


def test_amp_knows_all_operators_but_those_of_the_loss(jobs):
    """In particular cuDNN's max pooling, and thus the batch normalisation before it, but not OneFlow's own."""
    assert set(jobs["amp"][0]) == HALF | LOSS


@pytest.mark.parametrize("name", ["published", "tuned"])
def test_fp32_and_the_published_program_have_their_channels_first(jobs, name):
    forward, formats, axes, _ = jobs[name]
    assert (formats, axes, "transpose" in forward) == (["channels_first"], [1], False)


@pytest.mark.parametrize("name", LAST)
def test_parameters_are_the_published_ones_with_filters_permuted(jobs, name):
    assert list(jobs[name][3].items()) == list(jobs["published"][3].items())


def test_operators_compute_what_they_are_compared_with(probed):
    parts = [part for found in probed["errors"].values() for part in found.items()]
    assert {name for name, _ in parts} == {"forward", *(f"{name} gradient" for name in TENSORS)}
    assert max(error for _, error in parts) < ROUNDING
