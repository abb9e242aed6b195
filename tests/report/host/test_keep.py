"""Keeping a run: what the archive holds, what it no longer names, and that it gives the same results."""

import hashlib
import json
import re
import shutil
import subprocess
import zipfile

import pytest

from repro.analysis.process_info import process_info
from repro.analysis.verification import signed_as_listed
from repro.report.host import keep as keeping
from repro.report.host.keep import UUID, Replacements, keep, replacements
from repro.runs.digests import NAME, REPRODUCED, chain_faults, entered, runs_of, signer
from repro.runs.files import KEPT, content, gpu_samples, names, open_files, read_json
from repro.runs.manifest import DERIVED, MANIFEST, record, verify
from repro.runs.metrics import events
from repro.runs.record import RecordError, Run
from repro.runs.signature import Key, fingerprint, signature
from repro.utils.paths import ROOT, sha256
from tests.support import kept as support
from tests.support.kept import CHECKOUT, RUNS, bench_run, preflight_folder

COMMITTED = sorted(REPRODUCED.glob("*/runs/*.zip"))
LIBRARIES = {"/lib/x86_64-linux-gnu", "/opt/torch", "/usr/lib", "/usr/local", "/sys/class", "/sys/devices"}
OF_ONEFLOW = {"/home/ci-user"}
"""Where OneFlow's wheel was built, as its stack traces say."""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return bench_run(tmp_path_factory.mktemp("runs"), report=True)


@pytest.fixture(scope="module")
def kept(original, tmp_path_factory):
    archive = tmp_path_factory.mktemp("kept") / f"{original.id}.zip"
    keep(original.path, archive)
    return Run(archive)


def contents(root) -> dict[str, bytes]:
    return {path: content(root / path) for path in names(root)}


def test_it_holds_what_was_measured_and_nothing_derived(original, kept):
    inside = names(kept.files)
    assert {path for path in inside if not path.startswith("units/")} == {
        "attempts.jsonl",
        KEPT,
        MANIFEST,
        "run.json",
    }
    assert [path for path in names(original.files) if DERIVED.fullmatch(path)]
    assert [path for path in inside if DERIVED.fullmatch(path)] == []


def test_nothing_says_whose_machine_it_was(original, kept, tmp_path):
    every = contents(kept.files)
    for what in (CHECKOUT, RUNS, str(ROOT), support.HOST, support.ADDRESS, support.UUID.format(0)[:20]):
        assert [path for path, text in every.items() if what.encode() in path.encode() + text] == []
    assert keep(original.path, tmp_path / "again.zip").named == ("/usr/local",)
    attempt = next(each for each in kept.attempts() if each.status == "ok").folder
    start = events(kept.files / attempt / "metrics-rank0.jsonl")[0]
    assert start["libraries"] == [".venv-trainer/lib/libcudnn.so.7.6.5", "/usr/local/cuda/lib/libcublas.so.13.1"]
    assert start["host"] == "host1"
    description = kept.description()
    assert description.command == "make bench MODEL=gpt MAX_GPUS=2,4 RUNS=runs"
    assert description.environment.host == "host1"
    assert [gpu["uuid"] for gpu in description.environment.gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert {sample["uuid"] for sample in gpu_samples(kept.files / attempt)} == {"GPU-0"}
    output = read_json(kept.files / attempt / "config.json")["output"]
    assert output == f"runs/{kept.id}/{attempt}"


def test_it_is_as_recorded_and_says_what_changed(original, kept):
    assert verify(kept.files).holds
    record = read_json(kept.files / KEPT)
    assert record["manifest_sha256"] == verify(original.folder).digest
    raw = {path: content(original.files / path) for path in names(original.files) if path.startswith("units/")}
    hashes = {hashlib.sha256(text).hexdigest() for text in raw.values()}
    of_units = {path: change for path, change in record["changed"].items() if path.startswith("units/")}
    assert {change["sha256"] for change in of_units.values()} <= hashes
    for path, change in of_units.items():
        assert (kept.files / path).is_file() is not change.get("skipped", False)
    unchanged = raw.keys() & set(names(kept.files)) - of_units.keys()
    assert unchanged and all(content(kept.files / path) == raw[path] for path in unchanged)


def test_it_is_read_in_place_like_the_run(original, kept):
    attempts = [each for each in original.attempts() if each.unit == "DP_8x1x1_16_1536x16.as_4x1x1"]
    seen, expected = process_info(kept.files, attempts, 4), process_info(original.files, attempts, 4)
    assert seen.transports == expected.transports == {"P2P"}
    assert (seen.versions, seen.nodes, seen.ranks) == (expected.versions, expected.nodes, expected.ranks)
    assert kept.path.stat().st_size < sum(len(text) for text in contents(original.files).values()) / 4


def test_what_glog_repeats_stays_only_where_an_attempt_failed(original, kept):
    failed = {each.folder for each in original.attempts() if each.status == "failed"}
    assert failed
    left = [path for path in names(kept.files) if "/oneflow." in path]
    assert left and all(any(path.startswith(folder) for folder in failed) for path in left)
    assert all("/host1/oneflow.host1.root.log" in path for path in left)


def test_the_same_run_is_always_kept_as_the_same_bytes(original, kept, tmp_path):
    shutil.copytree(original.folder, tmp_path / original.id)
    keep(tmp_path / original.id, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == kept.path.read_bytes()
    keep(kept.path, tmp_path / "kept" / kept.path.name)
    assert (tmp_path / "kept" / kept.path.name).read_bytes() == kept.path.read_bytes()
    members = zipfile.ZipFile(kept.path).infolist()
    assert {(member.date_time, member.external_attr >> 16) for member in members} == {((1980, 1, 1, 0, 0, 0), 0o644)}
    assert [member.filename for member in members] == sorted(member.filename for member in members)


def test_git_ignores_nothing_of_it():
    command = ["git", "-C", str(ROOT), "check-ignore", "reports/reproduced/somewhere/runs/20261121-080000-gpt.zip"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 128:
        pytest.skip("this is no git checkout, so that nothing can be asked of git")
    assert done.stdout == ""


def test_an_altered_run_is_not_kept(original, tmp_path):
    shutil.copytree(original.folder, tmp_path / "run")
    (tmp_path / "run" / "attempts.jsonl").write_text("")
    with pytest.raises(RecordError, match="not as it was recorded; nothing was kept"):
        keep(tmp_path / "run", tmp_path / "kept" / "run.zip")
    assert not (tmp_path / "kept").exists()


def test_a_run_whose_figures_its_raw_output_does_not_give_is_not_kept(original, tmp_path):
    shutil.copytree(original.folder, tmp_path / original.id)
    bent = Run(tmp_path / original.id)
    bent.attempts_file.write_text(bent.attempts_file.read_text().replace('"memory_mib": 9000', '"memory_mib": 8000'))
    (bent.folder / MANIFEST).unlink()
    record(bent)
    with pytest.raises(RecordError, match="is not what its raw output gives; nothing was kept"):
        keep(bent.path, tmp_path / "kept" / "run.zip")
    assert not (tmp_path / "kept").exists()


def test_a_run_is_kept_once_even_if_its_archive_is_gone(original, tmp_path):
    archive = tmp_path / "h200" / "runs" / f"{original.id}.zip"
    keep(original.path, archive)
    assert entered(archive, tmp_path / "SHA256SUMS") == sha256(archive)
    archive.unlink()
    with pytest.raises(RecordError, match="a kept run is never recorded anew"):
        keep(original.path, archive)
    assert not archive.exists()


def test_an_archive_that_gives_other_results_is_not_kept(original, tmp_path, monkeypatch):
    monkeypatch.setattr(keeping, "_statements", lambda run: run.path)
    with pytest.raises(RecordError, match="gives other results or verdicts"):
        keep(original.path, tmp_path / f"{original.id}.zip")
    assert list(tmp_path.iterdir()) == []


def test_what_fails_once_the_archive_is_written_leaves_none(original, tmp_path, monkeypatch):
    """Or it would be there without a line in the list, and could never be kept again."""

    def statements(run):
        if run.archived:
            raise RecordError("its plan cannot be read")

    monkeypatch.setattr(keeping, "_statements", statements)
    with pytest.raises(RecordError, match="its plan cannot be read"):
        keep(original.path, tmp_path / f"{original.id}.zip")
    assert list(tmp_path.iterdir()) == []


def test_an_archive_is_signed_as_it_is_kept_or_not_kept(tmp_path):
    source = preflight_folder(tmp_path / "preflight-1")
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"]
    subprocess.run(made, check=True, capture_output=True)
    key = Key(tmp_path / "key", fingerprint(tmp_path / "key"))
    archive, listed = tmp_path / "h200" / "runs" / "preflight-1.zip", tmp_path / NAME
    with pytest.raises(RecordError, match=r"preflight-1\.zip cannot be signed by .*another key signed it"):
        keep(source, archive, Key(key.file, "SHA256:other"), "SHA256:other")
    assert list(archive.parent.iterdir()) == [] and not listed.exists()
    keep(source, archive, key, key.fingerprint)
    assert signature(archive).key == key.fingerprint == signer("h200", listed) and chain_faults(listed) == []
    assert [good for good, _ in signed_as_listed(archive)] == [True]
    archive.with_name("preflight-1.zip.sig").unlink()
    ((good, text),) = signed_as_listed(archive)
    assert not good and "the signature was removed" in text


def test_what_cannot_be_kept_is_said(original, tmp_path):
    (tmp_path / "there.zip").touch()
    with pytest.raises(RecordError, match="is there already"):
        keep(original.path, tmp_path / "there.zip")
    with pytest.raises(RecordError, match="neither a run nor a preflight"):
        keep(tmp_path, tmp_path / "new.zip")
    with pytest.raises(RecordError, match=r"HOST=\.\./up: a name of small letters"):
        runs_of("../up")


def test_what_merely_begins_alike_stays():
    replaced = Replacements({"/a/b": ".", "/runs/x/id": "runs/id"}, {"vm": "host1", "host": "host2"}, {})
    assert replaced.apply(b"/a/b/c:/a/b /a/bc /a/b-2/c /runs/x/id/units") == b"c:. /a/bc /a/b-2/c runs/id/units"
    assert replaced.apply(b"vm:41:77 kvm vm-2 vm2 oneflow.vm.root") == b"host1:41:77 kvm vm-2 vm2 oneflow.host1.root"
    assert replaced.apply(b'{"host": "host", "vm": {"a": 1}}') == b'{"host": "host2", "host1": {"a": 1}}'


def test_what_to_replace_is_found_in_the_files(original):
    found = replacements(contents(original.files), original.id)
    assert found.paths == {
        str(ROOT): ".",
        CHECKOUT: ".",
        f"{RUNS}/{original.id}": f"runs/{original.id}",
        RUNS: "runs",
    }
    assert found.hosts == {support.HOST: "host1"}
    assert found.gpus == {support.UUID.format(number): f"GPU-{number}" for number in range(4)}


def test_every_node_of_a_cluster_is_replaced():
    cluster = {"fingerprints": {"nodes": {"n1": {}, "n2": {}}}, "hosts": ["rack-1", "rack-2"]}
    description = json.dumps({"environment": {"host": "desk", "cluster": cluster}}).encode()
    start = json.dumps({"event": "start", "host": "rack-3"}).encode() + b"\n"
    found = replacements({"run.json": description, "units/a/repeat-1.attempt-1/metrics-rank0.jsonl": start}, "id")
    assert list(found.hosts) == ["desk", "n1", "n2", "rack-1", "rack-2", "rack-3"]
    assert json.loads(found.apply(description))["environment"]["cluster"] == {
        "fingerprints": {"nodes": {"host2": {}, "host3": {}}},
        "hosts": ["host4", "host5"],
    }


def test_addresses_are_replaced_where_they_name_a_machine():
    log = (
        b"n1:41:77 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.7<0>\n"
        b"n1:41:77 [0] NCCL INFO NET/Socket : Using [0]ib0:10.0.1.7<0> [1]ib1:10.0.1.70<0>\n"
        b"n1:41:77 [0] NCCL INFO Bootstrap : Using eth0:fe80::1%eth0<29500>\n"
        b"n1:41:77 [0] NCCL INFO NET/Socket : Using [0]eth0:fe80::1%eth0<0> [1]ib1:fd00::7<0>\n"
        b"NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>, listening on 0.0.0.0:39297 and 127.0.0.1<28028>\n"
        b"cuBLAS 10.2.3.254, no route to 10.0.0.9.\n"
        b"[12:30:05]: no connection to [fd00::9]:29500\n"
    )
    command = json.dumps(
        {"n1": ["python", "launch.py", "--master_addr", "10.0.0.9", "--master_port", "29500"]}
    ).encode()
    files = {"units/a/r/command.json": command, "units/a/r/logs/local_rank_0/stdout": log}
    found = replacements(files, "id")
    assert list(found.addresses) == ["10.0.0.9", "10.0.0.7", "10.0.1.7", "10.0.1.70", "fe80::1", "fd00::7", "fd00::9"]
    assert json.loads(found.apply(command))["n1"][3] == "address1"
    assert found.apply(log) == (
        b"n1:41:77 [0] NCCL INFO Bootstrap : Using eth0:address2<0>\n"
        b"n1:41:77 [0] NCCL INFO NET/Socket : Using [0]ib0:address3<0> [1]ib1:address4<0>\n"
        b"n1:41:77 [0] NCCL INFO Bootstrap : Using eth0:address5%eth0<29500>\n"
        b"n1:41:77 [0] NCCL INFO NET/Socket : Using [0]eth0:address5%eth0<0> [1]ib1:address6<0>\n"
        b"NET/IB : Using [RO]; OOB eth0:192.0.2.2<0>, listening on 0.0.0.0:39297 and 127.0.0.1<28028>\n"
        b"cuBLAS 10.2.3.254, no route to address1.\n"
        b"[12:30:05]: no connection to [address7]:29500\n"
    )
    assert replacements({path: found.apply(text) for path, text in files.items()}, "id").addresses == {}


def test_nodes_that_only_an_attempt_had_are_replaced_too():
    """As a later job of a run may have."""
    own = json.dumps({"nodes": {"n7": {}}}).encode()
    files = {"run.json": b"{}", "units/a/repeat-1.attempt-1/fingerprints.json": own}
    assert json.loads(replacements(files, "id").apply(own)) == {"nodes": {"host1": {}}}


def test_a_checkout_is_found_by_its_cache_too():
    stack = {"CUDA_CACHE_PATH": "/opt/elsewhere/.cache/cuda-580", "LD_PRELOAD": "/x/y/.cache/compat/a.so:/x/z/.cache/b"}
    files = {"run.json": json.dumps({"environment": stack}).encode()}
    assert replacements(files, "id").paths == {str(ROOT): ".", "/opt/elsewhere": ".", "/x/y": "."}


def test_a_preflight_is_kept_too(tmp_path):
    found = keep(preflight_folder(tmp_path / "preflight-1"), tmp_path / "kept.zip")
    root = open_files(found.path)
    (finding,) = read_json(root / "preflight.json")["findings"]
    assert (finding["machine"], finding["found"]) == ("host1", "x is there")
    assert read_json(root / "allreduce-host1" / "allreduce.json")["ranks"] == 4


@pytest.mark.parametrize("archive", COMMITTED, ids=lambda path: path.stem)
def test_no_committed_archive_says_whose_machine_it_was(archive):
    """Not by the host in any of the places where hosts are written, not by a GPU's UUID, not by a path."""
    files = contents(open_files(archive))
    placeholder = rb"host\d+"
    for path, text in files.items():
        assert not UUID.search(text), path
        named = re.findall(rb'"host": "([^"]*)"|^([^\s:]+):\d+:\d+ \[|Running on machine: (\S+)', text, re.MULTILINE)
        named += re.findall(rb"/oneflow\.([^./]+)\.", path.encode())
        hosts = {each for found in named for each in (found if isinstance(found, tuple) else (found,)) if each}
        assert all(re.fullmatch(placeholder, host) for host in hosts), (path, hosts)
    folders = {found.decode() for text in files.values() for found in keeping.ABSOLUTE.findall(text)}
    assert folders <= LIBRARIES | OF_ONEFLOW
    found = replacements(files, archive.stem)
    assert (found.paths, found.addresses) == ({str(ROOT): "."}, {})


def test_a_committed_archive_is_kept_as_the_same_bytes_again(tmp_path):
    """The committed archives are what `keep` writes, so that keeping one again changes nothing."""
    smallest = min(COMMITTED, key=lambda path: path.stat().st_size)
    keep(smallest, tmp_path / smallest.name)
    assert contents(open_files(tmp_path / smallest.name)) == contents(open_files(smallest))
