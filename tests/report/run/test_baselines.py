"""What reports say of the variants of baselines."""

from repro.models.variants import VARIANTS
from repro.report.run.baselines import DESCRIPTIONS, descriptions
from repro.utils.i18n import catalogue


def test_each_variant_has_a_description():
    assert tuple(DESCRIPTIONS) == VARIANTS


def test_variants_that_ran_are_described_once():
    found = descriptions(catalogue("en").gettext, ["pytorch-tf32", "pytorch", "pytorch-tf32", "of-another-project"])
    assert [item.partition(":")[0] for item in found.items] == ["`pytorch`", "`pytorch-tf32`"]
