"""Words for nodes: what `docker run` is asked for, when, and that nothing in a name can become another word."""

import shlex
from dataclasses import replace

import pytest

from repro.cluster.cluster import BaselinePlace
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import NodeFacts, network_environment
from repro.launch.nodes.work import dry_lines, work_of
from repro.launch.placement import place
from repro.published.cases import Layout
from repro.published.rules import MeanRows
from repro.runs.unit import Unit
from tests.support.clusters import DIGEST, NODES, V100
from tests.support.runs import CONFIG

CPUS = ("0-19,40-59",) * 4 + ("20-39,60-79",) * 4
HOSTS = [
    NodeFacts(f"10.1.0.{i}", "1000:1000", "/var/lib/w/venv/launch.py", CPUS, ("0",) * 4 + ("1",) * 4)
    for i in range(1, 5)
]


def unit(data=1, tensor=1, pipeline=1, device="cuda", name="case"):
    config = replace(CONFIG, layout=Layout(data, tensor, pipeline), device=device)
    return Unit(name, "gpt", config, MeanRows(skip_first=1), 8)


def orders(cluster=V100, run="run-1", **options):
    work = work_of(cluster, UploadedCode(), unit(**options), False, 29500, run, "repeat-1.attempt-1")
    return [work.order(index, HOSTS) for index in range(len(work.placement.nodes))]


def after(argv, option):
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


@pytest.mark.parametrize("runtime", ["docker", "venv"])
def test_units_in_tf32_and_no_others_let_the_libraries_take_it(runtime):
    cluster = replace(
        V100, stack="cu102-modern", runtime_name=runtime, baseline=BaselinePlace("/opt/conda/bin/python", "pytorch:1")
    )
    wanted = {"CUBLAS_FORWARD_TF32=1", "CUDNN_FORWARD_TF32=1"}
    for made, gets in (
        (replace(unit(), tf32=True), True),
        (unit(), False),
        (replace(unit(), tf32=True, name="case.pytorch-tf32", baseline_of="case"), False),
    ):
        order = work_of(cluster, UploadedCode(), made, False, 29500, "run-1", "repeat-1.attempt-1").order(0, HOSTS)
        assert (wanted <= set(order["argv"])) == gets
        taken_away = {each.replace("=1", "=0") for each in wanted} <= set(order["argv"])
        assert taken_away == (not gets and not made.baseline_of), "whatever a job inherits from who submits it"


def test_a_container_gets_no_privilege_and_only_what_it_needs():
    argv = orders(data=32)[1]["argv"]
    assert argv[:3] == ["docker", "run", "--rm"]
    assert "--privileged" not in argv
    assert after(argv, "--cap-drop") == ["ALL"]
    assert after(argv, "--cap-add") == ["IPC_LOCK"]
    assert after(argv, "--security-opt") == ["no-new-privileges"]
    assert after(argv, "--user") == ["1000:1000"]
    assert after(argv, "--network") == after(argv, "--ipc") == ["host"]
    assert after(argv, "--ulimit") == ["memlock=-1"]
    assert after(argv, "--pull") == ["never"]
    assert after(argv, "--device") == ["/dev/infiniband"]
    assert "--read-only" in argv
    assert DIGEST in argv
    assert "oneflow-reproduction:cu102" not in argv
    assert "/data/ofrecord:/data/ofrecord:ro" in after(argv, "--volume")
    writable = [volume for volume in after(argv, "--volume") if not volume.endswith(":ro")]
    folder = orders(data=32)[1]["folder"]
    work = folder.partition("/runs/")[0]
    assert writable == [f"{folder}:{folder}", f"{work}/standins:{work}/standins"]
    assert orders(data=32)[1]["caches"] == [f"{work}/standins"]
    assert after(argv, "--label") == [
        "reproduction.run=run-1",
        "reproduction.unit=case",
        "reproduction.attempt=repeat-1.attempt-1",
    ]


def test_the_launcher_is_told_of_every_node():
    first, *others = orders(data=32)
    assert len(others) == 3
    for rank, order in enumerate((first, *others)):
        argv = order["argv"]
        assert after(argv, "--nnodes") == ["4"]
        assert after(argv, "--node_rank") == [str(rank)]
        assert after(argv, "--nproc_per_node") == ["8"]
        assert after(argv, "--master_addr") == ["10.1.0.1"], "the address of the fabric, not SSH's"
        assert after(argv, "--master_port") == ["29500"]
        assert order["first"] == 8 * rank
    assert (first["port"], others[0]["port"]) == (29500, 0), "only rank 0's node listens"


def test_nodes_that_share_a_file_system_have_folders_of_their_own():
    made = orders(data=32)
    folders = {order["folder"] for order in made}
    assert len(folders) == len(made) == 4
    for order in made:
        inside = order["config"]["output"], after(order["argv"], "--logdir")[0].removesuffix("/logs")
        assert inside == (order["folder"], order["folder"])
        assert not [word for word in order["argv"] for other in folders - {order["folder"]} if other in word]


def test_one_process_needs_no_launcher():
    (order,) = orders()
    assert "--nnodes" not in order["argv"]
    assert order["port"] == 0
    assert after(order["argv"], "--env")[-1] == f"GLOG_log_dir={order['folder']}/logs/local_rank_0"
    assert order["argv"][-2:] == ["--config", f"{order['folder']}/config.json"]


@pytest.mark.parametrize(
    ("ranks", "gpus", "cpus", "memory"),
    [
        (8, '"device=0,1,2,3,4,5,6,7"', "0-19,40-59,20-39,60-79", "0,1"),
        (4, '"device=0,1,2,3"', "0-19,40-59", "0"),
        (1, '"device=0"', "0-19,40-59", "0"),
    ],
)
def test_gpus_are_counted_out_and_bound_to_what_is_next_to_them(ranks, gpus, cpus, memory):
    argv = orders(data=ranks)[0]["argv"]
    assert after(argv, "--gpus") == [gpus]
    assert after(argv, "--cpuset-cpus") == [cpus]
    assert after(argv, "--cpuset-mems") == [memory]


def test_without_known_affinity_there_is_no_binding(monkeypatch):
    monkeypatch.setattr(f"{__name__}.HOSTS", [NodeFacts("10.1.0.1", "1:1", "", ("", ""), ("", ""))])
    argv = orders(data=2)[0]["argv"]
    assert "--cpuset-cpus" not in argv
    assert "--cpuset-mems" not in argv


def test_a_cpu_cluster_gets_no_gpu_and_no_infiniband():
    cluster = replace(V100, gpu="", hca="", data="")
    argv = orders(cluster, data=2, device="cpu")[0]["argv"]
    assert not {"--gpus", "--device", "--cap-add"}.intersection(argv)
    assert not [each for each in after(argv, "--env") if each.startswith("NCCL")]


def test_infiniband_stays_out_of_a_case_on_one_node():
    argv = orders(data=8)[0]["argv"]
    assert not {"--device", "--cap-add"}.intersection(argv)


def test_without_containers_the_venv_runs_the_same_program():
    (order, _) = orders(replace(V100, runtime_name="venv"), data=16)
    argv = order["argv"]
    assert argv[0] == "env"
    assert "docker" not in argv
    assert order["container"] == ""
    start = argv.index("/var/lib/w/venv/bin/python")
    assert argv[start + 1] == "/var/lib/w/venv/launch.py"
    assert after(argv, "--node_rank") == ["0"]
    assert "NCCL_DEBUG=INFO" in argv[1:start]


def test_the_modern_stack_gets_its_cublas_and_its_cache():
    volumes = after(orders(replace(V100, stack="cu102-modern"))[0]["argv"], "--volume")
    assert {f"/var/lib/w/{name}:/opt/{name}:ro" for name in ("cublas", "cudnn")} <= set(volumes)
    assert "/var/lib/w/jit:/cache" in volumes


def test_ranks_get_the_gpu_code_that_was_compiled_ahead():
    compiled = replace(V100, stack="cu102-modern", compiled_for=90)
    argv = orders(compiled)[0]["argv"]
    assert "/var/lib/w/overlay:/var/lib/w/overlay:ro" in after(argv, "--volume")
    assert "PYTHONPATH=/var/lib/w/overlay" in after(argv, "--env")
    assert "PYTHONPATH=/var/lib/w/overlay" in orders(replace(compiled, runtime_name="venv"))[0]["argv"]
    assert not [word for word in orders(replace(compiled, compiled_for=None))[0]["argv"] if "overlay" in word]


NASTY = "a 'b' \"c\" $(touch x) `y` ; rm -rf / & é,:\n../../z"


def test_no_name_can_break_out():
    """Names go into labels as they are, and into paths and names of containers only after that is safe."""
    (order,) = orders(run="it's", name=NASTY)
    argv = order["argv"]
    assert f"reproduction.unit={NASTY}" in argv
    assert "reproduction.run=it's" in argv
    assert shlex.split(shlex.join(argv)) == argv
    (name,) = after(argv, "--name")
    for each in (name, order["folder"].removeprefix("/var/lib/w/runs/")):
        assert set(each) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/"), each
        assert ".." not in each.split("/")
    other = orders(run="it's", name=NASTY + " ")[0]
    assert other["folder"] != order["folder"], "what becomes equal when made safe stays apart"


def test_dry_lines_name_every_node_and_can_be_read_by_a_shell():
    lines = list(dry_lines(V100, UploadedCode(), [unit(data=16, name=NASTY.replace("\n", ""))], False, 29500))
    commands = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert len(commands) == 2
    assert [after(argv, "--node_rank") for argv in commands] == [["0"], ["1"]]
    assert any("n2 (alice@10.0.0.2 port 22)" in line for line in lines)
    assert after(commands[1], "--master_addr") == ["<address of ib0 on n1>"]


@pytest.mark.parametrize(
    ("ranks", "spread", "nodes", "per_node"),
    [
        (1, True, 1, 1),
        (2, True, 2, 1),
        (4, True, 4, 1),
        (4, False, 1, 4),
        (8, False, 1, 8),
        (16, False, 2, 8),
        (32, False, 4, 8),
        (6, True, 3, 2),
        (12, False, 2, 6),
    ],
)
def test_places(ranks, spread, nodes, per_node):
    placement = place(V100, ranks, spread)
    assert (len(placement.nodes), placement.per_node) == (nodes, per_node)
    assert [rank for index in range(nodes) for rank in placement.ranks(index)] == list(range(ranks))
    assert placement.node_of(ranks - 1) == placement.nodes[-1]


def test_two_nodes_share_four_ranks():
    cluster = replace(V100, nodes=NODES[:2], gpus_per_node=2)
    assert [place(cluster, ranks, True).per_node for ranks in (2, 4)] == [1, 2]
    assert place(cluster, 3, True) is None
    assert place(cluster, 5) is None


def test_nccl_is_told_the_network():
    across = network_environment(V100, "cuda", 2, 16)
    assert across == {
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_SOCKET_IFNAME": "=ib0",
        "NCCL_IB_HCA": "=mlx5_0",
        "ONEFLOW_COMM_NET_IB_HCA": "mlx5_0:1",
    }
    roce = network_environment(replace(V100, gid_index=3), "cuda", 2, 16)
    assert roce["NCCL_IB_GID_INDEX"] == roce["ONEFLOW_COMM_NET_IB_GID_INDEX"] == "3"
    sockets = network_environment(replace(V100, hca=""), "cuda", 2, 16)
    assert sockets["NCCL_IB_DISABLE"] == "1"
    assert "NCCL_IB_HCA" not in sockets
    assert "NCCL_DEBUG" not in network_environment(V100, "cuda", 1, 1)


def test_oneflow_s_own_transfers_take_the_first_adapter_also_on_the_cpu():
    across = network_environment(replace(V100, hca="mlx5_1:2,mlx5_0", gid_index=1), "cpu", 2, 2)
    assert across["ONEFLOW_COMM_NET_IB_HCA"] == "mlx5_1:2"
    assert across["ONEFLOW_COMM_NET_IB_GID_INDEX"] == "1"
    assert not any("NCCL" in name for name in across)
    alone = network_environment(V100, "cpu", 1, 2)
    assert not any("ONEFLOW" in name for name in alone)
    given = replace(V100, environment=(("ONEFLOW_COMM_NET_IB_HCA", "mlx5_9:1"),))
    assert network_environment(given, "cpu", 2, 2)["ONEFLOW_COMM_NET_IB_HCA"] == "mlx5_9:1"


def baseline_order(cluster, **options):
    made = replace(unit(**options), name="case.pytorch", baseline_of="case", framework="pytorch")
    work = work_of(cluster, UploadedCode.of(cluster), made, False, 29500, "run-1", "repeat-1.attempt-1")
    return [work.order(index, HOSTS) for index in range(len(work.placement.nodes))]


def test_a_baseline_runs_in_the_image_that_the_inventory_names():
    cluster = replace(V100, baseline=BaselinePlace("/opt/conda/bin/python", "pytorch:1"), stack="cu102-modern")
    first, *others = baseline_order(cluster, data=32)
    assert len(others) == 3
    for rank, order in enumerate((first, *others)):
        argv = order["argv"]
        program = argv[argv.index("pytorch:1") + 1 :]
        assert program[:2] == ["/opt/conda/bin/python", "/opt/repro/launch/agent/rank_launcher.py"]
        assert after(program, "--node_rank") == [str(rank)] and after(program, "--nproc_per_node") == ["8"]
        assert program[-5:-2] == ["/opt/conda/bin/python", "-u", "/opt/repro/baselines/run.py"]
        volumes = after(argv, "--volume")
        assert [each for each in volumes if not each.endswith(":ro")] == [f"{order['folder']}:{order['folder']}"]
        assert any(each.endswith("/repro:/opt/repro:ro") for each in volumes)
        assert DIGEST not in argv and order["libraries"] == {}
        assert "NCCL_SOCKET_IFNAME==ib0" in after(argv, "--env"), "both frameworks communicate in the same way"


def test_a_baseline_in_a_venv_has_the_interpreter_of_its_own():
    cluster = replace(V100, baseline=BaselinePlace("/opt/pytorch/bin/python"), runtime_name="venv")
    (order,) = baseline_order(cluster)
    program = order["argv"][order["argv"].index("/opt/pytorch/bin/python") :]
    assert program[2].endswith("/repro/baselines/run.py") and program[2].startswith("/var/lib/w/code/")
    assert not any(word.startswith("LD_PRELOAD") for word in order["argv"])


def test_the_code_of_baselines_goes_along_where_there_are_any():
    assert not any(name.startswith("repro/baselines/") for name in UploadedCode.of(V100).files)
    cluster = replace(V100, baseline=BaselinePlace("/opt/conda/bin/python", "pytorch:1"))
    assert {"repro/baselines/run.py", "repro/launch/agent/rank_launcher.py"} <= UploadedCode.of(cluster).files.keys()
