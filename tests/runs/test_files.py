"""Opening a run's files in a folder and in an archive: the same answers, each archive opened once."""

import zipfile
from multiprocessing import get_context

import pytest

from repro.runs import record
from repro.runs.archive import write_archive
from repro.runs.attempts import serialise
from repro.runs.files import (
    RecordError,
    content,
    digest,
    gpu_samples,
    lines,
    names,
    open_files,
    read_json,
)
from repro.runs.record import Run
from tests.support.attempts import recorded

FILES = {
    "run.json": b'{"id": "x"}',
    "a/log": "一\ntwo\ncut off".encode(),
    "a/gpu.csv": b"0, GPU-0, 99, 20000, 1500, 61\nNVIDIA-SMI has failed\n",
    "a/metrics-rank0.jsonl": b'{"event": "start"}\n{"event": "iteration"}\n{"event": "cut',
    "a/b/c": b"",
}


@pytest.fixture(params=["folder", "archive"])
def root(request, tmp_path):
    """The same files in a folder and in an archive."""
    for path, text in FILES.items():
        (tmp_path / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path).write_bytes(text)
    if request.param == "folder":
        return open_files(tmp_path / "folder")
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        for path, text in FILES.items():
            archive.writestr(path, text)
    return open_files(tmp_path / "archive.zip")


def test_files_are_named_and_read_alike(root):
    assert names(root) == sorted(FILES)
    assert names(root / "a") == ["b/c", "gpu.csv", "log", "metrics-rank0.jsonl"]
    assert {path: content(root / path) for path in FILES} == FILES
    assert read_json(root / "run.json") == {"id": "x"}
    assert lines(root / "a" / "log") == ["一", "two"]
    assert lines(root / "a" / "none") == []
    assert [sample["clocks.sm"] for sample in gpu_samples(root / "a")] == ["1500"]
    assert gpu_samples(root) == []
    assert digest(root / "a/b/c") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert digest(root / "a") is None and digest(root / "none") is None


def test_what_cannot_be_read_is_named(root):
    with pytest.raises(FileNotFoundError):
        content(root / "none")
    with pytest.raises(RecordError, match="none cannot be read"):
        read_json(root / "none")
    with pytest.raises(RecordError, match="log cannot be read"):
        read_json(root / "a" / "log")


def test_an_archive_that_is_none_is_named(tmp_path):
    (tmp_path / "x.zip").write_bytes(b"PK no")
    with pytest.raises(RecordError, match=r"x\.zip cannot be read as a ZIP archive"):
        open_files(tmp_path / "x.zip")
    with pytest.raises(RecordError, match=r"y\.zip cannot be read"):
        open_files(tmp_path / "y.zip")


def test_an_archive_with_two_files_of_one_name_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("run.json", "{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("run.json", "[]")
    with pytest.raises(RecordError, match=r"more than one run\.json"):
        open_files(tmp_path / "x.zip")


def test_a_run_opens_its_archive_once(tmp_path, monkeypatch):
    write_archive(tmp_path / "x.zip", {"a": b"", "attempts.jsonl": serialise(recorded({}))})
    opened = []
    monkeypatch.setattr(record, "open_files", lambda path: (opened.append(path), open_files(path))[1])
    run = Run(tmp_path / "x.zip")
    for _ in range(3):
        assert run.attempts() == [recorded({})]
        assert names(run.files) == ["a", "attempts.jsonl"]
    assert len(opened) == 1


def test_forked_processes_read_an_open_archive_at_the_same_time(tmp_path):
    path = tmp_path / "run.zip"
    sizes = {f"{index}.txt": 200_000 + index for index in range(8)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, size in sizes.items():
            archive.writestr(name, name[0] * size)
    root = open_files(path)
    assert content(root / "0.txt")
    readers = [get_context("fork").Process(target=check_sizes, args=(root, sizes)) for _ in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert [reader.exitcode for reader in readers] == [0] * 4


def check_sizes(root, sizes):
    for name in [*sizes] * 20:
        assert content(root / name) == name[0].encode() * sizes[name]
