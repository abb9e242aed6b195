"""Rewritten operators compute what they replace."""

import json
from collections import Counter

import pytest

from tests.trainers.conftest import configuration

ROUNDING = 1e-5
SQUARES = "System-ClipGradient-GlobalNorm-MultiReduceSumPowAbs-"


@pytest.fixture(scope="module")
def probed(probe):
    return json.loads(probe("rewrite_probe.py")[-1])


@pytest.fixture(scope="module")
def spread(probe):
    return json.loads(probe("spread_probe.py", ranks=2)[-1])


@pytest.mark.parametrize(("parts", "joins"), [("whole", True), ("gap", False), ("overlap", False), ("short", False)])
def test_only_gradients_of_parts_that_make_up_the_whole_are_joined(probed, parts, joins):
    concatenations, among_zeros, apart = probed["joined"][parts]
    assert (concatenations, among_zeros) == ((1, 0) if joins else (0, 2))
    assert apart < ROUNDING


def test_an_operator_in_a_graph_has_the_result_and_gradients_that_it_has_without(probed):
    assert probed["graph"] < ROUNDING


@pytest.mark.parametrize("steps", [1, 2])
def test_a_parameter_is_cast_once_in_an_iteration(probed, steps):
    """Not in each micro-step, and not once more where layers are computed again."""
    sources, apart = probed["checkpointed"][steps - 1]
    assert sources == ["model.0.weight/out", "model.1.weight/out"]
    assert apart < ROUNDING


def test_only_transfers_that_change_nothing_are_left_out(probed):
    needless, needed = probed["transfers"]
    assert needless == [2, 0]
    assert needed == [2, 2]


def test_the_end_of_a_layer_is_not_computed_again(probed):
    built, left, shape = probed["spared"]
    gone = Counter(built) - Counter(left)
    assert gone == Counter(["matmul", "fused_bias_add_mask_scale", "add_n"])
    assert shape == [3, 2]


def test_the_places_of_maxima_are_found_again_when_their_gradient_is_there(probed):
    awaited, needed, apart = probed["pooled"]
    assert awaited == needed
    assert apart < ROUNDING


def test_the_norm_tells_that_gradients_overflowed(probed):
    looked_at, moved, finite = probed["skipped"]
    assert [name.split("/")[0].rstrip("0123456789") for name in looked_at] == [SQUARES]
    assert (moved, finite) == ([True, False, True, False, True], True)


@pytest.mark.parametrize(("takers", "copies"), [("once", 0), ("twice", 2)])
def test_a_gradient_that_one_operator_takes_is_not_copied_after_its_transfer(spread, takers, copies):
    """Two take each where gradients are clipped, so that it crosses over once for both."""
    left, apart = spread[takers]
    assert left == copies
    assert apart < ROUNDING


@pytest.mark.parametrize("changes", [{}, {"precision": "amp", "accumulation_steps": 2}], ids=["fp32", "amp"])
def test_parts_of_a_head_follow_each_other_and_their_losses_are_that_of_the_whole(probe, changes):
    """The product of each part but the first waits for both of the gradient's products of the part before."""
    config = {**configuration("gpt", program="tuned", **changes), "output": "."}
    whole, cut = json.loads(probe("head_probe.py", json.dumps(config), "4")[-1])
    assert (whole["parts"], whole["waits"]) == (1, {})
    assert cut["parts"] == 4
    assert cut["losses"] == pytest.approx(whole["losses"], rel=ROUNDING)
    products = list(cut["waits"])
    first = cut["waits"][products[0]][0].removesuffix("_a_grad")
    pairs = zip(products, [first, *products], strict=False)
    assert len(products) == 3
    assert cut["waits"] == {name: [f"{before}_a_grad", f"{before}_b_grad"] for name, before in pairs}


def test_a_head_is_cut_as_often_as_its_logits_want_and_its_length_allows(probe):
    config = {**configuration("gpt", program="tuned", shape={"seq_length": 12}), "output": "."}
    published, (_, cut) = map(json.loads, probe("head_probe.py", json.dumps(config), "100")[-2:])
    assert cut["parts"] == 4
    assert published == [1, 2, 2, 4], "parts of a published GPT with 1, 2, 4 and 8 samples a rank"


def test_nothing_is_overwritten_in_place_where_repeated_statistics_change(probe):
    """On CUDA OneFlow ends at that (inplace_lbi_graph.cpp:54); on the CPU it does not look."""
    cases = [("resnet50", 2), ("resnet50", 1), ("gpt", 2)]
    configs = [{**configuration(model, accumulation_steps=steps), "output": "."} for model, steps in cases]
    found = json.loads(probe("inplace_probe.py", *map(json.dumps, configs))[-1])
    assert found == [[True, False], [False, True], [False, True]]
