"""The record of a run's files: any change is found and named, and only what may be rewritten is recorded again."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

from repro.published.cases import load_catalogue
from repro.report.run.page import render
from repro.runs.archive import write_archive
from repro.runs.files import KEPT, open_files
from repro.runs.files import names as files
from repro.runs.manifest import MANIFEST, alterations, read_manifest, record, verify
from repro.runs.record import RecordError
from tests.support.synthetic import add_attempt

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")
LOG = f"units/{CASE.name}/repeat-1.attempt-1/launcher.log"


def lines(run):
    return verify(run.folder).lines()


# Verification


def test_every_file_is_recorded_and_sha256sum_agrees(run):
    assert set(read_manifest(run.folder)) == set(files(run.folder)) - {MANIFEST}
    checked = subprocess.run(["sha256sum", "--check", "--strict", MANIFEST], cwd=run.folder, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert verify(run.folder).digest == hashlib.sha256((run.folder / MANIFEST).read_bytes()).hexdigest()


def test_a_kept_run_without_its_record_is_altered(run):
    record(run)
    (run.folder / MANIFEST).unlink()
    assert alterations(run.folder) == []
    (run.folder / KEPT).touch()
    assert alterations(run.folder) == [f"no {MANIFEST}: it is a kept run whose record was taken away"]


def test_a_changed_byte_in_any_file_is_found_and_named(run):
    for path in sorted(set(files(run.folder)) - {MANIFEST}):
        content = (run.folder / path).read_bytes()
        changed = bytearray(content or b"x")
        changed[len(changed) // 2] ^= 1
        (run.folder / path).write_bytes(changed)
        assert f"changed: {path}" in lines(run)
        (run.folder / path).write_bytes(content)
    assert verify(run.folder).holds


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / LOG).open("a").write("one more line\n"), f"changed: {LOG}"),
        (lambda folder: os.truncate(folder / LOG, 3), f"changed: {LOG}"),
        (lambda folder: os.truncate(folder / LOG, 0), f"changed: {LOG}"),
        (lambda folder: (folder / LOG).unlink(), f"removed: {LOG}"),
        (lambda folder: (folder / LOG).rename(folder / "moved.log"), "added: moved.log"),
        (lambda folder: (folder / ".hidden").touch(), "added: .hidden"),
        (
            lambda folder: (folder / LOG).with_name("extra.log").write_text(""),
            f"added: {LOG.replace('launcher', 'extra')}",
        ),
        (lambda folder: (folder / "link").symlink_to("/"), "added: link"),
        (lambda folder: (folder / "odd\udc80name").touch(), "added: odd\\udc80name"),
    ],
)
def test_what_was_done_is_named(run, change, message):
    change(run.folder)
    assert message in lines(run)


def test_a_link_to_the_same_content_is_a_change(run, tmp_path):
    shutil.copy(run.folder / LOG, tmp_path / "copy")
    (run.folder / LOG).unlink()
    (run.folder / LOG).symlink_to(tmp_path / "copy")
    assert lines(run) == [f"changed: {LOG}"]


def test_a_linked_folder_is_not_followed(run, tmp_path):
    shutil.move(run.folder / "units", tmp_path / "units")
    (run.folder / "units").symlink_to(tmp_path / "units")
    assert "added: units" in lines(run) and f"removed: {LOG}" in lines(run)


def replace_in_manifest(folder, old, new):
    text = (folder / MANIFEST).read_text()
    assert old in text
    (folder / MANIFEST).write_text(text.replace(old, new, 1), newline="")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: replace_in_manifest(folder, f"  {LOG}\n", f"  {LOG}.old\n"),
        lambda folder: (folder / MANIFEST).write_text(
            "".join(reversed((folder / MANIFEST).read_text().splitlines(True)))
        ),
        lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes().replace(b"\n", b"\r\n")),
        lambda folder: (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:-1]),
        lambda folder: replace_in_manifest(folder, "\n", "\n\n"),
        lambda folder: replace_in_manifest(folder, "  run.json", " *run.json"),
        lambda folder: (folder / MANIFEST).write_text((folder / MANIFEST).read_text() * 2),
        lambda folder: (folder / MANIFEST).write_text(""),
    ],
)
def test_a_changed_manifest_is_found(run, change):
    change(run.folder)
    try:
        assert not verify(run.folder).holds
    except RecordError as error:
        assert MANIFEST in str(error)


def test_a_manifest_that_names_a_file_twice_is_not_written_over(run):
    text = (run.folder / MANIFEST).read_text() + f"{'0' * 64}  {LOG}\n"
    (run.folder / MANIFEST).write_text(text)
    with pytest.raises(RecordError, match="records no file, or one again"):
        record(run)
    assert (run.folder / MANIFEST).read_text() == text


def test_a_folder_without_a_record_or_a_run_says_so(run, tmp_path):
    (run.folder / MANIFEST).unlink()
    with pytest.raises(RecordError, match="its run never ended"):
        verify(run.folder)
    with pytest.raises(RecordError, match="it is no run's folder"):
        verify(tmp_path)


def test_an_archive_without_a_record_is_packed_again(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("run.json", "{}")
    with pytest.raises(RecordError, match=r"x\.zip has no manifest-sha256\.txt, .*: pack the run's folder again"):
        verify(open_files(tmp_path / "x.zip"))


# Recording again


def test_the_same_report_is_the_same_record(run):
    before = (run.folder / MANIFEST).read_bytes()
    render(run)
    record(run)
    assert (run.folder / MANIFEST).read_bytes() == before


def test_derived_files_are_recorded_anew_and_stale_ones_removed(run):
    stale = run.folder / "results.parquet"
    stale.write_text("of an earlier state")
    (run.folder / "report.en.md").write_text("edited by hand")
    render(run, tolerance=0.05)
    record(run)
    assert verify(run.folder).holds and not stale.exists()
    assert "edited by hand" not in (run.folder / "report.en.md").read_text()


def test_a_resumed_run_is_recorded_and_its_earlier_part_is_kept(run):
    before = read_manifest(run.folder)
    add_attempt(run, CASE, 3)
    assert not verify(run.folder).holds and alterations(run.folder) == []
    record(run)
    assert verify(run.folder).holds
    after = read_manifest(run.folder)
    assert {path: after[path] for path in before if path.startswith(("units/", "run.json"))} == {
        path: digest for path, digest in before.items() if path.startswith(("units/", "run.json"))
    }
    assert any("attempt-1/launcher.log" in path and "repeat-3" in path for path in after)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: (run.folder / LOG).write_text("nicer figures\n"), f"changed: {LOG}"),
        (lambda run: (run.folder / LOG).unlink(), f"removed: {LOG}"),
        (lambda run: (run.folder / LOG).with_name("new.log").touch(), f"added: {LOG.replace('launcher', 'new')}"),
        (lambda run: (run.folder / "run.json").open("a").write(" "), "changed: run.json"),
        (
            lambda run: run.attempts_file.write_text(run.attempts_file.read_text().replace("4.92", "5.92")),
            "changed: attempts.jsonl",
        ),
        (lambda run: (run.folder / "notes.txt").write_text("n"), "added: notes.txt"),
    ],
)
def test_nothing_that_was_measured_is_recorded_anew(run, change, message):
    change(run)
    assert alterations(run.folder) == [message]
    render(run)
    record(run)
    assert lines(run) == [message], "a record written later must not hide it"


def test_lines_are_appended_to_the_attempts_or_it_is_a_change(run):
    text = run.attempts_file.read_text()
    run.attempts_file.write_text(text.replace('"repeat": 1', '"repeat": 9'))
    add_attempt(run, CASE, 3)
    record(run)
    assert lines(run) == ["changed: attempts.jsonl"]


def test_links_that_glog_leaves_are_removed_and_no_others(run, tmp_path):
    add_attempt(run, CASE, 3)
    logs = run.folder / "units" / CASE.name / "repeat-3.attempt-1"
    (logs / "oneflow.host.log.INFO.1").write_text("what glog wrote\n")
    (logs / "oneflow.INFO").symlink_to("oneflow.host.log.INFO.1")
    assert alterations(run.folder) == []
    record(run)
    assert verify(run.folder).holds and not (logs / "oneflow.INFO").is_symlink()
    assert (logs / "oneflow.host.log.INFO.1").read_text() == "what glog wrote\n"
    (logs / "late.INFO").symlink_to("oneflow.host.log.INFO.1")
    (logs / "outside").symlink_to(tmp_path)
    record(run)
    attempt = logs.relative_to(run.folder)
    assert sorted(lines(run)) == [f"added: {attempt}/late.INFO", f"added: {attempt}/outside"]


def test_a_half_line_is_no_part_of_the_record(run):
    with open(run.attempts_file, "a") as file:
        file.write('{"unit": "DP_1x')
    record(run)
    add_attempt(run, CASE, 3)
    record(run)
    assert verify(run.folder).holds


def imported(code):
    """Modules of the lists below that a Python process has imported after this code."""
    heavy = {"rocrate", "pandas", "numpy", "matplotlib", "requests"}
    code = f"import sys; {code}; print(sorted({heavy} & {{name for name, module in sys.modules.items() if module}}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_runs_before_there_are_results_imports_nothing_heavy():
    started = "from repro.launch import local, runner; from repro.planning import plan; from repro.runs import manifest"
    assert imported(started) == "[]"
    listed = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "repro", "cases"], capture_output=True, text=True, check=True
    )
    modules = {line.rpartition("|")[2].strip() for line in listed.stderr.splitlines()}
    assert "repro.published.cases" in modules and not modules & {"pandas", "numpy", "matplotlib"}


def test_results_and_report_import_pandas_and_nothing_else_that_is_heavy():
    path = "from repro.analysis import verdict; from repro.report.run import page"
    assert imported(path) == "['numpy', 'pandas']"


def test_an_archive_is_verified_in_place(run, tmp_path):
    content = {path: run.folder / path for path in files(run.folder)}
    archive = write_archive(tmp_path / "run.zip", content).path
    root = open_files(archive)
    assert verify(root) == verify(run.folder) and alterations(root) == []
    other = write_archive(tmp_path / "other.zip", {"run": b""}).path
    with zipfile.ZipFile(archive) as before, zipfile.ZipFile(other, "w") as after:
        for path in before.namelist():
            if path != "run.json":
                after.writestr(path, before.read(path) + (b"more" if path == LOG else b""))
        after.writestr("run.json", before.read("run.json"))
        after.writestr("units/extra.log", b"")
    assert verify(open_files(other)).lines() == [f"changed: {LOG}", "added: units/extra.log"]
    assert alterations(open_files(other)) == [f"changed: {LOG}", "added: units/extra.log"]
    damaged = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as opened:
        place = opened.getinfo(LOG).header_offset + 30 + len(LOG)
    damaged[place + 1] ^= 0xFF
    (tmp_path / "damaged.zip").write_bytes(damaged)
    assert f"changed: {LOG}" in verify(open_files(tmp_path / "damaged.zip")).lines()
