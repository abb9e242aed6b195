"""Keeping a run for good: what the copy holds, what it no longer names, and that it gives the same reports."""

import gzip
import hashlib
import json
import shutil
import subprocess

import pytest

from repro.analysis.process_info import process_info
from repro.analysis.results import write_results_parquet
from repro.report.host import keep as keeping
from repro.report.host.keep import keep, rewriting, rewritten, runs_of
from repro.report.run.page import render
from repro.runs.files import lines, opened, present
from repro.runs.manifest import files, record, verify
from repro.runs.record import RecordError, Run, write_json
from repro.utils.paths import ROOT
from tests.support.kept import CHECKOUT, RUNS, bench_run


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return bench_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def kept(original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept") / original.id
    keep(original.folder, folder)
    return Run(folder)


def contents(folder) -> dict[str, bytes]:
    return {path: (folder / path).read_bytes() for path in files(folder)}


def unpacked(path: str, content: bytes) -> bytes:
    return gzip.decompress(content) if path.endswith(".gz") else content


def test_no_path_of_a_machine_is_left(original, kept, tmp_path):
    every = {path: unpacked(path, content) for path, content in contents(kept.folder).items()}
    for folder in (CHECKOUT, RUNS, str(ROOT)):
        assert [path for path, content in every.items() if folder.encode() in content] == []
    assert keep(original.folder, tmp_path / "again").named == ("/usr/local",)
    start = json.loads(lines(next(kept.folder.glob("units/DP_1*536x16/*/")) / "metrics-rank0.jsonl")[0])
    assert start["libraries"] == [".venv-trainer/lib/libcudnn.so.7.6.5", "/usr/local/cuda/lib/libcublas.so.13.1"]
    assert kept.description()["command"] == "make bench MODEL=gpt FIT=2,4 RUNS=runs"
    assert "LD_PRELOAD=.cache/compat/libx.so" in (kept.folder / "report.en.md").read_text()
    output = json.loads(next(kept.folder.glob("units/*/*/config.json")).read_text())["output"]
    assert output.startswith(f"runs/{kept.id}/units/")


def test_it_is_as_recorded_and_says_what_changed(original, kept):
    assert verify(kept.folder).holds
    told = json.loads((kept.folder / "kept.json").read_text())
    assert told["manifest_sha256"] == verify(original.folder).digest
    for path, change in told["changed"].items():
        was = (original.folder / path).read_bytes()
        assert change["sha256"] == hashlib.sha256(was).hexdigest()
        assert present(kept.folder / path) is not change.get("left_out", False)
        if not change.get("left_out"):
            with opened(kept.folder / path) as file:
                assert (file.read() != was) is change["paths_rewritten"]
    unchanged = {path for path in files(original.folder) if path.startswith("units/")} - told["changed"].keys()
    assert unchanged and all(
        (kept.folder / path).read_bytes() == (original.folder / path).read_bytes() for path in unchanged
    )


def test_large_files_are_compressed_and_read_all_the_same(original, kept):
    packed = [path for path in files(kept.folder) if path.endswith(".gz")]
    assert any("metrics-rank3.jsonl.gz" in path for path in packed)
    assert any("local_rank_0/stdout.gz" in path for path in packed)
    assert all((kept.folder / path).read_bytes()[4:8] == bytes(4) for path in packed), "no time in the archives"
    attempts = [each for each in original.attempts() if each["unit"] == "DP_8x1x1_16_1536x16.as_4x1x1"]
    assert (
        process_info(kept.folder, attempts, 4).transports
        == process_info(original.folder, attempts, 4).transports
        == {"P2P"}
    )
    size = sum(len(content) for content in contents(kept.folder).values())
    assert size < sum(len(content) for content in contents(original.folder).values())


def test_what_glog_repeats_stays_only_where_an_attempt_failed(original, kept):
    failed = {each["folder"] for each in original.attempts() if each["status"] == "failed"}
    assert failed
    left = [path for path in files(kept.folder) if "/vm/oneflow" in path]
    assert left and all(any(path.startswith(folder) for folder in failed) for path in left)


def test_the_same_run_is_always_kept_as_the_same_bytes(original, kept, tmp_path):
    keep(original.folder, tmp_path / original.id)
    assert contents(tmp_path / original.id) == contents(kept.folder)


def test_a_report_made_anew_elsewhere_changes_no_byte(kept, tmp_path):
    shutil.copytree(kept.folder, tmp_path / kept.id)
    again = Run(tmp_path / kept.id)
    render(again, figures=True)
    write_results_parquet(again)
    record(again)
    assert contents(again.folder) == contents(kept.folder)
    assert (again.folder / "figures" / "peers.zh.svg").exists()
    assert not list(again.folder.rglob("*.png")), "their bytes depend on the machine's fonts"


def test_git_ignores_nothing_of_it(kept):
    here = "reports/reproduced/somewhere/runs"
    paths = "\n".join(f"{here}/{kept.id}/{path}" for path in files(kept.folder))
    command = ["git", "-C", str(ROOT), "check-ignore", "--stdin"]
    done = subprocess.run(command, input=paths, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("this is no git checkout, so that nothing can be asked of git")
    assert done.stdout == ""


def test_an_altered_run_is_not_kept(original, tmp_path):
    shutil.copytree(original.folder, tmp_path / "run")
    (tmp_path / "run" / "attempts.jsonl").write_text("")
    with pytest.raises(RecordError, match="not as it was recorded; nothing was kept"):
        keep(tmp_path / "run", tmp_path / "kept" / "run")
    assert not (tmp_path / "kept" / "run").exists()


def test_a_copy_that_says_something_else_is_not_kept(original, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "_says", lambda run: run.folder)
    with pytest.raises(RecordError, match="gives other results or verdicts"):
        keep(original.folder, tmp_path / original.id)
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_a_report_brings_back_is_refused(original, tmp_path, monkeypatch):
    def with_path(run, **rest):
        (run.folder / "report.en.md").write_text(f"made in {ROOT}/repro")

    monkeypatch.setattr(keeping, "render", with_path)
    with pytest.raises(RecordError, match=r"report.en.md of the copy still names a folder of this machine"):
        keep(original.folder, tmp_path / original.id)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_kept_is_said(original, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(RecordError, match="is there already"):
        keep(original.folder, tmp_path / "there")
    with pytest.raises(RecordError, match="neither a run nor a preflight"):
        keep(tmp_path / "there", tmp_path / "new")
    with pytest.raises(RecordError, match=r"HOST=\.\./up: a name of small letters"):
        runs_of("../up")


def test_paths_that_only_begin_alike_stay():
    pairs = {"/a/b": ".", "/runs/x/id": "runs/id"}
    assert rewritten(b"/a/b/c:/a/b /a/bc /a/b-2/c /runs/x/id/units", pairs) == b"c:. /a/bc /a/b-2/c runs/id/units"


def test_the_folders_of_the_machine_are_found_in_its_files(original):
    assert rewriting(original.folder) == {
        str(ROOT): ".",
        CHECKOUT: ".",
        f"{RUNS}/{original.id}": f"runs/{original.id}",
        RUNS: "runs",
    }


def preflight(folder):
    (folder / "allreduce-node1").mkdir(parents=True)
    found = {
        "check": "names",
        "what": "",
        "machine": "node1",
        "result": "ok",
        "found": f"{ROOT}/x is there",
        "means": "",
        "fix": "",
        "mended": False,
        "seconds": 1.0,
    }
    write_json(folder / "preflight.json", {"created": 1.79e9, "cluster": None, "findings": [found]})
    rows = [
        {
            "bytes": 4**n,
            "calls": 1,
            "windows_s": [0.1] * 40,
            "seconds": 1e-4 * n,
            "algorithm_gbs": 1.0 * n,
            "bus_gbs": 1.5 * n,
        }
        for n in range(5, 14)
    ]
    write_json(
        folder / "allreduce-node1" / "allreduce.json",
        {
            "device": "cuda",
            "ranks": 4,
            "rows": rows,
            "pairs": [],
            "versions": {},
            "libraries": [],
            "transports": ["P2P"],
            "bus_gbs": 19.5,
            "latency_us": 500.0,
            "link_gbs": 39.0,
        },
    )
    return folder


def test_a_checkout_is_found_by_its_cache_too(tmp_path):
    stack = {"CUDA_CACHE_PATH": "/opt/elsewhere/.cache/cuda-580", "LD_PRELOAD": "/x/y/.cache/compat/a.so:/x/z/.cache/b"}
    write_json(tmp_path / "run.json", {"environment": stack})
    assert rewriting(tmp_path) == {str(ROOT): ".", "/opt/elsewhere": ".", "/x/y": "."}


def test_a_preflight_is_kept_too(tmp_path):
    source = preflight(tmp_path / "preflight-1")
    found = keep(source, tmp_path / "kept")
    assert "x is there" in (found.folder / "preflight.json").read_text()
    assert str(ROOT) not in (found.folder / "preflight.json").read_text()
    with opened(found.folder / "allreduce-node1" / "allreduce.json") as file:
        assert json.load(file)["ranks"] == 4


def test_the_task_asks_for_run_and_host(task, tmp_path):
    done = task("keep", RUN="x")
    assert done.returncode == 2
    assert "RUN=<id> HOST=<name>" in done.stderr
    done = task("keep", RUN="x", HOST="h200", RUNS=str(tmp_path))
    assert done.returncode == 2
    assert "no such run" in done.stderr
