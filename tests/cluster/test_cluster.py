"""Inventories: what is read from them, and that each mistake is named with its file, its variable and its remedy."""

import re
from pathlib import Path

import pytest
import yaml

from repro.cluster.cluster import BaselinePlace, ClusterError, Image, Node, Slurm, load_cluster, with_runtime
from repro.perfmodel.hardware import HardwareError, describe
from repro.utils.errors import PlanError

pytestmark = pytest.mark.usefixtures("inventories_in_forks")
HOSTS = {
    "nodes": {
        "hosts": {
            "second": {"ansible_host": "10.0.0.2", "ansible_user": "bench"},
            "first": {"ansible_host": "10.0.0.1", "ansible_user": "bench", "ansible_port": 2222},
        }
    }
}
VARIABLES = {
    "cluster_gpu": "Tesla V100-SXM2-16GB",
    "cluster_gpus_per_node": 4,
    "cluster_interface": "ib0",
    "cluster_hca": "mlx5_0",
    "cluster_network_gbits": 100,
    "cluster_stack": "cu102",
    "cluster_image": {"name": "oneflow-reproduction:cu102", "digest": f"sha256:{'0' * 64}"},
}


@pytest.fixture
def inventory(tmp_path):
    """Writes an inventory with changed variables (None leaves one out) and returns its folder."""

    def write(hosts=HOSTS, known_hosts=None, **changes) -> Path:
        folder = tmp_path / "some"
        (folder / "group_vars").mkdir(parents=True, exist_ok=True)
        text = hosts if isinstance(hosts, str) else yaml.safe_dump(hosts, sort_keys=False)
        (folder / "hosts.yml").write_text(text)
        values = {name: value for name, value in (VARIABLES | changes).items() if value is not None}
        (folder / "group_vars" / "all.yml").write_text(yaml.safe_dump(values))
        if known_hosts is not None:
            (folder / "known_hosts").write_text(known_hosts)
        return folder

    return write


def test_everything_is_read_and_defaults_fill_the_rest(inventory):
    cluster = load_cluster(inventory(cluster_accepted_differences=["gpu.vbios"]))
    assert cluster.nodes == (Node("second", "10.0.0.2", 22, "bench", 4), Node("first", "10.0.0.1", 2222, "bench", 4))
    assert cluster.world_size == 8
    assert (cluster.name, cluster.gpu, cluster.interface) == ("some", VARIABLES["cluster_gpu"], "ib0")
    assert (cluster.hca, cluster.network_gbits, cluster.stack) == ("mlx5_0", 100, "cu102")
    assert cluster.image == Image("oneflow-reproduction:cu102", f"sha256:{'0' * 64}")
    assert (cluster.gid_index, cluster.data, cluster.shared_results, cluster.port) == (None, "", "", 29500)
    assert (cluster.work, cluster.runtime.name, cluster.launcher) == ("/var/lib/oneflow-reproduction", "docker", "ssh")
    assert cluster.accepted == {"gpu.vbios"}
    assert (cluster.private_key, cluster.python) == (None, "/usr/bin/python3")
    assert cluster.known_hosts == Path.home() / ".ssh" / "known_hosts"


def test_keys_and_interpreter_of_the_inventory(inventory):
    folder = inventory(
        known_hosts="# note\n|1|aGFzaA==|aGFzaA== ssh-ed25519 AAAAC3Nz\n10.0.0.1 ssh-rsa AAAAB3 c\n",
        ansible_ssh_private_key_file="/keys/id",
        ansible_python_interpreter="/opt/python",
    )
    cluster = load_cluster(folder)
    assert cluster.known_hosts == folder / "known_hosts"
    assert (cluster.private_key, cluster.python) == (Path("/keys/id"), "/opt/python")


def test_where_nodes_have_pytorch(inventory):
    assert load_cluster(inventory()).baseline == BaselinePlace()
    given = {"python": "/opt/conda/bin/python", "image": "pytorch/pytorch:2.4.0"}
    assert load_cluster(inventory(cluster_baseline=given)).baseline == BaselinePlace(**given)
    venv = inventory(cluster_baseline={"python": "/opt/pytorch/bin/python"}, cluster_runtime="venv")
    assert load_cluster(venv).baseline == BaselinePlace("/opt/pytorch/bin/python")


@pytest.mark.parametrize(
    ("runtime", "place"),
    [
        ("docker", BaselinePlace("/opt/venv/bin/python", "oneflow-reproduction:baseline", "baseline")),
        ("venv", BaselinePlace("/var/lib/oneflow-reproduction/baseline/bin/python", "", "baseline")),
    ],
)
def test_a_pinned_environment_is_where_provisioning_sets_it_up(inventory, runtime, place):
    cluster = load_cluster(inventory(cluster_baseline={"lock": "baseline"}, cluster_runtime=runtime))
    assert cluster.baseline == place
    for other in ("docker", "venv"):
        assert with_runtime(with_runtime(cluster, other), runtime).baseline == place


NO_FILE = r"cluster_image\.file is ''; apptainer runs an image that is a file"
NO_SLURM = r"cluster_runtime is 'pyxis'; it is a plugin of Slurm: cluster_launcher is then slurm, not ssh"
FILE = {"name": "x", "file": "/x.sqsh", "sha256": "0" * 64}


@pytest.mark.parametrize(
    ("inventory_says", "runtime", "launcher", "message"),
    [
        ({}, "podman", None, "RUNTIME=podman: it is docker, venv, apptainer, pyxis"),
        ({}, "apptainer", None, "RUNTIME=apptainer: with .*all.yml, " + NO_FILE),
        ({"cluster_image": FILE}, "pyxis", None, "RUNTIME=pyxis: with .*" + NO_SLURM),
        ({"cluster_image": FILE}, "pyxis", "ssh", "RUNTIME=pyxis LAUNCHER=ssh: with .*" + NO_SLURM),
        (
            {"cluster_image": FILE, "cluster_runtime": "pyxis", "cluster_launcher": "slurm"},
            None,
            "ssh",
            "LAUNCHER=ssh: with .*" + NO_SLURM,
        ),
    ],
)
def test_the_command_line_names_no_runtime_or_launcher_that_the_inventory_could_not(
    inventory, inventory_says, runtime, launcher, message
):
    cluster = load_cluster(inventory(**inventory_says))
    with pytest.raises((ClusterError, PlanError), match=message):
        with_runtime(cluster, runtime, launcher)
    own = {"cluster_runtime": runtime, "cluster_launcher": launcher}
    with pytest.raises(ClusterError):  # as the inventory could not either
        load_cluster(inventory(**inventory_says | {name: value for name, value in own.items() if value}))


def test_the_command_line_comes_before_the_inventory(inventory):
    cluster = load_cluster(inventory(cluster_image=FILE))
    both = with_runtime(cluster, "pyxis", "slurm")
    assert (both.runtime.name, both.launcher) == ("pyxis", "slurm")
    assert with_runtime(cluster, None, None) == with_runtime(cluster, "", "") == cluster


def test_how_jobs_are_submitted_and_followed(inventory):
    assert load_cluster(inventory()).slurm == Slurm("", "", None, (), "attempt", 30, 60)
    given = {"partition": "gpu", "time_minutes": 90, "allocation": "run", "poll_seconds": 120, "lease_seconds": 7200}
    assert load_cluster(inventory(cluster_slurm=given)).slurm == Slurm("gpu", "", 90, (), "run", 120, 7200)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster_gpu": None}, "cluster_gpu is missing"),
        ({"cluster_gpus_per_node": 0}, "cluster_gpus_per_node is 0; it is a whole number from 1"),
        ({"cluster_gpus_per_node": "8"}, "cluster_gpus_per_node is '8'"),
        ({"cluster_gpus_per_node": True}, "cluster_gpus_per_node is True"),
        ({"cluster_port": 70000}, "cluster_port is 70000"),
        ({"cluster_patience": 0.5}, "cluster_patience is 0.5; it is a number from 1 to 100"),
        ({"cluster_interface": "ib0; reboot"}, "cluster_interface is 'ib0; reboot'"),
        ({"cluster_stack": "cu118"}, "cluster_stack is 'cu118'; it is cu102 or cu102-modern"),
        ({"cluster_launcher": "pbs"}, "cluster_launcher is 'pbs'; it is ssh or slurm"),
        ({"cluster_containers": "yes"}, "cluster_containers is 'yes'; it is true or false"),
        ({"cluster_data": "data"}, "cluster_data is 'data'"),
        ({"cluster_runtime": "podman"}, "cluster_runtime is 'podman'; it is docker or venv or apptainer or pyxis"),
        ({"cluster_runtime": "apptainer"}, r"cluster_image\.file is ''; apptainer runs an image that is a file"),
        ({"cluster_environment": {"NCCL_IB_TIMOUT": 1}}, "cluster_environment is .*did you mean NCCL_IB_TIMEOUT"),
        ({"cluster_environment": ["A"]}, "cluster_environment is .*NCCL_IB_TIMEOUT"),
        ({"cluster_prologue": "module load a"}, "cluster_prologue is .*it is a list of shell lines"),
        ({"cluster_interfaces": "ib0"}, "cluster_interfaces: no such variable; did you mean cluster_interface"),
        ({"cluster_work": "{{ base }}/work"}, "cluster_work is .*templates are not filled in"),
        ({"cluster_accepted_differences": "gpu.vbios"}, "cluster_accepted_differences is 'gpu.vbios'; it is a list"),
        ({"cluster_image": "x:y"}, "cluster_image is 'x:y'"),
        ({"cluster_image": {"name": "x", "digest": "sha256:12"}}, r"cluster_image\.digest is 'sha256:12'"),
        ({"cluster_image": {"name": "x", "registry": "r:5000"}}, r"cluster_image\.digest is ''.*taken by its digest"),
        ({"cluster_image": {"name": "x", "sum": "y"}}, "cluster_image is"),
        ({"cluster_image": {"name": "--privileged"}}, r"cluster_image\.name is '--privileged'; it is an image's name"),
        ({"cluster_image": {"name": "x", "registry": "--tls-verify=0"}}, r"cluster_image\.registry is"),
        ({"cluster_image": {"name": "x", "archive": "-rf"}}, r"cluster_image\.archive is '-rf'"),
        ({"cluster_baseline": {"pytorch": "x"}}, "cluster_baseline is"),
        ({"cluster_baseline": {"python": "python3"}}, r"cluster_baseline\.python is 'python3'; it is the path"),
        ({"cluster_baseline": {"python": "/p"}}, r"cluster_baseline\.image is ''; ranks run in containers"),
        (
            {"cluster_baseline": {"lock": "torch"}},
            r"cluster_baseline\.lock is 'torch'; it is baseline or baseline-cu102",
        ),
        (
            {"cluster_baseline": {"lock": "baseline-cu102"}},
            r"cluster_baseline\.lock is 'baseline-cu102'; it has no image: ranks run in docker, which takes baseline",
        ),
        (
            {"cluster_baseline": {"lock": "baseline", "python": "/p"}},
            r"cluster_baseline\.python is '/p'; .* leave it out",
        ),
        (
            {"cluster_baseline": {"python": "/p", "image": "x"}, "cluster_runtime": "venv"},
            r"cluster_baseline\.image is 'x'; ranks run in no container",
        ),
        ({"cluster_baseline": {"python": "/p", "image": "--privileged"}}, r"cluster_baseline\.image is '--privileged'"),
        ({"cluster_slurm": {"queue": "x"}}, "cluster_slurm is"),
        ({"cluster_slurm": {"time_minutes": 0}}, r"cluster_slurm\.time_minutes is 0; it is a whole number from 1 on"),
        ({"cluster_slurm": {"allocation": "job"}}, r"cluster_slurm\.allocation is 'job'; it is attempt or run"),
        (
            {"cluster_slurm": {"allocation": "run"}},
            r"cluster_slurm\.time_minutes is None; a job that a run keeps needs",
        ),
        (
            {"cluster_slurm": {"poll_seconds": 0}},
            r"cluster_slurm\.poll_seconds is 0; it is a whole number from 1 to 3600",
        ),
        (
            {"cluster_slurm": {"lease_seconds": True}},
            r"cluster_slurm\.lease_seconds is True; it is a whole number from 30",
        ),
    ],
)
def test_a_wrong_variable_is_named_with_its_file(inventory, monkeypatch, changes, message):
    folder = inventory(**changes)
    read = yaml.safe_load((folder / "group_vars" / "all.yml").read_text())
    listed = {"nodes": {"hosts": ["a"]}, "_meta": {"hostvars": {"a": read}}}
    monkeypatch.setattr("repro.cluster.cluster.ask_ansible", lambda hosts: listed)
    with pytest.raises(ClusterError, match=f"^{re.escape(str(folder))}/group_vars/all.yml: {message}"):
        load_cluster(folder)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ({"all": {"hosts": {"a": None}}}, "no host in the group `nodes`"),
        ({"nodes": {"hosts": {"a": {"ansible_host": "::1"}, "b": {"ansible_host": "::1"}}}}, "a, b have the same"),
        ({"nodes": {"hosts": {"a": {"ansible_port": "ssh"}}}}, "ansible_port of a is 'ssh'"),
        ({"nodes": {"hosts": {"a": {"ansible_host": "-oProxyCommand=x"}}}}, "ansible_host of a is"),
        ({"nodes": {"hosts": {"a": {"ansible_password": "x"}}}}, "ansible_password of a: no password belongs here"),
        ("nodes: [\n", "Ansible cannot read this inventory:\n.*YAML"),
    ],
)
def test_wrong_hosts_are_named_with_their_file(inventory, hosts, message):
    folder = inventory(hosts)
    with pytest.raises(ClusterError, match=f"^{re.escape(str(folder))}/hosts.yml: {message}"):
        load_cluster(folder)


def test_nodes_must_agree(inventory):
    hosts = {"nodes": {"hosts": {"a": {"cluster_interface": "eth0"}, "b": {}}}}
    with pytest.raises(ClusterError, match="cluster_interface is 'eth0' for a and 'ib0' for b"):
        load_cluster(inventory(hosts))


def test_unreadable_known_hosts(inventory):
    with pytest.raises(ClusterError, match=r"known_hosts, line 2: not `HOST KEY-TYPE KEY`"):
        load_cluster(inventory(known_hosts="\n10.0.0.1 what is this\n"))
    folder = inventory()
    (folder / "known_hosts").write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError, match="known_hosts: cannot be read"):
        load_cluster(folder)


@pytest.mark.parametrize("name", ["nothing", "/nothing", "../inventories"])
def test_no_such_inventory(name):
    with pytest.raises(ClusterError, match=rf"CLUSTER={name}: no inventory .*hosts\.yml.*make new-cluster"):
        load_cluster(name)


def test_the_model_knows_an_inventory(inventory):
    h200 = {"cluster_gpu": "NVIDIA H200", "cluster_network_gbits": 400, "cluster_hca": "mlx5_0,mlx5_3"}
    cluster = describe(str(inventory(**h200)))
    assert (cluster.name, cluster.gpu.name, cluster.nodes, cluster.gpus) == ("some", "h200-141", 2, 8)
    assert (cluster.node.ports, cluster.node.port_gbs) == (2, 50)
    for wrong, message in (("", "cluster_gpu is empty"), ("GeForce", "no description of this GPU")):
        with pytest.raises(HardwareError, match=message):
            describe(str(inventory(cluster_gpu=wrong)))


def test_plan_for_an_inventory(inventory, task):
    done = task("plan", CLUSTER=inventory(), MODEL="bert")
    assert done.returncode == 0, done.stderr
    assert "some" in done.stdout


def test_a_node_that_is_named_twice_is_refused(inventory):
    """YAML itself takes the last of them, and the cluster would be one node smaller than its file."""
    hosts = "nodes:\n  hosts:\n    a: {ansible_host: 10.0.0.1}\n    b: {ansible_host: 10.0.0.2}\n    a: {ansible_host: 10.0.0.3}\n"
    with pytest.raises(ClusterError, match=r"hosts.yml: Ansible cannot read (.*\n)*.*duplicate mapping key 'a'"):
        load_cluster(inventory(hosts))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("hosts.yaml", "nodes: {}", r"some/hosts\.yaml: an inventory's hosts are in hosts\.yml; rename it"),
        ("hosts", "[nodes]\nn1\n", r"some/hosts: .* --inventory hosts --list --yaml > hosts\.yml"),
        ("hosts.ini", "[nodes]\nn1\n", r"some/hosts\.ini: .* --inventory hosts\.ini --list --yaml > hosts\.yml"),
        (
            "hosts.yml",
            "[nodes]\nn1 ansible_host=10.0.0.1\n",
            r"some/hosts\.yml: this is an inventory in INI form; write it",
        ),
    ],
)
def test_other_forms_of_inventories_are_named_with_the_way_to_hosts_yml(inventory, name, text, message):
    folder = inventory()
    (folder / "hosts.yml").unlink()
    (folder / name).write_text(text)
    with pytest.raises(ClusterError, match=message):
        load_cluster(folder)


def test_hosts_in_child_groups_are_refused(inventory):
    hosts = {"nodes": {"children": {"rack1": {"hosts": {"a": {}}}, "rack2": {"hosts": {"b": {}}}}}}
    with pytest.raises(ClusterError, match=r"`nodes` has children \(rack1, rack2\), .* under `nodes: hosts:`"):
        load_cluster(inventory(hosts))


@pytest.mark.parametrize(
    ("variable", "value", "form"),
    [
        (
            "ansible_ssh_common_args",
            "-o ProxyJump=gate",
            "~/.ssh/config of the user here, or jump hosts into a group `jump`",
        ),
        ("ansible_ssh_extra_args", "-v", "~/.ssh/config"),
        ("ansible_connection", "local", "nodes are reached over SSH alone"),
        ("ansible_become_user", "admin", "provisioning becomes root"),
        ("ansible_become_method", "su", "sudo without a password"),
        ("ansible_ssh_host", "10.0.0.9", "it is called ansible_host"),
        ("ansible_ssh_user", "bench", "it is called ansible_user"),
        ("ansible_private_key_file", "~/.ssh/id", "it is called ansible_ssh_private_key_file"),
    ],
)
def test_settings_that_a_run_would_ignore_are_refused(inventory, variable, value, form):
    of_host = {"nodes": {"hosts": {"n1": {"ansible_host": "10.0.0.1", variable: value}}}}
    for folder in (inventory(of_host), inventory(**{variable: value})):
        with pytest.raises(
            ClusterError, match=rf"hosts\.yml: {variable} of \w+ is '{re.escape(value)}': .*{re.escape(form)}"
        ):
            load_cluster(folder)


@pytest.mark.parametrize(("variable", "value"), [("ansible_connection", "ssh"), ("ansible_become_user", "root")])
def test_settings_that_change_nothing_may_stay(inventory, variable, value):
    assert load_cluster(inventory(**{variable: value})).nodes
