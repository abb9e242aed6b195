"""What the first table of a run's report says of the training programs."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.published.rules import MeanRows
from repro.report.run.programs import program_rows
from repro.runs.unit import Unit
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded
from tests.support.runs import CONFIG

TUNED = replace(CONFIG, model="gpt", program="tuned", log_generation="E", precision="amp")


@pytest.mark.parametrize(
    ("operators", "said"),
    [
        ({"repro_attention": 2}, ["Attention fused by cuDNN"]),
        ({"repro_parts": 2}, ["Sharded optimizer with flat parameters"]),
        ({"batch_matmul": 4}, []),
        (None, []),
    ],
)
def test_configurations_with_operators_of_our_own_are_named(operators, said):
    units = [Unit(name, "gpt", TUNED, MeanRows(skip_first=1), 8) for name in ("DP", "MP")]
    attempts = [recorded({"unit": unit.name, "operators": operators}) for unit in units]
    data = SimpleNamespace(plan=SimpleNamespace(units=units), attempts=attempts, starts={})
    rows = [[cell.text for cell in row] for row in program_rows(catalogue("en").gettext, data)]
    assert [name for name, text in rows if text == "DP, MP"] == said
