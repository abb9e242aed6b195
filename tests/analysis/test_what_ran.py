"""What the processes of an attempt left says which unit they ran; every fact is proved, contradicted, or not recorded."""

from collections import Counter
from dataclasses import replace

import pytest

from repro.analysis import what_ran
from repro.analysis.difference import Difference, Unrecorded
from repro.analysis.what_ran import AMP, DATA, FRAMEWORK, OPERATORS, SETTINGS, TF32, contradictions, other_operators
from repro.images import stack
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.published.census import operators
from repro.published.logs import parse
from repro.runs.metrics import METRICS
from tests.support import raw_output
from tests.support.configs import configured
from tests.support.paths import ROOT

CASE = load_catalogue().case("resnet50_0808_1n2g_bs128")
PUBLISHED, TUNED, BASELINE = make_plan(
    [CASE], 2, Wanted(scale="published", repeats=1, baselines=("pytorch",), programs=("published", "tuned"))
).units
BASELINE = configured(BASELINE, data={"kind": "synthetic"})
RANK_0, RANK_1 = METRICS.format(0), METRICS.format(1)
GPUS = [{"name": "NVIDIA H200"}]
SWITCHES = {f"ONEFLOW_{name}": "1" for name in ("ACTOR_ENABLE_LIGHT_ACTOR", "KERNEL_REDUCE_SUM_USE_MATMUL")}


def job(unit, **more):
    """The operators of the published program with a unit's configuration, and others besides."""
    found = Counter(more)
    for part in operators(unit.report, unit.config).values():
        found.update(part)
    return {name: count for name, count in found.items() if count}


def start_of(unit, rank):
    found = {"rank": rank, "world_size": 2, "device": "cuda", "libraries": ["/x/liboneflow-1.so"], "tf32": False}
    if unit.baseline_of:
        settings = {**unit.config.baseline, "amp": False, "tf32_matmul": False, "tf32_cudnn": False}
        own = {"versions": {"torch": "2"}, "libraries": ["/x/libtorch_cpu.so"], "settings": settings}
        return found | own | {"gpu": "NVIDIA H200"}
    switches = SWITCHES if unit.program == "tuned" else {}
    return found | {"versions": {"oneflow": "0.8.0"}, "data": unit.config.data.as_json(), "switches": switches}


def ranks_of(unit, census=None, **changes):
    """The events of both ranks; `changes` are made in the start event of rank 0, None removes a key."""
    starts = [start_of(unit, rank) for rank in (0, 1)]
    starts[0] = {key: value for key, value in (starts[0] | changes).items() if value is not None}
    ranks = [raw_output.events(unit, 100.0, 1000.0, start) for start in starts]
    if census is not None:
        ranks[0].insert(1, {"event": "census", "operators": census})
    return ranks


def found(unit, ranks, gpus=GPUS):
    log = parse(raw_output.log_text(unit, ranks[0]).splitlines())
    return list(contradictions(unit, "x", gpus, log, ranks))


def said(unit, ranks, gpus=GPUS):
    return [(each.what, *each.says) for each in found(unit, ranks, gpus) if isinstance(each, Difference)]


def facts(unit, ranks):
    return [each.fact for each in found(unit, ranks) if isinstance(each, Unrecorded)]


OTHERS = {"cast": 10_000, "repro_attention": 400}
"""Operators of a tuned program's job."""
JOBS = {PUBLISHED.name: job(PUBLISHED), TUNED.name: job(TUNED, **OTHERS), BASELINE.name: None}


@pytest.mark.parametrize("unit", [PUBLISHED, TUNED, BASELINE], ids=lambda unit: unit.name)
def test_an_attempt_at_its_own_unit_contradicts_nothing_and_proves_all(unit):
    assert found(unit, ranks_of(unit, JOBS[unit.name])) == []


@pytest.mark.parametrize(("unit", "other"), [(PUBLISHED, TUNED), (TUNED, PUBLISHED)], ids=["published", "tuned"])
def test_the_program_is_known_by_its_operators_and_switches(unit, other):
    by_operators = said(unit, ranks_of(unit, JOBS[other.name]))
    assert [(what, first) for what, first, _ in by_operators] == [
        ("operators", ("the plan", f"the {unit.program} program's"))
    ]
    assert (
        by_operators[0][2][0] == RANK_0 and "% other ones than those of the published program" in by_operators[0][2][1]
    )
    switches = start_of(other, 0)["switches"]
    assert said(unit, ranks_of(unit, JOBS[unit.name], switches=switches)) == [
        ("program whose switches were on", ("the plan", unit.program), (RANK_0, other.program))
    ]
    assert said(unit, ranks_of(unit, JOBS[unit.name], switches=None)) == [], "early releases did not record them"


@pytest.mark.parametrize(("share", "published"), [(0.049, True), (0.051, False)])
def test_a_published_program_has_few_other_operators(share, published):
    total = sum(job(PUBLISHED).values())
    census = job(PUBLISHED, new=round(share * total))
    assert other_operators(PUBLISHED.report, PUBLISHED.config, census) == pytest.approx(share, abs=1e-3)
    assert (said(PUBLISHED, ranks_of(PUBLISHED, census)) == []) is published
    assert (said(TUNED, ranks_of(TUNED, census)) == []) is not published
    fewer = job(PUBLISHED)
    fewer["conv2d"] -= 20
    assert other_operators(PUBLISHED.report, PUBLISHED.config, fewer) == pytest.approx(20 / total)


def test_a_program_exactly_at_the_bound_is_the_published_one(monkeypatch):
    census = job(PUBLISHED, new=5)
    monkeypatch.setattr(what_ran, "OTHER_OPERATORS", other_operators(PUBLISHED.report, PUBLISHED.config, census))
    assert said(PUBLISHED, ranks_of(PUBLISHED, census)) == []


def test_what_amp_adds_on_a_gpu_is_no_other_operator():
    case = load_catalogue().case("DP_1x1x1_2_1536x16")
    (unit,) = make_plan([case], 1, Wanted(scale="published", repeats=1)).units
    census = job(unit, cast=390)
    census["fused_cast_scale"] = census.pop("scalar_mul_by_tensor")
    assert other_operators(unit.report, unit.config, census) == 0


def test_amp_fuses_the_division_by_the_accumulation_steps_into_casts():
    """As a pipeline's job was compiled on four GPUs: of the products by a constant two were left."""
    case = load_catalogue().case("DP_PP_8x1x4_512_1536x16")
    (unit, _) = make_plan([case], 4, Wanted(scale="published", repeats=1, max_gpus=(4,))).units
    census = job(unit) | {"cast": 199, "scalar_mul": 2, "scalar_mul_by_tensor": 1}
    fused = census | {"fused_cast_scale": 197}
    assert other_operators(unit.report, unit.config, fused) < 0.001
    assert other_operators(unit.report, unit.config, census) > what_ran.OTHER_OPERATORS, "only where AMP fuses"


@pytest.mark.parametrize(
    ("case", "precision", "compiled"),
    [
        (
            "bert_1n1g_bs96",
            "amp",
            {
                "add_n": 83,
                "assign": 0,
                "assign_if_not": 1,
                "cast": 423,
                "count_not_finite": 206,
                "dynamic_loss_scale_schedule": 1,
                "identity": 1,
                "reciprocal": 1,
                "scalar_mul": 39,
                "scalar_mul_by_tensor": 413,
            },
        ),
        (
            "DP_1x1x1_2_1536x16",
            "tf32",
            {
                "assign": 1,
                "assign_if_not": 0,
                "dynamic_loss_scale_schedule": 0,
                "identity": 32,
                "multi_count_not_finite": 0,
                "reciprocal": 0,
                "scalar_mul_by_tensor": 196,
            },
        ),
    ],
)
def test_another_precision_scales_the_loss_or_does_not_and_is_no_other_program(case, precision, compiled):
    """As these jobs were compiled on a GPU."""
    wanted = Wanted(scale="published", repeats=1, precision=precision, programs=("published",))
    (unit,) = make_plan([load_catalogue().case(case)], 1, wanted).units
    census = Counter(job(unit) | compiled)
    assert other_operators(unit.report, unit.config, census) < 0.01
    census["matmul"] += 150
    assert other_operators(unit.report, unit.config, census) > what_ran.OTHER_OPERATORS, "others still count"


def test_only_what_trains_a_published_case_is_held_against_the_census():
    """Loss curves leave dropout out and accumulate gradients where the published programs did not."""
    others = job(PUBLISHED, new=100)
    curve, of_unknown_case = replace(PUBLISHED, case=None), replace(PUBLISHED, case=None, unknown_case="another")
    assert said(curve, ranks_of(curve, others)) == []
    assert [what for what, *_ in said(of_unknown_case, ranks_of(of_unknown_case, others))] == ["operators"]


def test_a_model_without_a_census_has_no_other_operators(monkeypatch):
    monkeypatch.setattr(what_ran, "operators", lambda report, config: {})
    assert other_operators(PUBLISHED.report, PUBLISHED.config, {"a": 1}) is None
    assert said(PUBLISHED, ranks_of(PUBLISHED, {"a": 1})) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"versions": {"torch": "2"}}, ("framework", ("the plan", "oneflow"), (RANK_0, "pytorch"))),
        ({"versions": {"numpy": "1"}}, ("framework", ("the plan", "oneflow"), (RANK_0, "none"))),
        (
            {"versions": {"oneflow": "0", "torch": "2"}},
            ("framework", ("the plan", "oneflow"), (RANK_0, "oneflow, pytorch")),
        ),
        (
            {"libraries": ["/x/liboneflow.so", "/x/libtorch_cpu.so"]},
            ("framework whose library was loaded", ("the plan", "oneflow"), (RANK_0, "pytorch")),
        ),
        ({"rank": 1}, ("rank", ("the plan", 0), (RANK_0, 1))),
        ({"world_size": 1}, ("world_size", ("the plan", 2), (RANK_0, 1))),
        ({"device": "cpu"}, ("device", ("the plan", "cuda"), (RANK_0, "cpu"))),
        ({"gpu": "NVIDIA H100"}, ("GPU", ("run.json", "NVIDIA H200"), (RANK_0, "NVIDIA H100"))),
        ({"data": {"kind": "ofrecord"}}, ("kind of data", ("the plan", "synthetic"), (RANK_0, "ofrecord"))),
        ({"tf32": True}, ("TF32", ("the plan", False), (RANK_0, True))),
    ],
)
def test_each_fact_of_a_start_event_is_held_against_the_plan(changes, expected):
    assert said(PUBLISHED, ranks_of(PUBLISHED, JOBS[PUBLISHED.name], **changes)) == [expected]


def test_every_rank_is_looked_at():
    ranks = ranks_of(PUBLISHED, JOBS[PUBLISHED.name])
    ranks[1][0]["versions"] = {"torch": "2"}
    assert said(PUBLISHED, ranks) == [("framework", ("the plan", "oneflow"), (RANK_1, "pytorch"))]
    for rank, name in enumerate((RANK_0, RANK_1)):
        ranks = ranks_of(PUBLISHED, JOBS[PUBLISHED.name])
        ranks[rank].insert(1, ranks[rank][0] | {"versions": {"torch": "2"}, "data": {"kind": "ofrecord"}})
        assert said(PUBLISHED, ranks) == [("start events", (name, 2), ("a rank", 1))], "the first is read"
    assert said(PUBLISHED, [[each for each in rank if each["event"] != "start"] for rank in ranks]) == [
        ("start events", (name, 0), ("a rank", 1)) for name in (RANK_0, RANK_1)
    ]


def test_gpus_of_other_machines_and_unnamed_ones_are_not_compared():
    assert said(BASELINE, ranks_of(BASELINE, gpu="NVIDIA H100"), gpus=[]) == []
    assert said(BASELINE, ranks_of(BASELINE, gpu=None)) == []
    two = [{"name": "NVIDIA H200"}, {"name": "A"}]
    assert said(BASELINE, ranks_of(BASELINE, gpu="NVIDIA H100"), two) == [
        ("GPU", ("run.json", "A, NVIDIA H200"), (RANK_0, "NVIDIA H100"))
    ]


def test_the_generation_of_the_log_is_that_of_the_plan():
    ranks = ranks_of(PUBLISHED, JOBS[PUBLISHED.name])
    log = parse(
        raw_output.log_text(
            replace(PUBLISHED, config=replace(PUBLISHED.config, log_generation="D")), ranks[0]
        ).splitlines()
    )
    (difference,) = contradictions(PUBLISHED, "x", GPUS, log, ranks)
    assert (difference.what, difference.says) == ("generation of the log", (("the plan", "A"), ("its rows", "D")))


def test_half_precision_is_known_by_its_operators():
    amp = replace(PUBLISHED, config=replace(PUBLISHED.config, precision="amp"))
    scaled = {"dynamic_loss_scale_schedule": 1}
    assert said(amp, ranks_of(amp, job(amp, **scaled))) == []
    assert said(amp, ranks_of(amp, job(amp))) == [("precision", ("the plan", "amp"), ("its operators", "no amp"))]
    assert said(PUBLISHED, ranks_of(PUBLISHED, job(PUBLISHED, **scaled))) == [
        ("precision", ("the plan", "fp32"), ("its operators", "amp"))
    ]


def test_tf32_is_that_of_the_plan():
    tf32 = replace(PUBLISHED, tf32=True)
    assert said(tf32, ranks_of(tf32, JOBS[PUBLISHED.name], tf32=True)) == []
    assert said(tf32, ranks_of(tf32, JOBS[PUBLISHED.name])) == [("TF32", ("the plan", True), (RANK_0, False))]


def test_what_early_releases_did_not_record_is_named_and_contradicts_nothing():
    bare = ranks_of(PUBLISHED, None, data=None, tf32=None, switches=None, libraries=None)
    assert facts(PUBLISHED, bare) == [DATA, TF32, OPERATORS] and said(PUBLISHED, bare) == []
    assert facts(PUBLISHED, ranks_of(PUBLISHED, JOBS[PUBLISHED.name], versions=None)) == [FRAMEWORK]
    assert facts(BASELINE, ranks_of(BASELINE, settings=None)) == [SETTINGS]
    assert facts(BASELINE, ranks_of(BASELINE, settings={"tf32": False})) == [AMP]


def test_on_a_processor_there_is_neither_tf32_nor_a_switch_nor_the_same_operator():
    cpu = replace(TUNED, config=replace(TUNED.config, device="cpu"))
    ranks = ranks_of(cpu, {"anything": 1}, device="cpu", tf32=None, switches={})
    ranks[1][0]["device"] = "cpu"
    assert found(cpu, ranks) == []
    settings = {**BASELINE.config.baseline, "amp": False, "tf32_matmul": True, "tf32_cudnn": True}
    cpu = replace(BASELINE, config=replace(BASELINE.config, device="cpu"))
    ranks = ranks_of(cpu, device="cpu", settings=settings)
    ranks[1][0]["device"] = "cpu"
    assert found(cpu, ranks) == []


@pytest.mark.parametrize(
    "name", ["tf32", "channels_last", "compile", "unfused", "megatron", "amp", "tf32_matmul", "tf32_cudnn"]
)
def test_each_setting_of_pytorch_is_that_of_its_variant(name):
    settings = {**start_of(BASELINE, 0)["settings"], name: True}
    assert said(BASELINE, ranks_of(BASELINE, settings=settings)) == [
        (f"setting {name} of PyTorch", ("the plan", False), (RANK_0, True))
    ]


def test_a_baseline_without_a_variant_computes_in_fp32():
    plain = replace(BASELINE, config=replace(BASELINE.config, baseline=None))
    settings = {"amp": False, "tf32_matmul": True, "tf32_cudnn": False}
    assert said(plain, ranks_of(BASELINE, settings=settings)) == [
        ("setting tf32_matmul of PyTorch", ("the plan", False), (RANK_0, True))
    ]


def test_megatron_is_known_by_its_version():
    versions = {"torch": "2", "megatron_core": "0.16.1"}
    assert said(BASELINE, ranks_of(BASELINE, versions=versions)) == [
        ("megatron_core", ("the plan", False), (RANK_0, True))
    ]
    megatron = configured(BASELINE, baseline={**BASELINE.config.baseline, "megatron": True})
    assert said(megatron, ranks_of(megatron, versions=versions)) == []
    assert said(megatron, ranks_of(megatron)) == [("megatron_core", ("the plan", True), (RANK_0, False))]


def test_the_variables_that_allow_tf32_have_one_name_in_both_environments():
    names = tuple(stack.TF32)
    assert f"TF32_SWITCHES = {names!r}".replace("'", '"') in (ROOT / "repro/trainers/train.py").read_text()
