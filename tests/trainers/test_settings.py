"""What each program asks of OneFlow before its graph is built, against the sources of the published programs."""

import itertools
import json

import pytest

from repro.models.programs import PUBLISHED, TUNED
from tests.trainers.conftest import configuration

REPORTS = {"A": "resnet50", "B": "resnet50", "C": "bert", "D": "gpt", "E": "gpt"}
"""The model of each log generation."""


@pytest.fixture(scope="module")
def settings(probe):
    """The settings of each program by log generation, on the GPU, and those of one on the CPU."""
    configs = [
        {**configuration(model, log_generation=generation, program=program), "device": device, "output": "."}
        for generation, model in REPORTS.items()
        for program, device in ((PUBLISHED, "cuda"), (TUNED, "cuda"), (PUBLISHED, "cpu"))
    ]
    found = json.loads(probe("settings_probe.py", json.dumps(configs))[-1])
    keys = itertools.product(REPORTS, (PUBLISHED, TUNED, "cpu"))
    return dict(zip(keys, found, strict=True))


@pytest.mark.parametrize("generation", REPORTS)
def test_only_the_program_of_may_2021_used_rdma_which_it_does_on_the_cpu_too(settings, generation):
    for which in (PUBLISHED, "cpu"):
        assert ("init_rdma" in settings[generation, which]) == (generation == "E")


@pytest.mark.parametrize("generation", REPORTS)
def test_every_published_program_merges_chains_of_memory_also_on_the_cpu(settings, generation):
    asked = [settings[generation, which].get("enable_mem_chain_merge") for which in (PUBLISHED, TUNED, "cpu")]
    assert asked == [True, None, True]


@pytest.mark.parametrize("generation", REPORTS)
def test_operators_of_a_fused_collective_are_limited_from_december_2020_on(settings, generation):
    assert settings[generation, PUBLISHED]["set_fusion_max_ops_num"] == (64 if generation in "DE" else 128)


def test_running_variances_start_where_the_scale_does(probe):
    """The published source initialises both by the same value, 0 for the last normalisation of each block."""
    config = {**configuration("resnet50"), "output": "."}
    norms = json.loads(probe("running_variance_probe.py", json.dumps(config))[-1])
    assert len(norms) == 53
    assert all(variance_is_1 == scale_is_1 for _, variance_is_1, scale_is_1 in norms)
    assert [name for name, variance_is_1, _ in norms if not variance_is_1] == [
        f"blocks.{block}.norm3.variance" for block in range(16)
    ]
