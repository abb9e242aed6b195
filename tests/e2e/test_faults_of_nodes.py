"""What goes wrong with a node's link, work folder and keys: a run bears it, or says which node it is and why."""

import re
import threading
import time

import pytest

from repro.cluster.cluster import load_cluster
from repro.cluster.inventory import ClusterError
from repro.launch.nodes.code_upload import Code
from repro.launch.ssh.nodes import NodePool
from tests.e2e import faults
from tests.e2e.launching import WORK, containers, launcher_of, note, prepare, trainer, wait_until

SLOW = "slow=14@0 slow=14@1"
KEYS = "/home/runner/.ssh/authorized_keys"


@pytest.fixture(scope="module")
def inventory(two_nodes, tmp_path_factory):
    return prepare(two_nodes, tmp_path_factory.mktemp("faults"))


@pytest.fixture
def launcher(inventory, two_nodes, tmp_path_factory):
    made = launcher_of(inventory, tmp_path_factory.mktemp("attempts"))
    with made.pool:
        yield made
    for node in two_nodes.names:
        wait_until(lambda node=node: not containers(two_nodes, node))


def refusal(inventory, folder) -> tuple[str, float]:
    """What keeps a run from starting, and the seconds until it is said."""
    started = time.monotonic()
    with pytest.raises(ClusterError) as error, NodePool(load_cluster(str(inventory)), Code(trainer(folder)), "tests"):
        pass
    return str(error.value), time.monotonic() - started


def test_a_link_that_is_cut_for_8_seconds(launcher, tmp_path, two_nodes):
    def cut():
        faults.link_down(two_nodes, "node2")
        time.sleep(8)
        faults.link_up(two_nodes, "node2")

    thread = threading.Thread(target=cut)
    done = launcher.attempt(trainer(tmp_path, SLOW, "0"), inject=thread.start)
    thread.join()
    assert done.outcome.failure is None
    note("link cut for 8 s", done, "ok")


def test_a_work_folder_that_is_emptied(launcher, tmp_path, two_nodes):
    empty = f"find {WORK} -mindepth 1 -delete"
    done = launcher.attempt(
        trainer(tmp_path, "hang@0 hang@1"),
        inject=lambda: two_nodes.root("node2", "sh", "-c", empty),
    )
    message = done.outcome.failure.text()
    assert message.startswith(f"{WORK}/runs/")
    assert message.endswith(" on node2 was deleted or moved while ranks wrote to it")
    assert done.seconds < 10
    note("work folder emptied", done, message)
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None, "the next attempt brings its code again"


def test_a_work_folder_that_is_read_only(inventory, tmp_path, two_nodes):
    two_nodes.root("node2", "sh", "-ec", f"mount --bind {WORK} {WORK}; mount -o remount,ro,bind {WORK}")
    try:
        message, seconds = refusal(inventory, tmp_path)
    finally:
        two_nodes.root("node2", "umount", WORK)
    assert re.search(rf"node2: the trainers cannot be copied to {WORK}: .*Read-only file system", message)
    assert "node1" not in message
    note("work folder read-only", seconds, message)


def test_a_key_that_is_removed(launcher, inventory, tmp_path, two_nodes):
    def remove():
        two_nodes.root("node2", "mv", KEYS, f"{KEYS}.away")

    try:
        done = launcher.attempt(trainer(tmp_path, "slow=3@0 slow=3@1", "0"), inject=remove)
        launcher.pool.__exit__(None, None, None)
        message, seconds = refusal(inventory, tmp_path / "t")
    finally:
        two_nodes.root("node2", "mv", f"{KEYS}.away", KEYS)
    assert done.outcome.failure is None, "the connection stays"
    assert re.search(r"node2: \S+ port 22 refuses the login; put the public key of your SSH key into", message)
    assert "node1" not in message
    note("key removed", seconds, message)
    assert launcher.pool.recover() == {}
