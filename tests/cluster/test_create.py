"""New inventories: host keys that a person confirms, what a node suggests, and what is written."""

import paramiko
import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.create import found_in, image_of, jump_hosts_of, key_of, nodes_of, target_folder
from repro.cluster.host_keys import HostKey, confirmed, scan
from repro.cluster.inventory import INVENTORIES, ClusterError
from repro.cluster.prompts import Answers, check_given, new_cluster
from repro.utils.errors import ReproError
from tests.support.paths import HARDWARE

pytestmark = pytest.mark.usefixtures("inventories_in_forks")
RECORDED = HARDWARE
ROUTES = """Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eno1 00000000 0100A8C0 0003 0 0 0 00000000 0 0 0
eno2 00000B0A 00000000 0001 0 0 0 00FFFFFF 0 0 0
docker0 000011AC 00000000 0001 0 0 0 0000FFFF 0 0 0
"""


def host_key(node="a"):
    key = paramiko.ECDSAKey.generate()
    return HostKey(node, f"10.0.0.1 {key.get_name()} {key.get_base64()}"), key.fingerprint


GIVEN = dict.fromkeys(("NAME", "HOSTS", "LOGIN", "JUMP", "KEY", "GPUS", "GBITS"))


@pytest.mark.parametrize("given", [{}, {"HOSTS": "a,b"}, {"GPUS": "8.0", "GBITS": "2.5"}, {"LOGIN": "jane"}])
def test_what_a_person_will_be_asked_for_is_not_refused_before(monkeypatch, given):
    monkeypatch.setattr("getpass.getuser", lambda: "CORP\\first last")
    check_given(GIVEN | given, person=True)


@pytest.mark.parametrize(
    ("given", "person", "words"),
    [
        ({}, False, "NAME is missing"),
        ({"NAME": "new"}, False, "HOSTS is missing"),
        ({"HOSTS": "a,a"}, True, "a"),
        ({"NAME": "v100x32"}, True, "v100x32"),
        ({"GBITS": "fast"}, True, "GBITS=fast: it is a number"),
    ],
)
def test_wrong_and_missing_answers_are_refused_before_anybody_is_asked(given, person, words):
    with pytest.raises(ReproError, match=words):
        check_given(GIVEN | given, person)


class NodeAskedError(Exception):
    """A node would be asked now."""


@pytest.fixture
def nodes_not_to_be_asked(monkeypatch):
    def scan(*_):
        raise NodeAskedError

    monkeypatch.setattr("repro.cluster.prompts.scan", scan)


SETTINGS = {"NAME": "/nowhere/new", "HOSTS": "a,b", "LOGIN": "tester", "JUMP": "", "KEY": ""}


@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"GPU": "NVIDIA H200"},
        {"GPUS": "8", "GBITS": "0.5"},
        {"STACK": "cu102-modern"},
        {"IMAGE": "reg.site:5000/x"},
        {"IMAGE": "reg.site:5000/x", "STACK": "cu102-modern"},
        {"HCA": "mlx5_0,mlx5_1:1", "INTERFACE": "bond0.12", "DATA": "/data"},
    ],
)
def test_settings_that_an_inventory_may_have_are_not_refused(nodes_not_to_be_asked, tmp_path, given, person):
    answers = Answers((SETTINGS | {"NAME": f"{tmp_path}/new"} | given).get, input if person else None)
    with pytest.raises(NodeAskedError):
        new_cluster(answers, lambda _: None)


@pytest.mark.parametrize("person", [True, False])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"GBITS": "0"}, r"^GBITS=0: it is a number from 0\.01 to 3200"),
        ({"GPUS": "2000"}, "^GPUS=2000: it is a whole number from 1 to 1024"),
        ({"GPUS": "2.5"}, r"^GPUS=2\.5: it is a whole number"),
        ({"INTERFACE": "a b"}, "^INTERFACE=a b: it is text"),
        ({"STACK": "cu118"}, "^STACK=cu118: it is cu102"),
        ({"IMAGE": "a b"}, "^IMAGE=a b: it is a host"),
        ({"IMAGE": "reg.site/x", "DIGEST": ""}, "^DIGEST=: an image from a registry"),
        ({"DATA": "x"}, "^DATA=x: it is text"),
    ],
)
def test_settings_that_no_inventory_may_have_are_refused_before_a_node_is_asked(
    nodes_not_to_be_asked, tmp_path, given, words, person
):
    answers = Answers((SETTINGS | {"NAME": f"{tmp_path}/new"} | given).get, input if person else None)
    with pytest.raises(ClusterError, match=words):
        new_cluster(answers, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_a_number_without_a_fraction_is_whole():
    number = Answers({"GPUS": "8.0", "GBITS": "2.5"}.get, None).number
    assert (repr(number("GPUS", "", None)), repr(number("GBITS", "", None))) == ("8", "2.5")


def test_fingerprints_are_those_of_openssh():
    shown, fingerprint = host_key()
    assert (shown.fingerprint, shown.kind) == (fingerprint, "ecdsa-sha2-nistp256")


def test_only_confirmed_keys_are_kept_and_every_node_needs_one():
    (first, known), (second, _), (other, its) = host_key(), host_key(), host_key("b")
    assert confirmed([first, second, other], [known, its]) == [first, other]
    with pytest.raises(ClusterError, match=r"FINGERPRINTS: b shows SHA256:.*none of which was given"):
        confirmed([first, other], [known])


def test_keys_are_scanned_and_a_silent_host_is_named(server):
    (key,) = scan([("one", "127.0.0.1", server.port)])
    assert key.fingerprint == server.host_key.fingerprint
    assert key.line.startswith(f"[127.0.0.1]:{server.port} ")
    server.stop()
    with pytest.raises(ClusterError, match=rf"host key on one \(127\.0\.0\.1 port {server.port}\)"):
        scan([("one", "127.0.0.1", server.port)])


def test_nodes_are_named_and_numbered():
    nodes = nodes_of("10.0.0.1, big=10.0.0.2:2222 gpu7.site [fe80::1]:22", "me")
    assert [(node.name, node.address, node.port) for node in nodes] == [
        ("node1", "10.0.0.1", 22),
        ("big", "10.0.0.2", 2222),
        ("gpu7.site", "gpu7.site", 22),
        ("node4", "fe80::1", 22),
    ]


@pytest.mark.parametrize(
    "hosts",
    ["", "a a", "x=a y=a", "-oProxyCommand=x", "a;b", "a:port", "a:0", "a:99999", f"a:{10**400}", "all=a", "nodes"],
)
def test_wrong_hosts(hosts):
    with pytest.raises(ClusterError, match=r"^HOSTS"):
        nodes_of(hosts, "me")


@pytest.mark.parametrize("hosts", ["me@", "-x", "me@a;b", "a:99999", "nodes"])
def test_wrong_jump_hosts(hosts):
    with pytest.raises(ClusterError, match=r"^JUMP"):
        jump_hosts_of(hosts, "me")


@pytest.mark.parametrize("user", ["", "a b", "-x", "a;b"])
def test_a_wrong_user(user):
    with pytest.raises(ClusterError, match=r"^LOGIN="):
        nodes_of("a", user)


@pytest.mark.parametrize("path", ["/nowhere", "/tmp", "~nobody-here/x", "x" * 5000])
def test_a_key_that_cannot_be_read(path):
    with pytest.raises(ClusterError, match=r"^KEY=.*: no file there that can be read"):
        key_of(path)


@pytest.mark.parametrize("name", ["/proc/x", "/dev/null/x", "x" * 400, "/tmp/all", "nodes"])
def test_a_name_of_which_no_folder_can_be_made(name):
    with pytest.raises(ReproError, match=r"^NAME="):
        target_folder(name)


def test_nothing_is_overwritten(tmp_path):
    with pytest.raises(ClusterError, match="exists already"):
        target_folder(str(tmp_path))
    assert target_folder("my-cluster.2") == INVENTORIES / "my-cluster.2"
    with pytest.raises(ClusterError, match="it is letters"):
        target_folder("a b")


def facts(files, report=""):
    images = "other:1 sha256:2\noneflow-reproduction:cu102 sha256:1\n"
    return {"commands": {"nvidia-smi -q": {"output": report}, "docker images": {"output": images}}, "files": files}


def network(*up):
    files = {f"/sys/class/net/{name}/operstate": "up" for name in up}
    return files | {"/proc/net/route": ROUTES, "/sys/class/net/eno2/speed": "25000"}


def test_suggestions_for_a_node_without_gpus():
    probed = facts(network("eno1", "eno2"))
    found = found_in(probed, "10.11.0.7")
    assert (found.gpu, found.gpus, found.stack, found.hca) == ("", 0, "cu102", "")
    assert (found.interface, found.network_gbits) == ("eno2", 25)
    assert found.image_ids == {"cu102": "sha256:1"}
    assert found_in(probed, "198.51.100.1").interface == "eno1"


@pytest.mark.parametrize(
    ("recorded", "gpu", "stack"),
    [("h200", "NVIDIA H200", "cu102-modern"), ("v100-driver-550", "Tesla V100-SXM2-16GB", "cu102")],
)
def test_suggestions_for_gpus_and_infiniband(recorded, gpu, stack):
    port = "/sys/class/infiniband/mlx5_0/ports/1"
    files = network("eno2", "ib0") | {
        f"{port}/state": "4: ACTIVE",
        f"{port}/rate": "100 Gb/sec (4X EDR)",
        f"{port}/link_layer": "InfiniBand",
    }
    found = found_in(facts(files, (RECORDED / recorded / "nvidia-smi-q.txt").read_text()), "10.11.0.7")
    assert (found.gpu, found.stack, found.interface, found.hca) == (gpu, stack, "ib0", "mlx5_0")
    assert found.network_gbits == 100


@pytest.mark.parametrize(
    ("source", "registry", "archive"),
    [("", "", ""), ("reg.site:5000/x", "reg.site:5000/x", ""), ("/b/images.tar", "", "/b/images.tar")],
)
def test_source_of_the_image(source, registry, archive):
    image = image_of("cu102", source, "")
    assert (image.name, image.registry, image.archive) == ("oneflow-reproduction:cu102", registry, archive)


def settings(server, tmp_path, **changes):
    given = {
        "NAME": f"{tmp_path}/new",
        "HOSTS": f"127.0.0.1:{server.port}",
        "LOGIN": "tester",
        "JUMP": "",
        "KEY": f"{tmp_path}/id",
        "FINGERPRINTS": server.host_key.fingerprint,
        "GPU": "",
        "GPUS": "2",
        "INTERFACE": "lo",
        "HCA": "",
        "GBITS": "10",
        "STACK": "cu102",
    }
    return {name: value for name, value in (given | changes).items() if value is not None}


def test_an_inventory_by_settings_alone(server, tmp_path):
    printed = []
    made = new_cluster(Answers(settings(server, tmp_path).get, None), printed.append)
    cluster = load_cluster(tmp_path / "new")
    assert made == cluster
    (node,) = cluster.nodes
    assert (node.name, node.address, node.port, node.user) == ("node1", "127.0.0.1", server.port, "tester")
    assert (cluster.interface, cluster.world_size, cluster.private_key) == ("lo", 2, tmp_path / "id")
    assert cluster.known_hosts.read_text() == (tmp_path / "known_hosts").read_text()
    assert [line for line in printed if line.startswith("note")] == []
    assert sorted(path.name for path in tmp_path.iterdir() if "new" in path.name) == ["new"]


def test_an_inventory_by_answers(server, tmp_path):
    asked = []

    def ask(question):
        asked.append(question)
        return {"are": "yes", "GPU": "", "ranks": "3"}.get(question.split()[0], "")

    given = settings(server, tmp_path, JUMP=None, FINGERPRINTS=None, GPU=None, GPUS=None)
    cluster = new_cluster(Answers(given.get, ask), lambda _: None)
    assert (cluster.gpus_per_node, cluster.gpu) == (3, "")
    assert [question.split()[0] for question in asked] == ["jump", "are", "GPU", "ranks", "image", "the", "folder"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"FINGERPRINTS": None}, "FINGERPRINTS is missing.*no terminal to ask at"),
        ({"FINGERPRINTS": "yes"}, "none of which was given"),
        ({"HOSTS": None}, "HOSTS is missing"),
        ({"GPUS": "many"}, "GPUS=many: it is a number"),
        ({"STACK": "cu118"}, r"^STACK=cu118: it is cu102 or cu102-modern"),
        ({"STACK": "a b"}, r"^STACK=a b: it is"),
        ({"IMAGE": "reg.site/x"}, r"^DIGEST=: an image from a registry"),
        ({"IMAGE": "a b"}, r"^IMAGE=a b: it is a host"),
        ({"IMAGE": "{{x}}"}, r"^IMAGE=.*: write the value itself"),
        ({"GPUS": "0"}, r"^GPUS=0: it is a whole number from 1 to 1024"),
        ({"GPUS": "inf"}, r"^GPUS=inf: it is a number"),
        ({"INTERFACE": "a b"}, r"^INTERFACE=a b: it is text"),
        ({"GBITS": "nan"}, r"^GBITS=nan: it is a number"),
        ({"HCA": "-x"}, r"^HCA=-x: it is text"),
        ({"DATA": "x"}, r"^DATA=x: it is text"),
        ({"GPU": "{{x}}"}, r"^GPU={{x}}: write the value itself"),
    ],
)
def test_what_is_missing_or_wrong_stops_it_and_leaves_nothing(server, tmp_path, changes, message):
    with pytest.raises(ClusterError, match=message):
        new_cluster(Answers(settings(server, tmp_path, **changes).get, None), lambda _: None)
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []


def test_not_confirmed_is_not_written(server, tmp_path):
    given = settings(server, tmp_path, FINGERPRINTS=None)
    with pytest.raises(ClusterError, match="none of which was given"):
        new_cluster(Answers(given.get, lambda question: "no"), lambda _: None)
    assert not (tmp_path / "new").exists()
