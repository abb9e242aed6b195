"""Which code a run's programs had: what an attempt recorded, else what git has at its commit, else only its commit."""

import subprocess

import pytest

from repro.runs.digests import REPRODUCED
from repro.runs.history import history
from repro.runs.program_versions import BASELINES, TRAINERS, read, version
from repro.runs.record import RecordError
from repro.utils.paths import ROOT

KNOWN = {"c1": {TRAINERS: "t", BASELINES: "b"}, "c2": {TRAINERS: "t", BASELINES: "b2"}}


def of(attempts=({},), folder=TRAINERS, run="r", changed=0, commit="c1"):
    return version(run, {"git_commit": commit, "git_changed_files": changed}, attempts, folder, KNOWN)


def test_a_recorded_digest_counts_before_the_commit():
    recorded = ({"code": {"sha256": "s"}},)
    assert of(recorded, commit="c1") == of(recorded, commit="c9") == of(recorded, changed=3) == "s"
    assert of(({"code": {"sha256": "s", "replaced": "cat"}},)) != "s"
    assert of((*recorded, {"code": {"sha256": "z"}})) not in ("s", "z")
    assert of((*recorded, {})) == "t", "an attempt that recorded none leaves the commit"


def test_commits_of_equal_folders_are_equal():
    assert of(commit="c1") == of(commit="c2") == "t"
    assert of(commit="c1", folder=BASELINES) != of(commit="c2", folder=BASELINES)


def test_what_nobody_can_look_up_equals_nothing_else():
    assert of(commit="c3") == of(commit="c3", run="other") != of(commit="c4")
    assert of(changed=1) != of(changed=1, run="other")
    assert of(commit=None) != of(commit=None, run="other")


@pytest.mark.parametrize("text", ["c = 1", '[c]\ntrainers = "t"', '[c]\ntrainers = "t"\nbaselines = "b"\nmore = "m"'])
def test_an_entry_that_is_none_is_named(tmp_path, text):
    (tmp_path / "code.toml").write_text(text)
    with pytest.raises(RecordError, match=r"code\.toml: c: a commit has trainers and baselines"):
        read(tmp_path)


def test_nothing_is_known_without_a_file(tmp_path):
    assert read(tmp_path) == {}


def test_the_committed_versions_are_those_of_the_history():
    found = read(REPRODUCED)
    assert found
    if gap := history().gap:
        pytest.skip(gap)

    def in_git(commit, folder):
        done = subprocess.run(["git", "rev-parse", f"{commit}:{folder}"], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    for commit, folders in found.items():
        assert folders == {TRAINERS: in_git(commit, "repro/trainers"), BASELINES: in_git(commit, "repro/peers")}
