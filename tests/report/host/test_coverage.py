"""How far cases were brought: the best that any run did with them."""

from collections import Counter
from dataclasses import replace

from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.charts.coverage import AS_PUBLISHED, AUDITED, DERIVED, NOTHING
from repro.report.host.coverage import covered_cases, levels, levels_of, same_configuration, units_run
from repro.report.host.measured import published_efficiency
from repro.utils.i18n import catalogue

ENGLISH = catalogue("en").gettext


def test_levels_follow_from_what_units_stand_for_and_are_derived_from(host):
    found = levels_of(host)
    assert len(found) == len(load_catalogue().cases)
    assert found["DP_1x1x1_2_1536x16"] == AS_PUBLISHED
    assert found["DP_8x1x1_16_1536x16"] == found["MP_1x8x1_16_1536x16"] == DERIVED
    assert found["bert_1n1g_bs96"] == AUDITED
    assert levels(units_run(host), host.catalogue.ported, [])["bert_1n1g_bs96"] == NOTHING


def test_what_ran_both_ways_counts_as_published(host):
    units = units_run(host)
    both = [*units, replace(units[0], stands_for=("DP_8x1x1_16_1536x16",))]
    assert levels(both, host.catalogue.ported, [])["DP_8x1x1_16_1536x16"] == AS_PUBLISHED


def test_failed_units_and_baselines_cover_nothing(host):
    (kept,) = host.runs
    silent = tuple(replace(each, throughputs=()) for each in kept.results)
    assert set(levels_of(replace(host, runs=(replace(kept, results=silent),))).values()) == {AUDITED}
    assert not any(unit.baseline_of for unit in units_run(host))


def test_every_case_is_drawn_once_on_its_level(host):
    """So that the figure counts what the texts count: equal trainings that were published twice are two cases."""
    levels_by_case = levels_of(host)
    drawn = covered_cases(ENGLISH, host.catalogue, levels_by_case)
    assert len(drawn) == len(host.catalogue.ported) == len(levels_by_case)
    assert Counter(case.level for case in drawn) == Counter(levels_by_case.values())


def test_only_layouts_of_several_kinds_of_parallelism_share_a_place(host):
    drawn = covered_cases(ENGLISH, host.catalogue, levels_of(host))
    shared = Counter((case.report, case.label, case.gpus) for case in drawn)
    assert {label for (_report, label, _gpus), count in shared.items() if count > 1} == {"2D", "2D_PP"}


def test_only_layout_precision_and_batch_make_a_configuration_the_published_one(host):
    units = {unit.name: unit for unit in units_run(host)}
    single = units["DP_1x1x1_2_1536x16"]
    assert same_configuration(single).name == single.name
    more = replace(single, config=replace(single.config, iterations=7))
    assert same_configuration(more).name == single.name
    assert same_configuration(replace(single, config=replace(single.config, precision="fp32"))) is None
    assert same_configuration(units["DP_8x1x1_16_1536x16.as_4x1x1"]) is None


def test_tf32_is_never_the_published_precision():
    """Although the trainer's own precision is then that of the cases in fp32."""
    cases = load_catalogue().select("bert", "bert_1n8g_bs96")
    (unit,), (exact,) = (make_plan(cases, 8, Wanted(precision=each)).units for each in ("tf32", "fp32"))
    assert same_configuration(unit) is None and published_efficiency(unit, load_catalogue().ported) is None
    assert same_configuration(exact) == cases[0] and published_efficiency(exact, load_catalogue().ported)
