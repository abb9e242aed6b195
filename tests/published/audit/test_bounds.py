"""Every bound of a rule: a figure just inside it is passed, one just outside is found."""

import math
from dataclasses import replace

import pytest

from repro.models.registry import spec_of
from repro.published.audit import (
    arithmetic,
    bounds,
    claims,
    consistency,
    editorial,
    environment,
    plausibility,
    side_tables,
    twice,
)
from repro.published.audit.engine import audit
from repro.published.audit.findings import Place
from repro.published.audit.flops import efficiency
from repro.published.audit.material import Material
from repro.published.audit.plausibility import implied_tflops, state_floor_mib
from repro.published.cases import Catalogue, Layout
from repro.published.figures import PrintedNumber
from repro.published.noise import published_noise

PUBLISHED = Material.load()
CASES = {case.name: case for case in PUBLISHED.cases}
DP8, PP = "DP_8x1x1_16_1536x16", "DP_PP_8x1x4_512_1536x16"


def with_figure(name: str, **figures: float) -> Material:
    """The published data with other figures of one case."""
    changed = {
        key: PrintedNumber(str(value)) if isinstance(value, float | int) else value for key, value in figures.items()
    }
    return with_case(name, published=replace(CASES[name].published, **changed))


def with_case(name: str, **changes) -> Material:
    cases = tuple(replace(case, **changes) if case.name == name else case for case in PUBLISHED.cases)
    return replace(PUBLISHED, catalogue=Catalogue(PUBLISHED.reports, cases))


def with_report(identity: str, **changes) -> Material:
    reports = tuple(replace(each, **changes) if each.id == identity else each for each in PUBLISHED.reports)
    return replace(PUBLISHED, catalogue=Catalogue(reports, PUBLISHED.cases))


def with_peer(change, **changes) -> Material:
    """The published data with one figure of another framework changed: the first for which `change` holds."""
    first = next(peer for peer in PUBLISHED.peers if change(peer))
    return replace(PUBLISHED, peers=tuple(replace(p, **changes) if p is first else p for p in PUBLISHED.peers))


def ids(rule, material: Material) -> set[str]:
    return {found.id for found in rule(material) if found}


def new(rule, material: Material) -> set[str]:
    """What a rule finds that it does not find in the published data."""
    return ids(rule, material) - ids(rule, PUBLISHED)


# memory against parameters and optimizer state


def test_the_state_of_known_cases():
    """12 bytes per parameter of AdamW, 8 of SGD, in single precision."""
    resnet = state_floor_mib(CASES["resnet50_0808_1n1g_bs128"])
    assert resnet == pytest.approx(25.557e6 * 8 / 2**20)
    h, layers, rows = 1536, 16, 50304 + 2048
    parameters = layers * (12 * h * h + 13 * h) + rows * h
    assert state_floor_mib(CASES[DP8]) == pytest.approx(12 * parameters / 2**20)
    tensor = CASES["MP_1x8x1_16_1536x16"]
    padded = layers * (12 * h * h + 13 * h) + (51200 + 2048) * h
    assert state_floor_mib(tensor) == pytest.approx(12 * padded / 8 / 2**20)


def test_a_stage_without_embedding_is_the_least_of_a_pipeline():
    h, layers = 1536, 16
    assert state_floor_mib(CASES[PP]) == pytest.approx(12 * layers / 4 * (12 * h * h + 13 * h) / 2**20)


def test_sharding_divides_the_state_and_under_amp_the_parameters():
    plain, sharded = (CASES[f"gpt2_small_1n8g_bs4_zero{stage}"] for stage in (0, 1))
    assert state_floor_mib(sharded) == pytest.approx(state_floor_mib(plain) / 8)
    single = replace(sharded, precision="fp32")
    assert state_floor_mib(single) == pytest.approx(state_floor_mib(plain) * (4 + 8 / 8) / 12)


@pytest.mark.parametrize("name", [DP8, PP, "gpt2_small_1n8g_bs4_zero1", "resnet50_0808_1n1g_bs128"])
def test_memory_below_the_state_is_found(name):
    least = state_floor_mib(CASES[name])
    place = f"{CASES[name].report}/memory-floor/{name}/memory_mib"
    assert new(plausibility.memory_floors, with_figure(name, memory_mib=math.floor(least))) == {place}
    assert not new(plausibility.memory_floors, with_figure(name, memory_mib=math.ceil(least)))


def test_a_peer_below_the_state_is_found():
    least = state_floor_mib(CASES[DP8])
    below = with_peer(lambda peer: peer.case == DP8, memory_mib=PrintedNumber(f"{math.floor(least)}"))
    assert new(plausibility.memory_floors, below) == {f"peers/memory-floor-Megatron-LM/{DP8}/memory_mib"}
    above = with_peer(lambda peer: peer.case == DP8, memory_mib=PrintedNumber(f"{math.ceil(least)}"))
    assert not new(plausibility.memory_floors, above)


def test_the_finding_says_that_its_bound_is_not_the_reports():
    found = next(each for each in plausibility.memory_floors(with_figure(DP8, memory_mib=100)) if each)
    assert found.recomputed == "" and found.elsewhere.startswith(">= ") and "parameters" in str(found.source)


# memory against siblings


@pytest.mark.parametrize(("factor", "found"), [(1.0299, False), (1.0301, True), (0.9701, False), (0.9699, True)])
def test_memory_off_that_of_other_numbers_of_gpus_is_found(factor, found):
    """Of the other numbers of GPUs the median counts, which stays when one of three changes."""
    middle = 12871
    name = "resnet50_0808_1n8g_bs128"
    place = f"resnet50-2020-08-08/memory-siblings/{name}/memory_mib"
    others = sorted(
        float(case.published.memory_mib)
        for case in CASES.values()
        if case.report == "resnet50-2020-08-08"
        and case.micro_batch == 128
        and case.layout.data > 1
        and case.name != name
    )
    assert (others[1] + others[2]) / 2 == middle + 0  # 12839, 12871, 12871, 12987
    changed = with_figure(name, memory_mib=round(middle * factor, 3))
    assert (place in ids(plausibility.memory_siblings, changed)) is found


@pytest.mark.parametrize(("memory", "found"), [(9000, False), (13200, False), (13400, True)])
def test_one_gpu_may_take_less_but_not_more(memory, found):
    """It keeps no buffers for its gradients' transfer."""
    changed = with_figure("resnet50_0808_1n1g_bs128", memory_mib=memory)
    place = "resnet50-2020-08-08/memory-siblings/resnet50_0808_1n1g_bs128/memory_mib"
    assert (place in new(plausibility.memory_siblings, changed)) is found


@pytest.mark.parametrize(("others", "found"), [(("DP_1x1x1_2_1536x16",), False), (("DP_16x1x1_32_1536x16",), True)])
def test_what_one_gpu_takes_is_no_measure_for_more(others, found):
    cases = tuple(case for case in with_figure(DP8, memory_mib=13000).cases if case.name in (DP8, *others))
    catalogue = Catalogue((PUBLISHED.catalogue.report("gpt-3d-2021-05"),), cases)
    place = f"gpt-3d-2021-05/memory-siblings/{DP8}/memory_mib"
    assert (place in ids(plausibility.memory_siblings, replace(PUBLISHED, catalogue=catalogue))) is found


@pytest.mark.parametrize(("factor", "found"), [(1.0, False), (1.029, False), (1.031, True)])
def test_with_sharding_memory_falls_with_the_number_of_gpus(factor, found):
    before = CASES["gpt2_small_1n8g_bs4_zero1"].published.memory_mib
    changed = with_figure("gpt2_small_2n8g_bs4_zero1", memory_mib=before * factor)
    place = "gpt2-small-2020-12/memory-siblings/gpt2_small_2n8g_bs4_zero1/memory_mib"
    assert new(plausibility.memory_siblings, changed) == ({place} if found else set())


@pytest.mark.parametrize(("part", "found"), [(-0.01, True), (0.01, False), (0.999, False), (1.001, True)])
def test_sharding_frees_something_and_at_most_the_state(part, found):
    """18 bytes per parameter, less the rank's own share."""
    case = CASES["gpt2_small_4n8g_bs4_zero1"]
    before = CASES["gpt2_small_4n8g_bs4_zero0"].published.memory_mib
    parameters = spec_of("gpt").parameters({**case.shape, "vocab_size": 50304})
    most = 18 * parameters * (1 - 1 / 32) / 2**20
    changed = with_figure(case.name, memory_mib=before - part * most)
    place = f"gpt2-small-2020-12/sharding-saving/{case.name}/memory_mib"
    assert new(plausibility.sharding_savings, changed) == ({place} if found else set())


def test_the_misprinted_saving_would_be_more_than_there_is():
    before = CASES["gpt2_small_4n8g_bs4_zero0"].published.memory_mib
    changed = with_figure("gpt2_small_4n8g_bs4_zero1", memory_mib=before - 2727)
    assert new(plausibility.sharding_savings, changed)


# work against the peak


@pytest.mark.parametrize(
    ("name", "peak", "severity"),
    [
        ("resnet50_0808_1n1g_bs128", 15.7, "warning"),
        ("bert_1n8g_bs96", 15.7, "error"),
        ("gpt2_small_1n8g_bs4_zero0", 125, "error"),
        (DP8, 125, "error"),
    ],
)
def test_more_work_than_the_peak_is_found_for_every_model(name, peak, severity):
    case = CASES[name]
    at_peak = case.published.throughput * peak / implied_tflops(case, case.published.throughput)
    above = {found.id: found for found in plausibility.peaks(with_figure(name, throughput=at_peak * 1.001)) if found}
    place = f"{case.report}/peak/{name}/throughput"
    assert set(above) == {place} and above[place].severity == severity and above[place].source
    assert not ids(plausibility.peaks, with_figure(name, throughput=at_peak * 0.999))


@pytest.mark.parametrize(("framework", "peak"), [("NGC PyTorch", 15.7), ("DeepSpeed", 125), ("Megatron-LM", 125)])
def test_a_peer_above_the_peak_is_found(framework, peak):
    peer = next(each for each in PUBLISHED.peers if each.framework == framework)
    case = next(
        case
        for case in PUBLISHED.cases
        if case.report in peer.reports and case.layout.world_size == peer.gpus and peer.case in (None, case.name)
    )
    most = peer.throughput * peak / implied_tflops(case, peer.throughput)
    for factor, count in ((0.999, 0), (1.001, 1)):
        changed = with_peer(lambda each: each is peer, throughput=PrintedNumber(f"{most * factor:.4f}"))
        assert len(new(plausibility.peaks, changed)) == count


def test_work_of_each_model_is_that_of_the_literature():
    """ResNet50: 3 x 2 x 4.089 GFLOP per image. BERT: 6 per parameter of the layers and token at least."""
    assert implied_tflops(CASES["resnet50_0808_1n1g_bs128"], 1) == pytest.approx(24.534e-3)
    layers = 12 * 12 * 768**2
    assert 1 < implied_tflops(CASES["bert_1n1g_bs96"], 1) / (6e-12 * layers * 128) < 1.2


# scaling of other frameworks


@pytest.mark.parametrize(("factor", "found"), [(0.999, True), (1.001, False)])
def test_a_peer_that_loses_by_more_gpus_is_found(factor, found):
    before = next(p for p in PUBLISHED.peers if p.framework == "DeepSpeed" and p.gpus == 8)
    changed = with_peer(
        lambda p: p.framework == "DeepSpeed" and p.gpus == 16, throughput=PrintedNumber(f"{before.throughput * factor}")
    )
    place = "peers/peer-scaling/gpt-DeepSpeed-0.3.0+7d4d742-ZeRO-0-bs4-16-GPU/throughput"
    assert (place in new(plausibility.peer_scaling, changed)) is found


@pytest.mark.parametrize(("sigmas", "found"), [(2.9, False), (3.1, True)])
def test_a_peer_that_gains_more_than_its_gpus_beyond_the_noise_is_found(sigmas, found):
    most = 2 * (1 + sigmas * math.sqrt(2) * published_noise(PUBLISHED.cases).largest)
    before = next(p for p in PUBLISHED.peers if p.framework == "Megatron-LM" and p.case == "DP_16x1x1_32_1536x16")
    changed = with_peer(
        lambda p: p.case == "DP_32x1x1_64_1536x16", throughput=PrintedNumber(f"{before.throughput * most}")
    )
    assert len(new(plausibility.peer_scaling, changed)) == found


@pytest.mark.parametrize(("share", "found"), [(0.749, True), (0.751, False)])
def test_a_peer_that_gains_far_less_than_the_others_is_found(share, found):
    others = sorted(
        by[8] / by[1]
        for name in ("OneFlow", "NGC MXNet", "NGC TensorFlow", "NGC PyTorch", "TensorFlow", "PyTorch", "PaddlePaddle")
        for by in [{p.gpus: p.throughput for p in PUBLISHED.peers if p.framework == name and p.model == "resnet50"}]
    )
    single = next(p for p in PUBLISHED.peers if p.framework == "MXNet" and p.model == "resnet50")
    changed = with_peer(
        lambda p: p.framework == "MXNet" and p.model == "resnet50" and p.gpus == 8,
        throughput=PrintedNumber(f"{single.throughput * others[3] * share}"),
    )
    place = "peers/peer-step/resnet50-MXNet-1.6.0-bs128-8-GPU/throughput"
    assert (place in new(plausibility.peer_scaling, changed)) is found


@pytest.mark.parametrize(("frameworks", "found"), [(2, False), (3, True)])
def test_fewer_than_three_other_frameworks_are_no_measure(frameworks, found):
    others = ("OneFlow", "NGC MXNet", "NGC PyTorch")[:frameworks]
    slow = with_peer(
        lambda p: p.framework == "MXNet" and p.model == "resnet50" and p.gpus == 8, throughput=PrintedNumber("1000")
    )
    kept = tuple(p for p in slow.peers if p.model == "resnet50" and p.framework in ("MXNet", *others))
    changed = replace(PUBLISHED, peers=kept)
    place = "peers/peer-step/resnet50-MXNet-1.6.0-bs128-8-GPU/throughput"
    assert (place in ids(plausibility.peer_scaling, changed)) is found


# accuracies, schedules


@pytest.mark.parametrize(("value", "found"), [(0.80, False), (0.8001, True)])
def test_an_accuracy_above_that_of_a_trained_network_is_found(value, found):
    report = PUBLISHED.catalogue.report("resnet50-2020-08-21")
    rows = {
        "what": "rows of a log",
        "source": "none",
        "columns": ["iteration", "top_1"],
        "rows": [[20, 0.0], [120, value]],
    }
    changed = with_report(report.id, also_printed=(rows,))
    place = "resnet50-2020-08-21/accuracy/top_1"
    assert (place in ids(plausibility.accuracies, changed)) is found


def schedule(name: str, **changes) -> dict:
    training = CASES[name].training
    return {**training, "schedule": {**training["schedule"], **changes}}


@pytest.mark.parametrize(("warmup", "found"), [(140, False), (141, True)])
def test_a_run_that_never_leaves_its_warm_up_is_found(warmup, found):
    name = "bert_1n1g_bs96"
    changed = with_case(name, training=schedule(name, warmup_iterations=warmup))
    place = "bert-2020-08-22/warm-up/140-iterations/warmup_iterations"
    assert new(plausibility.schedules, changed) == ({place} if found else set())


@pytest.mark.parametrize(("decay", "found"), [(140, False), (139, True)])
def test_a_decay_that_ends_before_the_run_is_found(decay, found):
    name = "bert_1n1g_bs96"
    changed = with_case(name, training=schedule(name, decay_iterations=decay))
    place = "bert-2020-08-22/decay/140-iterations/decay_iterations"
    assert new(plausibility.schedules, changed) == ({place} if found else set())


# environment against the cluster


@pytest.mark.parametrize(
    ("key", "same", "other"),
    [
        (
            "cpu",
            "48 CPU(s), Intel(R) Xeon(R) Gold 5118 CPU @ 2.30GHz",
            "48 CPU(s), Intel(R) Xeon(R) Gold 5218 CPU @ 2.30GHz",
        ),
        ("memory", "Memory 384G", "512G"),
        (
            "network",
            "InfiniBand 100 Gb/sec (4X EDR)， Mellanox Technologies MT27700 Family",
            "InfiniBand 56 Gb/sec (4X FDR)",
        ),
        ("nccl", "2.7.3", "2.8.3"),
        ("os", "Ubuntu 16.04", "Ubuntu 18.04"),
    ],
)
def test_hardware_and_software_other_than_the_clusters_is_found(key, same, other):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    place = f"bert-2020-08-22/environment/{key}"
    for printed, found in ((same, False), (other, True)):
        changed = with_report(report.id, environment={**report.environment, key: printed})
        assert (place in ids(environment.environments, changed)) is found


@pytest.mark.parametrize(("key", "right", "wrong"), [("nodes", 4, 5), ("nodes", 4, 3), ("gpus_per_node", 8, 4)])
def test_a_cluster_of_another_size_is_found(key, right, wrong):
    report = PUBLISHED.catalogue.report("gpt-3d-2021-05")
    for stated, found in ((right, False), (wrong, True)):
        changed = with_report(report.id, claims={**report.claims, key: stated})
        assert new(environment.environments, changed) == ({f"{report.id}/cluster/{key}"} if found else set())


def test_a_case_on_more_than_the_cluster_has_is_found():
    assert new(environment.environments, with_case("bert_4n8g_bs96", nodes=5)) == {
        "bert-2020-08-22/cluster/bert_4n8g_bs96/nodes"
    }
    assert new(environment.environments, with_case("bert_4n8g_bs96", gpus_per_node=9)) == {
        "bert-2020-08-22/cluster/bert_4n8g_bs96/gpus_per_node"
    }


def test_an_address_outside_the_cluster_is_found():
    report = PUBLISHED.catalogue.report("gpt-3d-2021-05")
    changed = with_report(report.id, settings={**report.settings, "node_addresses": ["10.11.0.2", "10.11.0.6"]})
    assert new(environment.environments, changed) == {f"{report.id}/cluster/node_addresses"}


@pytest.mark.parametrize(("driver", "found"), [("450.80.01", True), ("450.80.02", False), ("460.27", False)])
def test_a_driver_older_than_the_build_needs_is_found(driver, found):
    report = PUBLISHED.catalogue.report("gpt-3d-2021-05")
    changed = with_report(report.id, environment={**report.environment, "driver": driver})
    assert (f"{report.id}/driver/driver" in ids(environment.versions, changed)) is found


# bounds of the older rules


@pytest.mark.parametrize(("spreads", "found"), [(4.9, False), (5.1, True)])
def test_a_run_off_its_median_by_more_than_five_spreads_is_found(spreads, found):
    name = "bert_1n1g_bs96"
    case, noise = CASES[name], published_noise(PUBLISHED.cases)
    usual = max(cv for other, cv in noise.cvs.items() if CASES[other].report == case.report and other != name)
    runs = list(case.published.repeats)
    runs[4] = PrintedNumber(f"{149.8 * (1 - spreads * usual)}")
    changed = with_figure(name, repeats=tuple(runs))
    assert new(arithmetic.outliers, changed) == ({f"{case.report}/outlier/{name}/run-5"} if found else set())


@pytest.mark.parametrize(("sigmas", "found"), [(2.9, False), (3.1, True)])
def test_scaling_above_the_ideal_beyond_the_noise_is_found(sigmas, found):
    most = 2 * (1 + sigmas * math.sqrt(2) * published_noise(PUBLISHED.cases).largest)
    below = CASES["gpt2_small_2n8g_bs4_zero0"].published.throughput
    name = "gpt2_small_4n8g_bs4_zero0"
    changed = with_figure(name, throughput=below * most)
    assert new(consistency.scaling, changed) == ({f"gpt2-small-2020-12/scaling/{name}/throughput"} if found else set())


@pytest.mark.parametrize(("factor", "found"), [(0.999, True), (1.001, False)])
def test_scaling_below_one_is_found(factor, found):
    below = CASES["gpt2_small_2n8g_bs4_zero0"].published.throughput
    name = "gpt2_small_4n8g_bs4_zero0"
    changed = with_figure(name, throughput=below * factor)
    assert bool(new(consistency.scaling, changed)) is found


@pytest.mark.parametrize(("memory", "found"), [(16160, False), (16161, True)])
def test_memory_beyond_the_gpus_is_found(memory, found):
    name = "MP_PP_1x8x4_512_2304x24"
    changed = with_figure(name, memory_mib=memory)
    assert new(consistency.memory, changed) == ({f"gpt-3d-2021-05/memory/{name}/memory_mib"} if found else set())


@pytest.mark.parametrize(("memory", "found"), [(12565, True), (12566, False)])
def test_a_larger_micro_batch_takes_more(memory, found):
    changed = with_figure("resnet50_0808_1n1g_bs160", memory_mib=memory)
    assert bool(new(consistency.memory, changed)) is found


@pytest.mark.parametrize(("sigmas", "severity"), [(2.9, "note"), (3.1, "error")])
def test_a_configuration_published_twice_agrees_within_the_noise(sigmas, severity):
    noise = published_noise(case for case in PUBLISHED.cases if case.published.repeats).largest
    apart = sigmas * math.sqrt(2) * noise
    changed = with_figure("2D_8x1x1_16_1536x16", throughput=38.28 * (1 + apart / 2) / (1 - apart / 2))
    found = {each.id: each for each in consistency.repeated_configurations(changed)}
    assert found["gpt-3d-2021-05/duplicate/2D_8x1x1_16_1536x16/case"].severity == severity


@pytest.mark.parametrize(
    ("word", "found"), [("throughput", False), ("throughputs", False), ("thorughput", True), ("brought", False)]
)
def test_words_near_a_term_are_slips_and_others_are_not(word, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, quoted=({"place": "somewhere", "text": word},))
    assert (f"{report.id}/spelling/somewhere/{word}" in ids(editorial.wordings, changed)) is found


def test_six_links_are_due_to_each_gpu():
    name = "v100x32"
    cluster = PUBLISHED.clusters[name]
    links = [list(row) for row in cluster["topology"]["links"]]
    links[0][1] = links[1][0] = "NV2"
    topology = {**cluster["topology"], "links": links}
    changed = replace(PUBLISHED, clusters={name: {**cluster, "topology": topology}})
    found = ids(environment.topologies, changed)
    assert found == {f"resnet50-2020-08-08/nvlinks/{gpu}/NVLink" for gpu in ("GPU0", "GPU1")}


# what names, words and switches say


def printed(name: str, **changes) -> Material:
    """The published data with other printed texts of one case; None takes one out."""
    kept = {key: value for key, value in {**CASES[name].published.printed, **changes}.items() if value is not None}
    return with_case(name, published=replace(CASES[name].published, printed=kept))


ZERO = "gpt2_small_1n8g_bs4_zero1"


@pytest.mark.parametrize(
    ("layout", "found"),
    [("1n_8g_dp_4bs", False), ("2n_8g_dp_4bs", True), ("1n_8g_dp_8bs", True), ("1n_4g_dp_4bs", True), ("8 GPUs", True)],
)
def test_a_layout_column_states_the_case(layout, found):
    changed = printed(ZERO, layout=layout)
    expected = f"gpt2-small-2020-12/name/{ZERO}/layout"
    assert (expected in ids(claims.names, changed)) is found
    if found:
        (said,) = [each for each in claims.names(changed) if each and each.id == expected]
        assert said.printed == layout and (said.expected != "") is (layout != "8 GPUs")


def test_every_number_in_a_name_is_that_of_the_case():
    for changes in ({"micro_batch": 3}, {"global_batch": 17}, {"nodes": 2}, {"layout": Layout(8, 1, 2)}):
        assert f"gpt-3d-2021-05/name/{DP8}/log" in new(claims.names, with_case(DP8, **changes)), changes
    found = [each for each in claims.names(with_case(DP8, shape={**CASES[DP8].shape, "layers": 17})) if each]
    assert {each.expected for each in found} == {"layers 17"}
    assert "layers 16" in str(found[0].rule)


@pytest.mark.parametrize(
    ("group", "layout", "found"),
    [
        ("DP", Layout(8, 1, 1), False),
        ("MP", Layout(8, 1, 1), True),
        ("PP", Layout(8, 1, 1), True),
        ("DP", Layout(8, 2, 1), True),
        ("DP", Layout(8, 1, 2), True),
    ],
)
def test_a_group_is_that_of_the_layout(group, layout, found):
    kept = replace(CASES[DP8].published, printed={**CASES[DP8].published.printed, "group": group})
    assert (
        f"gpt-3d-2021-05/group/{DP8}/group" in ids(claims.words, with_case(DP8, published=kept, layout=layout))
    ) is found


@pytest.mark.parametrize(
    ("name", "layout", "found"),
    [
        ("MP_1x8x1_16_1536x16", Layout(1, 8, 1), False),
        ("MP_1x8x1_16_1536x16", Layout(2, 8, 1), True),
        ("MP_1x8x1_16_1536x16", Layout(1, 1, 8), True),
        ("MP_1x8x1_16_1536x16", Layout(1, 1, 1), False),
        ("2D_2x4x1_16_1536x16", Layout(1, 1, 1), True),
        ("2D_2x4x1_16_1536x16", Layout(2, 1, 1), False),
        (PP, Layout(8, 1, 4), False),
        (PP, Layout(8, 1, 1), True),
        (PP, Layout(8, 2, 4), True),
    ],
)
def test_kinds_of_parallelism_are_those_of_the_layout(name, layout, found):
    assert (f"gpt-3d-2021-05/group/{name}/group" in ids(claims.words, with_case(name, layout=layout))) is found


@pytest.mark.parametrize(
    ("sharding", "description", "found"),
    [
        (1, "on_optimization", False),
        (1, "off_optimization", True),
        (0, "off_optimization", False),
        (0, "on_optimization", True),
    ],
)
def test_on_and_off_are_those_of_the_case(sharding, description, found):
    kept = replace(CASES[ZERO].published, printed={**CASES[ZERO].published.printed, "description": description})
    changed = with_case(ZERO, published=kept, optimizer_sharding=sharding)
    assert (f"gpt2-small-2020-12/description/{ZERO}/description" in ids(claims.words, changed)) is found


def test_a_composed_cell_holds_the_figures_that_are_kept_of_it():
    cell = CASES[ZERO].published.printed["memory"]
    assert "9547" in cell
    for other, found in ((cell, False), (cell.replace("9547", "9548"), True), (cell + " 1.5", True)):
        assert (f"gpt2-small-2020-12/cell/{ZERO}/memory_mib" in ids(claims.words, printed(ZERO, memory=other))) is found
    (said,) = [each for each in claims.words(printed(ZERO, memory="0")) if each]
    assert said.expected.startswith("9547, 1754, ")


@pytest.mark.parametrize(
    ("title", "found"),
    [("GPT on 32 V100s", False), ("Benchmarks", False), ("BERT and GPT", False), ("BERT-base", True)],
)
def test_a_title_names_the_model(title, found):
    changed = with_report("gpt-3d-2021-05", title_printed=title)
    assert ("gpt-3d-2021-05/title" in ids(claims.titles, changed)) is found


@pytest.mark.parametrize(
    ("claimed", "found"), [("Float32", False), ("float32", False), ("Float16", True), ("unheard of", True)]
)
def test_a_claim_on_precision_is_that_of_the_cases(claimed, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, claims={**report.claims, "precision": claimed})
    assert (f"{report.id}/precision/precision" in ids(claims.precisions, changed)) is found
    without = {key: value for key, value in report.claims.items() if key != "precision"}
    assert not [each for each in ids(claims.precisions, with_report(report.id, claims=without)) if report.id in each]


def test_a_claim_on_all_tests_holds_for_all_reports():
    scoped = next(report for report in PUBLISHED.reports if "precision_scope" in report.claims)
    identity = f"{scoped.id}/precision-scope/precision"
    assert identity in ids(claims.precisions, PUBLISHED)
    same = tuple(replace(report, precision=scoped.precision) for report in PUBLISHED.reports)
    alike = replace(PUBLISHED, catalogue=Catalogue(same, PUBLISHED.cases))
    assert identity not in ids(claims.precisions, alike)


@pytest.mark.parametrize(("folders", "found"), [((), False), (("a",), False), (("a", "a"), False), (("a", "b"), True)])
def test_the_scripts_of_a_report_are_in_one_folder(folders, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, claims={**report.claims, "script_folders": folders})
    assert (f"{report.id}/script-folder/script_folders" in ids(claims.switches, changed)) is found


@pytest.mark.parametrize(
    ("flag", "less", "found"),
    [
        ("non_distributed_optimizer", 9547, True),
        ("non_distributed_optimizer", 11301, True),
        ("non_distributed_optimizer", 11302, False),
        ("distributed_optimizer", 9547, False),
    ],
)
def test_a_switch_says_what_it_switches_on(flag, less, found):
    report = PUBLISHED.catalogue.report("gpt2-small-2020-12")
    reports = tuple(
        replace(each, claims={**each.claims, "sharding_flag": flag}) if each is report else each
        for each in PUBLISHED.reports
    )
    first = next(case for case in PUBLISHED.cases_of(report) if case.optimizer_sharding)
    plain = next(case for case in PUBLISHED.cases_of(report) if not case.optimizer_sharding)
    figures = {first.name: PrintedNumber(str(less)), plain.name: PrintedNumber("11301")}
    cases = tuple(
        replace(case, published=replace(case.published, memory_mib=figures[case.name]))
        if case.name in figures
        else case
        for case in PUBLISHED.cases
    )
    changed = replace(PUBLISHED, catalogue=Catalogue(reports, cases))
    assert (f"{report.id}/flag/flag" in ids(claims.switches, changed)) is found
    unknown = tuple(
        replace(case, published=replace(case.published, memory_mib=None)) if case.name == plain.name else case
        for case in cases
    )
    assert f"{report.id}/flag/flag" not in ids(
        claims.switches, replace(PUBLISHED, catalogue=Catalogue(reports, unknown))
    )
    alone = tuple(case for case in cases if case.report != report.id or case.optimizer_sharding)
    assert f"{report.id}/flag/flag" not in ids(claims.switches, replace(PUBLISHED, catalogue=Catalogue(reports, alone)))


def test_one_log_gives_one_set_of_figures():
    twin = "2D_8x1x1_16_1536x16"
    identity = f"gpt-3d-2021-05/log/{twin}/log"
    assert identity in ids(claims.shared_logs, PUBLISHED)
    same = with_case(twin, published=replace(CASES[DP8].published, printed=CASES[twin].published.printed))
    assert identity not in ids(claims.shared_logs, same)
    (said,) = [each for each in claims.shared_logs(PUBLISHED) if each and each.id == identity]
    assert DP8 in said.remark() and "38.28 samples/s" in str(said.rule) and "MiB" in str(said.rule)
    assert identity not in ids(claims.shared_logs, printed(twin, log=None))


# arithmetic


@pytest.mark.parametrize(
    ("gpus", "batch", "found"), [(8, 16, set()), (9, 16, {"gpus"}), (8, 17, {"micro_batch_times_data"})]
)
def test_printed_counts_are_products(gpus, batch, found):
    changed = printed(DP8, gpus=gpus, micro_batch_times_data=batch)
    assert {each.split("/")[-1] for each in ids(arithmetic.products, changed)} == found


def test_a_global_batch_is_a_product_of_three():
    for changes in ({"accumulation_steps": 2}, {"micro_batch": 3}, {"global_batch": 15}, {"layout": Layout(4, 1, 1)}):
        found = ids(arithmetic.products, with_case(DP8, **changes))
        assert f"gpt-3d-2021-05/product/{DP8}/global_batch" in found, changes


@pytest.mark.parametrize(("latency", "found"), [(417.92, False), (418.02, False), (417.91, True), (418.04, True)])
def test_throughput_is_the_batch_over_the_latency(latency, found):
    changed = with_figure(DP8, latency_ms=latency)
    assert (f"gpt-3d-2021-05/latency/{DP8}/throughput" in ids(arithmetic.latencies, changed)) is found


# tables of the same runs, and what the text announces


def table_of(identity: str, what: str):
    report = PUBLISHED.catalogue.report(identity)
    return report, next(table for table in report.also_printed if table["what"] == what)


def with_cells(identity: str, what: str, column: str, values: dict[str, object]) -> Material:
    """The published data with other values in a column of one of a report's further tables, by case."""
    report, table = table_of(identity, what)
    case, place = table["columns"].index("case"), table["columns"].index(column)
    rows = [
        [values.get(row[case], cell) if at == place else cell for at, cell in enumerate(row)] for row in table["rows"]
    ]
    tables = tuple({**each, "rows": rows} if each is table else each for each in report.also_printed)
    return with_report(identity, also_printed=tables)


def copied() -> tuple[str, str, str, str, float]:
    """A table that prints the same runs: its report, name, column, and a case with its value."""
    for report, table, rows in PUBLISHED.also_printed("throughput"):
        if table.get("same_run"):
            return report.id, table["what"], "throughput", rows[0]["case"], float(rows[0]["throughput"])
    raise AssertionError("no table of the same runs")


def test_another_table_of_the_same_runs_prints_the_same_figures():
    identity, what, column, name, value = copied()
    off = with_cells(identity, what, column, {name: value * 1.01})
    assert [each for each in new(consistency.copies, off) if "/copy/" in each and name in each]
    (said,) = [each for each in consistency.copies(off) if each and each.id in new(consistency.copies, off)]
    assert said.severity == "warning" and said.kind == "inconsistency"
    assert new(consistency.copies, with_cells(identity, what, column, {name: value})) == set()


@pytest.mark.parametrize(("batch", "devices", "found"), [(96, 8, False), (48, 8, True), (96, 2, True)])
def test_every_announced_batch_size_has_its_row_on_every_number_of_gpus(batch, devices, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, claims={**report.claims, "batch_sizes": [batch], "devices": [devices]})
    here = {each for each in ids(editorial.missing, changed) if each.startswith(report.id)}
    assert here == ({f"{report.id}/missing/bs{batch}-{devices}-GPU/throughput"} if found else set())


@pytest.mark.parametrize(
    ("announced", "found"), [([8, 32], None), ([1, 32], "1-GPU"), ([8, 64], "64-GPU"), ([1, 64], "1-GPU")]
)
def test_a_range_of_gpus_begins_and_ends_with_a_row(announced, found):
    report = PUBLISHED.catalogue.report("gpt2-small-2020-12")
    changed = with_report(report.id, claims={**report.claims, "device_range": announced})
    here = {each for each in ids(editorial.missing, changed) if each.startswith(report.id)}
    assert here == ({f"{report.id}/missing/{found}/throughput"} if found else set())


def test_a_batch_size_that_was_not_announced_is_stray():
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, claims={**report.claims, "batch_sizes": [64, 32, 24]})
    strays = {each for each in ids(editorial.stray, changed) if each.endswith("micro_batch")}
    assert strays == {
        f"{report.id}/stray/{case.name}/micro_batch" for case in PUBLISHED.cases_of(report) if case.micro_batch == 96
    }
    silent = {key: value for key, value in report.claims.items() if key != "batch_sizes"}
    nothing = ids(editorial.stray, with_report(report.id, claims=silent))
    assert not [each for each in nothing if each.startswith(report.id) and each.endswith("micro_batch")]


def test_a_stray_row_is_said_to_be_that_of_a_later_run_at_its_batch_size():
    (said,) = [each for each in editorial.stray(PUBLISHED) if each]
    assert said.printed == "4 | 8 | 48 | 4103.6" and "differs from it by +0.31%" in str(said.evidence)
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    (row,) = report.stray
    (other,) = [each for each in editorial.stray(with_report(report.id, stray=({**row, "micro_batch": 47},))) if each]
    assert other.id == f"{report.id}/stray/bs47-32-GPU/throughput" and other.evidence is None
    (fewer,) = [each for each in editorial.stray(with_report(report.id, stray=({**row, "nodes": 2},))) if each]
    assert "16-GPU" in fewer.id


def test_a_missing_row_has_the_later_runs_figure_where_there_is_one():
    found = {each.id: each for each in editorial.missing(PUBLISHED) if each}
    bert = found["bert-2020-08-22/missing/bs24-32-GPU/throughput"]
    assert bert.expected == "3312.17" and bert.evidence and "3312.17" in bert.remark()
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, claims={**report.claims, "batch_sizes": [7], "devices": [8]})
    (unknown,) = [each for each in editorial.missing(changed) if each and each.report == report.id]
    assert unknown.evidence is None and unknown.expected == "" and unknown.remark() == "missing in the original"


@pytest.mark.parametrize(("mean", "found"), [(384.9, False), (385.3, True)])
def test_the_example_log_gives_a_figure_of_a_table(mean, found):
    case = CASES["resnet50_0821_1n1g_bs128"]
    said = editorial._example(PUBLISHED.catalogue.report(case.report), [case], [mean - 1, mean + 1])
    assert (said is not None) is found
    if found:
        assert said.expected == f"{mean:.3f}" and "(-0.10%)" in str(said.evidence)


def test_an_example_log_prints_every_row_and_the_first_is_skipped():
    report, table = table_of("resnet50-2020-08-08", "example log")
    rows = list(table["rows"])
    rate = table["columns"].index("throughput")
    assert not any("example-rows" in each for each in ids(editorial.example_logs, PUBLISHED))

    def changed(rows):
        tables = tuple({**each, "rows": rows} if each is table else each for each in report.also_printed)
        return with_report(report.id, also_printed=tables)

    assert f"{report.id}/example-rows/iteration" in ids(editorial.example_logs, changed(rows[:-1]))
    first = [[9999.0 if at == rate else cell for at, cell in enumerate(rows[0])], *rows[1:]]
    before, after = ([each for each in editorial.example_logs(m) if each] for m in (PUBLISHED, changed(first)))
    assert [each.expected for each in before] == [each.expected for each in after], "the first row does not count"


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("Throughput", None),
        ("主要硬软件配置", None),
        ("Ã© and Ã¼", "é and Ã¼"),
        ("â€“", "–"),
        ("é", None),
        ("éé", None),
    ],
)
def test_text_in_a_wrong_encoding_is_put_right(text, right):
    assert editorial._decoded(text) == right


@pytest.mark.parametrize(
    ("unit", "right"), [("ms", None), ("mB", "MB (MiB)"), ("Samples/s", "samples/s (MiB)"), ("furlongs", None)]
)
def test_units_have_their_case(unit, right):
    said = editorial._unit("r", Place("heading", "t", "c"), unit)
    assert (said and said.expected) == right


@pytest.mark.parametrize(
    ("column", "layout", "found"),
    [
        ("xn_xg_xdp_xbs", "1n_8g_dp_4bs", True),
        ("xn_xg_xbs", "1n_8g_4bs", False),
        ("xn_xg", "1n_8g_", True),
        ("xn_xg", None, False),
    ],
)
def test_rows_follow_the_pattern_of_their_heading(column, layout, found):
    case = CASES[ZERO]
    cases = [replace(case, published=replace(case.published, printed={"layout": layout} if layout else {}))]
    said = editorial._pattern("r", Place("heading", "t", column), column, cases)
    assert (said is not None) is found
    assert not said or (said.printed == layout and f"specifies {len(column.split('_'))} numbers" in str(said.rule))


def test_one_slip_is_found_once():
    report = PUBLISHED.catalogue.report("gpt-3d-2021-05")
    before = ids(editorial.wordings, PUBLISHED)
    assert f"{report.id}/spelling/Test-Result/lantency" in before
    doubled = with_report(report.id, heading=(*report.heading, *report.heading))
    assert ids(editorial.wordings, doubled) == before
    assert len([each for each in editorial.wordings(doubled) if each]) == len(before)


# tables of efficiency


def test_efficiency_follows_from_the_latency():
    assert not ids(consistency.efficiencies, PUBLISHED)
    for factor, found in ((1.0, False), (1.02, True)):
        latency = float(CASES[PP].published.latency_ms) * factor
        assert bool(ids(consistency.efficiencies, with_figure(PP, latency_ms=latency))) is found


# what rules say of their numbers


def test_an_outlier_is_said_with_both_spreads():
    name = "bert_1n1g_bs96"
    case, noise = CASES[name], published_noise(PUBLISHED.cases)
    usual = max(cv for other, cv in noise.cvs.items() if CASES[other].report == case.report and other != name)
    runs = (*case.published.repeats[:4], PrintedNumber("140.0"), *case.published.repeats[5:])
    (said,) = [each for each in arithmetic.outliers(with_figure(name, repeats=runs)) if each and name in each.id]
    assert f"run 5 is {100 * (1 - 140 / 149.8):.2f}% off the median 149.8" in str(said.rule)
    assert f"is {100 * usual:.2f}%" in str(said.rule)


def test_a_median_that_is_wrong_is_said_with_its_source_if_it_has_one():
    for report in PUBLISHED.reports:
        case = next((each for each in PUBLISHED.cases_of(report) if each.published.repeats), None)
        if case:
            (said,) = [each for each in arithmetic.medians(with_figure(case.name, throughput=1.0)) if each]
            assert bool(said.source) is bool(report.repeats_source)


def test_peers_have_a_latency_to_be_compared_or_none():
    before = ids(arithmetic.latencies, PUBLISHED)
    assert ids(arithmetic.latencies, with_peer(lambda peer: peer.case and peer.latency_ms, latency_ms=None)) == before
    other = with_peer(lambda peer: not peer.case, latency_ms=PrintedNumber("1.0"))
    assert ids(arithmetic.latencies, other) == before


def test_a_percentage_has_one_decimal_even_where_none_is_printed():
    name = "gpt2_small_1n8g_bs1_zero1"
    identity = f"gpt2-small-2020-12/change/{name}/memory_change_percent"
    for share, found in ((-31.3, False), (-31, True)):
        assert (identity in ids(arithmetic.changes, printed(name, memory_change_percent=share))) is found


def test_petaflops_are_those_of_all_gpus():
    found = efficiency(CASES[PP], 125.0)
    assert found.petaflops == pytest.approx(found.tflops_per_gpu * 32 / 1000)
    assert found.share_of_peak == pytest.approx(found.tflops_per_gpu / 125)


def test_as_fast_with_more_gpus_is_just_possible_and_the_bound_is_said():
    name, fewer = "gpt2_small_4n8g_bs4_zero0", CASES["gpt2_small_2n8g_bs4_zero0"].published.throughput
    identity = f"gpt2-small-2020-12/scaling/{name}/throughput"
    assert identity not in ids(consistency.scaling, with_figure(name, throughput=float(fewer)))
    (said,) = [each for each in consistency.scaling(with_figure(name, throughput=1.0)) if each and each.id == identity]
    most = 2 * (1 + 3 * math.sqrt(2) * published_noise(PUBLISHED.cases).largest)
    assert f"1 to {most:.3f} is plausible" in str(said.rule) and "2 times the GPUs" in str(said.rule)


def test_a_configuration_published_twice_is_said_with_both_noises():
    said = [each for each in consistency.repeated_configurations(PUBLISHED) if each]
    assert [str(each.rule).rpartition("differ by ")[2] for each in said] == ["0.03%", "0.36%"]
    noise = published_noise(case for case in PUBLISHED.cases if case.published.repeats).largest
    assert all(str(each.evidence).endswith(f" is {100 * noise:.2f}%") for each in said)


def test_an_efficiency_is_said_with_its_share_of_the_peak():
    latency = float(CASES[PP].published.latency_ms) * 1.1
    material = with_figure(PP, latency_ms=latency)
    share = efficiency(next(case for case in material.cases if case.name == PP), 125).share_of_peak
    said = [each for each in consistency.efficiencies(material) if each]
    assert said and all(f"{100 * share:.2f}% of 125" in str(each.rule) for each in said)


def test_a_table_that_drops_zeros_is_read_with_the_digits_of_its_other_rows():
    for column, value in (("petaflops", 1), ("tflops_per_gpu", 37)):
        changed = with_cells("gpt-3d-2021-05", "efficiency", column, {"2D_PP_2x4x4_512_2304x24": value})
        assert [each for each in new(consistency.efficiencies, changed) if each.endswith(column)], column


def test_a_throughput_that_differs_has_the_other_table_as_its_evidence():
    identity, what, column, name, value = copied()
    said = [each for each in consistency.copies(with_cells(identity, what, column, {name: value * 1.01})) if each]
    assert any(str(each.evidence).startswith("source of the other table") for each in said if name in each.id)


def test_a_case_without_a_group_has_none_to_be_compared():
    assert f"gpt-3d-2021-05/group/{DP8}/group" not in ids(claims.words, printed(DP8, group=None))
    tensor = "MP_1x8x1_16_1536x16"
    assert f"gpt-3d-2021-05/group/{tensor}/group" not in ids(claims.words, with_case(tensor, layout=Layout(1, 2, 1)))


def test_a_report_without_a_claim_on_precision_hides_no_other():
    scoped = next(report for report in PUBLISHED.reports if "precision_scope" in report.claims)
    first = next(report for report in PUBLISHED.reports if report is not scoped)
    claims_of_first = {key: value for key, value in first.claims.items() if key != "precision"}
    changed = with_report(first.id, claims=claims_of_first)
    assert f"{scoped.id}/precision-scope/precision" in ids(claims.precisions, changed)


def test_how_far_a_row_and_an_example_are_off_is_said():
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    (row,) = report.stray
    (said,) = [each for each in editorial.stray(with_report(report.id, stray=({**row, "throughput": 8000.0},))) if each]
    later = float(str(said.evidence).partition("has ")[2].partition(" ")[0])
    assert f"{100 * (8000 / later - 1):+.2f}%" in str(said.evidence)
    case = CASES["resnet50_0821_1n1g_bs128"]
    example = editorial._example(PUBLISHED.catalogue.report(case.report), [case], [370.0])
    assert f"{100 * (384.9 / 370 - 1):+.2f}%" in str(example.evidence)


def test_the_order_of_reports_hides_no_example():
    turned = replace(PUBLISHED, catalogue=Catalogue(tuple(reversed(PUBLISHED.reports)), PUBLISHED.cases))
    assert ids(editorial.example_logs, turned) == ids(editorial.example_logs, PUBLISHED) != set()


def test_what_windows_has_no_letter_for_may_be_latin():
    assert editorial._decoded("\u00c3\u0081") == "\u00c1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("8 x Tesla V100-SXM2-16GB", False),
        ("Tesla V100-SXM2-16GB x 8", False),
        ("4 x Tesla V100-SXM2-16GB", True),
        ("8 x Tesla V100-SXM2-32GB", True),
        ("8 x Tesla P100-SXM2-16GB", True),
        ("Tesla V100-SXM2-16GB", True),
    ],
)
def test_gpus_are_as_many_and_of_the_kind_of_the_cluster(text, found):
    hardware = {"gpus_per_node": 8, "gpu": "Tesla V100-SXM2-16GB", "gpu_memory_gb": 16}
    assert (environment._gpus("r", text, hardware) is not None) is found


@pytest.mark.parametrize(("commit", "found"), [("8a78044", False), ("8a780441f", False), ("9a78044", True)])
def test_reports_of_the_same_runs_name_one_commit_of_the_trainer(commit, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    changed = with_report(report.id, trainer={**report.trainer, "printed": f"master@{commit}"})
    assert (f"{report.id}/trainer/trainer" in ids(environment.trainers, changed)) is found


@pytest.mark.parametrize("pipeline", [2, 4])
def test_the_least_stage_has_no_embedding_and_its_share_of_the_layers(pipeline):
    case = CASES[PP]
    h, layers = 1536, 16
    least = state_floor_mib(replace(case, layout=Layout(8, 1, pipeline)))
    assert least == pytest.approx(12 * layers * (12 * h * h + 13 * h) / pipeline / 2**20, rel=0.01)


def savings(memory: float | None, layout: Layout | None = None):
    """What is found of the sharded small GPT on 8 GPUs where it takes this memory, unsharded 11301 MiB."""
    pair = (ZERO, "gpt2_small_1n8g_bs4_zero0")
    changes = {"layout": layout} if layout else {}
    figures = {ZERO: memory and PrintedNumber(str(memory)), pair[1]: PrintedNumber("11301")}
    cases = tuple(
        replace(case, **changes, published=replace(case.published, memory_mib=figures[case.name]))
        if case.name in pair
        else case
        for case in PUBLISHED.cases
    )
    material = replace(PUBLISHED, catalogue=Catalogue(PUBLISHED.reports, cases))
    return {each.place.row: each for each in plausibility.sharding_savings(material) if each}


@pytest.mark.parametrize(("memory", "found"), [(11302, True), (11301, True), (11300, False), (11300.5, False)])
def test_sharding_frees_more_than_nothing(memory, found):
    assert (ZERO in savings(memory)) is found


def test_what_sharding_frees_is_said_with_its_bounds():
    said = savings(7000)[ZERO]
    parameters = spec_of("gpt").parameters({**CASES[ZERO].shape, "vocab_size": 50304})
    most = 18 * parameters * (1 - 1 / 8) / 2**20
    assert (
        f"frees 4301 MiB; the state allows for 0 to {most:.0f} MiB" in str(said.rule)
        and said.expected == f">= {11301 - most:.0f}"
    )
    halves = savings(7000, Layout(4, 2, 1))[ZERO]
    quarters = savings(7000, Layout(2, 2, 2))[ZERO]
    of_halves, of_quarters = (
        float(str(each.rule).partition("0 to ")[2].partition(" MiB")[0]) for each in (halves, quarters)
    )
    assert of_halves == pytest.approx(18 * parameters / 2 * (3 / 4) / 2**20, rel=0.01)
    assert of_quarters == pytest.approx(18 * parameters / 4 / 2 / 2**20, rel=0.01)


def test_memory_that_was_not_printed_hides_no_other_case():
    found = [each for each in plausibility.sharding_savings(with_figure("gpt2_small_1n8g_bs1_zero1", memory_mib=None))]
    assert len(found) == len(list(plausibility.sharding_savings(PUBLISHED))) - 1
    unsharded = with_figure("gpt2_small_1n8g_bs1_zero0", memory_mib=None)
    assert len(list(plausibility.sharding_savings(unsharded))) == len(found)


def test_bounds_of_work_and_of_scaling_are_said():
    case = CASES[DP8]
    (said,) = [each for each in plausibility.peaks(with_figure(DP8, throughput=1000.0)) if each]
    assert said.expected == f"<= {1000 * 125 / implied_tflops(case, 1000.0):.2f}"
    slow = with_peer(lambda p: p.framework == "DeepSpeed" and p.gpus == 16, throughput=PrintedNumber("1"))
    most = 2 * (1 + 3 * math.sqrt(2) * published_noise(PUBLISHED.cases).largest)
    texts = [str(each.rule) for each in plausibility.peer_scaling(slow) if each and "DeepSpeed" in each.id]
    assert any("2 times the GPUs" in text and f"1 to {most:.3f} is plausible" in text for text in texts)


def test_a_peer_that_gains_nothing_by_more_gpus_is_just_possible():
    before = next(p for p in PUBLISHED.peers if p.framework == "DeepSpeed" and p.gpus == 8)
    same = with_peer(lambda p: p.framework == "DeepSpeed" and p.gpus == 16, throughput=before.throughput)
    assert not [each for each in new(plausibility.peer_scaling, same) if "/peer-scaling/" in each and "16-GPU" in each]


def test_a_step_needs_both_of_its_figures():
    last = next(peer for peer in PUBLISHED.peers if peer.case == "DP_32x1x1_64_1536x16")
    without = replace(PUBLISHED, peers=tuple(peer for peer in PUBLISHED.peers if peer is not last))
    assert new(plausibility.peer_scaling, without) == set()


def test_memory_off_its_siblings_is_said_in_per_cent():
    name = "gpt2_small_1n8g_bs4_zero0"
    said = [each for each in plausibility.memory_siblings(with_figure(name, memory_mib=20000.0)) if each]
    (own,) = [each for each in said if each.place.row == name]
    middle = (11087 + 11089) / 2
    assert f"{100 * (20000 / middle - 1):+.1f}% off" in str(own.rule)


def test_what_versions_and_processors_are_said_to_be():
    report = PUBLISHED.catalogue.report("gpt-3d-2021-05")
    changed = with_report(report.id, environment={**report.environment, "oneflow_commit": "0123456789abcdef"})
    (said,) = [each for each in environment.versions(changed) if each and each.id.startswith(f"{report.id}/commit")]
    assert said.expected == "0123456" and "8b222ee" in str(said.rule)
    same = with_report(report.id, environment={**report.environment, "oneflow_commit": "8b222ee0123"})
    assert not [each for each in ids(environment.versions, same) if each.startswith(f"{report.id}/commit")]
    bert = PUBLISHED.catalogue.report("bert-2020-08-22")
    fewer = with_report(bert.id, environment={**bert.environment, "cpu": "46 CPU(s), Intel(R) Xeon(R) Gold 5118 CPU"})
    (threads,) = [each for each in environment.environments(fewer) if each and "/threads" in each.id]
    assert threads.printed == "46"


def test_the_order_of_cases_hides_no_sibling():
    turned = replace(PUBLISHED, catalogue=Catalogue(PUBLISHED.reports, tuple(reversed(PUBLISHED.cases))))
    both = [len(list(plausibility.memory_siblings(material))) for material in (PUBLISHED, turned)]
    assert both[0] == both[1]
    two = [(CASES[name], CASES[name].published.memory_mib) for name in (DP8, "DP_1x1x1_2_1536x16")]
    assert len(list(plausibility._alike("r", "results", two))) == 1, "one GPU is compared with eight"


def test_a_copied_figure_that_lost_its_decimals_differs():
    report, what, column, row = next(
        (report, table["what"], column, row)
        for report, table, rows in PUBLISHED.also_printed()
        for column in ("throughput", "speedup", "latency_ms")
        for row in (rows if table.get("same_run") and column in table["columns"] else ())
        if 0.1 < float(row[column]) % 1 < 0.4
    )
    whole = with_cells(report.id, what, column, {row["case"]: int(float(row[column]))})
    assert [each for each in new(consistency.copies, whole) if row["case"] in each]


# what occurs twice


def test_a_row_that_has_all_figures_of_another_configuration_is_found():
    figures = CASES[DP8].published
    same = {"throughput": figures.throughput, "latency_ms": figures.latency_ms, "memory_mib": figures.memory_mib}
    name = "MP_1x8x1_16_1536x16"
    assert f"gpt-3d-2021-05/copied-row/{name}/throughput" in new(twice.copied_rows, with_figure(name, **same))
    for each in same:
        assert not new(twice.copied_rows, with_figure(name, **{**same, each: same[each] + 1}))


def test_two_equal_figures_are_a_copy_if_no_more_were_printed():
    one, other = (f"resnet50_0808_1n4g_bs{batch}" for batch in (128, 160))
    figures = CASES[one].published
    copy = with_figure(other, throughput=figures.throughput, memory_mib=figures.memory_mib)
    assert new(twice.copied_rows, copy) == {f"resnet50-2020-08-08/copied-row/{other}/throughput"}
    assert not new(twice.copied_rows, with_figure(other, throughput=figures.throughput, memory_mib=None))


def test_a_single_equal_figure_is_no_copy():
    """Both have 149.8 samples/s and nothing else that was measured."""
    one, other = (CASES[f"bert_1n1g_bs{batch}"].published for batch in (64, 96))
    assert one.throughput == other.throughput and not ids(twice.copied_rows, PUBLISHED)


@pytest.mark.parametrize(
    ("repeats", "found"),
    [
        ((1160.4, 1158.3, 1159.0, 1157.9, 1157.3, 1159.7, 1158.5), True),
        ((1158.5, 1160.4, 1158.3, 1159.0, 1157.9, 1157.3, 1159.7), True),
        ((1158.6, 1160.4, 1158.3, 1159.0, 1157.9, 1157.3, 1159.7), False),
    ],
)
def test_a_group_of_repeats_that_another_case_has_is_found(repeats, found):
    changed = with_figure("bert_1n8g_bs64", repeats=tuple(PrintedNumber(str(each)) for each in repeats))
    assert ("bert-2020-08-22/copied-repeats/bert_1n8g_bs64/repeats" in ids(twice.copied_repeats, changed)) is found


@pytest.mark.parametrize(
    ("mine", "theirs", "found"),
    [
        ("1 2 3", "1 2 3", True),
        ("1 2", "1 2", False),
        ("1 2 3", "1 2 3 4", False),
        ("1 2 3 4 5", "5 1 2 3 4", True),
        ("1 2 3 4 4", "4 1 2 3 4", False),
    ],
)
def test_how_many_repeats_are_no_chance(mine, theirs, found):
    names = "bert_1n8g_bs64", "bert_1n8g_bs96"
    repeats = [tuple(map(PrintedNumber, values.split())) for values in (mine, theirs)]
    changed = {
        name: replace(CASES[name], published=replace(CASES[name].published, repeats=own))
        for name, own in zip(names, repeats, strict=True)
    }
    cases = tuple(changed.get(case.name, case) for case in PUBLISHED.cases)
    material = replace(PUBLISHED, catalogue=Catalogue(PUBLISHED.reports, cases))
    assert bool(new(twice.copied_repeats, material)) is found


def test_few_different_repeats_in_another_order_are_chance():
    one, other = (CASES[f"bert_1n1g_bs{batch}"].published.repeats for batch in (64, 96))
    assert sorted(one) == sorted(other) and len(set(one)) == twice.DISTINCT - 1
    assert not ids(twice.copied_repeats, PUBLISHED)


@pytest.mark.parametrize(("factor", "found"), [(1.0299, False), (1.0301, True), (0.9701, False), (0.9699, True)])
def test_memory_of_one_configuration_under_two_names(factor, found):
    memory = float(CASES[DP8].published.memory_mib)
    name = "2D_8x1x1_16_1536x16"
    changed = with_figure(name, memory_mib=round(memory * factor, 3))
    assert bool(new(twice.one_configuration, changed)) is found
    for unprinted in (name, DP8):
        assert not new(twice.one_configuration, with_figure(unprinted, memory_mib=None))
    peer = next(each for each in PUBLISHED.peers if each.case == DP8)
    other = with_peer(lambda each: each.case == name, memory_mib=PrintedNumber(f"{peer.memory_mib * factor:.3f}"))
    assert new(twice.one_configuration, other) == ({f"peers/same-memory/{name}/memory_mib"} if found else set())


# what a figure can be


@pytest.mark.parametrize(("share", "found"), [(0.951, False), (0.95, False), (0.949, True)])
def test_a_larger_batch_that_is_much_slower_is_found(share, found):
    small, large = (f"resnet50_0808_1n4g_bs{batch}" for batch in (128, 160))
    changed = with_figure(large, throughput=float(CASES[small].published.throughput) * share)
    assert bool(new(bounds.larger_batches, changed)) is found
    peers = [each for each in PUBLISHED.peers if each.framework == "MXNet" and each.model == "bert" and each.gpus == 1]
    assert [each.micro_batch for each in peers] == [32, 64]
    slow = with_peer(lambda each: each is peers[1], throughput=PrintedNumber(f"{peers[0].throughput * share}"))
    assert bool(new(bounds.larger_batches, slow)) is found
    rules = [str(finding.rule) for finding in bounds.larger_batches(slow) if finding]
    assert any(f"this is {100 * share:.1f}% of it" in rule for rule in rules) is found


@pytest.mark.parametrize(("memory", "found"), [(16160, False), (16161, True), (0, True), (1, False)])
def test_a_peer_has_the_memory_of_the_card(memory, found):
    changed = with_peer(lambda each: each.framework == "DeepSpeed", memory_mib=PrintedNumber(str(memory)))
    smaller = {**changed.clusters, "another": {"hardware": {"gpu_memory_mib": 1}}}
    for material in (changed, replace(changed, clusters=smaller)):
        assert bool(new(bounds.devices, material)) is found, "the largest card counts"


@pytest.mark.parametrize(("share", "found"), [(100, False), (101, True), (1, False), (0, True)])
def test_a_gpu_is_busy_all_of_the_time_at_most(share, found):
    changed = with_peer(lambda each: each.framework == "DeepSpeed", gpu_utilisation=PrintedNumber(str(share)))
    assert bool(new(bounds.devices, changed)) is found
    case = with_figure("gpt2_small_2n8g_bs4_zero0", gpu_utilisation=share)
    assert bool(new(bounds.devices, case)) is found


@pytest.mark.parametrize(("memory", "found"), [(15386, False), (15387, True)])
def test_a_sharded_peer_takes_less_than_an_unsharded_one(memory, found):
    def first(each):
        return each.optimizer_sharding == 1 and each.gpus == 8

    assert bool(new(bounds.sharded_peers, with_peer(first, memory_mib=PrintedNumber(str(memory))))) is found


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("9547(-1754,↓15.5%)", False),
        ("9547(−1754,↓15.5%)", False),
        ("9547(+1754,↓15.5%)", True),
        ("9547(-1754,↑15.5%)", True),
        ("9547(1754,15.5%)", True),
    ],
)
def test_signs_and_arrows_are_those_of_the_changes(cell, found):
    name = "gpt2_small_1n8g_bs4_zero1"
    changed = with_figure(name, printed={**CASES[name].published.printed, "memory": cell})
    place = f"gpt2-small-2020-12/sign/{name}/memory_sign"
    assert new(bounds.signs, changed) == ({place} if found else set())


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ({"memory": "9547(+0.5,↑0.1%)", "memory_change": 0.5, "memory_change_percent": 0.1}, ""),
        ({"memory": "9547(-0.5,↑0.1%)", "memory_change": -0.5, "memory_change_percent": 0.1}, ""),
        ({"memory": "9547(-0.5,↓0.1%)", "memory_change": 0.5, "memory_change_percent": 0.1}, "memory"),
        ({"memory": "9547(-1754)"}, ""),
        ({"memory_change": -1754.0}, ""),
        ({"throughput": "235(↑1.7%)", "throughput_change_percent": -1.7}, "throughput"),
    ],
)
def test_a_sign_is_that_of_its_change_if_both_are_there(printed, found):
    name = "gpt2_small_1n8g_bs4_zero1"
    signs = ids(bounds.signs, with_figure(name, printed=printed))
    assert signs == ({f"gpt2-small-2020-12/sign/{name}/{found}_sign"} if found else set())


# what surrounds the figures


def with_table(identity, what, rows):
    """The published data with other rows, each a list, of a report's side table."""
    report = PUBLISHED.catalogue.report(identity)
    tables = tuple(
        {**each, "rows": rows(each["rows"])} if each["what"] == what else each for each in report.also_printed
    )
    return with_report(identity, also_printed=tables)


@pytest.mark.parametrize(
    ("column", "value", "found"),
    [
        (3, 384.927 * 1.0499, False),
        (3, 384.927 * 1.0501, True),
        (3, 384.704 * 0.9501, False),
        (3, 384.704 * 0.9499, True),
        (2, 1.0, False),
        (2, 1.001, True),
        (2, -0.001, True),
        (1, 6.505637, False),
        (1, 6.505638, True),
        (1, 0.0, True),
        (0, 41, False),
        (0, 40, True),
    ],
)
def test_a_row_of_a_sample_log_can_be(column, value, found):
    def changed(rows):
        row = list(rows[2])
        row[column] = value
        return [*rows[:2], row, *rows[3:]]

    material = with_table("resnet50-2020-08-08", "example log", changed)
    names = ("iteration", "loss", "top_1", "throughput")
    place = f"resnet50-2020-08-08/sample-row/row-3/{names[column]}"
    assert (place in new(side_tables.sample_logs, material)) is found


@pytest.mark.parametrize(
    ("row", "column", "value", "found"),
    [
        *((0, 0, 1, False), (0, 0, 0, True), (0, 3, 10.0, False), (1, 3, 94.0, True)),
        *((3, 3, 105.0, False), (3, 3, 95.0, True), (3, 1, 0.5, False), (3, 2, 0.0, False)),
    ],
)
def test_the_first_row_of_a_sample_log_may_be_slow(row, column, value, found):
    """It includes the start; the others are held against their median."""
    rows = [[20, 5.0, 0.0, 50.0], [40, 4.0, 0.1, 100.0], [60, 4.0, 0.1, 100.0], [80, 3.0, 1.0, 100.0]]
    rows[row][column] = value
    material = with_table("resnet50-2020-08-08", "example log", lambda printed: rows)
    assert bool([each for each in ids(side_tables.sample_logs, material) if "08-08" in each]) is found


@pytest.mark.parametrize(
    ("throughputs", "said"), [((100.0, 100.0), ""), ((100.0, 700.0), ""), ((100.0, 900.0), "1 to 8 GPUs")]
)
def test_a_later_run_on_one_node_grows_with_its_gpus(throughputs, said):
    rows = [[1, gpus, 3, value] for gpus, value in zip((1, 8), throughputs, strict=True)]
    material = with_table("bert-2020-08-22", "later run", lambda printed: rows)
    rules = [str(finding.rule) for finding in side_tables.later_runs(material) if finding]
    assert [rule.partition(":")[0] for rule in rules] == ([said] if said else [])


@pytest.mark.parametrize("sigmas", [2.99, 3.01, -2.99, -3.01])
def test_a_later_run_lies_within_the_noise(sigmas):
    noise = published_noise(PUBLISHED.cases).largest
    value = float(CASES["bert_1n8g_bs24"].published.throughput) * (1 + sigmas * math.sqrt(2) * noise)
    material = with_table(
        "bert-2020-08-22",
        "later run",
        lambda rows: [[*row[:3], value] if row[:3] == [1, 8, 24] else row for row in rows],
    )
    place = "bert-2020-08-22/later-run/bs24-8-GPU/throughput"
    assert (place in new(side_tables.later_runs, material)) is (abs(sigmas) > 3)


@pytest.mark.parametrize(("factor", "found"), [(0.999, True), (1.001, False), (2.06, False), (2.08, True)])
def test_a_later_run_scales_as_far_as_its_gpus(factor, found):
    material = with_table(
        "bert-2020-08-22",
        "later run",
        lambda rows: [[*row[:3], 2078.66 * factor] if row[:3] == [4, 8, 48] else row for row in rows],
    )
    place = "bert-2020-08-22/later-scaling/bs48-32-GPU/scaling"
    assert (place in new(side_tables.later_runs, material)) is found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2020-8-25", False),
        ("2020-8-26", True),
        ("2020-08-19", False),
        ("2020-08-18", True),
        ("Aug 22 2020", False),
        ("Aug 22 2021", True),
        ("20200822", False),
        ("2020-8-32", True),
        ("August 22, 2020", False),
        ("Foo 22 2020", True),
    ],
)
def test_dates_are_those_of_the_report(text, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    material = with_report(report.id, claims={**report.claims, "date": text})
    assert new(side_tables.dates, material) == ({"bert-2020-08-22/date/date"} if found else set())


def test_a_row_has_the_date_of_its_report():
    name = "gpt2_small_1n8g_bs1_zero0"
    printed = {**CASES[name].published.printed, "date": "20191208"}
    assert new(side_tables.dates, with_figure(name, printed=printed)) == {f"gpt2-small-2020-12/date/{name}/date"}
    assert [str(day) for day in side_tables.days_of("Jan 2 2020, Foo 2 2020, Dec 3 2020")] == [
        "2020-01-02",
        "None",
        "2020-12-03",
    ]


def test_a_case_without_repeats_has_no_number_of_them():
    assert not new(side_tables.statistics, with_figure("bert_1n8g_bs64", repeats=()))


@pytest.mark.parametrize(("name", "found"), [("median", False), ("mean", True), ("best", True), ("unknown", False)])
def test_the_named_statistic_gives_the_figure(name, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    material = with_report(report.id, claims={**report.claims, "statistic": name})
    assert bool(new(side_tables.statistics, material)) is found


@pytest.mark.parametrize(("count", "found"), [(7, False), (6, True), (8, True)])
def test_there_are_as_many_repeats_as_the_text_says(count, found):
    report = PUBLISHED.catalogue.report("bert-2020-08-22")
    material = with_report(report.id, claims={**report.claims, "repeats": count})
    assert bool(new(side_tables.statistics, material)) is found


@pytest.mark.parametrize(
    ("column", "found"),
    [
        ("gpu_mem(MiB)", False),
        ("gpu_mem(%)", True),
        ("gpu_util(%)", False),
        ("gpu_util(ms)", True),
        ("lantency(ms)", False),
        ("latency(MiB)", True),
        ("throughput(images/s)", False),
        ("throughput(ms)", True),
        ("whatever(ms)", False),
    ],
)
def test_a_columns_unit_is_one_of_its_quantity(column, found):
    heading = ({"table": "T", "columns": [column]},)
    assert bool(new(side_tables.units, with_report("bert-2020-08-22", heading=heading))) is found


@pytest.mark.parametrize(("unit", "found"), [("samples/s", False), ("images/s", False), ("sentences/s", True)])
def test_a_peers_unit_is_one_of_its_model(unit, found):
    assert bool(new(side_tables.units, with_peer(lambda each: each.model == "resnet50", unit=unit))) is found


# the machine


@pytest.mark.parametrize(("last", "found"), [("10.11.0.5", False), ("10.11.0.2", True)])
def test_no_two_nodes_have_one_address(last, found):
    report = PUBLISHED.catalogue.report("resnet50-2020-08-08")
    addresses = [*report.settings["node_addresses"][:3], last]
    material = with_report(report.id, settings={**report.settings, "node_addresses": addresses})
    place = "resnet50-2020-08-08/same-address/node_addresses"
    assert (place in new(environment.environments, material)) is found


@pytest.mark.parametrize(("second", "found"), [("12-23,36-47", False), ("11-23,36-47", True), ("12-23,35-47", True)])
def test_a_cpu_is_in_one_numa_node(second, found):
    cluster = PUBLISHED.clusters["v100x32"]
    affinities = [second if each.startswith("12") else each for each in cluster["topology"]["cpu_affinity"]]
    changed = {**cluster, "topology": {**cluster["topology"], "cpu_affinity": affinities}}
    material = replace(PUBLISHED, clusters={**PUBLISHED.clusters, "v100x32": changed})
    assert bool(new(environment.affinities, material)) is found


# the order of findings


def test_what_was_measured_leads_the_list_and_typing_errors_end_it():
    result = audit(PUBLISHED)
    ranks = [each.rank for each in result.findings]
    assert ranks == sorted(ranks) and set(ranks) == {0, 1, 2}
    leading = [each.id.split("/")[1] for each in result.findings if each.rank == 0]
    assert sorted(leading) == ["accuracy", "accuracy", "origin", "origin", "origin"]
    assert all(each.severity == "error" for each in result.findings if each.rank == 0)
    hints = {each.id.split("/")[1] for each in result.findings if each.hint}
    assert hints == {"encoding", "spelling", "unit", "pattern"}
