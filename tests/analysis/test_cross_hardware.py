"""What is compared on any hardware: which cases with which, what is published and measured of them, and how near is near."""

from dataclasses import replace

import pytest

from repro.analysis.cross_hardware import (
    TOLERANCES,
    HardwareComparison,
    agreeing,
    comparisons,
    orders,
    published_scaling,
)
from repro.analysis.ratio import repeated_ratio
from repro.published.cases import Layout, load_catalogue
from tests.support.synthetic import measured

CATALOGUE = load_catalogue()
SINGLE, EIGHT, SIXTEEN = "DP_1x1x1_2_1536x16", "DP_8x1x1_16_1536x16", "DP_16x1x1_32_1536x16"
TENSOR, MIXED, BALANCED = "MP_1x8x1_16_1536x16", "2D_2x4x1_16_1536x16", "2D_4x2x1_16_1536x16"
UNSHARDED, SHARDED = "gpt2_small_1n8g_bs4_zero0", "gpt2_small_1n8g_bs4_zero1"


def without_result(name):
    ((case, result),) = measured(name)
    return case, replace(result, throughputs=(), throughput=None)


def test_a_comparison_names_the_units_that_were_measured_for_it():
    found = comparisons(measured(SINGLE, EIGHT))
    assert {(each.kind, each.units) for each in found} == {
        ("scaling", (EIGHT, SINGLE)),
        ("memory", (SINGLE,)),
        ("memory", (EIGHT,)),
    }


def told(found):
    return [(each.kind, each.case, each.against) for each in found]


def test_each_kind_has_its_tolerance():
    assert TOLERANCES == {"scaling": 0.05, "memory": 0.10, "layout": 0.10, "sharding": 0.10, "memory_sharding": 0.10}


@pytest.mark.parametrize(
    ("kind", "factor", "agrees"),
    [
        *(
            ("memory", factor, agrees)
            for factor, agrees in ((1.099, True), (1.101, False), (0.901, True), (0.899, False))
        ),
        *(
            ("scaling", factor, agrees)
            for factor, agrees in ((1.049, True), (1.051, False), (0.951, True), (0.949, False))
        ),
        *(
            ("layout", factor, agrees)
            for factor, agrees in ((1.099, True), (1.101, False), (0.901, True), (0.899, False))
        ),
        *(("sharding", factor, agrees) for factor, agrees in ((1.099, True), (1.101, False), (0.901, True))),
        *(("memory_sharding", factor, agrees) for factor, agrees in ((1.099, True), (1.101, False), (0.899, False))),
    ],
)
def test_a_comparison_agrees_within_the_tolerance_of_its_kind(kind, factor, agrees):
    names = {
        "memory": (SINGLE,),
        "scaling": (SINGLE, EIGHT),
        "layout": (EIGHT, TENSOR),
        "sharding": (UNSHARDED, SHARDED),
        "memory_sharding": (UNSHARDED, SHARDED),
    }[kind]
    changed = {names[-1]: factor}
    given = measured(*names, memory=changed) if "memory" in kind else measured(*names, throughput=changed)
    (found,) = [each for each in comparisons(given) if (each.kind, each.case) == (kind, names[-1])]
    assert found.difference == pytest.approx(factor - 1) and found.tolerance == TOLERANCES[kind]
    assert found.agrees is agrees
    assert all(each.tolerance == 0.02 for each in comparisons(given, 0.02)), "a given tolerance replaces all"
    assert all(each.tolerance == 0.0 for each in comparisons(given, 0.0)), "zero is given too"


def test_just_at_the_tolerance_still_agrees():
    assert HardwareComparison("memory", "x", None, 100.0, 110.0, 0.1).agrees
    assert HardwareComparison("memory", "x", None, 4.0, 3.0, 0.25).agrees
    assert not HardwareComparison("memory", "x", None, 100.0, 110.1, 0.1).agrees


def test_nothing_measured_gives_nothing():
    assert comparisons([]) == [] and orders([], lambda case: 0.1) == []
    assert comparisons([without_result(SINGLE)]) == [] and orders([without_result(SINGLE)], lambda case: 0.1) == []


def test_scaling_starts_from_the_fewest_gpus_with_the_same_work_on_each():
    found = [each for each in comparisons(measured(SIXTEEN, SINGLE, EIGHT, TENSOR)) if each.kind == "scaling"]
    assert told(found) == [("scaling", SIXTEEN, SINGLE), ("scaling", EIGHT, SINGLE)]
    eight = found[1]
    assert eight.published == pytest.approx(38.28 / 4.92 / 8) and eight.measured == pytest.approx(38.28 / 4.92 / 8)
    expected = repeated_ratio([37.8972, 38.28, 38.6628], [4.8708, 4.92, 4.9692]).over(8)
    assert eight.repeated.value == pytest.approx(expected.value)
    assert (eight.repeated.interval.low, eight.repeated.interval.high) == pytest.approx(
        (expected.interval.low, expected.interval.high)
    )
    from_eight = [each for each in comparisons(measured(EIGHT, SIXTEEN)) if each.kind == "scaling"]
    assert told(from_eight) == [("scaling", SIXTEEN, EIGHT)]
    efficiency = CATALOGUE.case(SIXTEEN).published.throughput / 38.28 / 2
    assert (from_eight[0].published, from_eight[0].repeated.value) == pytest.approx((efficiency, efficiency))


@pytest.mark.parametrize("layout", [Layout(1, 8, 1), Layout(1, 1, 8), Layout(1, 2, 1), Layout(2, 4, 4)])
def test_only_data_parallel_cases_scale(layout):
    case, result = measured(EIGHT)[0]
    other = replace(case, layout=layout)
    found = comparisons([*measured(SINGLE), (other, result)])
    assert [each for each in found if each.kind == "scaling"] == []
    assert published_scaling(other, CATALOGUE.cases) is None


def test_groups_come_in_the_order_of_the_run():
    resnet, bert = ("resnet50_0821_1n8g_bs128", "resnet50_0821_1n1g_bs128"), ("bert_1n8g_bs96", "bert_1n1g_bs96")
    for first, second in ((resnet, bert), (bert, resnet)):
        scaling = [each for each in comparisons(measured(*first, *second)) if each.kind == "scaling"]
        assert [each.case for each in scaling] == [first[0], second[0]]
    eight, one = (MIXED, TENSOR), (SINGLE, "MP_1x1x1_8_768x12")
    for names, sizes in (((*eight, *one), [8, 1]), ((*one, *eight), [1, 8])):
        assert [each.gpus for each in orders(measured(*names), lambda case: 0.02)] == sizes


def test_of_equally_data_parallel_layouts_the_more_tensor_parallel_is_the_plainest():
    (case, result) = measured(TENSOR)[0]
    tensor, pipeline = (replace(case, name=str(layout), layout=layout) for layout in (Layout(2, 4, 1), Layout(2, 1, 4)))
    found = [each for each in comparisons([(pipeline, result), (tensor, result)]) if each.kind == "layout"]
    assert told(found) == [("layout", pipeline.name, tensor.name)]


def test_layouts_of_one_training_are_compared_with_the_most_data_parallel():
    found = [each for each in comparisons(measured(TENSOR, MIXED, EIGHT, SINGLE)) if each.kind == "layout"]
    assert told(found) == [("layout", TENSOR, EIGHT), ("layout", MIXED, EIGHT)]
    assert found[1].published == pytest.approx(29.65 / 38.28)
    then = [each for each in comparisons(measured(TENSOR, MIXED)) if each.kind == "layout"]
    assert told(then) == [("layout", TENSOR, MIXED)], "of those that were measured"


def test_sharding_is_compared_with_the_same_layout_unsharded():
    names = ("gpt2_small_1n8g_bs1_zero1", SHARDED, UNSHARDED)
    found = [each for each in comparisons(measured(*names)) if "sharding" in each.kind]
    assert told(found) == [("sharding", SHARDED, UNSHARDED), ("memory_sharding", SHARDED, UNSHARDED)]
    assert [each.published for each in found] == pytest.approx([235 / 239, 9547 / 11301])


def test_memory_is_compared_where_both_are_known():
    def memories(given):
        return [each.case for each in comparisons(given) if each.kind in ("memory", "memory_sharding")]

    assert memories(measured("bert_1n1g_bs96")) == [], "none was published"
    (single, result), (eight, other) = measured(SINGLE, EIGHT)
    assert memories([(single, replace(result, memory_mib=None)), (eight, other)]) == [EIGHT]
    (plain, one), (sharded, two) = measured(UNSHARDED, SHARDED)
    assert memories([(plain, replace(one, memory_mib=None)), (sharded, two)]) == [SHARDED], "no ratio of one side"


def test_comparisons_come_by_kind_and_then_in_the_order_of_the_run():
    found = comparisons(measured(SHARDED, SIXTEEN, UNSHARDED, SINGLE, TENSOR, EIGHT))
    kinds = [each.kind for each in found]
    assert kinds == sorted(kinds, key=list(TOLERANCES).index) and set(kinds) == set(TOLERANCES)
    memory = [each.case for each in found if each.kind == "memory"]
    assert memory == [SHARDED, SIXTEEN, UNSHARDED, SINGLE, TENSOR, EIGHT]


def test_what_verdicts_keep_of_a_comparison():
    (memory,) = comparisons(measured(SINGLE))
    assert memory.as_json() == {
        "kind": "memory",
        "case": SINGLE,
        "against": None,
        "published": 11066.0,
        "measured": 11066.0,
        "difference": 0.0,
        "tolerance": 0.1,
        "agrees": True,
        "ratio": None,
    }


# Order


def order_of(given, tolerance=0.02):
    (found,) = orders(given, lambda case: tolerance)
    return found


def test_cases_of_one_report_on_as_many_gpus_have_an_order():
    found = orders(measured(SINGLE, TENSOR, EIGHT, MIXED, "MP_1x1x1_8_768x12", "bert_1n8g_bs96"), lambda case: 0.02)
    assert [(each.report, each.gpus, len(each.published)) for each in found] == [
        ("gpt-3d-2021-05", 1, 2),
        ("gpt-3d-2021-05", 8, 3),
    ]
    assert found[1].published == found[1].measured == (EIGHT, MIXED, TENSOR) and found[1].agrees
    assert found[1].as_json() == {
        "kind": "order",
        "report": "gpt-3d-2021-05",
        "gpus": 8,
        "published": [EIGHT, MIXED, TENSOR],
        "measured": [EIGHT, MIXED, TENSOR],
        "swapped": [],
        "tolerance": 0.02,
        "agrees": True,
    }


@pytest.mark.parametrize(("factor", "swapped"), [(1.21, False), (1.22, True), (1.3, True), (0.5, False)])
def test_a_pair_is_swapped_that_differs_beyond_the_tolerance_both_times(factor, swapped):
    """29.65 samples/s are 19 % above 24.92; another 2 % are needed to be above them the other way round."""
    found = order_of(measured(MIXED, TENSOR, throughput={TENSOR: factor}))
    assert found.swapped == (((MIXED, TENSOR),) if swapped else ()) and found.agrees is not swapped


@pytest.mark.parametrize(("factor", "swapped"), [(1.049, False), (1.0515, True)])
def test_which_of_two_cases_is_listed_first_does_not_matter(factor, swapped):
    """At 5 %, 1.0515 is beyond the tolerance, and so is its inverse 0.951: the tolerance is a factor."""
    ((mixed, one), (tensor, two)) = measured(MIXED, TENSOR)
    quicker = replace(two, throughput=factor * one.throughput)
    for pair in ([(mixed, one), (tensor, quicker)], [(tensor, quicker), (mixed, one)]):
        assert bool(order_of(pair, 0.05).swapped) is swapped


def test_cases_that_were_published_alike_are_in_no_order():
    given = measured(MIXED, BALANCED, throughput={BALANCED: 1.3})
    assert order_of(given).agrees, "29.65 is 0.8 % above 29.42"
    assert not order_of(given, 0.001).agrees
    ((mixed, one), (tensor, two)) = measured(MIXED, TENSOR)
    assert order_of([(mixed, one), (tensor, replace(two, throughput=one.throughput))], 0.0).agrees, (
        "as fast is not faster"
    )
    tolerances = {MIXED: 0.001, BALANCED: 0.02}
    (found,) = orders(given, lambda case: tolerances[case.name])
    assert found.agrees and found.tolerance == 0.02, "the larger tolerance of a group counts"


def test_a_case_without_a_result_leaves_the_tolerances_of_the_others_in_place():
    tolerances = {SINGLE: 0.5, MIXED: 0.01, TENSOR: 0.03}
    given = [without_result(SINGLE), *measured(MIXED, TENSOR)]
    (found,) = orders(given, lambda case: tolerances[case.name])
    assert found.tolerance == 0.03


# Published efficiency


def test_the_published_efficiency_is_over_one_gpu_with_the_same_work():
    cases = CATALOGUE.cases
    assert published_scaling(CATALOGUE.case(EIGHT), cases) == pytest.approx(38.28 / 4.92 / 8)
    for name in (SINGLE, TENSOR, BALANCED, SHARDED):
        assert published_scaling(CATALOGUE.case(name), cases) is None, name
    assert published_scaling(CATALOGUE.case(EIGHT), [CATALOGUE.case(SIXTEEN)]) is None


def test_how_many_agree_of_how_many():
    given = measured(SINGLE, EIGHT, throughput={EIGHT: 2.0})
    found = [*comparisons(given), *orders(measured(MIXED, TENSOR), lambda case: 0.02)]
    assert agreeing(found) == (3, 4) and agreeing([]) == (0, 0)
