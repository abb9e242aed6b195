"""What a node's agent sends of the files that its ranks write, and what it says of the Docker engine."""

import threading
from types import SimpleNamespace

import pytest

from repro.launch.agent import __main__ as agent
from repro.launch.agent import ranks
from repro.launch.agent.ranks import CHUNK, CHUNKS_AT_ONCE, TAIL, Files

AT_ONCE = CHUNK * CHUNKS_AT_ONCE
LOG = "logs/local_rank_0/stdout"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs/local_rank_0").mkdir(parents=True)
    return tmp_path


def sent(pieces) -> dict[str, bytes]:
    """The bytes of each file, with a mark where a piece does not follow the one before it."""
    found: dict[str, bytes] = {}
    ends: dict[str, int] = {}
    for path, offset, data in pieces:
        found[path] = found.get(path, b"") + (b"" if offset == ends.get(path, 0) else b"<gap>") + data
        ends[path] = offset + len(data)
    return found


def test_a_look_sends_a_part_of_a_log_and_all_of_the_metrics(folder):
    (folder / LOG).write_bytes(b"x" * (AT_ONCE + 5))
    (folder / "metrics-rank0.jsonl").write_bytes(b"m" * (2 * AT_ONCE))
    files = Files(str(folder), 1 << 30)
    first = sent(files.added())
    assert (len(first[LOG]), len(first["metrics-rank0.jsonl"])) == (AT_ONCE, 2 * AT_ONCE)
    assert files.more()
    assert [(path, offset, len(data)) for path, offset, data in files.added()] == [(LOG, AT_ONCE, 5)]
    assert not files.more()
    assert list(files.added()) == []
    assert list(files.rest()) == []


def test_beyond_the_cap_only_sizes_are_sent_and_at_last_the_end(folder):
    cap = 2 * TAIL
    content = bytes(range(256)) * (5 * TAIL // 256)
    (folder / LOG).write_bytes(content)
    files = Files(str(folder), cap)
    assert sent(files.added()) == {LOG: content[:TAIL]}
    assert not files.more()
    assert list(files.added()) == [(LOG, len(content), b"")], "its size shows that the rank goes on"
    assert list(files.added()) == []
    (folder / LOG).write_bytes(content + b"end")
    assert list(files.added()) == [(LOG, len(content) + 3, b"")]
    (path, offset, _), *_ = pieces = list(files.rest())
    assert (path, offset) == (LOG, len(content) + 3 - TAIL)
    assert b"".join(data for _, _, data in pieces) == (content + b"end")[-TAIL:]
    assert files.sizes() == {LOG: len(content) + 3}


def test_a_log_of_exactly_the_cap_has_no_gap(folder):
    content = b"ab" * TAIL
    (folder / LOG).write_bytes(content)
    files = Files(str(folder), 2 * TAIL)
    assert sent([*files.added(), *files.rest()]) == {LOG: content}


def test_nothing_else_of_the_folder_is_sent(folder):
    (folder / "core").write_bytes(b"x" * 100)
    (folder / "logs/local_rank_0/link").symlink_to("/etc/passwd")
    (folder / "logs/local_rank_0/deep").mkdir()
    (folder / "logs/local_rank_0/deep/file").write_text("x")
    (folder / "launcher.log").write_text("")
    files = Files(str(folder), 1 << 20)
    assert list(files.added()) == [("launcher.log", 0, b"")], "an empty file comes once"
    assert list(files.added()) == []


@pytest.mark.parametrize(
    ("now", "stopped", "said"),
    [
        ([{(1, "9")}, {(2, "30")}], False, [{"engine": "restarted"}]),
        ([{(1, "9")}, set()], False, [{"engine": "restarted"}]),
        ([{(1, "9"), (5, "40")}], False, []),
        ([set()], True, []),
    ],
)
def test_an_engine_that_is_another_one_is_reported(monkeypatch, now, stopped, said):
    messages, looks = [], iter(now)
    monkeypatch.setattr(agent, "engines", lambda: next(looks, now[-1]))
    monkeypatch.setattr(agent, "send", lambda **message: messages.append(message))
    monkeypatch.setattr(agent, "ENGINE_S", 0.5)
    lease = SimpleNamespace(stopped=threading.Event())
    if stopped:
        lease.stopped.set()
    agent.tell_of_engine({(1, "9")}, lease)
    assert messages == said


def test_once_the_end_is_asked_for_only_the_end_of_each_log_is_sent(monkeypatch, folder):
    messages = []
    monkeypatch.setattr(agent, "send", lambda **message: messages.append(message))
    monkeypatch.setattr(agent, "REST_S", 0.0)
    monkeypatch.setattr(ranks, "CHUNKS_AT_ONCE", 1)
    (folder / LOG).write_bytes(b"x" * (4 * TAIL))
    lease = SimpleNamespace(stopped=threading.Event())
    lease.stopped.set()
    agent.send_rest(Files(str(folder), 1 << 30), lease)
    assert sum(len(each["data"]) for each in messages) < 2 * TAIL
    assert messages[-1]["at"] + len(messages[-1]["data"]) == 4 * TAIL


def test_a_trace_of_kernels_is_sent_where_one_is_wanted(folder):
    for name in ("trace.17", "trace.17.old", "trace"):
        (folder / name).write_text(name)
    assert sent(Files(str(folder), 1 << 30).added()) == {}
    assert sent(Files(str(folder), 1 << 30, traces=True).added()) == {"trace.17": b"trace.17"}
