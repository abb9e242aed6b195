"""What is asked of the census without building a job; tests/trainers/test_census.py compares it with the jobs."""

import pytest

from repro.planning.trainer_config import config_of
from repro.published.cases import load_catalogue
from repro.published.census import operator_types, operators, parameter_tensors
from repro.published.deviations import deviations
from repro.published.trainer_config import TrainerConfig


def config(report: str, tensor: int = 1) -> TrainerConfig:
    cases = (case for case in load_catalogue().cases if case.report == report)
    return next(found for found in (config_of(case, "cuda") for case in cases) if found.layout.tensor >= tensor)


@pytest.mark.parametrize(
    ("report", "tensor", "ported", "source"),
    [
        ("gpt-3d-2021-05", 2, {"log", "nll"}, {"sparse_cross_entropy_ms"}),
        ("gpt2-small-2020-12", 1, {"narrow"}, {"slice", "identity_n"}),
        ("bert-2020-08-22", 1, {"narrow"}, {"slice", "random_mask_like"}),
    ],
)
def test_types_of_operators_are_the_ports(report, tensor, ported, source):
    published = config(report, tensor)
    types = operator_types(report, published)
    assert ported <= types and not source & types
    of_source = operators(report, published, *(deviation.id for deviation in deviations()))
    assert source <= {name for counts in of_source.values() for name in counts}


def test_operators_of_a_layer_count_once_per_layer():
    report = "gpt2-small-2020-12"
    published = config(report)
    layers = published.shape["layers"]
    assert operators(report, published)["layers"]["layer_norm"] == 2 * layers
    assert operators(report, published)["update"]["adam_update"] == parameter_tensors(report, layers) == 4 + 12 * layers


def test_a_program_without_a_census_has_no_parameter_tensors():
    assert parameter_tensors("none", 12) == 0
