"""Provisioning of two simulated nodes: dry, from bare, again, limited, from a bundle, and taken back.

The GPU is in the inventory only; what stands in for the vendors' packages comes from a repository signed for the test.
"""

import dataclasses
import json
import re
import shutil
import tarfile
import time
import zipfile
from contextlib import ExitStack
from hashlib import sha256
from io import BytesIO

import pytest
import testinfra

from repro.cluster.cluster import load_cluster
from repro.cluster.fingerprint import differences, gather
from repro.cluster.provision import deprovision, provision
from tests.e2e.hardware import lay_infiniband
from tests.e2e.inventories import changed_inventory
from tests.e2e.launching import note
from tests.e2e.provisioned import being_made, keep
from tests.e2e.registry import Registry
from tests.e2e.vendor import vendors
from tests.support import tasks
from tests.support.simulated import containers_asked_for

IMAGE = "oneflow-reproduction:cu102"
DRIVER = "570.124.06"
# All that a user or a program could notice on a node; logs, caches and a system's own bookkeeping are not, such as the
# copies of dpkg's that a timer makes at midnight.
STATE = r"""
list() {
    find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /dev -o -path /var/log \
        -o -path /var/cache -o -path /var/backups -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/lib/ucf -o -path /var/lib/systemd \
        -o -path /var/lib/docker -o -path '/var/lib/containerd/*' \
        -o -name 'passwd-' -o -name 'shadow-' -o -name 'group-' -o -name 'gshadow-' \) -prune -o "$@"
}
list -printf '%p %y %m %u:%g %l\n' | sort
list -type f -exec b2sum {} + | sort
dpkg-query --show --showformat '${db:Status-Abbrev} ${Package} ${Version}\n'
apt-mark showhold
sysctl net.core net.ipv4
systemctl list-unit-files --no-legend | sort
"""


def state(nodes):
    return {node: nodes.root(node, "sh", "-c", STATE).splitlines() for node in nodes.names}


def changes(before, after):
    """What is on a node but was not before (+), and the other way round (-)."""
    added = {node: [f"+{line}" for line in sorted(set(after[node]) - set(before[node]))] for node in before}
    gone = {node: [f"-{line}" for line in sorted(set(before[node]) - set(after[node]))] for node in before}
    return {node: added[node] + gone[node] for node in before}


def archive(path, tag, content):
    """An image archive as `docker save` writes it, with one file in it; the image's ID."""
    layer = layer_of(content)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as files:
        add(files, "layer.tar", layer)
        add(files, "config.json", config)
        add(files, "manifest.json", json.dumps(manifest).encode())
    return f"sha256:{sha256(config).hexdigest()}"


def layer_of(content):
    """The tar of an image's layer with one file."""
    layer = BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        add(files, "content", content)
    return layer.getvalue()


def add(files, name, content):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    files.addfile(member, BytesIO(content))


@pytest.fixture(scope="module", autouse=True)
def making_disks(simulation):
    """Lets the tests of other modules wait for the disks until it is closed, or ends with the module."""
    with ExitStack() as held:
        held.enter_context(being_made())
        yield held


@pytest.fixture(scope="module")
def repositories(simulation):
    made = vendors(simulation)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def cluster(bare_nodes, repositories, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    image = {
        "name": IMAGE,
        "digest": archive(folder / "image.tar", IMAGE, b"first"),
        "registry": "",
        "archive": str(folder / "image.tar"),
    }
    gpu = {"cluster_gpu": "Tesla V100-SXM2-16GB", "nvidia_driver_version": DRIVER}
    return changed_inventory(bare_nodes, folder / "inventory", cluster_image=image, **gpu, **repositories.variables())


@pytest.fixture(scope="module")
def before(bare_nodes, cluster):
    return state(bare_nodes)


@pytest.fixture(scope="module")
def dry(cluster, before):
    return provision(cluster, check=True, quiet=True)


@pytest.fixture(scope="module")
def after_dry(bare_nodes, dry):
    return state(bare_nodes)


@pytest.fixture(scope="module")
def provisioned(bare_nodes, cluster, after_dry, making_disks):
    """From bare, whatever disks were kept before; those of now are kept for the tests of other modules."""
    done = provision(cluster, quiet=True)
    if done.succeeded:
        keep(bare_nodes)
    making_disks.close()
    return done


@pytest.fixture(scope="module")
def hosts(bare_nodes, provisioned):
    config = str(bare_nodes.ssh_config)
    return {node: testinfra.get_host(f"ssh://{node}", ssh_config=config) for node in bare_nodes.names}


def test_a_dry_run_changes_nothing(dry, before, after_dry):
    assert dry.succeeded, dry
    assert all(each.changed > 5 for each in dry.outcomes)
    assert changes(before, after_dry) == {"node1": [], "node2": []}


def test_bare_nodes_are_provisioned(provisioned, bare_nodes):
    assert provisioned.succeeded, provisioned
    assert [each.node for each in provisioned.outcomes] == bare_nodes.names
    assert all(each.changed > 5 and each.seconds > 1 for each in provisioned.outcomes)
    for each in provisioned.outcomes:
        assert f"driver {DRIVER} is installed, but not the one that runs: restart this node before a run" in each.notes


def test_packages_are_exact_and_held(hosts):
    for host in hosts.values():
        held = host.check_output("apt-mark showhold").split()
        for name in ("cuda-drivers", "nvidia-driver"):
            assert host.package(name).version == f"{DRIVER}-1"
        for name in ("nvidia-container-toolkit", "libnvidia-container1"):
            assert host.package(name).version == "1.17.8-1"
        assert {"cuda-drivers", "nvidia-container-toolkit", "nvidia-container-toolkit-base"} <= set(held)
        assert host.package("chrony").is_installed


def test_limits_and_kernel_parameters(hosts):
    for host in hosts.values():
        assert host.check_output("ulimit -l") == "64"
        assert host.file("/proc/sys/net/ipv4/tcp_rmem").content_string.split() == ["4096", "87380", "33554432"]


def test_services_and_engine(hosts, cluster):
    for host in hosts.values():
        for name in ("chrony", "docker"):
            assert host.service(name).is_running
            assert host.service(name).is_enabled
        assert host.check_output("docker info --format '{{.LoggingDriver}}'") == "json-file"
        assert host.check_output(f"docker image inspect --format '{{{{.Id}}}}' {IMAGE}") == cluster.image.digest
        assert host.file("/var/lib/oneflow-reproduction").user == "runner"
        assert host.file("/var/lib/oneflow-reproduction").listdir() == []


def test_nodes_reach_each_other_by_name_and_know_whom(hosts, bare_nodes):
    for node, host in hosts.items():
        for other in set(hosts) - {node}:
            assert host.check_output(f"ssh -o BatchMode=yes {other} hostname") == other
            assert "forwardagent no" in host.check_output(f"ssh -G {other}").splitlines()
            done = bare_nodes.ssh(node, f"ssh -o BatchMode=yes -o HostKeyAlias=stranger {other} true")
            assert done.returncode != 0
            assert "Host key verification failed" in done.stderr


def test_the_engine_takes_gpus(hosts, bare_nodes, cluster):
    """The toolkit was there when the engine started, or else it refuses the option before it makes a container."""
    for node, host in hosts.items():
        host.run(f"docker run --rm --gpus all --ulimit memlock=-1 {IMAGE} /none")
        asked = containers_asked_for(bare_nodes, node)[-1]
        assert asked["gpu_hooks"]
        assert asked["rlimits"]["RLIMIT_MEMLOCK"] > 2**40


DRIFTS = {
    "sysctl -w net.ipv4.tcp_wmem='4096 65536 65536'": "would set .*tcp_wmem",
    "sed -i /node1/d /etc/hosts": "Names of all nodes",
    "systemctl stop chrony": "The time service runs",
    "sed -i '/^DAEMON_OPTS=.*/d' /etc/default/chrony": "Options of the time service",
    "chown root /var/lib/oneflow-reproduction": "The folder of the runs",
    "rm /etc/security/limits.d/90-oneflow-reproduction.conf": "Memory that may be locked",
    "rm ~runner/.ssh/config": "Each node reaches the others with this key",
    "apt-mark unhold cuda-drivers": "Hold them",
    "rm /etc/apt/preferences.d/oneflow-reproduction-nvidia-driver": "Versions that apt keeps to",
    "dpkg --purge nvidia-container-toolkit": r"would install nvidia-container-toolkit=1\.17\.8-1 from http",
    f"docker image rm {IMAGE}": f"would deliver {IMAGE} sha256:[0-9a-f]+ from /",
    "gpasswd -d runner docker": "The user of the runs may use it",
    "systemctl reset-failed docker.service; systemctl stop docker.socket docker.service": "The engine runs",
}
"""What may have been altered on a node since, of every role, and what a dry run says of it.

The engine's starts are counted from there on, as systemd allows three in a minute.
"""


@pytest.fixture(scope="module")
def altered(hosts, bare_nodes):
    """node2 with all DRIFTS; its state."""
    for drift in DRIFTS:
        bare_nodes.root("node2", "sh", "-ec", f"PATH=$PATH:/usr/sbin; {drift}")
    return bare_nodes.root("node2", "sh", "-c", STATE)


@pytest.fixture(scope="module")
def mended(altered, cluster, tmp_path_factory):
    """That node alone provisioned again by the command, which ends with what the nodes are: its output, and that."""
    runs = tmp_path_factory.mktemp("mended")
    done = tasks.run("provision", CLUSTER=cluster.folder, LIMIT="node2", RUNS=runs)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = runs.glob("fingerprint-*.json")
    return done.stdout, json.loads(kept.read_text())


def test_a_dry_run_names_each_drift(altered, bare_nodes, cluster):
    assert "sysctl.net.ipv4.tcp_wmem" in {each.field for each in differences(gather(cluster))}
    done = tasks.run("provision", CLUSTER=cluster.folder, CHECK=1)
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.findall(r"^    would change: .*", done.stdout.partition("\nnode2  ok")[2], re.M)
    for named in DRIFTS.values():
        assert any(re.search(named, line) for line in said), (named, done.stdout)
    assert not any("record : " in line for line in said), said
    assert done.stdout.splitlines()[-1] == "not up to date: node2; what would change is above"
    assert bare_nodes.root("node2", "sh", "-c", STATE) == altered, "a dry run changes nothing"


def test_what_was_altered_on_one_node_is_mended_there(mended, hosts):
    stdout, fingerprint = mended
    assert int(re.search(r"^node2  ok  \d+ ok, (\d+) changed, ", stdout, re.M)[1]) > 5, stdout
    assert "LIMIT leaves nodes out" in stdout
    assert "\nnode1" not in stdout
    assert hosts["node2"].check_output("getent hosts node1")
    assert "sysctl.net.ipv4.tcp_wmem" not in {each["field"] for each in fingerprint["differences"]}


def test_a_second_run_changes_nothing_but_what_limit_left_out(mended, cluster):
    """On node1, which was not altered, nothing; on node2, which was mended, the file that lets it reach the other."""
    again = provision(cluster, quiet=True)
    assert again.succeeded, again
    assert [each.changed for each in again.outcomes] == [0, 1]


@pytest.mark.parametrize(
    ("role", "changed", "said"),
    [
        ("data_set", {"data": "/srv/data"}, "/srv/data on this node has 0 files named"),
        ("shared_results", {"shared_results": "/srv"}, "/srv on this node is not mounted"),
    ],
)
def test_a_dry_run_names_what_it_cannot_bring(hosts, cluster, role, changed, said):
    done = provision(dataclasses.replace(cluster, **changed), tags=role, check=True, limit="node1", quiet=True)
    (outcome,) = done.outcomes
    assert not done.succeeded and said in outcome.message, done


def test_a_restart_is_announced_where_the_packages_are_installed(hosts, cluster):
    """The restart itself takes machines that boot."""
    given = {"nvidia_driver_restart": True}
    done = provision(cluster, tags="nvidia_driver", check=True, limit="node1", extra=given, quiet=True)
    (outcome,) = done.outcomes
    assert outcome.changes == (f"would restart this node into driver {DRIVER}",)
    assert any(re.match("there is no package linux-headers-", note) for note in outcome.notes), outcome.notes


def test_a_bundle_brings_the_image(hosts, cluster, tmp_path):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    digest = archive(bundle / "images.tar", IMAGE, b"second" * 1000)
    (bundle / "images.json").write_text(json.dumps({IMAGE: {"id": digest, "digest": digest}}))
    done = provision(
        dataclasses.replace(cluster, image=dataclasses.replace(cluster.image, digest="")),
        tags="trainer_image",
        limit="node1",
        extra=from_bundle(bundle),
        quiet=True,
    )
    assert done.succeeded, done
    assert hosts["node1"].check_output(f"docker image inspect --format '{{{{.Id}}}}' {IMAGE}") == digest


def from_bundle(bundle):
    """What `provision` reads from a bundle, whose wholeness other tests are about."""
    images = json.loads((bundle / "images.json").read_text())
    ids = {name: [image["id"], image["digest"]] for name, image in images.items()}
    return {"provision_bundle": str(bundle), "provision_bundle_images": ids}


def test_another_image_than_the_pinned_one_is_refused(hosts, cluster, tmp_path):
    other = archive(tmp_path / "other.tar", IMAGE, b"third")
    image = dataclasses.replace(cluster.image, archive=str(tmp_path / "other.tar"))
    done = provision(dataclasses.replace(cluster, image=image), tags="trainer_image", limit="node1", quiet=True)
    assert not done.succeeded
    (outcome,) = done.outcomes
    assert other in outcome.message
    assert f"wanted is {cluster.image.digest}" in outcome.message


def test_an_unknown_host_key_stops_a_node_before_anything_is_done(provisioned, cluster, tmp_path):
    shutil.copytree(cluster.folder, tmp_path / "inventory")
    known = tmp_path / "inventory/known_hosts"
    first, second = known.read_text().splitlines()
    known.write_text(f"{first}\n{second.split()[0]} {' '.join(first.split()[1:])}\n")
    done = provision(load_cluster(tmp_path / "inventory"), tags="data_set", quiet=True)
    assert not done.succeeded
    assert [each.failed for each in done.outcomes] == [0, 1]
    assert "if the node was reinstalled, check its key's fingerprint" in done.outcomes[1].message


def test_without_sudo_a_dry_run_tells_what_is_there_and_what_is_missing(hosts, bare_nodes, cluster):
    bare_nodes.root("node2", "mv", "/etc/sudoers.d/runner", "/root/runner")
    try:
        done = tasks.run("provision", CLUSTER=cluster.folder, TAGS="base", CHECK=1)
        refused = tasks.run("provision", CLUSTER=cluster.folder, LIMIT="node2")
    finally:
        bare_nodes.root("node2", "mv", "/root/runner", "/etc/sudoers.d/runner")
    assert done.returncode != 0
    assert "node2 cannot be provisioned: it has no sudo without a password. Seen without root:" in done.stdout
    assert re.search(r"^ok +platform +Debian GNU/Linux 12 \(bookworm\), Linux ", done.stdout, re.M), done.stdout
    assert re.search(r"^ok +work +/var/lib/oneflow-reproduction can be written$", done.stdout, re.M), done.stdout
    assert re.search(r"^failed +gpus +nvidia-smi is not installed", done.stdout, re.M), done.stdout
    assert re.search(r"^node1  ok  \d+ ok, ", done.stdout, re.M), done.stdout
    assert re.search(r"\d+ things that a run needs are missing; the lines above say how", done.stderr), done.stderr
    found = re.search(r"^node2  FAILED  .*? 0 changed, ([\d.]+) s: (.*password.*)$", refused.stdout, re.M)
    assert refused.returncode == 1 and found, refused.stdout
    assert "(provisioning needs sudo without a password for the user on the node;" in found[2]
    note("sudo asks for a password", float(found[1]), found[2])


def test_a_sudo_that_wants_a_terminal_is_named(hosts, bare_nodes, cluster):
    rule = "/etc/sudoers.d/terminal"
    bare_nodes.root("node2", "sh", "-ec", f"echo 'Defaults requiretty' > {rule}; chmod 440 {rule}")
    try:
        done = tasks.run("provision", CLUSTER=cluster.folder, CHECK=1, LIMIT="node2")
        refused = tasks.run("provision", CLUSTER=cluster.folder, LIMIT="node2")
    finally:
        bare_nodes.root("node2", "rm", rule)
    assert "node2 cannot be provisioned: its sudo wants a terminal (requiretty in /etc/sudoers)" in done.stdout
    found = re.search(
        r"^node2  FAILED  .*? 0 changed, ([\d.]+) s: (.*take requiretty out of /etc/sudoers.*)$", refused.stdout, re.M
    )
    assert refused.returncode == 1 and found, refused.stdout
    note("sudo wants a terminal", float(found[1]), found[2])


def test_taken_back(before, provisioned, bare_nodes, cluster):
    for node in bare_nodes.names:
        bare_nodes.root(node, "mkdir", "-p", "/var/lib/oneflow-reproduction/runs/mine")
    pretended = deprovision(cluster, check=True, quiet=True)
    assert pretended.succeeded, pretended
    assert "chrony" in bare_nodes.root("node1", "dpkg-query", "--show", "chrony")
    done = deprovision(cluster, quiet=True)
    assert done.succeeded, done
    assert done.outcomes[0].notes == ("left as it is: /var/lib/oneflow-reproduction, which holds runs",)
    for node in bare_nodes.names:
        bare_nodes.root(node, "rmdir", "-p", "--ignore-fail-on-non-empty", "/var/lib/oneflow-reproduction/runs/mine")
    assert changes(before, state(bare_nodes)) == {"node1": [], "node2": []}


def test_where_nothing_was_provisioned_nothing_is_taken_back(bare_nodes, cluster, before):
    done = deprovision(cluster, quiet=True)
    assert done.succeeded, done
    assert [each.changed for each in done.outcomes] == [0, 0]


@pytest.mark.long
def test_an_image_from_a_registry_with_a_certificate_of_its_own(make_nodes, simulation, tmp_path):
    nodes = make_nodes("registry", 1)
    registry = Registry(simulation, tmp_path)
    try:
        digest = registry.push(IMAGE, layer_of(b"pulled"))
        image = {"name": IMAGE, "digest": digest, "registry": registry.name, "archive": ""}
        described = changed_inventory(nodes, tmp_path / "inventory", cluster_image=image)
        before = state(nodes)
        untrusted = provision(described, tags="trainer_image", quiet=True)
        assert "certificate" in untrusted.outcomes[0].message
        given = {"docker_engine_registry_ca": str(registry.certificate)}
        for changed in (True, False):
            done = provision(described, tags="docker_engine,trainer_image", extra=given, quiet=True)
            assert done.succeeded, done
            assert bool(done.outcomes[0].changed) == changed
        assert nodes.root("node1", "docker", "image", "inspect", "--format", "{{.Id}}", IMAGE) == digest
        registry.push(IMAGE, layer_of(b"another"))
        nodes.root("node1", "docker", "image", "rm", "--force", digest)
        other = provision(described, tags="trainer_image", extra=given, quiet=True)
        assert f"wanted is {digest}" in other.outcomes[0].message
        done = deprovision(described, quiet=True)
        assert done.succeeded, done
        assert nodes.root("node1", "docker", "image", "ls", "--quiet") == ""
        assert changes(before, state(nodes)) == {"node1": []}
    finally:
        registry.close()


def wheel(folder):
    """A wheel with one module, `proof`, and the lock that pins it."""
    about = "proof-1.0.dist-info"
    content = {
        "proof.py": "",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: proof\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    content[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in content)
    whole = BytesIO()
    with zipfile.ZipFile(whole, "w") as archived:
        for name, text in content.items():
            archived.writestr(name, text)
    whole = whole.getvalue()
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels/proof-1.0-py3-none-any.whl").write_bytes(whole)
    (folder / "trainer.lock").write_text(f"proof==1.0 --hash=sha256:{sha256(whole).hexdigest()}\n")


@pytest.mark.long
def test_an_environment_in_place_of_containers(make_nodes, tmp_path):
    """Debian 12 has no Python that OneFlow has a wheel for, which is refused; something else is installed."""
    nodes = make_nodes("without", 1, kind="bare")
    described = changed_inventory(nodes, tmp_path / "inventory", cluster_runtime="venv")
    wheel(tmp_path / "bundle")
    given = {"provision_bundle": str(tmp_path / "bundle"), "trainer_image_proof": "import proof"}
    nodes.root("node1", "apt-get", "-qq", "update")
    refused = provision(described, tags="trainer_image", extra=given, quiet=True)
    assert "has wheels for Python 3.10 and 3.9, and this node (debian 12) has neither" in refused.outcomes[0].message
    given["trainer_image_pythons"] = ["3.11"]
    for changed in (True, False):
        done = provision(described, tags="trainer_image", extra=given, quiet=True)
        assert done.succeeded, done
        assert bool(done.outcomes[0].changed) == changed
    nodes.root("node1", "sh", "-c", f"echo another > {described.work}/venv/lock.sha256")
    dry = provision(described, tags="trainer_image", extra=given, check=True, quiet=True)
    assert any("An empty folder" in change for change in dry.outcomes[0].changes), dry
    assert provision(described, tags="trainer_image", extra=given, quiet=True).succeeded
    assert nodes.ssh("node1", f"{described.work}/venv/bin/python -c 'import proof'").returncode == 0
    assert nodes.root("node1", "ls", described.work) == "venv"


@pytest.mark.long
def test_infiniband(make_nodes, repositories, tmp_path):
    """The adapter is a folder of files; kernel modules cannot be loaded in a container, but one is there."""
    nodes = make_nodes("infiniband", 1, kind="bare")
    lay_infiniband(nodes, "node1")
    described = changed_inventory(
        nodes,
        tmp_path / "inventory",
        cluster_hca="mlx5_0",
        infiniband_modules=["overlay"],
        infiniband_address="192.0.2.1/24",
        **repositories.variables(),
    )
    before = state(nodes)
    for changed in (True, False):
        done = provision(described, tags="infiniband", quiet=True)
        assert done.succeeded, done
        assert bool(done.outcomes[0].changed) == changed
    drifts = {
        "dpkg --purge perftest": "would install perftest",
        "rm /etc/modules-load.d/oneflow-reproduction.conf": "infiniband : Modules at each start",
        "systemctl disable --now oneflow-reproduction-ipoib": "infiniband : It runs at each start",
    }
    nodes.root("node1", "sh", "-ec", "; ".join(drifts))
    dry = provision(described, tags="infiniband", check=True, quiet=True)
    assert dry.outcomes[0].changes == tuple(drifts.values())
    assert provision(described, tags="infiniband", quiet=True).succeeded
    assert "mlx5_0" in nodes.root("node1", "ibstat", "--list_of_cas")
    other = provision(dataclasses.replace(described, hca="mlx5_7"), tags="infiniband", quiet=True)
    assert "cluster_hca is mlx5_7, and this node has mlx5_0" in other.outcomes[0].message
    unpinned = {"infiniband_stack": "ofed", "infiniband_ofed_fingerprint": ""}
    refused = provision(described, tags="infiniband", extra=unpinned, quiet=True)
    assert "ofed: the signing key is pinned by its whole fingerprint" in refused.outcomes[0].message
    done = provision(described, tags="infiniband", extra={"infiniband_stack": "ofed"}, quiet=True)
    assert done.succeeded, done
    assert "24.10-0.7.0.0" in nodes.root("node1", "dpkg-query", "--show", "mlnx-ofed-all")
    done = deprovision(described, quiet=True)
    assert done.succeeded, done
    assert changes(before, state(nodes)) == {"node1": []}


@pytest.mark.long
def test_twice_the_nodes_take_at_most_twice_the_time(make_nodes, repositories, tmp_path):
    """From bare, without an image; all nodes share this machine's cores, which is harder than a cluster of machines."""
    took = {}
    for count in (2, 4, 8):
        nodes = make_nodes(f"scale{count}", count, kind="bare")
        described = changed_inventory(nodes, tmp_path / str(count))
        started = time.monotonic()
        done = provision(described, tags=",".join(("base", "ssh_mesh", "docker_engine")), quiet=True)
        took[count] = time.monotonic() - started
        nodes.down()
        assert done.succeeded, done
    print({count: f"{seconds:.1f} s" for count, seconds in took.items()})
    assert took[4] <= 2 * took[2]
    assert took[8] <= 2 * took[4]
