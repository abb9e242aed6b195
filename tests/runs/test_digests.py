"""The list of kept runs: what is entered stays, and whatever is not as listed is named."""

import errno
import re
import subprocess

import pytest

from repro.runs import digests
from repro.runs.digests import (
    CHAIN,
    LOST,
    NAME,
    REPRODUCED,
    UNSIGNED,
    chain_faults,
    enter,
    entered,
    fault_of,
    faults,
    head,
    in_order,
    lines,
    list_of,
    lost_commits,
    read,
    remove,
    removed,
    runs_of,
    signer,
    signers,
)
from repro.runs.history import history, lost_lines
from repro.runs.record import RecordError, Run
from repro.utils.errors import ReproError


@pytest.fixture
def archive(tmp_path):
    """A host's archive, entered in the list."""
    path = tmp_path / "h200" / "runs" / "a.zip"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"kept")
    enter(path, list_of(path))
    return path


def test_sha256sum_reads_the_list(archive):
    listed = list_of(archive)
    assert subprocess.run(["sha256sum", "--check", "--strict", NAME], cwd=listed.parent, check=True)
    above = subprocess.run(
        f"head -n 1 {NAME} | sha256sum", cwd=listed.parent, check=True, shell=True, capture_output=True
    )
    assert lines(listed)[1] == f"# chain {above.stdout.split()[0].decode()}"
    assert faults(archive.parents[1]) == [] and fault_of(archive, listed) is None


def test_a_name_is_entered_once(archive):
    before = list_of(archive).read_text()
    archive.write_bytes(b"another")
    with pytest.raises(RecordError, match="a kept run is never recorded anew"):
        enter(archive, list_of(archive))
    assert list_of(archive).read_text() == before


def test_another_archive_a_missing_one_and_one_too_many_are_named(archive):
    archive.write_bytes(b"another")
    archive.with_name("b.zip").write_bytes(b"by hand")
    (other, by_hand) = faults(archive.parents[1])
    assert "is not the archive that was kept" in other and "has no line" in by_hand
    archive.unlink()
    archive.with_name("b.zip").unlink()
    assert faults(archive.parents[1]) == [f"{archive} was kept and is gone"]


@pytest.mark.parametrize("line", ["", "nothing", "0" * 63 + "  h200/runs/b.zip", "# a comment", "# no commit abc: why"])
def test_a_line_that_is_none_is_named(archive, line):
    listed = list_of(archive)
    listed.write_text(listed.read_text() + line + "\n")
    with pytest.raises(RecordError, match="line 3 is no digest of a kept run"):
        read(listed)


def test_a_line_twice_is_named(archive):
    listed = list_of(archive)
    listed.write_text(listed.read_text() * 2)
    with pytest.raises(RecordError, match="line 3 is no digest of a kept run, or one again"):
        read(listed)


def test_an_archive_elsewhere_has_no_list(tmp_path):
    assert list_of(tmp_path / "a.zip") is None


def test_a_host_is_named_as_its_folder(tmp_path):
    assert runs_of("h200", tmp_path) == tmp_path / "h200" / "runs"
    for name in ("", "-h", "H200", "../h", "a" * 41):
        with pytest.raises(RecordError, match=f"HOST={re.escape(name)}: a name of small letters"):
            runs_of(name, tmp_path)


def test_archives_are_in_the_order_in_which_they_were_kept(listed, archive):
    late, host = archive.with_name("Z.zip"), archive.parents[1]
    late.write_bytes(b"late")
    enter(late, listed)
    late.unlink()
    assert in_order(host) == [archive.with_name(f"{name}.zip") for name in ("a", "b", "Z")]


def test_a_list_that_cannot_be_written_is_named(archive, monkeypatch):
    new = archive.with_name("b.zip")
    new.write_bytes(b"new")

    def full(*given, **more):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(digests, "open", full, raising=False)
    with pytest.raises(ReproError, match=r"the disk is full: .*SHA256SUMS could not be written"):
        enter(new, list_of(archive))


# The chain


@pytest.fixture
def listed(archive):
    """A list of three archives of two hosts."""
    for path in (archive.with_name("b.zip"), archive.parents[2] / "h100" / "runs" / "c.zip"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(path.name.encode())
        enter(path, list_of(path))
    return list_of(archive)


def test_each_line_that_is_added_is_covered_by_a_chain_line(listed):
    assert chain_faults(listed) == [] and chain_faults(listed.with_name("absent")) == []
    assert [bool(CHAIN.fullmatch(line)) for line in lines(listed)] == [False, True] * 3


@pytest.mark.parametrize("number", range(5))
def test_a_changed_a_removed_and_an_inserted_line_are_found_by_every_chain_line_below(listed, number):
    every = lines(listed)
    below = [at + 1 for at in range(number + 1, 6) if CHAIN.fullmatch(every[at])]

    def named(changed):
        listed.write_text("".join(f"{line}\n" for line in changed))
        return [int(fault.split(": line ")[1].split()[0]) for fault in chain_faults(listed)]

    at = len("# chain ") if CHAIN.fullmatch(every[number]) else 0
    flipped = f"{every[number][:at]}{'1' if every[number][at] == '0' else '0'}{every[number][at + 1 :]}"
    own = [number + 1] if CHAIN.fullmatch(every[number]) else []
    assert named([*every[:number], flipped, *every[number + 1 :]]) == own + below
    assert named([*every[:number], *every[number + 1 :]]) == [at - 1 for at in below]
    assert named([*every[:number], f"{'0' * 64}  h200/runs/x.zip", *every[number:]]) == [at + 1 for at in (own + below)]


def test_lines_without_a_chain_line_are_named_and_how_to_cover_them(listed):
    whole = listed.read_text()
    listed.write_text(whole + f"{'0' * 64}  h200/runs/x.zip\n{'1' * 64}  h200/runs/y.zip\n")
    (fault,) = chain_faults(listed)
    assert f"{listed}: no chain line covers the lines from 7 on" in fault
    with pytest.raises(RecordError, match="no chain line covers the lines from 7 on"):
        enter(listed.with_name("h200") / "runs" / "d.zip", listed)
    with open(listed, "a") as file:
        file.write(fault.rpartition("append the line `")[2].removesuffix("`") + "\n")
    assert chain_faults(listed) == []
    listed.write_text(whole.removesuffix("\n"))
    assert "no chain line covers the lines from 5 on" in chain_faults(listed)[0], "it was cut off"
    listed.write_text(whole.replace("\n", "\r\n"))
    assert chain_faults(listed)


def test_nothing_is_added_to_a_list_that_was_changed(listed, archive):
    listed.write_text(listed.read_text().replace("a.zip", "x.zip"))
    before, new = listed.read_text(), archive.with_name("d.zip")
    new.write_bytes(b"d")
    with pytest.raises(RecordError, match="line 2 is not the SHA-256 of the lines above it"):
        enter(new, listed)
    with pytest.raises(RecordError, match="line 2 is not the SHA-256 of the lines above it"):
        remove(archive.parents[1], [archive.with_name("b.zip")], "why")
    assert listed.read_text() == before and archive.with_name("b.zip").is_file()


def test_the_head_of_a_host_is_below_its_last_line(listed, archive):
    hosts = archive.parents[2]
    assert head(hosts / "h200") == (4, lines(listed)[3].split()[2])
    assert head(hosts / "h100") == (6, lines(listed)[5].split()[2])
    assert head(hosts / "a100") is None
    listed.write_text("".join(f"{line}\n" for line in lines(listed)[:3]))
    assert head(hosts / "h200") is None, "an older list has no chain"


def test_a_host_whose_name_begins_alike_is_another(listed, archive):
    other = archive.parents[2] / "h2000" / "runs" / "d.zip"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"d")
    enter(other, listed)
    assert head(archive.parents[1]) == (4, lines(listed)[3].split()[2])
    assert faults(archive.parents[1]) == [] == faults(other.parents[1])


# Removed runs


def test_a_removed_run_keeps_its_line_and_gets_another(listed, archive):
    host = archive.parents[1]
    archive.with_name("a.zip.sig").write_text("signed")
    remove(host, [archive, archive.with_name("b.zip")], "measured again; two (2) runs")
    assert list((host / "runs").iterdir()) == [] and faults(host) == [] and chain_faults(listed) == []
    assert lines(listed)[6:8] == [
        f"# removed h200/runs/{name}.zip: measured again; two (2) runs" for name in ("a", "b")
    ]
    assert removed(host) == dict.fromkeys(("h200/runs/a.zip", "h200/runs/b.zip"), "measured again; two (2) runs")
    assert removed(host.with_name("h100")) == {}
    archive.write_bytes(b"kept")
    with pytest.raises(RecordError, match="a kept run is never recorded anew"):
        enter(archive, listed)
    assert faults(host) == [f"{archive} was removed according to {listed} and is still there: remove it"]


@pytest.mark.parametrize("line", ["# removed h200/runs/x.zip: why", "# removed h200/runs/a.zip: "])
def test_only_a_kept_run_is_removed_and_with_a_reason(listed, line):
    listed.write_text(listed.read_text() + f"{line}\n")
    with pytest.raises(RecordError, match="line 7 "):
        read(listed)


def test_a_run_is_removed_once(listed, archive):
    remove(archive.parents[1], [archive], "why")
    listed.write_text(listed.read_text() + "# removed h200/runs/a.zip: why\n")
    with pytest.raises(RecordError, match="line 9 removes a run that was never kept, or one again"):
        read(listed)


# Signers

KEY, OTHER_KEY = f"SHA256:{'a' * 43}", f"SHA256:{'b' * 42}+"


def test_a_signer_holds_from_its_line_on(listed, archive):
    host = archive.parents[1]
    assert signer("h200", listed) is None and signers(host) == []
    for name, key in (("d", KEY), ("e", None), ("f", OTHER_KEY), ("g", UNSIGNED)):
        path = archive.with_name(f"{name}.zip")
        path.write_bytes(name.encode())
        enter(path, listed, key)
    assert f"# signer h200 {KEY}" in lines(listed) and chain_faults(listed) == []
    held = [signer("h200", listed, archive.with_name(f"{name}.zip")) for name in "adefg"]
    assert held == [None, KEY, KEY, OTHER_KEY, UNSIGNED] and signer("h200", listed) == UNSIGNED
    assert signer("h100", listed) is None
    assert signers(host) == [(KEY, "d"), (OTHER_KEY, "f"), (UNSIGNED, "g")] and signers(host.with_name("h100")) == []
    assert len(read(listed)) == 7


@pytest.mark.parametrize(
    "line", ["# signer h200", "# signer h200 SHA256:abc", "# signer H200 none", "# signer h200 some"]
)
def test_a_signer_of_another_form_is_none(listed, line):
    listed.write_text(listed.read_text() + f"{line}\n")
    with pytest.raises(RecordError, match="line 7 is no digest"):
        read(listed)


def test_a_run_that_was_withdrawn_is_a_removed_one(listed, archive):
    """Earlier lists have this form."""
    line = "# withdrawn h200/runs/a.zip (one, two as two.tuned): superseded by b, c"
    listed.write_text(listed.read_text() + f"{line}\n")
    assert removed(archive.parents[1]) == {"h200/runs/a.zip": "superseded by b, c"} and "h200/runs/a.zip" in read(
        listed
    )


# What is committed


COMMITTED = REPRODUCED / NAME
HOSTS = [path for path in REPRODUCED.iterdir() if path.is_dir()]


def test_every_committed_archive_is_the_one_that_was_kept():
    kept = len(read(COMMITTED)) - sum(len(removed(host)) for host in HOSTS)
    assert sum(len(list(host.glob("runs/*.zip"))) for host in HOSTS) == kept > 0
    assert [fault for host in HOSTS for fault in faults(host)] == []
    assert all(entered(path, COMMITTED) for host in HOSTS for path in host.glob("runs/*.zip"))


def test_the_committed_list_was_only_ever_added_to():
    if gap := history().gap:
        pytest.skip(gap)
    found = lost_lines(COMMITTED, lines(COMMITTED)) or []
    assert [line for line in found if not CHAIN.fullmatch(line)] == []
    assert chain_faults(COMMITTED) == []


def test_every_commit_of_a_kept_run_is_in_the_history_but_those_that_the_list_names():
    if gap := history().gap:
        pytest.skip(gap)
    runs = [Run(path) for host in HOSTS for path in host.glob("runs/[0-9]*.zip")]
    commits = {run.description().environment.git_commit for run in runs}
    assert {commit for commit in commits if not history().holds(commit)} <= lost_commits(COMMITTED)


def test_a_commit_that_is_lost_needs_a_reason():
    assert LOST.fullmatch(f"# no commit {'0' * 40}: rebased") and not LOST.fullmatch(f"# no commit {'0' * 40}: ")
    assert digests.is_kept("20261121-184824-bert-published") and not digests.is_kept("20261121-184824-bert")
