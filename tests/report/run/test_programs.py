"""What the first table of a run's report says of the training programs."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.published.rules import MeanRows
from repro.published.trainer_config import TrainingData
from repro.report.run.programs import deviation_section, program_rows
from repro.runs.unit import Unit
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded
from tests.support.runs import CONFIG

RULE, REPORT = MeanRows(skip_first=1), "resnet50-2020-08-08"
TUNED = replace(CONFIG, model="gpt", program="tuned", log_generation="E", precision="amp")


def test_a_deviation_names_the_programs_that_have_it():
    port, tuned = (
        Unit(
            name,
            "resnet50",
            replace(CONFIG, model="resnet50", program=name, data=data),
            RULE,
            8,
            report=REPORT,
            program=name,
        )
        for name, data in (
            ("published", TrainingData("ofrecord", standin="images", scale="published")),
            ("tuned", TrainingData("synthetic")),
        )
    )

    def programs(*units):
        table = deviation_section(catalogue("en").gettext, "en", units).blocks[1]
        return {row[0].text: row[1].text for row in table.rows}

    both = programs(port, tuned)
    assert both["standin-input"] == f"port of the published program ({REPORT})"
    assert both["synthetic-input"] == f"tuned program ({REPORT})"
    assert both["release"] == programs(port)["standin-input"] == "all of them"
    assert "synthetic-input" not in programs(port)


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
