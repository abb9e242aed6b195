"""What reports say of the variants of baselines."""

import pytest

from repro.analysis.results import summarise
from repro.models.variants import VARIANTS
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.run.baselines import DESCRIPTIONS, descriptions, within_sections
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded


@pytest.mark.parametrize(("peak_mib", "shown", "explained"), [(16297.6, "16298", True), (9000.0, "9000", False)])
def test_a_peak_of_tensors_above_the_memory_in_use_is_explained(peak_mib, shown, explained):
    """PyTorch's peak is since its start, memory in use is read at printed rows: the first may be the larger."""
    run = make_plan(load_catalogue().select("resnet50", "resnet50_0808_1n1g_bs128"), 1, Wanted(baselines=("pytorch",)))
    mib = {"memory_mib": 13968.8, "memory_allocated_mib": peak_mib}
    attempts = [recorded({"unit": unit.name, "throughput": 400.0, **mib}) for unit in run.units]
    (section,) = within_sections(catalogue("en").gettext, run.scale, summarise(run, attempts))
    table = next(block for block in section.blocks if block.kind == "table")
    of_row = {column.title: cell.text for column, cell in zip(table.columns, table.rows[0], strict=True)}
    assert (of_row["Baseline: memory in use (MiB)"], of_row["Baseline: peak of tensors (MiB)"]) == ("13969", shown)
    texts = [block.text for block in section.blocks if block.kind == "text"]
    assert "at any moment since the start" in texts[1]
    assert any("Where it exceeds memory in use" in text for text in texts) == explained


def test_each_variant_has_a_description():
    assert tuple(DESCRIPTIONS) == VARIANTS


def test_variants_that_ran_are_described_once():
    found = descriptions(catalogue("en").gettext, ["pytorch-tf32", "pytorch", "pytorch-tf32", "of-another-project"])
    assert [item.partition(":")[0] for item in found.items] == ["`pytorch`", "`pytorch-tf32`"]
