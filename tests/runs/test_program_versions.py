"""Which code a run's programs had: what an attempt recorded, else only its commit."""

import pytest

from repro.analysis.code_lookup import digest_faults
from repro.launch.program_code import program_code
from repro.models.programs import KINDS, PUBLISHED
from repro.models.registry import names
from repro.runs.digests import REPRODUCED
from repro.runs.history import history
from repro.runs.program_versions import BASELINES, TRAINERS, Versions, read, version
from repro.runs.record import RecordError
from tests.support.attempts import recorded
from tests.support.synthetic import ran_on

KNOWN = Versions({"c3": {"old": "now"}, "c4": {"older": "now"}})


def of(attempts=({},), run="r", changed=0, commit="c1"):
    environment = ran_on(git_commit=commit, git_changed_files=changed)
    return version(run, environment, [recorded(each) for each in attempts], KNOWN)


def test_a_recorded_digest_counts_before_the_commit():
    recorded = ({"code": {"sha256": "s"}},)
    assert of(recorded, commit="c1") == of(recorded, commit="c9") == of(recorded, changed=3) == "s"
    assert of(({"code": {"sha256": "s", "replaced": "cat"}},)) != "s"
    assert of((*recorded, {"code": {"sha256": "z"}})) not in ("s", "z")
    assert of((*recorded, {})) == of(), "an attempt that recorded none leaves the commit"


def test_digests_that_counted_other_files_too_equal_what_is_computed_now():
    old, older, now = (of(({"code": {"sha256": digest}},)) for digest in ("old", "older", "now"))
    assert old == older == now == "now" != of(({"code": {"sha256": "another"}},))


def test_what_nobody_can_look_up_equals_nothing_else():
    assert of(commit="c3") == of(commit="c3", run="other") != of(commit="c4")
    assert of(changed=1) != of(changed=1, run="other")
    assert of(commit=None) != of(commit=None, run="other")


@pytest.mark.parametrize("text", ["c = 1", "[c]\nd = 1", '[c.digests]\na = "b"'])
def test_an_entry_that_is_none_is_named(tmp_path, text):
    (tmp_path / "code.toml").write_text(text)
    with pytest.raises(RecordError, match=r"code\.toml: c: a commit has a table of digests, each a text"):
        read(tmp_path)


def test_nothing_is_known_without_a_file(tmp_path):
    assert read(tmp_path) == Versions()


def test_the_committed_versions_are_those_of_the_history():
    assert read(REPRODUCED).digests
    if gap := history().gap:
        pytest.skip(gap)
    assert digest_faults(REPRODUCED) == []


def test_a_digest_that_the_history_does_not_give_is_told(tmp_path):
    if gap := history().gap:
        pytest.skip(gap)
    commit, listed = next(iter(read(REPRODUCED).digests.items()))
    recorded, present = next(iter(listed.items()))
    for known, digest, now, expected in (
        (commit, recorded, present, []),
        (
            commit,
            recorded,
            "0" * 64,
            [f"{commit}: {recorded} is {'0' * 64} now, computed from the history it is {present}"],
        ),
        (
            commit,
            "0" * 64,
            present,
            [f"{'0' * 64} is {present} now, computed from the history it is of no program there"],
        ),
        (
            "0" * 40,
            recorded,
            present,
            [f"{recorded} is {present} now, computed from the history it is of no program there"],
        ),
    ):
        (tmp_path / "code.toml").write_text(f'["{known}"]\n{digest} = "{now}"\n')
        found = digest_faults(tmp_path)
        assert len(found) == len(expected) and all(part in line for part, line in zip(expected, found, strict=True))


def test_the_code_of_the_campaign_does_not_change_until_it_ends():
    """Campaign.md says so: a changed digest would set its sessions apart from those before."""
    campaign = {digest for listed in read(REPRODUCED).digests.values() for digest in listed.values()}
    present = {
        f"{kind} {model}": program_code(TRAINERS, kind, model=model)["sha256"] for kind in KINDS for model in names()
    } | {"baselines": program_code(BASELINES, PUBLISHED)["sha256"]}
    assert {name: digest for name, digest in present.items() if digest not in campaign} == {}
