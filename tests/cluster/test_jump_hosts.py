"""Jump hosts over networks that are apart, with the real sshd: every host key on the way is checked."""

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from paramiko import ECDSAKey

from repro.cluster.cluster import Node, load_cluster
from repro.cluster.inventory import ClusterError
from repro.cluster.jump_hosts import _keys_by_name, jump_hosts, ssh_options
from repro.cluster.prompts import Answers, new_cluster
from repro.cluster.ssh import Remote, RemoteError
from tests.support.clusters import V100
from tests.support.networks import PORT, chain, missing, reached_directly

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
USER = "root"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two jump hosts and a node behind them."""
    with chain(tmp_path_factory.mktemp("hosts"), 3) as made:
        yield made


@pytest.fixture
def cluster(hosts, tmp_path, monkeypatch):
    """A cluster of the last host; its known_hosts has all keys. Its folder has what shells and ssh take for their own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made, login = hosts
    folder = tmp_path / """it's  "50%"  \\ full"""
    folder.mkdir()
    key = shutil.copy(login, folder)
    jump = tuple(Node(f"jump{n}", host.address, PORT, USER, 1) for n, host in enumerate(made[:-1], 1))
    node = Node("node1", made[-1].address, PORT, USER, 1)
    known = folder / "known_hosts"
    known.write_text("".join(host.known for host in made))
    return replace(V100, nodes=(node,), jump=jump, known_hosts=known, private_key=Path(key))


def connect(cluster):
    with Remote(cluster, cluster.nodes[0]) as remote:
        return remote.run(["ip", "-oneline", "-4", "address"]).stdout


def test_a_node_is_reached_through_both(cluster, hosts):
    assert not reached_directly(hosts[0][-1])
    assert hosts[0][-1].address in connect(cluster)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("wrong", ["missing", "another"])
def test_every_key_on_the_way_is_checked(cluster, hosts, place, wrong):
    """Fabric alone would take any key of a jump host."""
    made, _ = hosts
    lines = [host.known for host in made]
    lines[place] = "" if wrong == "missing" else f"[{made[place].address}]:{PORT} {made[place - 1].key}\n"
    cluster.known_hosts.write_text("".join(lines))
    said = "no host key of" if wrong == "missing" else "another host key than"
    with pytest.raises(RemoteError, match=said) as caught:
        connect(cluster)
    assert made[place].address in str(caught.value)
    assert ("the jump host" in str(caught.value)) == (place < 2)


def test_the_way_of_the_user_s_own_configuration_is_checked_too(cluster, hosts, tmp_path, monkeypatch):
    made, _ = hosts
    config = tmp_path / ".ssh" / "config"
    config.parent.mkdir()
    jumps = ",".join(f"{USER}@{host.address}:{PORT}" for host in made[:-1])
    config.write_text(f"Host {made[-1].address}\n  ProxyJump {jumps}\n")
    own = replace(cluster, jump=())
    assert [each.address for each in jump_hosts(own, own.nodes[0])] == [host.address for host in made[:-1]]
    assert made[-1].address in connect(own)
    own.known_hosts.write_text(made[1].known + made[2].known)
    with pytest.raises(RemoteError, match=f"no host key of the jump host {USER}@{made[0].address}"):
        connect(own)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
@pytest.mark.parametrize("left_out", [None, 0, 1, 2])
def test_provisioning_takes_the_same_way(cluster, hosts, left_out):
    """Ansible runs OpenSSH with these options."""
    made, key = hosts
    cluster.known_hosts.write_text("".join(host.known for n, host in enumerate(made) if n != left_out))
    options = ["-o", "StrictHostKeyChecking=yes", "-o", "BatchMode=yes", "-o", "GlobalKnownHostsFile=none"]
    where = ["-i", str(key), "-p", str(PORT), f"{USER}@{made[-1].address}", "echo", "there"]
    done = subprocess.run(["ssh", *options, *ssh_options(cluster), *where], capture_output=True, text=True)
    assert (done.returncode == 0, done.stdout) == ((True, "there\n") if left_out is None else (False, ""))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="needs ssh")
def test_openssh_reads_the_options_as_they_were_meant(cluster):
    shown = subprocess.run(["ssh", "-G", *ssh_options(cluster), "host"], capture_output=True, text=True, check=True)
    assert f"userknownhostsfile {cluster.known_hosts}\n" in shown.stdout


def answers(hosts, folder, **changes):
    made, key = hosts
    given = {
        "NAME": f"{folder}/new",
        "HOSTS": f"node1={made[-1].address}:{PORT}",
        "LOGIN": USER,
        "JUMP": ",".join(f"{host.address}:{PORT}" for host in made[:-1]),
        "KEY": str(key),
        "FINGERPRINTS": " ".join(host.fingerprint for host in made),
        "GPU": "",
        "GPUS": "2",
        "INTERFACE": "lo",
        "HCA": "",
        "GBITS": "10",
        "STACK": "cu102",
    }
    return Answers((given | changes).get, None)


def test_an_inventory_of_a_cluster_behind_jump_hosts(hosts, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made, _ = hosts
    printed = []
    new_cluster(answers(hosts, tmp_path), printed.append)
    cluster = load_cluster(tmp_path / "new")
    assert [each.address for each in cluster.jump] == [host.address for host in made[:-1]]
    assert made[-1].address in connect(cluster)
    assert not [line for line in printed if line.startswith("note")]


def test_nothing_is_asked_of_a_jump_host_whose_key_is_wrong(hosts, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made, _ = hosts
    others = " ".join(host.fingerprint for host in made[1:])
    with pytest.raises(ClusterError, match="FINGERPRINTS: jump1 shows"):
        new_cluster(answers(hosts, tmp_path, FINGERPRINTS=others), print)
    assert not os.path.exists(tmp_path / "new")


def test_lines_of_known_hosts_that_name_no_host_s_key_are_passed_over():
    """Authorities, revoked keys and damaged lines are common in the file of a user's home."""
    good, revoked = (ECDSAKey.generate() for _ in range(2))
    lines = [
        "# a comment",
        f"n1 {good.get_name()} {good.get_base64()}",
        f"n1,n2 {revoked.get_name()} {revoked.get_base64()}",
        "@cert-authority *.corp ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",
        f"@revoked * {revoked.get_name()} {revoked.get_base64()}",
        "n3 ssh-ed25519 AAAAnot-a-key",
        f"n4 {good.get_name()} {good.get_base64()[:-9]}",
        "@revoked",
    ]
    found = _keys_by_name("\n".join(lines))
    assert {name: keys for name, keys in found.items() if keys} == {"n1": [good]}
