"""A measurement of the kernels of 2020 with made-up times, for tests."""

from repro.models.past import DIRECTIONS
from repro.perfmodel.past_kernels import Measured, Timed
from repro.planning.past import subjects
from repro.published.cases import Case


def measured(cases: list[Case], gpu: str = "NVIDIA H100 80GB HBM3", **times: float) -> Measured:
    """Every operator of these cases, each call with the same milliseconds."""
    given = {"past_ms": 0.3, "cold_ms": 0.4, "present_ms": 0.1, **times}
    operators = [
        Timed(each.form, each.rows, each.columns, direction, 6, 1000, **given, past_kernels={}, present_kernels={})
        for each in subjects(cases)
        for direction in DIRECTIONS
    ]
    return Measured(gpu, 132, 1980.0, {"oneflow": "0.8.0", "cudnn": "7605"}, "130000", tuple(operators))
