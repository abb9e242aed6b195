"""What must be as published, aspect by aspect: configuration, GPUs, libraries, transport; and what is only remarked."""

from dataclasses import replace

import pytest

from repro.analysis.comparability import FREE_KEYS, INSTALLABLE_ONEFLOW, Reason, configuration_reasons, reasons, remarks
from repro.analysis.conditions import MEANING, REPLACEMENT
from repro.analysis.process_info import ProcessInfo
from repro.planning.plan import Wanted, make_plan
from repro.planning.trainer_config import config_of
from repro.published.cases import Layout, load_catalogue
from repro.published.figures import load_published_cluster
from repro.published.rules import LastRows, MeanRows
from repro.utils.i18n import catalogue
from tests.support.attempts import recorded
from tests.support.configs import configured
from tests.support.synthetic import GPU, VERSIONS, ran_on

CATALOGUE = load_catalogue()
SINGLE, EIGHT, TWO_NODES = (CATALOGUE.case(f"DP_{n}x1x1_{2 * n}_1536x16") for n in (1, 8, 16))
STAMPED = CATALOGUE.case("bert_1n8g_bs96")
CLUSTER = load_published_cluster(CATALOGUE.report(EIGHT.report).cluster)


def unit_of(case):
    (unit,) = make_plan([case], case.layout.world_size, Wanted(scale="published", repeats=1)).units
    return unit


def info_of(case, **changes):
    """What the processes of a case reported of themselves on the published cluster."""
    several, nodes = case.layout.world_size > 1, case.nodes
    info = ProcessInfo(
        attempts=1,
        hosts=frozenset(f"node{n + 1}" for n in range(nodes)),
        nodes=frozenset({nodes}),
        ranks=frozenset({case.layout.world_size}),
        devices=frozenset({"cuda:0"}),
        gpus=frozenset({GPU["name"]}),
        gpu_memories_mib=frozenset({"16160"}),
        versions={name: frozenset({value}) for name, value in VERSIONS.items()},
        transports=frozenset({"P2P", "NET/IB"} if nodes > 1 else {"P2P"} if several else ()),
    )
    return replace(info, **{name: frozenset(value) for name, value in changes.items()})


def found(case, unit=None, env=None, cluster=CLUSTER, **changes):
    """The aspects and kinds of every reason."""
    every = reasons(case, unit or unit_of(case), env or ran_on(), cluster, info_of(case, **changes))
    return [(reason.aspect, reason.kind) for reason in every]


@pytest.mark.parametrize("case", [SINGLE, EIGHT, TWO_NODES], ids=lambda case: case.name)
def test_what_ran_as_published_has_no_reason(case):
    assert found(case) == []


# Configuration


@pytest.mark.parametrize("key", sorted(config_of(EIGHT, "cuda").as_json().keys() - {"case", "data", "seed"}))
def test_every_setting_is_compared_but_three(key):
    """Only the case's name, the data and the seed are free: dropout, for one, is work that a GPU does."""
    unit = unit_of(EIGHT)
    another = {"data": 1, "tensor": 2, "pipeline": 4} if key == "layout" else "another"
    (reason,) = configuration_reasons(EIGHT, configured(unit, **{key: another}))
    assert reason.kind == "differs" and reason.measured == str(another)
    assert reason.aspect in (key, f"configuration:{key}", "hardware.device")
    assert ("never gets a verdict" in reason.text()) is (key == "program")
    if key not in ("iterations", "layout"):
        without = configured(unit, **{key: None})
        assert len(list(configuration_reasons(EIGHT, without))) == 1, "nor may it be left out"


def test_another_program_is_named_in_each_language():
    unit = unit_of(EIGHT)
    (reason,) = configuration_reasons(EIGHT, replace(unit, config=replace(unit.config, program="tuned")))
    assert "the published program's; this run used the tuned program" in reason.text()
    assert "出自原程序，本次运行的是调优程序" in reason.text(catalogue("zh").gettext)
    assert (reason.expected, reason.measured) == ("published", "tuned"), "as data"


@pytest.mark.parametrize("key", ["case", "data", "seed"])
def test_name_data_and_seed_are_free(key):
    unit = unit_of(EIGHT)
    another = {"kind": "another"} if key == "data" else "another"
    assert list(configuration_reasons(EIGHT, configured(unit, **{key: another}))) == []
    assert {"case", "data", "seed"} == FREE_KEYS


def test_a_setting_that_was_not_published_is_named():
    unit = unit_of(EIGHT)
    (reason,) = configuration_reasons(EIGHT, configured(unit, tf32=True))
    assert (reason.aspect, reason.expected, reason.measured) == ("configuration:tf32", "None", "True")


def test_iterations_count_where_the_rule_reads_others():
    for case, free in ((EIGHT, False), (STAMPED, True)):
        unit = unit_of(case)
        longer = replace(unit, config=replace(unit.config, iterations=case.iterations + case.log_interval))
        assert (list(configuration_reasons(case, longer)) == []) is free, case.name


def test_another_rule_is_named():
    unit = unit_of(EIGHT)
    for rule in (LastRows(rows=4), MeanRows(skip_first=1)):
        (reason,) = configuration_reasons(EIGHT, replace(unit, rule=rule))
        assert reason.aspect == "configuration:rule" and reason.expected == "last_rows {'rows': 5}"


# Hardware


@pytest.mark.parametrize(
    ("mib", "same"),
    [(16384, True), (17203, True), (17204, False), (15565, True), (15564, False), (24000, False), (8192, False)],
)
def test_gpu_memory_is_that_of_the_published_gpu_to_five_per_cent(mib, same):
    """16 GB are 16384 MiB; the driver of the published cluster shows 16160 of them."""
    assert CLUSTER["hardware"]["gpu_memory_gb"] == 16
    expected = [] if same else [("hardware.gpu_memory", "differs")]
    assert found(EIGHT, gpu_memories_mib={str(mib)}) == expected


def test_a_gpus_name_may_begin_with_its_maker():
    assert found(EIGHT, gpus={"NVIDIA " + GPU["name"]}) == []
    assert found(EIGHT, gpus={GPU["name"], "Tesla V100-PCIE-16GB"}) == [("hardware.gpu_model", "differs")]


def test_ranks_on_another_device_are_seen():
    assert found(EIGHT, devices={"cuda:0", "cuda:7"}) == []
    assert found(EIGHT, devices={"cuda:0", "cpu"}) == [("hardware.device", "differs")]
    assert found(EIGHT, devices=()) == [("hardware.device", "missing")]


def test_nodes_and_ranks_are_as_many_as_published():
    assert found(TWO_NODES, nodes={1}) == [("hardware.nodes", "differs")]
    assert found(TWO_NODES, nodes={2, 1}) == [("hardware.nodes", "differs")], "in every attempt"
    assert found(TWO_NODES, ranks={15}) == [("hardware.gpu_count", "differs")]


def test_nvidia_smi_counts_for_the_hosts_that_it_ran_on():
    unnamed = {"gpus": (), "gpu_memories_mib": ()}
    unknown = [("hardware.gpu_model", "missing"), ("hardware.gpu_memory", "missing")]
    assert found(EIGHT, **unnamed) == []
    assert found(EIGHT, env=ran_on(host="login"), **unnamed) == unknown
    assert found(EIGHT, hosts=(), **unnamed) == unknown
    both = ran_on(cluster={"hca": "", "hosts": ["node1", "node2", "node3"]})
    assert found(TWO_NODES, env=both, **unnamed) == []
    assert found(TWO_NODES, env=ran_on(), **unnamed) == unknown


# Stack


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("oneflow", "0.8.0", True),
        ("oneflow", "0.8.0+cu112", True),
        ("oneflow", "0.8.1", False),
        ("cuda", "10.2.89", True),
        ("cuda", "10.1", False),
        ("cudnn", "7.6.3", True),
        ("cudnn", "7.5.6", False),
        ("nccl", "2.7.3+cuda10.2", True),
        ("nccl", "2.8.3", False),
    ],
)
def test_libraries_are_compared_in_their_first_two_numbers_and_oneflow_in_all(name, value, same):
    versions = {**info_of(EIGHT).versions, name: frozenset({value})}
    info = replace(info_of(EIGHT), versions=versions)
    why = reasons(EIGHT, unit_of(EIGHT), ran_on(), CLUSTER, info)
    assert [reason.aspect for reason in why] == ([] if same else [f"stack.{name}"])


def test_what_stands_for_the_published_release_is_said_to_be_missing_or_another():
    for versions, kind, text in (({"0.9.0"}, "differs", "here 0.9.0"), ((), "missing", "not known here")):
        info = replace(info_of(EIGHT), versions={**info_of(EIGHT).versions, "oneflow": frozenset(versions)})
        (reason,) = reasons(EIGHT, unit_of(EIGHT), ran_on(), CLUSTER, info)
        assert reason.kind == kind and "the release used in place of the published one should be 0.8.0" in reason.text()
        assert text in reason.text()


def test_a_verdict_is_about_the_replacement_with_the_published_libraries():
    """The published release itself would have no verdict either; the text names exactly the libraries that decide."""
    assert REPLACEMENT.count(" disqualif") == 2 and "OneFlow {release}" in MEANING
    usual = info_of(EIGHT).versions
    for name, title in (("cuda", "CUDA"), ("cudnn", "cuDNN"), ("nccl", "NCCL")):
        other = replace(info_of(EIGHT), versions={**usual, name: frozenset({"99.0"})})
        assert reasons(EIGHT, unit_of(EIGHT), ran_on(), CLUSTER, other) and title in REPLACEMENT
    published = replace(info_of(EIGHT), versions={**usual, "oneflow": frozenset({"0.3.5+cu112"})})
    (reason,) = reasons(EIGHT, unit_of(EIGHT), ran_on(), CLUSTER, published)
    assert reason.aspect == "stack.oneflow" and reason.expected == INSTALLABLE_ONEFLOW
    assert CATALOGUE.report(EIGHT.report).version != INSTALLABLE_ONEFLOW


def test_nccl_counts_from_two_gpus_on():
    versions = {**info_of(EIGHT).versions, "nccl": frozenset({"2.18.1"})}
    two = replace(EIGHT, layout=Layout(2, 1, 1))
    for case, aspects in ((SINGLE, []), (two, ["stack.nccl"]), (EIGHT, ["stack.nccl"])):
        info = replace(info_of(case), versions=versions)
        why = [*reasons(case, unit_of(case), ran_on(), CLUSTER, info)]
        assert [reason.aspect for reason in why] == aspects


# Transport

SOCKETS = {"P2P", "NET/Socket"}


@pytest.mark.parametrize(
    ("case", "transports", "kind"),
    [
        (TWO_NODES, {"P2P", "NET/IB"}, None),
        (TWO_NODES, {"P2P"}, "differs"),
        (TWO_NODES, {"NET/IB"}, "differs"),
        (TWO_NODES, SOCKETS, "differs"),
        (TWO_NODES, {"P2P", "NET/RoCE"}, "differs"),
        (TWO_NODES, {"P2P", "NET/IB", "NET/Socket"}, "differs"),
        (TWO_NODES, (), "missing"),
        (EIGHT, {"P2P"}, None),
        (EIGHT, {"P2P", "SHM"}, None),
        (EIGHT, {"P2P", "NET/IB"}, None),
        (EIGHT, {"SHM"}, "differs"),
        (EIGHT, SOCKETS, "differs"),
        (EIGHT, (), "missing"),
        (SINGLE, SOCKETS, None),
        (SINGLE, (), None),
    ],
)
def test_gpus_reach_their_node_directly_and_others_by_infiniband(case, transports, kind):
    assert found(case, transports=transports) == ([("transport", kind)] if kind else [])


@pytest.mark.parametrize(("data", "tensor", "needed"), [(8, 1, False), (1, 8, False), (9, 1, True), (2, 8, True)])
def test_infiniband_is_needed_where_a_group_of_ranks_leaves_its_node(data, tensor, needed):
    """Stages of a pipeline send to each other without NCCL; the ranks of a stage do not."""
    case = replace(EIGHT, layout=Layout(data, tensor, 4), nodes=4)
    why = reasons(case, unit_of(EIGHT), ran_on(), CLUSTER, info_of(case, transports={"P2P"}))
    assert [reason.expected for reason in why if reason.aspect == "transport"] == (["NET/IB, P2P"] if needed else [])


def test_an_inventory_that_asks_for_infiniband_is_the_reason():
    env = ran_on(cluster={"hca": "mlx5_0", "hosts": ["node1", "node2"]})
    for transports, text in ((SOCKETS, "asks for InfiniBand (mlx5_0)"), ({"P2P"}, "published NET/IB, P2P, here P2P")):
        (reason,) = reasons(TWO_NODES, unit_of(TWO_NODES), env, CLUSTER, info_of(TWO_NODES, transports=transports))
        assert text in reason.text()


@pytest.mark.parametrize("hca", ["", "mlx5_0"])
def test_a_library_that_is_missing_is_the_reason_for_sockets(hca):
    env = ran_on(cluster={"hca": hca, "hosts": ["node1", "node2"]})
    info = replace(info_of(TWO_NODES, transports=SOCKETS), lacks_verbs=True)
    (reason,) = reasons(TWO_NODES, unit_of(TWO_NODES), env, CLUSTER, info)
    assert "NCCL used NET/Socket because it could not open libibverbs.so" in reason.text()
    assert (reason.expected, reason.measured) == ("InfiniBand (mlx5_0)" if hca else "NET/IB", "NET/Socket")


# Remarks


def remarked(case=EIGHT, report=None, env=None, config=(), attempts=(), **changes):
    report = report or CATALOGUE.report(case.report)
    unit = unit_of(case)
    unit = configured(unit, **{"data": {"kind": "text", "folder": "x"}, **dict(config)})
    every = remarks(case, report, unit, env or ran_on(), CLUSTER, info_of(case, **changes), attempts)
    assert all(reason.kind == "remark" for reason in every)
    return {reason.aspect: reason for reason in every if not reason.aspect.startswith("deviations")}


def test_repeats_that_ran_beside_others_are_counted():
    beside = [{"attempt": "units/x/repeat-1.attempt-1", "nodes": ["n2"]}]
    attempts = [
        recorded({"beside": beside}),
        recorded({}),
        recorded({"beside": beside}),
        recorded({"status": "failed", "beside": beside}),
    ]
    found = remarked(attempts=attempts)["measurement"]
    assert found.text() == "measurement: 2 of 3 repeats ran while other attempts ran on other nodes"
    assert "measurement" not in remarked(attempts=attempts[1:2])


def test_only_what_differs_is_remarked():
    usual = set(remarked())
    assert usual == {"stack.oneflow", "published_stack"}, "a release that is gone, whose wheel was for CUDA 11.2"
    driver = CLUSTER["software"]["driver"]
    newer = ran_on({"driver_version": "535.1"})
    assert remarked(env=ran_on({"driver_version": driver})).keys() == usual
    assert remarked(env=ran_on(count=0)).keys() == usual
    assert remarked(env=newer)["driver"].measured == "535.1"
    assert remarked(config={"data": {"kind": "synthetic"}})["input"].measured == "synthetic"
    assert remarked(config={"data": {"kind": "text", "standin": "x"}})["input"].measured == "stand-in"
    assert remarked(config={"iterations": 40})["iterations"].expected == str(EIGHT.iterations)
    assert remarked(env=ran_on(git_changed_files=2))["code"].expected == "0123456789ab"


def test_a_wheel_for_another_cuda_contradicts_its_report():
    report = CATALOGUE.report(EIGHT.report)
    for version, said in (("0.3.5+cu112", "cu112"), ("0.3.5+cu102", None), ("0.3.5", None)):
        found = remarked(report=replace(report, version=version)).get("published_stack")
        assert (found and found.measured) == said


def test_a_reason_reads_as_a_clause_that_opens_with_its_aspect():
    reason = Reason("configuration:dropout", "differs", "published {expected}, here {measured}", "0.1", "0.0")
    assert reason.text() == "configuration `dropout`: published 0.1, here 0.0"
    assert reason.as_json() == {
        "aspect": "configuration:dropout",
        "kind": "differs",
        "expected": "0.1",
        "measured": "0.0",
        "text": reason.text(),
    }
    named = Reason("transport", "missing", "not known ({source})", source="a log")
    translated = named.text(lambda text: text.replace("log", "record"))
    assert translated == "transport between GPUs: not known (a record)"
