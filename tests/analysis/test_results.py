"""The table of results of a run: what its CSV holds, its Parquet holds too."""

import csv
import math

import pytest

from repro.analysis.results import Parity, write_results_parquet
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.run.page import render
from tests.support.synthetic import published_run

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")


def test_parquet_holds_what_the_csv_holds(tmp_path):
    from pyarrow import parquet

    run = published_run(tmp_path, [CASE.name], (1.0, 1.001))
    render(run)
    table = parquet.read_table(write_results_parquet(run)).to_pylist()
    with open(run.folder / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in table] == [list(row) for row in rows] and len(table) == 1
    for name, value in table[0].items():
        text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
        assert text == rows[0][name], name
    assert table[0]["throughputs_samples_per_s"] == pytest.approx([4.92, 4.92492])


@pytest.mark.parametrize("place", range(5))
def test_a_loss_that_is_no_number_is_in_no_parity(place):
    (unit,) = make_plan([CASE], 1, Wanted(scale="published", repeats=1)).units
    losses = [10.0, 9.0, 8.0, 7.0, 6.0]
    assert Parity(unit, "reference", tuple(losses), tuple(losses)).holds
    broken = tuple(math.nan if number == place else loss for number, loss in enumerate(losses))
    for parity in (Parity(unit, "reference", broken, tuple(losses)), Parity(unit, "reference", tuple(losses), broken)):
        assert math.isnan(parity.difference) and not parity.holds
