"""What a run needs of a node that somebody else set up: checks over recorded output, without root."""

from dataclasses import replace

import pytest

from repro.cluster.cluster import Image
from repro.preflight import installed
from repro.preflight.framework import FAILED, OK, UNAVAILABLE, run_checks
from repro.preflight.installed import checks
from tests.support.clusters import DIGEST, V100
from tests.support.paths import ROOT
from tests.support.recorded import machine

RELEASES = ROOT / "tests/data/os-release"
VENV = replace(V100, runtime_name="venv", data="")
SIF = replace(V100, runtime_name="apptainer", image=Image("trainers", file="/p/t.sif", sha256="b" * 64))
UNAME = "5.14.0-427.13.1.el9_4.x86_64 x86_64\n"
NO_DOCKER = (1, "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock")
LOADED = (
    'sh -c exec "$@" 3>&1 >&2 sh bash -lc set -e\nmodule load apptainer\nexec "$0" "$@" >&3 3>&- apptainer --version'
)


@pytest.mark.parametrize(
    ("name", "cluster", "answers", "result", "message"),
    [
        (
            "platform",
            V100,
            {"cat": "ID=x\n", "uname": UNAME},
            OK,
            "a distribution that does not name itself, Linux 5.14",
        ),
        ("platform", V100, {"cat": "", "uname": "6.1.0 aarch64\n"}, FAILED, "aarch64"),
        ("python", V100, {"/usr/bin/python3": "3.9.18\n"}, OK, "/usr/bin/python3 is Python 3.9.18"),
        ("python", V100, {"/usr/bin/python3": "3.12.3\n"}, OK, "3.12.3"),
        ("python", V100, {"/usr/bin/python3": "3.6.8\n"}, FAILED, "/usr/bin/python3 is Python 3.6.8"),
        ("python", V100, {}, FAILED, "command not found"),
        ("work", V100, {"sh": ""}, OK, "/var/lib/w can be written"),
        ("work", V100, {"sh": (1, "")}, FAILED, "/var/lib/w cannot be written"),
        ("trainer", V100, {"docker image inspect": f"{DIGEST}\n"}, OK, "oneflow-reproduction:cu102, sha256:aaaa"),
        ("trainer", V100, {"docker": (1, "Error: No such image: sha256:aaaa")}, FAILED, "No such image"),
        ("trainer", V100, {"docker": NO_DOCKER}, FAILED, "permission denied while trying to connect"),
        ("trainer", V100, {}, FAILED, "docker: command not found"),
        (
            "trainer",
            VENV,
            {"/var/lib/w/venv/bin/python": "0.8.0+cu102\n"},
            OK,
            "OneFlow 0.8.0+cu102 in /var/lib/w/venv",
        ),
        ("trainer", VENV, {"/var/lib/w": (1, "No module named 'oneflow'")}, FAILED, "no OneFlow in /var/lib/w/venv"),
        ("trainer", SIF, {"apptainer": "1.4.5\n", "sha256sum": f"{'b' * 64}  /p/t.sif\n"}, OK, "/p/t.sif"),
        ("trainer", SIF, {"apptainer": "1.4.5\n", "sha256sum": f"{'c' * 64}  /p/t.sif\n"}, FAILED, "SHA-256 cccc"),
        ("trainer", SIF, {"apptainer": "1.4.5\n", "sha256sum": (1, "/p/t.sif: No such file")}, FAILED, "No such file"),
        ("trainer", SIF, {"sha256sum": f"{'b' * 64}  /p/t.sif\n"}, FAILED, "apptainer: command not found"),
        (
            "trainer",
            replace(SIF, prologue=("module load apptainer",)),
            {LOADED: "1.4.5\n", "sha256sum": f"{'b' * 64}  /p/t.sif\n"},
            OK,
            "/p/t.sif",
        ),
        ("data", V100, {"find -L /data/ofrecord": "/data/ofrecord/train/part-00000\n" * 256}, OK, "256 parts"),
        ("data", V100, {"find": ""}, FAILED, "no files named part-*, *.bin in /data/ofrecord"),
        ("data", VENV, {}, UNAVAILABLE, "runs write stand-ins"),
        ("shared-results", V100, {}, UNAVAILABLE, "names no shared folder"),
        ("shared-results", replace(V100, shared_results="/mnt/r"), {"test -w /mnt/r": ""}, OK, "/mnt/r can be written"),
        ("shared-results", replace(V100, shared_results="/mnt/r"), {"test": (1, "")}, FAILED, "/mnt/r cannot"),
    ],
)
def test_a_check_finds(name, cluster, answers, result, message):
    (entry,) = next(run_checks([named(cluster, name)], [machine(answers)]))
    assert entry.finding.result == result
    assert message in entry.finding.facts
    assert bool(entry.finding.fix) == (result == FAILED), "what fails says what to do"


def test_a_data_set_is_looked_for_as_provisioning_does(tmp_path, monkeypatch):
    role = tmp_path / "main.yml"
    role.write_text('data_set_parts: ["*.rec", "x-*"]\n')
    monkeypatch.setattr(installed, "DATA_ROLE", role)
    node = machine({"find -L /data/ofrecord -type f ( -name *.rec -o -name x-* )": "/data/ofrecord/x-1\n"})
    (entry,) = next(run_checks([named(V100, "data")], [node]))
    assert (entry.finding.result, entry.finding.facts) == (OK, "1 parts in /data/ofrecord")


def named(cluster, name):
    return next(check for check in checks(cluster) if check.name == name)


@pytest.mark.parametrize("release", sorted(RELEASES.iterdir()), ids=lambda path: path.name)
def test_distributions_are_named(release):
    text = release.read_text()
    (entry,) = next(run_checks([named(V100, "platform")], [machine({"cat": text, "uname": UNAME})]))
    pretty = next(line for line in text.splitlines() if line.startswith("PRETTY_NAME"))
    assert entry.finding.result == OK
    assert entry.finding.facts.startswith(pretty.split('"')[1] + ", Linux 5.14.0-427.13.1.el9_4.x86_64")
