"""What goes wrong with a node's link, work folder and keys: a run bears it, or says which node it is and why."""

import re
import threading
import time
from dataclasses import replace

import pytest

from repro.cluster.inventory import ClusterError
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.work import LEASE_S
from repro.launch.ssh.nodes import NodePool
from tests.e2e import faults
from tests.e2e.launching import (
    LOST,
    WORK,
    attempts_left,
    cluster_of,
    containers,
    launcher_of,
    note,
    prepare,
    trainer,
    wait_until,
)
from tests.support.patience import slowness

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


def refusal(inventory, folder, first="") -> tuple[str, float]:
    """What keeps a run from starting, and the seconds until it is said; `first` is code of its trainer."""
    code, cluster = UploadedCode(trainer(folder, first=first)), cluster_of(inventory)
    started = time.monotonic()
    with pytest.raises(ClusterError) as error, NodePool(cluster, code, "tests"):
        pass
    return str(error.value), time.monotonic() - started


def cut(nodes, seconds: float) -> threading.Thread:
    """Cuts node2's link for so long once it is started."""

    def there_and_back():
        faults.link_down(nodes, "node2")
        time.sleep(seconds)
        faults.link_up(nodes, "node2")

    return threading.Thread(target=there_and_back)


@pytest.mark.parametrize("seconds", [3, 8])
def test_a_link_that_is_cut_for_seconds(launcher, tmp_path, two_nodes, seconds):
    """A run bears 3 s; 8 s only if TCP sends again in time, as it does at intervals that double."""
    thread = cut(two_nodes, seconds)
    done = launcher.attempt(trainer(tmp_path / "slow", SLOW, "0"), inject=thread.start)
    thread.join()
    message = done.outcome.failure.text() if done.outcome.failure else "ok"
    assert message == "ok" or (seconds == 8 and re.fullmatch(LOST, message))
    note(f"link cut for {seconds} s", done, message)
    wait_until(lambda: not containers(two_nodes, "node2"), LEASE_S + 10)
    assert launcher.attempt(trainer(tmp_path / "next")).outcome.failure is None


def test_a_link_that_is_cut_for_20_seconds(launcher, tmp_path, two_nodes):
    """For longer than a node goes on without its controller: the attempt ends, and the next one has the node again."""
    before = {node: attempts_left(two_nodes, node) for node in two_nodes.names}
    thread = cut(two_nodes, 20)
    done = launcher.attempt(trainer(tmp_path / "hang", "hang@0 hang@1"), inject=thread.start)
    message = done.outcome.failure.text()
    thread.join()
    assert re.fullmatch(LOST, message)
    assert done.seconds < 20 * slowness()
    note("link cut for 20 s", done, message)
    wait_until(lambda: not containers(two_nodes, "node2"), 10)
    left = [len(attempts_left(two_nodes, node) - before[node]) for node in two_nodes.names]
    assert left == [0, 1], "what the node could not send stays there"
    assert launcher.attempt(trainer(tmp_path / "next")).outcome.failure is None, "the next attempt connects again"


def test_a_node_that_cannot_be_reached(inventory, tmp_path, two_nodes):
    faults.link_down(two_nodes, "node2")
    try:
        message, seconds = refusal(inventory, tmp_path)
    finally:
        faults.link_up(two_nodes, "node2")
    assert re.search(r"node2: cannot connect to runner@\S+ port 22: ", message)
    assert "node1" not in message
    note("node out of reach", seconds, message.splitlines()[1])
    with NodePool(cluster_of(inventory), UploadedCode(trainer(tmp_path)), "tests") as pool:
        assert [*pool.members] == two_nodes.names, "nothing holds the other node"


def test_a_work_folder_that_is_emptied(launcher, tmp_path, two_nodes):
    empty = f"find {WORK} -mindepth 1 -delete"
    done = launcher.attempt(
        trainer(tmp_path, "hang@0 hang@1"),
        inject=lambda: two_nodes.root("node2", "sh", "-c", empty),
    )
    message = done.outcome.failure.text()
    assert message.startswith(f"{WORK}/runs/")
    assert message.endswith(" on node2 was deleted or moved while ranks wrote to it")
    assert done.seconds < 10 * slowness()
    note("work folder emptied", done, message)
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None, "the next attempt brings its code again"


def test_a_work_folder_that_is_read_only(inventory, tmp_path, two_nodes):
    """Whether the node has the trainers of this run already, or is to get them."""
    with NodePool(cluster_of(inventory), UploadedCode(trainer(tmp_path / "known")), "tests"):
        pass
    two_nodes.root("node2", "sh", "-ec", f"mount --bind {WORK} {WORK}; mount -o remount,ro,bind {WORK}")
    try:
        known, _ = refusal(inventory, tmp_path / "known")
        message, seconds = refusal(inventory, tmp_path / "new", "# of this test alone")
    finally:
        two_nodes.root("node2", "umount", WORK)
    assert re.search(rf"node2: the trainers cannot be copied to {WORK}: .*Read-only file system", message)
    assert "node1" not in message
    assert f"node2: {WORK} is on a file system that is mounted read-only there" in known
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


@pytest.mark.parametrize(("verdict", "said"), [("DROP", "timed out"), ("REJECT", "(Connection refused|timed out)")])
def test_a_firewall_between_ranks(launcher, tmp_path, two_nodes, verdict, said):
    faults.firewall(two_nodes, "node1", verdict)
    started = time.monotonic()
    try:
        done = launcher.attempt(trainer(tmp_path / "closed"))
    finally:
        faults.no_firewall(two_nodes, "node1", verdict)
    seconds, message = time.monotonic() - started, done.outcome.failure.text()
    expected = rf"node2: it cannot connect to the node of rank 0, \S+, port \d+: {said}\. Let the nodes"
    assert re.match(expected, message), message
    assert done.events == [], "no rank was started"
    assert seconds < 40 * slowness()
    note(f"firewall between ranks ({verdict})", seconds, message)
    assert launcher.attempt(trainer(tmp_path / "open")).outcome.failure is None


LOGIN_SHELLS = {
    "a start-up file that prints": (
        "echo 'echo welcome' >> ~runner/.bashrc",
        "sed -i '/welcome/d' ~runner/.bashrc",
        "",
    ),
    "a start-up file that exits": (
        "sed -i '1i exit 0 # early' ~runner/.bashrc",
        "sed -i '/# early/d' ~runner/.bashrc",
        r"its login shell ended \(status 0\) before it ran the command; a line of its start-up files",
    ),
    "no login shell": (
        "usermod --shell /usr/sbin/nologin runner",
        "usermod --shell /bin/bash runner",
        "its account has no login shell there; `chsh",
    ),
    "an expired account": (
        "chage --expiredate 0 runner",
        "chage --expiredate -1 runner",
        "closed the connection in the middle of the login; the account may have expired there",
    ),
}


@pytest.mark.parametrize(("do", "undo", "said"), LOGIN_SHELLS.values(), ids=LOGIN_SHELLS)
def test_login_shells(inventory, tmp_path, two_nodes, do, undo, said, request):
    two_nodes.root("node2", "sh", "-ec", do)
    try:
        if said:
            message, seconds = refusal(inventory, tmp_path)
        else:
            with NodePool(cluster_of(inventory), UploadedCode(trainer(tmp_path)), "tests") as pool:
                assert [*pool.members] == two_nodes.names
    finally:
        two_nodes.root("node2", "sh", "-ec", undo)
    if said:
        assert re.search(f"node2: .*({said})", message), message
        assert "node1" not in message
        note(request.node.callspec.id, seconds, message.splitlines()[1])


LIMITS = {
    "MaxSessions 1": (
        "echo MaxSessions 1 > /etc/ssh/sshd_config.d/sessions.conf; systemctl restart ssh",
        "rm /etc/ssh/sshd_config.d/sessions.conf; systemctl restart ssh",
        r"its sshd refuses a further session over one connection .* set MaxSessions to 10",
    ),
    "nofile 12": (
        "echo runner - nofile 12 > /etc/security/limits.d/fault.conf",
        "rm /etc/security/limits.d/fault.conf",
        r"its sshd ended the session before the command began .*: the limits nproc or nofile of the account",
    ),
    "nproc 12": (
        "echo runner - nproc 12 > /etc/security/limits.d/fault.conf",
        "rm /etc/security/limits.d/fault.conf",
        r"\(limit nproc of this account: 12; raise it in /etc/security/limits\.d|the limits nproc or nofile of the account",
    ),
}


@pytest.mark.parametrize(("do", "undo", "said"), LIMITS.values(), ids=LIMITS)
def test_limits_of_the_account(inventory, tmp_path, two_nodes, do, undo, said, request):
    two_nodes.root("node2", "sh", "-ec", do)
    try:
        message, seconds = refusal(inventory, tmp_path)
    finally:
        two_nodes.root("node2", "sh", "-ec", undo)
    assert re.search(f"(?s)node2: .*({said})", message), message
    assert "node1" not in message
    note(request.node.callspec.id, seconds, message.splitlines()[-1])


@pytest.fixture
def hidden(two_nodes):
    """/proc shows an account its own processes alone."""
    two_nodes.root("node2", "mount", "-o", "remount,hidepid=2", "/proc")
    yield
    two_nodes.root("node2", "mount", "-o", "remount,hidepid=0", "/proc")


@pytest.mark.parametrize(
    ("fault", "inject", "said"),
    [
        ("", None, None),
        ("exit=3@1 hang@0", None, "rank 1 on node2 exited with status 3"),
        ("kill@1 hang@0", None, "rank 1 on node2 was killed by SIGKILL"),
        (
            "hang@0 hang@1",
            faults.kill_engine,
            "Docker on node2 was killed, stopped or restarted, which ended the container",
        ),
    ],
    ids=["nothing", "a rank exits", "a rank is killed", "the engine is killed"],
)
def test_where_processes_of_other_accounts_are_hidden(
    hidden, launcher, tmp_path, two_nodes, fault, inject, said, request
):
    done = launcher.attempt(trainer(tmp_path, fault), inject=inject and (lambda: inject(two_nodes, "node2")))
    failure = done.outcome.failure
    assert (failure.text() if failure else None) == said
    note(f"hidepid=2: {request.node.callspec.id}", done, said or "ok")


def test_one_machine_under_two_names(inventory, tmp_path):
    cluster = cluster_of(inventory)
    first = cluster.nodes[0]
    twice = replace(cluster, nodes=(first, replace(first, name="again")))
    started = time.monotonic()
    with pytest.raises(ClusterError) as error, NodePool(twice, UploadedCode(trainer(tmp_path)), "tests"):
        pass
    assert re.search("(node1 and again|again and node1) are the same machine", str(error.value))
    note("one machine under two names", time.monotonic() - started, str(error.value).splitlines()[1])
