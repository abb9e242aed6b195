"""The record of a run's files: any change is found and named, and only what may be rewritten is recorded anew."""

import csv
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile

import pytest
from rocrate.rocrate import ROCrate
from tests.support.synthetic import GPU, VERSIONS, add_attempt, published_run

from repro.runs import archive as bundle_module
from repro.runs.archive import bundle
from repro.published.cases import load_catalogue
from repro.runs.ro_crate import METADATA
from repro.analysis.results import write_results_parquet
from repro.runs.manifest import MANIFEST, alterations, files, manifest_text, read_manifest, record, verify
from repro.runs.record import RecordError, Run
from repro.report.run.page import render

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")
LOG = f"units/{CASE.name}/repeat-1.attempt-1/launcher.log"


@pytest.fixture
def run(tmp_path):
    """A recorded run of one case with its report."""
    made = published_run(tmp_path, [CASE.name], (1.0, 1.001))
    (made.folder / LOG).write_text("what the launcher printed\n")
    render(made)
    record(made)
    assert verify(made.folder).holds
    return made


def lines(run):
    return verify(run.folder).lines()


# Verification


def test_every_file_is_recorded_and_sha256sum_agrees(run):
    assert set(read_manifest(run.folder)) == set(files(run.folder)) - {MANIFEST}
    checked = subprocess.run(["sha256sum", "--check", "--strict", MANIFEST], cwd=run.folder, capture_output=True)
    assert checked.returncode == 0, checked.stderr
    assert verify(run.folder).digest == hashlib.sha256((run.folder / MANIFEST).read_bytes()).hexdigest()


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
    ("change", "said"),
    [
        (lambda folder: (folder / LOG).open("a").write("one more line\n"), f"changed: {LOG}"),
        (lambda folder: os.truncate(folder / LOG, 3), f"changed: {LOG}"),
        (lambda folder: os.truncate(folder / LOG, 0), f"changed: {LOG}"),
        (lambda folder: (folder / LOG).unlink(), f"removed: {LOG}"),
        (lambda folder: (folder / METADATA).unlink(), f"removed: {METADATA}"),
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
def test_what_was_done_is_named(run, change, said):
    change(run.folder)
    assert said in lines(run)


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


def test_a_file_changed_together_with_the_manifest_is_found_in_the_crate(run):
    (run.folder / LOG).write_text("other lines\n")
    entries = {**read_manifest(run.folder), LOG: hashlib.sha256(b"other lines\n").hexdigest()}
    (run.folder / MANIFEST).write_text(manifest_text(entries))
    assert lines(run) == [f"{METADATA} and {MANIFEST} list different files"]


def test_a_crate_that_is_none_is_a_fault(run):
    (run.folder / METADATA).write_text('{"@graph": []}')
    entries = {**read_manifest(run.folder), METADATA: hashlib.sha256(b'{"@graph": []}').hexdigest()}
    (run.folder / MANIFEST).write_text(manifest_text(entries))
    assert "is no valid RO-Crate" in "\n".join(lines(run))


def test_a_folder_without_a_record_or_a_run_says_so(run, tmp_path):
    (run.folder / MANIFEST).unlink()
    with pytest.raises(RecordError, match="its run never ended"):
        verify(run.folder)
    with pytest.raises(RecordError, match="it is no run's folder"):
        verify(tmp_path)


# The crate


def test_the_crate_lists_files_command_code_software_and_hardware(run):
    crate = ROCrate(run.folder)
    recorded = read_manifest(run.folder)
    payload = {entity.id: entity for entity in crate.data_entities}
    assert {path: entity["sha256"] for path, entity in payload.items()} == {
        path: digest for path, digest in recorded.items() if path != METADATA
    }
    assert all(int(entity["contentSize"]) == (run.folder / path).stat().st_size for path, entity in payload.items())
    action = crate.dereference("#run")
    assert (action["name"], action["startTime"]) == ("make bench", "2020-09-13T12:26:40+00:00")
    assert action["actionStatus"].endswith("CompletedActionStatus")
    assert {result.id for result in action["result"]} == payload.keys() - {"run.json"}
    bundled = action["instrument"]
    assert bundled["softwareVersion"] == "0123456789abcdef0123456789abcdef01234567"
    properties = {each["name"]: each["value"] for each in bundled["additionalProperty"]}
    assert properties["SHA-256 of docker/trainer.lock"] == "0" * 64 and properties["changed files"] == 0
    assert {each["name"]: each["softwareVersion"] for each in bundled["softwareRequirements"]} == VERSIONS
    gpus = [entity for entity in crate.contextual_entities if entity.id.startswith("#gpu") and entity.type == "Product"]
    assert [gpu["name"] for gpu in gpus] == [GPU["name"]] * 8


def test_the_crate_is_flat_and_every_reference_in_it_is_resolved(run):
    graph = json.loads((run.folder / METADATA).read_text())["@graph"]
    identities = [entity["@id"] for entity in graph]
    assert len(identities) == len(set(identities))
    outside = ("https://w3id.org/ro/crate/1.1",)
    for entity in graph:
        for value in entity.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, dict):
                    assert set(each) == {"@id"} and (each["@id"] in identities or each["@id"] in outside), each


def test_a_run_with_a_case_that_never_succeeded_has_failed(tmp_path):
    run = published_run(tmp_path, [CASE.name], ())
    add_attempt(run, CASE, 1, status="failed")
    record(run)
    action = ROCrate(run.folder).dereference("#run")
    assert action["actionStatus"].endswith("FailedActionStatus") and "1 did not succeed" in action["description"]


# Recording anew


def test_the_same_report_is_the_same_record(run):
    before = (run.folder / MANIFEST).read_bytes()
    render(run)
    record(run)
    assert (run.folder / MANIFEST).read_bytes() == before


def test_derived_files_are_recorded_anew_and_stale_ones_removed(run):
    stale = run.folder / "results.parquet"
    stale.write_text("of an earlier state")
    (run.folder / "report.en.md").write_text("edited by hand")
    render(run, tolerance=0.5)
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
    ("change", "said"),
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
def test_nothing_that_was_measured_is_recorded_anew(run, change, said):
    change(run)
    assert alterations(run.folder) == [said]
    render(run)
    record(run)
    assert lines(run) == [said], "a record written later must not hide it"


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
    wanted = {"rocrate", "pandas", "pyarrow", "numpy", "matplotlib", "requests"}
    code = f"import sys; {code}; print(sorted({wanted} & {{name for name, module in sys.modules.items() if module}}))"
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
    """pyarrow is absent here: pandas itself would import it, if only the group "export" had been installed."""
    path = "sys.modules['pyarrow'] = None; from repro.analysis import verdict; from repro.report.run import page"
    assert imported(path) == "['numpy', 'pandas']"


# Parquet


def test_parquet_holds_what_the_csv_holds(run):
    from pyarrow import parquet

    table = parquet.read_table(write_results_parquet(run)).to_pylist()
    with open(run.folder / "results.csv") as file:
        rows = list(csv.DictReader(file))
    assert [list(row) for row in table] == [list(row) for row in rows] and len(table) == 1
    for name, value in table[0].items():
        text = " ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
        assert text == rows[0][name], name
    assert table[0]["throughputs_samples_per_s"] == pytest.approx([4.92, 4.92492])


# The archive


def test_the_archive_is_the_same_for_the_same_run_and_verifies_elsewhere(run, tmp_path):
    first = bundle(run)
    content = first.path.read_bytes()
    assert int.from_bytes(content[4:8], "little") == 1_600_000_000, "the time in it is the run's"
    for path in run.folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
    again = bundle(run)
    assert again.path.read_bytes() == content and again.digest == hashlib.sha256(content).hexdigest()
    with tarfile.open(first.path) as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    assert verify(tmp_path / "elsewhere" / run.id).holds
    assert bundle(Run(tmp_path / "elsewhere" / run.id)).digest == first.digest


def test_a_run_that_was_touched_is_not_packed(run):
    (run.folder / LOG).write_text("x")
    with pytest.raises(RecordError, match=f"changed: {LOG}"):
        bundle(run)
    assert not list(run.folder.parent.glob("*.tar.gz*"))


def test_a_run_that_changes_while_it_is_packed_is_not_packed(run, monkeypatch):
    packer = bundle_module._pack

    def pack_too_late(run, target):
        (run.folder / LOG).write_text("x")
        packer(run, target)

    monkeypatch.setattr(bundle_module, "_pack", pack_too_late)
    with pytest.raises(RecordError, match="changed while it was packed"):
        bundle(run)
    assert not list(run.folder.parent.glob("*.tar.gz*"))


# The tasks


def test_bench_records_and_the_tasks_verify_report_and_pack(task, tmp_path):
    assert task("bench", CASES="bert_1n1g_bs96", REPEATS=1).returncode == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert task("verify").returncode == 0
    reported = task("report", RUN=folder.name)
    assert reported.returncode == 0 and (folder / "results.parquet").is_file()
    assert task("verify", RUN=folder).returncode == 0
    packed = task("bundle-run", RUN=folder.name)
    assert packed.returncode == 0 and f"{folder}.tar.gz" in packed.stdout
    with tarfile.open(f"{folder}.tar.gz") as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    assert task("verify", RUN=tmp_path / "elsewhere" / folder.name).returncode == 0

    log = next((folder / "units").rglob("stdout"))
    log.write_text(log.read_text().replace("step: 1,", "step: 2,"))
    said = f"changed: {log.relative_to(folder)}"
    for name in ("verify", "report", "bundle-run"):
        refused = task(name, RUN=folder.name)
        assert refused.returncode == 1 and said in refused.stderr, name
    assert task("verify", RUN="absent").returncode == 2
