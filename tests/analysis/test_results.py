"""The table of results of a run: what its CSV holds, its Parquet holds too."""

import math

import pytest

from repro.analysis.results import Parity
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")


@pytest.mark.parametrize("place", range(5))
def test_a_loss_that_is_no_number_is_in_no_parity(place):
    (unit,) = make_plan([CASE], 1, Wanted(scale="published", repeats=1)).units
    losses = [10.0, 9.0, 8.0, 7.0, 6.0]
    assert Parity(unit, "reference", tuple(losses), tuple(losses)).holds
    broken = tuple(math.nan if number == place else loss for number, loss in enumerate(losses))
    for parity in (Parity(unit, "reference", broken, tuple(losses)), Parity(unit, "reference", tuple(losses), broken)):
        assert math.isnan(parity.difference) and not parity.holds
