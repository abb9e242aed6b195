"""Connections to nodes: commands, files, host keys and what is said when a node fails."""

import threading
import time
from dataclasses import replace

import paramiko
import pytest

from repro.cluster import ssh
from repro.cluster.ssh import CommandResult, Remote, RemoteError, checked, each_of, on_all
from tests.support.patience import patience, wait_until


@pytest.fixture
def remote(server):
    cluster = server.cluster()
    with Remote(cluster, cluster.nodes[0]) as remote:
        yield remote


def test_words_stay_words(remote):
    assert remote.run(["printf", "%s|", "a b", "$HOME; echo no", "中文"]).stdout == "a b|$HOME; echo no|中文|"


def test_status_and_errors_are_told_apart(remote):
    done = remote.run(["sh", "-c", "echo out; echo err >&2; exit 3"], check=False)
    assert (done.stdout, done.stderr, done.status) == ("out\n", "err\n", 3)
    with pytest.raises(RemoteError, match=r"node0: `sh -c .*status 3: err") as caught:
        remote.run(["sh", "-c", "echo err >&2; exit 3"])
    assert caught.value.node == "node0"


def test_a_message_has_no_text_of_programs():
    assert ssh.shown(["python3", "-c", "import x\nx.y()", "a b"]) == "python3 -c … 'a b'"
    assert ssh.shown(["python3", "-c", "x" * 100, "mark"]) == "python3 -c … mark"


def test_large_input_goes_over_at_once(remote):
    text = "a line of some length\n" * 20000
    began = time.monotonic()
    assert remote.run(["wc", "-c"], stdin=text).stdout.split() == [str(len(text))]
    assert time.monotonic() - began < patience(5)


def test_much_on_both_streams_arrives(remote):
    """More on each than a channel takes before it is read."""
    script = "import sys; sys.stderr.write('e' * 5000000); sys.stderr.flush(); sys.stdout.write('o' * 5000000)"
    done = remote.run(["python3", "-c", script], timeout=patience())
    assert (done.stdout.strip("o"), len(done.stdout), done.stderr.strip("e"), len(done.stderr)) == (
        "",
        5000000,
        "",
        5000000,
    )


def test_a_program_that_leaves_its_input_unread_is_not_waited_for(remote):
    assert remote.run(["true"], stdin="x" * 9000000, timeout=patience()).status == 0


def test_a_connection_that_rests_closes_at_once(server, monkeypatch):
    monkeypatch.setattr(ssh, "IDLE_S", 3600.0)
    remote = Remote(server.cluster(), server.cluster().nodes[0])
    began = time.monotonic()
    remote.close()
    assert time.monotonic() - began < patience()


def test_a_command_without_input_does_not_wait_for_any(remote):
    assert remote.run(["cat"], timeout=patience()).stdout == ""


def test_sudo_is_asked_for_without_a_password(remote, tmp_path, monkeypatch):
    (tmp_path / "sudo").write_text("#!/bin/sh\necho sudo $*\n")
    (tmp_path / "sudo").chmod(0o755)
    path = remote.run(["printenv", "PATH"]).stdout.strip()
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
    assert remote.run(["id", "-u"], sudo=True).stdout == "sudo -n -- id -u\n"


def test_timeout_names_the_command(remote):
    limit = round(patience(0.5), 1)
    with pytest.raises(RemoteError, match=rf"`sleep 3600` took longer than {limit:g} s"):
        remote.run(["sleep", "3600"], timeout=limit)


def test_lines_come_one_by_one_and_whole(remote, tmp_path):
    """The second is not finished before the first has come."""
    seen, come = [], tmp_path / "come"

    def take(line):
        seen.append(line)
        come.touch()

    script = "printf 'a\\nb'; until [ -e \"$0\" ]; do sleep 0.05; done; printf 'c\\n'; echo e >&2; printf last; exit 4"
    assert remote.stream(["sh", "-c", script, str(come)], take) == 4
    assert seen[0] == "a" and sorted(seen) == ["a", "bc", "e", "last"]


def test_a_lost_connection_is_no_exit_status(server, remote):
    with pytest.raises(RemoteError, match="the connection was lost while `sh -c 'echo begun; sleep 3600'` ran"):
        remote.stream(["sh", "-c", "echo begun; sleep 3600"], lambda line: threading.Thread(target=server.stop).start())


def test_a_command_that_a_signal_ends_is_no_lost_connection(remote):
    with pytest.raises(RemoteError, match=r"node0: `sh -c 'kill -KILL \$\$'` was killed by a signal"):
        remote.run(["sh", "-c", "kill -KILL $$"], check=False)
    assert remote.run(["echo", "here"]).stdout == "here\n"


def test_files_are_copied_there(remote, tmp_path):
    (tmp_path / "here").write_text("content")
    remote.put(tmp_path / "here", str(tmp_path / "there"))
    assert (tmp_path / "there").read_text() == "content"
    with pytest.raises(RemoteError, match=r"node0: cannot copy .*/here to /nothing/there"):
        remote.put(tmp_path / "here", "/nothing/there")


def test_an_unknown_host_key_is_refused(server):
    server.known_hosts(None)
    with pytest.raises(RemoteError, match=r"no host key of tester@127\.0\.0\.1 port \d+ in .*known_hosts"):
        Remote(server.cluster(), server.cluster().nodes[0])
    assert (server.folder / "known_hosts").read_text() == ""


def test_a_host_key_is_found_by_its_hashed_name_among_others(server):
    """As ssh-keygen -H writes them."""
    known = server.folder / "known_hosts"
    own = known.read_text().split(maxsplit=1)
    other = f"10.0.0.1 {paramiko.ECDSAKey.generate().get_name()} {paramiko.ECDSAKey.generate().get_base64()}\n"
    known.write_text(f"# nodes\n\n{other}{paramiko.HostKeys.hash_host(own[0])} {own[1]}")
    with Remote(server.cluster(), server.cluster().nodes[0]) as remote:
        assert remote.run(["echo", "hello"]).stdout == "hello\n"
    known.write_text(other)
    with pytest.raises(RemoteError, match="no host key of"):
        Remote(server.cluster(), server.cluster().nodes[0])


def test_an_ssh_key_that_is_not_there_is_no_matter_of_the_host_key(server):
    cluster = replace(server.cluster(), private_key=server.folder / "gone")
    with pytest.raises(RemoteError, match=r"the SSH key .*/gone cannot be read: No such file.*hosts\.yml names it"):
        Remote(cluster, cluster.nodes[0])


def test_a_changed_host_key_is_refused(server):
    server.known_hosts(paramiko.ECDSAKey.generate())
    with pytest.raises(RemoteError, match="shows another host key"):
        Remote(server.cluster(), server.cluster().nodes[0])


def test_a_wrong_login_key_is_named(server):
    paramiko.ECDSAKey.generate().write_private_key_file(str(server.folder / "other"))
    with pytest.raises(RemoteError, match="refuses the login"):
        Remote(server.cluster(private_key=server.folder / "other"), server.cluster().nodes[0])


def test_a_missing_node_is_named(server):
    cluster = server.cluster()
    server.stop()
    with pytest.raises(RemoteError, match=r"node0: cannot connect to tester@127\.0\.0\.1"):
        Remote(cluster, cluster.nodes[0])


def test_all_nodes_at_once_each_with_its_result_or_error(server):
    def work(remote):
        together.wait(patience())  # all four are at work at once, or nobody passes
        if remote.node.name == "node1":
            raise ValueError("broken")
        return remote.node.name

    together = threading.Barrier(4)
    results = on_all(server.cluster(4), work)
    assert list(results) == ["node0", "node1", "node2", "node3"]
    assert isinstance(results.pop("node1"), ValueError)
    assert set(results) == set(results.values())
    wait_until(lambda: not any(transport.is_active() for transport in server.transports), "a connection was left open")


def test_no_more_than_so_many_nodes_are_worked_on_at_a_time(monkeypatch):
    monkeypatch.setattr(ssh, "AT_ONCE", 3)
    meeting, going, most = threading.Barrier(3), [], []

    def work(item: int) -> int:
        going.append(item)
        most.append(len(going))
        meeting.wait(patience())
        going.remove(item)
        if item == 4:
            raise ValueError("four")
        return item * item

    *squares, error, last = each_of(work, range(6))
    assert (squares, str(error), last, max(most)) == ([0, 1, 4, 9], "four", 25, 3)
    assert each_of(work, []) == []


NOISE = "echo '{\"time\": 1}'; echo welcome; echo to errors >&2; "


def test_what_a_login_shell_prints_is_not_the_output(server):
    server.start_up = NOISE
    cluster, lines = server.cluster(), []
    with Remote(cluster, cluster.nodes[0]) as remote:
        assert remote.run(["cat"], stdin="given").stdout == "given"
        assert remote.stream(["printf", "a\nb\n"], lines.append) == 0
    assert [line for line in lines if line != "to errors"] == ["a", "b"]


@pytest.mark.parametrize(
    ("start_up", "said"),
    [
        (
            "exit 0; ",
            r"node0: its login shell ended \(status 0\) before it ran the command; a line of its start-up files",
        ),
        ("echo 'This account is currently not available.'; exit 1; ", "node0: its account has no login shell there"),
        ("echo 'Your account has expired' >&2; exit 1; ", "node0: its account has expired there; `chage -E -1"),
    ],
)
def test_a_login_shell_that_runs_nothing_is_named_with_the_remedy(server, start_up, said):
    server.start_up = start_up
    cluster = server.cluster()
    with Remote(cluster, cluster.nodes[0]) as remote:
        for _ in range(2):
            with pytest.raises(RemoteError, match=said):
                remote.run(["echo", "x"], stdin="y" * 100_000, timeout=patience())
        with pytest.raises(RemoteError, match=said):
            remote.stream(["echo", "x"], print)


def test_a_login_shell_that_waits_is_named(server):
    server.start_up = "sleep 5; "
    cluster = server.cluster()
    with Remote(cluster, cluster.nodes[0]) as remote, pytest.raises(RemoteError, match="login shell there has not"):
        remote.run(["echo", "x"], timeout=0.5)


def test_a_node_that_closes_the_connection_in_the_login_is_told_from_one_that_refuses_it(server, monkeypatch):
    """As sshd does where the account has expired: its key is right."""

    def expired(session, username, key):
        for transport in server.transports:
            transport.close()
        return paramiko.AUTH_FAILED

    monkeypatch.setattr("tests.support.ssh_server._Session.check_auth_publickey", expired)
    cluster = server.cluster()
    with pytest.raises(
        RemoteError, match="closed the connection in the middle of the login; the account may have expired"
    ):
        Remote(cluster, cluster.nodes[0])


@pytest.mark.parametrize(
    ("error", "seconds", "said"),
    [
        (paramiko.ChannelException(1, "Administratively prohibited"), 0.1, "MaxSessions"),
        (paramiko.SSHException("Channel closed."), 0.1, "the limits nproc or nofile of the account"),
        (paramiko.SSHException("Timeout opening channel."), 10.1, "has not answered for 10 s: the node hangs"),
    ],
)
def test_why_a_node_starts_no_further_command(server, error, seconds, said):
    """A slow node was once said to have too low limits."""
    assert said in ssh._refusal(error, seconds, server.cluster())


def test_a_slow_node_takes_part_where_the_inventory_has_patience(server, monkeypatch):
    """An emulated machine beside other work takes longer to open a session than a real one ever does."""
    monkeypatch.setattr(ssh, "CONNECT_S", 0.2)
    server.session_s = 1.0
    for cluster, works in ((server.cluster(), False), (server.cluster(patience=patience(100)), True)):
        with Remote(cluster, cluster.nodes[0]) as remote:
            if works:
                assert remote.run(["sleep", "0.5"], timeout=0.1).status == 0
                continue
            with pytest.raises(RemoteError, match=r"too little of a processor .* raise cluster_patience in .*all\.yml"):
                remote.run(["true"])


def test_every_limit_of_a_connection_has_the_patience_of_the_inventory(server):
    cluster = server.cluster(patience=6.0)
    with Remote(cluster, cluster.nodes[0]) as remote:
        transport = remote._connection.transport
        assert (transport.handshake_timeout, transport.banner_timeout, transport.auth_timeout) == (90, 90, 180)
        assert remote._connection.connect_timeout == 60


@pytest.mark.parametrize(
    "said",
    [
        "sh: 1: Cannot fork",
        "bash: fork: retry: Resource temporarily unavailable",
        "zsh: fork failed: resource temporarily unavailable",
        "No more processes.",
    ],
)
def test_a_shell_that_can_start_no_process_names_the_limits_of_its_account(said):
    with pytest.raises(RemoteError) as caught:
        checked("n1", ["docker", "ps"], CommandResult("", said, 2))
    assert str(caught.value).endswith(
        f"{said}; the limits nproc or nofile of the account may leave no room for it: raise them in /etc/security/limits.d there"
    )
    with pytest.raises(RemoteError) as caught:
        checked("n1", ["git", "fork"], CommandResult("", "the forked repository is not there", 2))
    assert "nproc" not in str(caught.value)
