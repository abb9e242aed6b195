"""The archive to hand over: the same bytes for the same run, with a crate, and only of a run that is as recorded."""

import hashlib
import json
import os
import sys
import zipfile

import pytest
from rocrate.rocrate import ROCrate

from repro.published.cases import load_catalogue
from repro.report.run.page import render
from repro.runs import archive as archive_module
from repro.runs.archive import archive, write_archive
from repro.runs.files import content, names, open_files
from repro.runs.manifest import MANIFEST, alterations, record, verify
from repro.runs.record import RecordError, Run
from repro.runs.ro_crate import METADATA
from tests.support.attempts import recorded

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")
LOG = f"units/{CASE.name}/repeat-1.attempt-1/launcher.log"


def test_it_is_the_same_for_the_same_run_and_verifies_elsewhere(run, tmp_path):
    first = archive(run)
    bytes_of_it = first.path.read_bytes()
    assert first.path == run.folder.parent / f"{run.id}.zip"
    assert first.digest == hashlib.sha256(bytes_of_it).hexdigest()
    for path in run.folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o700)
    assert archive(run).path.read_bytes() == bytes_of_it
    folder = tmp_path / "elsewhere" / run.id
    with zipfile.ZipFile(first.path) as packed:
        packed.extractall(folder)
    assert verify(folder).holds and verify(Run(first.path).files).holds
    assert archive(Run(folder), tmp_path / "again.zip").digest == first.digest


def test_it_holds_the_whole_run_a_manifest_and_a_crate(run):
    before = set(names(run.folder))
    root = open_files(archive(run).path)
    assert set(names(root)) == before | {METADATA}
    assert set(names(run.folder)) == before, "the folder has no crate"
    assert all(content(root / path) == content(run.folder / path) for path in before - {MANIFEST})
    assert ROCrate(json.loads(content(root / METADATA))).dereference("#run")["name"] == "make bench"


def test_a_run_that_was_touched_is_not_packed(run):
    (run.folder / LOG).write_text("x")
    with pytest.raises(RecordError, match=f"changed: {LOG}"):
        archive(run)
    assert not list(run.folder.parent.glob("*.zip"))


def test_a_run_that_changes_while_it_is_packed_is_not_packed(run, monkeypatch):
    add = archive_module._add

    def add_too_late(packed, path, source):
        (run.folder / LOG).write_text("x")
        add(packed, path, source)

    monkeypatch.setattr(archive_module, "_add", add_too_late)
    with pytest.raises(RecordError, match="changed while it was packed"):
        archive(run)
    assert not list(run.folder.parent.glob("*.zip"))


def test_without_rocrate_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocrate.rocrate", None)
    with pytest.raises(RecordError, match="group `export`"):
        archive(run)


def test_the_name_of_an_archive_ends_in_zip(run, tmp_path):
    with pytest.raises(RecordError, match=r"run\.tar: the name of an archive ends in \.zip"):
        archive(run, tmp_path / "run.tar")


def test_an_archive_is_written_whole_or_not_at_all(tmp_path):
    write_archive(tmp_path / "a.zip", {"b": b"2", "a": b"1"})
    with pytest.raises(OSError):
        write_archive(tmp_path / "a.zip", {"a": tmp_path / "missing"})
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]
    assert names(open_files(tmp_path / "a.zip")) == ["a", "b"]


def test_a_run_in_an_archive_is_read_and_never_written(run):
    packed = Run(archive(run).path)
    assert (packed.id, packed.archived) == (run.id, True)
    assert packed.description() == run.description() and packed.attempts() == run.attempts()
    assert alterations(packed.files) == []
    for write in (
        lambda: packed.add_attempt(recorded({})),
        lambda: packed.attempt_folder("a", 1),
        lambda: record(packed),
    ):
        with pytest.raises(RecordError, match="an archive, which is never changed"):
            write()
    assert Run.find(str(packed.path)) == packed
    assert Run.find(packed.path.name, packed.path.parent) == packed
    with pytest.raises(RecordError, match=r"gone\.zip: no such archive"):
        Run.find("gone.zip", packed.path.parent)


def test_bench_records_and_the_tasks_verify_report_and_pack(task, refused, tmp_path):
    assert task("bench", CASES="bert_1n1g_bs96", REPEATS=1).returncode == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert not (folder / METADATA).exists()
    assert task("verify").returncode == 0
    reported = task("report", RUN=folder.name)
    assert reported.returncode == 0
    assert task("verify", RUN=folder).returncode == 0
    packed = task("archive", RUN=folder.name)
    assert packed.returncode == 0 and f"{folder}.zip" in packed.stdout
    assert task("verify", RUN=f"{folder}.zip").returncode == 0

    log = next((folder / "units").rglob("stdout"))
    log.write_text(log.read_text().replace("step: 1,", "step: 2,"))
    changed = f"changed: {log.relative_to(folder)}"
    for name in ("verify", "report", "archive"):
        done = task(name, RUN=folder.name)
        assert done.returncode == 1 and changed in done.stderr, name
    assert "RUN=absent: no such run" in refused("verify", RUN="absent")


def test_the_report_of_an_archive_is_written_beside_it_and_changes_nothing(task, tmp_path, run):
    (tmp_path / "other").mkdir()
    packed = archive(run, tmp_path / "other" / "handed-over.zip")
    before = packed.path.read_bytes()
    done = task("report", RUN=packed.path)
    assert done.returncode == 0, done.stderr
    target = tmp_path / "runs" / "handed-over"
    written = set(names(target))
    assert {"report.zh.md", "report.en.md", "report.html", "results.csv"} <= written
    assert "run.json" not in written and packed.path.read_bytes() == before
    text = (target / "report.en.md").read_text()
    assert "](../../other/handed-over.zip)" in text
    assert text.split("## Raw data")[0] == _figures_drawn(run, tmp_path).split("## Raw data")[0]
    (tmp_path / "runs" / "handed-over" / "run.json").write_text("{}")
    assert "is a run's own folder" in task("report", RUN=packed.path).stderr


def _figures_drawn(run, folder) -> str:
    """The report of the run itself, with figures, as Markdown."""
    render(run, figures=True, folder=folder / "compared")
    return (folder / "compared" / "report.en.md").read_text()
