"""Whatever goes wrong on a node ends the attempt with node, reason and last log lines, and leaves no container."""

import re
import signal
import threading
import time

import pytest

from repro.cluster.inventory import ClusterError
from repro.launch.agent.leftovers import AGENT, USER
from repro.launch.agent.leftovers import WORK as WORK_LABEL
from repro.launch.attempt import Limits
from repro.launch.nodes.code_upload import UploadedCode
from repro.launch.nodes.commands import OWN
from repro.launch.ssh.agent_client import LEASE_S
from repro.launch.ssh.nodes import NodePool
from tests.e2e import faults
from tests.e2e.launching import LOST, WORK, cluster_of, containers, launcher_of, note, prepare, trainer, wait_until
from tests.support import tasks
from tests.support.patience import slowness

HANG = "hang@0 hang@1"


@pytest.fixture(scope="module")
def inventory(two_nodes, tmp_path_factory):
    return prepare(two_nodes, tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def launcher(inventory, tmp_path_factory):
    made = launcher_of(inventory, tmp_path_factory.mktemp("attempts"))
    with made.pool:
        yield made


@pytest.fixture
def clean(two_nodes):
    """After the test no node has a container of a run."""
    yield
    for node in two_nodes.names:
        wait_until(lambda node=node: not containers(two_nodes, node))


@pytest.mark.parametrize(
    ("fault", "wait", "message"),
    [
        ("exit=3@1", "60", "rank 1 on node2 exited with status 3"),
        ("quiet@1 hang@0", "", "rank 1 on node2 ended before its work was done"),
        ("kill@1 hang@0", "", "rank 1 on node2 was killed by SIGKILL"),
    ],
)
def test_a_rank_that_ends(launcher, clean, tmp_path, fault, wait, message):
    done = launcher.attempt(trainer(tmp_path, fault, wait))
    assert done.outcome.failure.text() == message
    assert done.seconds < 10 * slowness()
    note(fault.split()[0].replace("=3", ""), done, message)


def test_the_last_lines_are_those_of_the_rank_that_failed(launcher, clean, tmp_path):
    done = launcher.attempt(trainer(tmp_path, "exit=3@3", "60"), ranks=4)
    assert done.outcome.failure.text() == "rank 3 on node2 exited with status 3"
    assert done.outcome.log_tail == "this rank gives up"
    assert "this rank gives up" in (done.folder / "logs/local_rank_3/stderr").read_text()
    assert {event["node"] for event in done.events if event.get("rank") in (2, 3)} == {"node2"}


def test_ranks_that_hang(launcher, clean, tmp_path):
    done = launcher.attempt(trainer(tmp_path, HANG), limits=Limits(stall_timeout_s=3))
    assert done.outcome.failure.text() == "no rank has printed anything for 3 s: at least one hangs"
    note("all ranks hang (STALL_TIMEOUT=3)", done, done.outcome.failure.text())


def test_a_container_that_is_killed(launcher, clean, tmp_path, two_nodes):
    done = launcher.attempt(
        trainer(tmp_path, HANG), inject=lambda: two_nodes.ssh("node2", "docker kill $(docker ps -q)")
    )
    assert done.outcome.failure.text() == "the container on node2 was stopped from outside (status 137)"
    assert done.seconds < 10 * slowness()
    note("container killed", done, done.outcome.failure.text())


def test_out_of_memory_as_the_program_says_it(launcher, clean, tmp_path):
    first = "print('CUDA error: out of memory', file=sys.stderr, flush=True)"
    done = launcher.attempt(trainer(tmp_path, "exit=1@1", "60", first))
    message = done.outcome.failure.text()
    assert message == ("rank 1 on node2 exited with status 1 (out of memory: choose a smaller case or a larger device)")
    note("out of memory (device)", done, message)


def test_out_of_memory_as_the_kernel_ends_it(launcher, clean, tmp_path, two_nodes):
    eat = (
        "import json, time\n"
        "if os.environ['RANK'] == '1':\n"
        "    with open(json.load(open(sys.argv[2]))['output'] + '/metrics-rank1.jsonl', 'w') as file:\n"
        "        file.write(json.dumps({'event': 'start', 'time': time.time()}) + '\\n')\n"
        "    time.sleep(2)\n"
        "    eaten = [bytearray(os.urandom(1 << 20)) for _ in range(400)]\n"
    )
    limit = "docker update --memory 120m --memory-swap 120m $(docker ps -q)"
    done = launcher.attempt(
        trainer(tmp_path, "hang@0", "", eat), inject=lambda: two_nodes.ssh("node2", limit), alone=True
    )
    message = done.outcome.failure.text()
    assert message == (
        "rank 1 on node2 was killed by SIGKILL (the kernel of this node ran out of memory and killed processes)"
    )
    note("out of memory (kernel)", done, message)


def test_ssh_that_drops_and_returns(launcher, clean, tmp_path, two_nodes):
    cut = "pkill -KILL -u runner sshd"
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: two_nodes.root("node2", "sh", "-c", cut))
    message = done.outcome.failure.text()
    assert message == "node2 was lost: the connection was lost"
    assert done.seconds < 10 * slowness()
    wait_until(lambda: not containers(two_nodes, "node2"), LEASE_S)
    note("SSH drops", done, message)
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None, "the next attempt connects again"


def test_a_disk_that_fills(launcher, clean, tmp_path, two_nodes):
    launcher.pool.__exit__(None, None, None)
    faults.small_disk(two_nodes, "node2", WORK, 600)
    try:
        with launcher.pool:
            done = launcher.attempt(
                trainer(tmp_path, HANG),
                inject=lambda: two_nodes.ssh("node2", f"head -c 595M /dev/zero > {WORK}/filler"),
            )
    finally:
        faults.big_disk(two_nodes, "node2", WORK)
        assert launcher.pool.recover() == {}
    message = done.outcome.failure.text()
    assert re.fullmatch(r"the disk of node2 has only \d+ MiB left \(the disk is full: free some space, .+\)", message)
    assert done.seconds < 10 * slowness()
    note("disk fills", done, message)


def test_a_link_that_goes_down(launcher, clean, tmp_path, two_nodes):
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: faults.link_down(two_nodes, "node2"))
    try:
        message = done.outcome.failure.text()
        assert re.fullmatch(LOST, message)
        assert done.seconds < (LEASE_S + 15) * slowness()
        cleaned = done.seconds + wait_until(lambda: not containers(two_nodes, "node2"), LEASE_S + 10)
        assert containers(two_nodes, "node1") == []
        note("link down", done, message)
        note("link down: the node's own lease removed its container", cleaned, "(no message: nobody hears the node)")
        failed = launcher.attempt(trainer(tmp_path))
        assert failed.outcome.failure.text().startswith("node2: cannot connect to runner@")
    finally:
        faults.link_up(two_nodes, "node2")
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None


def test_a_node_that_pauses(launcher, clean, tmp_path, two_nodes):
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: faults.pause(two_nodes, "node2"))
    faults.unpause(two_nodes, "node2")
    message = done.outcome.failure.text()
    assert re.fullmatch(LOST, message)
    assert done.seconds < (LEASE_S + 15) * slowness()
    note("node pauses", done, message)
    wait_until(lambda: not containers(two_nodes, "node2"), LEASE_S + 10)
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None


def test_a_node_that_dies(launcher, clean, tmp_path, two_nodes):
    done = launcher.attempt(trainer(tmp_path, HANG), inject=lambda: faults.kill(two_nodes, "node2"))
    faults.start(two_nodes, "node2")
    message = done.outcome.failure.text()
    assert re.fullmatch(LOST, message)
    assert done.seconds < (LEASE_S + 15) * slowness()
    assert (done.folder / "metrics-rank1.jsonl").read_text(), "what the node sent before it died stays"
    note("node dies", done, message)
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None


def test_an_attempt_that_is_interrupted(launcher, clean, tmp_path, two_nodes):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launcher.attempt(trainer(tmp_path, HANG), inject=interrupt)
    assert [containers(two_nodes, node) for node in two_nodes.names] == [[], []]
    assert launcher.attempt(trainer(tmp_path)).outcome.failure is None


def refusal(inventory, script, **options) -> str:
    """What keeps a run from starting, and how long that took to find out, which is noted."""
    cluster = cluster_of(inventory)
    started = time.monotonic()
    with (
        pytest.raises(ClusterError) as error,
        NodePool(cluster, UploadedCode(script), "tests", **options),
    ):
        pass
    refusal.seconds = time.monotonic() - started
    return str(error.value)


@pytest.fixture
def idle(launcher):
    """The shared fleet lets go of its nodes for the time of a test."""
    launcher.pool.__exit__(None, None, None)
    yield
    assert launcher.pool.recover() == {}


def test_another_run_on_the_same_nodes(launcher, inventory, tmp_path):
    assert launcher.pool.recover() == {}
    message = refusal(inventory, trainer(tmp_path))
    assert re.search(
        r"node1: in use by \w+@\S+ process \d+ since \d{4}-\d\d-\d\d .+ for `tests` .+; wait for that", message
    )
    assert "node2: in use by" in message
    note("another run has the nodes", refusal.seconds, message.splitlines()[1])


def test_a_port_that_is_taken(idle, two_nodes, inventory, tmp_path):
    listen = "import socket, time; s = socket.socket(); s.bind(('', 29555)); s.listen(); time.sleep(60)"
    two_nodes.root("node2", "sh", "-c", f'nohup python3 -c "{listen}" >/dev/null 2>&1 & echo $! > /run/listener')
    try:
        message = refusal(inventory, trainer(tmp_path), port=29555)
    finally:
        two_nodes.root("node2", "sh", "-c", "kill $(cat /run/listener)")
    assert "node2: port 29555 is taken by another program; PORT=<number> takes another" in message
    note("port taken", refusal.seconds, message.splitlines()[1])


def test_an_image_that_is_missing_or_another(idle, two_nodes, tmp_path):
    other = {"digest": f"sha256:{'0' * 64}", "registry": "", "archive": ""}
    for name, message in (
        ("oneflow-reproduction:cu102", "oneflow-reproduction:cu102 is sha256:"),
        ("nowhere:1", "it has no image sha256:0000"),
    ):
        inventory = prepare(two_nodes, tmp_path / name[:4], cluster_image={**other, "name": name})
        output = refusal(inventory, trainer(tmp_path / "t"))
        assert f"node1: {message}" in output
        assert "make provision CLUSTER=" in output
        note("image missing" if "nowhere" in name else "another image", refusal.seconds, output.splitlines()[1])


def test_a_clock_that_is_wrong(idle, two_nodes, inventory, tmp_path):
    faults.skew_clock(two_nodes, "node2", 37)
    try:
        message = refusal(inventory, trainer(tmp_path))
    finally:
        faults.mend_clock(two_nodes, "node2")
    assert re.search(r"node2: its clock is 3[4-7]\.\d s ahead of the controller's", message)
    assert "node1" not in message
    note("clock skew", refusal.seconds, message.splitlines()[1])


def test_the_controller_is_killed(idle, two_nodes, inventory, tmp_path):
    """The end of its connections frees the nodes at once; only a controller cut off takes the time of the lease."""
    command = f"python {trainer(tmp_path, 'hang@0')}"
    bench = tasks.start("bench", CLUSTER=inventory, MODEL="bert", RUNS=tmp_path / "runs", TRAINER_COMMAND=command)
    wait_until(lambda: containers(two_nodes, "node1"), 60)
    bench.send_signal(signal.SIGKILL)
    bench.wait()
    seconds = wait_until(lambda: not any(containers(two_nodes, node) for node in two_nodes.names))
    note("controller killed: containers are gone", seconds, "(no message: nobody is there)")
    seconds += wait_until(lambda: can_be_had(inventory, tmp_path), LEASE_S)
    note("controller killed: another run can have the nodes", seconds, "(no message: nobody is there)")


def can_be_had(inventory, folder) -> bool:
    try:
        with NodePool(cluster_of(inventory), UploadedCode(trainer(folder / "t")), "tests"):
            return True
    except ClusterError:
        return False


def test_what_an_earlier_run_left_is_removed_before_the_next(idle, two_nodes, inventory, tmp_path):
    image = cluster_of(inventory).image.digest
    labels = {OWN: "old", USER: two_nodes.ssh("node1", "id -u").stdout.strip(), WORK_LABEL: WORK, AGENT: "00000000-1-1"}
    words = " ".join(f"--label {key}={value}" for key, value in labels.items())
    two_nodes.ssh("node1", f"docker run --detach --pull never --name left {words} {image} sleep 600")
    assert len(containers(two_nodes, "node1")) == 1
    with NodePool(cluster_of(inventory), UploadedCode(trainer(tmp_path)), "tests") as pool:
        assert {name: member.removed for name, member in pool.members.items()} == {"node1": ["left"], "node2": []}
        assert containers(two_nodes, "node1") == []


@pytest.mark.long
def test_a_node_that_was_replaced(make_nodes, tmp_path):
    nodes = make_nodes("replaced", 2, image=True)
    inventory = prepare(nodes, tmp_path)
    faults.replace(nodes, "node2")
    message = refusal(inventory, trainer(tmp_path / "t"))
    assert re.search(r"node2: .* shows another host key than .*known_hosts records", message)
    note("node replaced", refusal.seconds, message.splitlines()[1])
    nodes.down()


def test_threads_end_with_the_attempts(launcher, clean, tmp_path):
    launcher.attempt(trainer(tmp_path))
    wait_until(lambda: sum(thread.name.startswith("agent of") for thread in threading.enumerate()) <= 2)
