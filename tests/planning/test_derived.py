"""Layouts shrunk to fewer GPUs, and PyTorch baselines: what is planned, and what the units say of each other."""

import json
import re
from dataclasses import asdict, replace

import pytest

from repro.analysis.relations import baseline_relations, layout_relations, scaling_relations
from repro.analysis.results import summarise
from repro.models.programs import KINDS
from repro.models.variants import DEFAULT, MEGATRON, VARIANTS
from repro.planning.baselines import OF_TF32
from repro.planning.derived import case_of, shrunk_case
from repro.planning.plan import Wanted, make_plan
from repro.planning.trainer_config import config_of
from repro.published.cases import Layout, load_catalogue
from repro.runs import translation
from repro.runs.plan import Plan
from repro.runs.unit import Unit
from repro.utils.errors import PlanError
from tests.support.attempts import recorded

CATALOGUE = load_catalogue()
BASELINES = DEFAULT


def plan(model, cases=None, gpus=4, max_gpus=(4,), **rest):
    return make_plan(CATALOGUE.select(model, cases), gpus, Wanted(max_gpus=max_gpus, **rest))


def by_name(found: Plan) -> dict[str, Unit]:
    return {unit.name: unit for unit in found.units}


def results(found: Plan, throughput):
    """Three repeats a unit around `throughput(unit)`."""
    attempts = [
        recorded(
            {
                "unit": unit.name,
                "repeat": repeat,
                "throughput": throughput(unit) * factor,
                "latency_ms": 1.0,
                "memory_mib": 1000.0,
                "trainer_s": 1.0,
                "losses": [1.0],
            }
        )
        for unit in found.units
        for repeat, factor in enumerate((1.0, 0.99, 1.01), 1)
    ]
    return summarise(found, attempts)


def test_a_shrunk_case_keeps_the_work_of_a_rank():
    case = next(case for case in CATALOGUE.cases if case.name == "2D_PP_2x4x4_512_2304x24")
    published, shrunk = config_of(case, "cuda"), config_of(shrunk_case(case, Layout(1, 2, 2)), "cuda")
    assert shrunk.layout == Layout(1, 2, 2)
    assert replace(shrunk, case=case.name, layout=case.layout) == published
    assert shrunk_case(case, Layout(1, 2, 2)).global_batch == 8 * 32


def test_equal_configurations_run_once_and_name_all_they_come_from():
    units = by_name(plan("gpt"))
    assert units["DP_8x1x1_16_1536x16.as_4x1x1"].derived_from == (
        "DP_8x1x1_16_1536x16",
        "DP_16x1x1_32_1536x16",
        "DP_32x1x1_64_1536x16",
        "2D_8x1x1_16_1536x16",
    )
    configurations = [
        json.dumps([replace(unit.config, case="").as_json(), asdict(unit.rule)]) for unit in units.values()
    ]
    assert len(set(configurations)) == len(configurations)
    derived = [name for unit in units.values() for name in unit.derived_from]
    stood_for = [name for unit in units.values() for name in unit.stands_for]
    assert {*derived, *stood_for} == {case.name for case in CATALOGUE.select("gpt", None)}
    assert not set(derived) & set(stood_for)


def test_what_shrinks_to_a_published_case_is_that_case():
    names = by_name(plan("resnet50"))
    assert "resnet50_0808_1n4g_bs128" in names
    assert not [name for name in names if name.startswith("resnet50_0808") and ".as_" in name]
    assert "resnet50_0821_1n8g_bs128.as_4x1x1" in names, "its rule is another"


def test_no_published_case_is_stood_for_by_a_shrunk_layout():
    found = plan("bert", baselines=BASELINES)
    assert all(not unit.stands_for for unit in found.units if unit.derived_from or unit.baseline_of)
    assert all(unit.global_batch == 4 * unit.config.micro_batch for unit in found.units if unit.derived_from)
    assert found.skipped == ()


def test_data_parallel_cases_come_on_one_gpu_too():
    names = by_name(plan("gpt", "gpt2_small_1n8g_bs4*,MP_1x8x1*"))
    assert list(names) == [
        "gpt2_small_1n8g_bs4_zero0.as_1x1x1",
        "gpt2_small_1n8g_bs4_zero0.as_4x1x1",
        "gpt2_small_1n8g_bs4_zero1.as_4x1x1",
        "MP_1x8x1_16_1536x16.as_1x4x1",
    ]
    assert names["gpt2_small_1n8g_bs4_zero0.as_1x1x1"].config.optimizer_sharding == 0


def test_several_sizes_at_once():
    names = by_name(plan("gpt", "MP_1x8x1*", max_gpus=(2, 4)))
    assert list(names) == ["MP_1x8x1_16_1536x16.as_1x2x1", "MP_1x8x1_16_1536x16.as_1x4x1"]


@pytest.mark.parametrize(
    ("case", "sizes", "layouts"),
    [
        ("DP_PP_8x1x4*", (4,), ["2x1x2", "1x1x4"]),
        ("DP_PP_8x1x4*", (2,), ["1x1x2"]),
        ("MP_PP_1x8x4*", (2, 4), ["1x1x2", "1x2x2", "1x1x4"]),
        ("2D_PP_2x8x2*", (4,), ["1x2x2"]),
        ("2D_PP_2x8x2*", (8,), ["2x2x2"]),
        ("DP_PP_8x1x4*", (8,), ["2x1x4"]),
    ],
)
def test_a_pipeline_that_fits_is_also_run_with_all_its_stages(case, sizes, layouts):
    names = [unit.name.rpartition(".as_")[2] for unit in plan("gpt", case, gpus=8, max_gpus=sizes).units]
    assert sorted(names) == sorted(layouts)


def test_another_precision_makes_other_cases():
    """One that was published in it stays what it is; all others stand for no published case, shrunk or not."""
    names = by_name(plan("gpt", "DP_1x1x1*,DP_8x1x1*", precision="fp32"))
    assert list(names) == ["DP_1x1x1_2_1536x16.fp32", "DP_8x1x1_16_1536x16.fp32.as_4x1x1"]
    assert all(unit.config.precision == "fp32" and not unit.stands_for for unit in names.values())
    assert names["DP_8x1x1_16_1536x16.fp32.as_4x1x1"].derived_from == ("DP_8x1x1_16_1536x16",)
    assert by_name(plan("bert", "bert_1n1g_bs96", precision="fp32"))["bert_1n1g_bs96"].stands_for == ("bert_1n1g_bs96",)


def test_tf32_is_fp32_to_the_trainer_and_stands_for_no_published_case():
    """No case was published in it, so none that was published in fp32 is stood for; baselines run in it too."""
    every = plan("bert", "bert_1n1g_bs96,bert_1n8g_bs96", precision="tf32", baselines=OF_TF32, programs=KINDS)
    names = by_name(every)
    single = "bert_1n1g_bs96.tf32"
    assert list(names)[:3] == [single, f"{single}.tuned", f"{single}.pytorch-tf32"]
    assert "bert_1n8g_bs96.tf32.as_4x1x1" in names
    assert every.tf32 and {unit.precision for unit in every.units} == {"tf32"}
    assert {unit.config.precision for unit in every.units} == {"fp32"}
    assert not any(unit.stands_for for unit in every.units)
    assert names[f"{single}.tuned"].derived_from == ("bert_1n1g_bs96",)
    assert names[f"{single}.pytorch-tf32"].config.baseline["tf32"] is True
    assert {case_of(unit) for unit in every.units} == {None}, "the performance model does not know it"
    shorter = plan("bert", "bert_1n1g_bs96", precision="tf32", iterations=130, max_gpus=()).units
    assert [unit.derived_from for unit in shorter] == [("bert_1n1g_bs96",)]
    assert Plan.from_json(json.loads(json.dumps(every.as_json()))) == every
    other = plan("bert", "bert_1n1g_bs96", precision="fp32")
    assert not other.tf32 and other.units[0].precision == "fp32"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"precision": "fp16"}, "PRECISION=fp16: it is fp32, tf32 or amp"),
        ({"precision": "tf32", "scale": "smoke", "max_gpus": ()}, "PRECISION is for the published shapes"),
        ({"precision": "fp32", "scale": "smoke", "max_gpus": ()}, "PRECISION is for the published shapes"),
        ({"max_gpus": (8,)}, "MAX_GPUS=8: each is a number of GPUs from 1 to the 4 that are here"),
        ({"max_gpus": (0, 4)}, "MAX_GPUS=0,4: each is"),
        ({"scale": "smoke"}, "MAX_GPUS is for the published shapes"),
    ],
)
def test_what_cannot_be_shrunk_is_said(arguments, message):
    with pytest.raises(PlanError, match=message):
        plan("gpt", **arguments)


def test_baselines_come_right_after_their_unit_and_share_its_work():
    found = plan("bert", "bert_1n1g_bs96,bert_1n8g_bs96", baselines=BASELINES)
    names = [unit.name for unit in found.units]
    assert names == [
        f"{unit}{baseline}"
        for unit in ("bert_1n1g_bs96", "bert_1n8g_bs96.as_4x1x1")
        for baseline in ("", ".pytorch", ".pytorch-unfused", ".pytorch-tf32")
    ]
    for unit in found.units:
        ours = by_name(found)[unit.baseline_of or unit.name]
        assert (unit.framework, unit.rule, unit.global_batch) == (
            "pytorch" if unit.baseline_of else "oneflow",
            ours.rule,
            ours.global_batch,
        )
        rest = {key: value for key, value in unit.config.as_json().items() if key not in ("case", "baseline")}
        assert rest == {key: value for key, value in ours.config.as_json().items() if key != "case"}
        assert unit.config.switches.get("tf32", False) is (unit.variant == "pytorch-tf32")
        assert unit.config.switches.get("unfused", False) is (unit.variant == "pytorch-unfused")


def test_what_a_baseline_cannot_run_has_none_and_what_says_nothing_is_left_out():
    gpt = plan("gpt", baselines=tuple(name for name in VARIANTS if name != "pytorch-channels-last"))
    kinds = {(unit.config.precision, unit.variant) for unit in gpt.units if unit.baseline_of}
    assert kinds == {("amp", name) for name in ("pytorch", "pytorch-unfused", "pytorch-compiled", *MEGATRON)}
    for unit in gpt.units:
        layout = unit.config.layout
        refused = layout.tensor * layout.pipeline > 1 or unit.config.optimizer_sharding
        assert (f"{unit.name}.pytorch" in by_name(gpt)) is (not refused and not unit.baseline_of)
        assert (f"{unit.name}.megatron" in by_name(gpt)) is (not unit.baseline_of), "it runs every layout"
    variants = tuple(name for name in VARIANTS if name not in MEGATRON)
    options = {
        unit.variant: unit.config.baseline
        for unit in plan("resnet50", "*1n1g*", baselines=variants).units
        if unit.baseline_of
    }
    channels_last, tf32 = ({kind for kind, each in options.items() if each[key]} for key in ("channels_last", "tf32"))
    assert channels_last == {"pytorch-tf32", "pytorch-channels-last"}
    assert tf32 == {"pytorch-tf32"}
    assert "pytorch-unfused" not in options, "ResNet50 has no attention: it would be pytorch over again"


def test_beside_tf32_what_is_compiled_computes_in_tf32():
    found = plan("resnet50", "*1n1g*", precision="tf32", baselines=("pytorch-compiled",))
    (compiled,) = {json.dumps(unit.config.baseline) for unit in found.units if unit.baseline_of}
    expected = {"tf32": True, "channels_last": True, "compile": True, "unfused": False, "megatron": False}
    assert json.loads(compiled) == expected


@pytest.mark.parametrize(
    ("model", "cases", "gpus", "variant", "reason"),
    [
        ("bert", None, 8, "megatron", "model: Megatron-Core's baselines train GPT alone, not bert"),
        ("gpt", "DP_1x1x1*", 0, "megatron-unfused", "device: Megatron-Core computes on GPUs only; on the CPU"),
        ("gpt", "MP_1x8x1*", 8, "pytorch-compiled", "layout.tensor: PyTorch's baselines are data parallel only"),
        ("gpt", "DP_1x1x1*", 8, "pytorch-channels-last", "model: gpt has no channels"),
        ("gpt", "DP_1x1x1*", 8, "pytorch-tf32", "precision: TF32 is for fp32, it is amp"),
        ("resnet50", None, 8, "pytorch-unfused", "model: resnet50 has no attention"),
    ],
)
def test_a_variant_that_can_run_nothing_is_refused_by_name(model, cases, gpus, variant, reason):
    with pytest.raises(PlanError, match=re.escape(f"BASELINES={variant} can run none of these cases: {reason}")):
        make_plan(CATALOGUE.select(model, cases), gpus, Wanted(baselines=(variant,)))


def test_a_variant_by_default_is_left_out_where_it_can_run_nothing():
    wanted = Wanted(baselines=("pytorch", "pytorch-unfused"), named=False)
    units = make_plan(CATALOGUE.select("resnet50", "*1n1g*"), 1, wanted).units
    assert {unit.variant for unit in units if unit.baseline_of} == {"pytorch"}


@pytest.mark.parametrize(
    ("model", "cases", "names", "reason"),
    [
        ("resnet50", None, ("pytorch-unfused",), "model: resnet50 has no attention"),
        ("gpt", "MP_1x8x1*", ("pytorch", "pytorch-tf32"), "layout.tensor: PyTorch's baselines are data parallel only"),
    ],
)
def test_a_bench_is_refused_where_no_variant_by_default_can_run(model, cases, names, reason):
    message = rf"by default here, {', '.join(names)}, can run none of these cases: {reason}.*BASELINES=none"
    with pytest.raises(PlanError, match=message):
        make_plan(CATALOGUE.select(model, cases), 8, Wanted(baselines=names, named=False))


def test_each_reason_why_a_variant_can_run_nothing_is_given_once():
    with pytest.raises(PlanError) as caught:
        make_plan(CATALOGUE.select(None, None), 0, Wanted(baselines=("megatron",)))
    reasons = [line.partition(":")[0] for line in str(caught.value).partition("cases: ")[2].split("; ")[:3]]
    assert reasons == ["model", "model", "device"]
    assert str(caught.value).count("not bert") == 1


def test_a_smoke_runs_baselines_must_print_their_units_losses():
    found = make_plan(CATALOGUE.select("bert", None), 0, Wanted(baselines=BASELINES))
    baselines = [unit for unit in found.units if unit.baseline_of]
    assert [unit.variant for unit in baselines] == ["pytorch", "pytorch-unfused"] * 2, "TF32 is a matter of GPUs"
    assert all(unit.reference == unit.baseline_of for unit in baselines)


def test_a_plan_with_baselines_and_shrunk_layouts_survives_its_file():
    found = plan("gpt", baselines=BASELINES)
    assert Plan.from_json(json.loads(json.dumps(found.as_json()))) == found


def test_a_plan_from_before_there_were_baselines_is_read():
    found = plan("bert", "bert_1n1g*", max_gpus=())
    old = json.loads(json.dumps(found.as_json()))
    new = {field for unit in old["units"] for field in unit} - {
        "name",
        "model",
        "config",
        "rule",
        "global_batch",
        "stands_for",
        "reference",
    }
    assert {"derived_from", "report", "case", "variant", "framework", "program", "baseline_of", "tuned_of"} <= new
    old["units"] = [{key: value for key, value in unit.items() if key not in new} for unit in old["units"]]
    assert Plan.from_json(translation.description({"plan": old})["plan"]) == found


def test_ratios_to_baselines_and_efficiency_come_from_the_run_alone():
    found = plan("bert", "bert_1n1g_bs96,bert_1n8g_bs96", baselines=BASELINES)
    speeds = {"oneflow": 90.0, "pytorch": 100.0}
    measured = results(found, lambda unit: speeds[unit.framework] * (3.8 if unit.world_size == 4 else 1))
    baselines = baseline_relations(measured)
    assert [each.base.unit.name for each in baselines] == [unit.name for unit in found.units if unit.baseline_of]
    assert [each.ratio.value for each in baselines] == pytest.approx([0.9] * 6)
    assert all(each.ratio.interval.low < 0.9 < each.ratio.interval.high for each in baselines)
    scaled = scaling_relations(measured)
    assert {each.result.unit.name: each.base.unit.name for each in scaled} == {
        f"bert_1n8g_bs96.as_4x1x1{baseline}": f"bert_1n1g_bs96{baseline}"
        for baseline in ("", ".pytorch", ".pytorch-unfused", ".pytorch-tf32")
    }
    assert [each.ratio.value for each in scaled] == pytest.approx([0.95] * 4)
    assert {result.unit.name: result.speedup for result in measured}["bert_1n8g_bs96.as_4x1x1"] == pytest.approx(3.8)


def test_layouts_are_set_against_data_parallelism_of_the_same_model():
    found = plan("gpt", "DP_8x1x1*,MP_1x8x1*,2D_4x2x1*,MP_1x16x1*", baselines=("pytorch",))
    relations = layout_relations(results(found, lambda unit: 50.0 if unit.config.layout.tensor > 1 else 100.0))
    base = "DP_8x1x1_16_1536x16.as_4x1x1"
    assert {(each.result.unit.name, each.base.unit.name, round(each.ratio.value, 6)) for each in relations} == {
        ("MP_1x8x1_16_1536x16.as_1x4x1", base, 0.5),
        ("2D_4x2x1_16_1536x16.as_2x2x1", base, 0.5),
    }


def test_a_baseline_that_failed_has_no_ratio():
    found = plan("bert", "bert_1n1g_bs96", baselines=BASELINES, max_gpus=())
    measured = results(found, lambda unit: 1.0)
    lost = summarise(found, [recorded({"unit": "bert_1n1g_bs96.pytorch", "status": "failed"})])
    assert len(baseline_relations([measured[0], lost[1], measured[2]])) == 1
