"""Each sentence that can be said of a run: what holds, what does not, and what was not looked up."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.analysis import verification
from repro.analysis.evidence import Evidence
from repro.analysis.verification import (
    Verified,
    _code,
    _commit,
    _cut,
    _digest,
    _figures,
    _files,
    _signatures,
    _versions,
    verify_list,
)
from repro.runs import digests, manifest, program_versions
from repro.runs.files import KEPT, PREFLIGHT, RecordError
from repro.runs.history import History
from tests.support.attempts import recorded
from tests.support.synthetic import ran_on

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Files:
    """A run's files, of which only these are there."""

    def __init__(self, *present):
        self.present = present

    def __truediv__(self, name):
        return SimpleNamespace(name=name, is_file=lambda: name in self.present)


def a_run(*present, archived=False, path=Path("run.zip"), **environment):
    here = ran_on(**{"git_commit": COMMIT, **environment})
    return SimpleNamespace(
        files=Files(*present), archived=archived, path=path, description=lambda: SimpleNamespace(environment=here)
    )


def test_sentences_are_sorted_by_whether_they_are_on_what_holds():
    assert Verified.of([(True, "a"), (False, "b"), (True, "c")]) == Verified(("a", "c"), ("b",))


# Files and figures


def test_files_are_as_recorded_or_each_that_is_not_is_named(monkeypatch):
    found = SimpleNamespace(lines=lambda: ["x is changed", "y is gone"], holds=False, files=3, digest="d")
    monkeypatch.setattr(manifest, "verify", lambda files: found)
    assert list(_files(a_run())) == [(False, "x is changed"), (False, "y is gone")]
    found.lines, found.holds = (lambda: []), True
    assert list(_files(a_run())) == [(True, "3 files are as recorded; SHA-256 of the record: d")]

    def refuse(files):
        raise RecordError("no list")

    monkeypatch.setattr(manifest, "verify", refuse)
    assert list(_files(a_run())) == [(False, "no list")]


def test_figures_are_as_computed_or_each_that_is_not_is_named():
    found = SimpleNamespace(lines=lambda: ["throughput differs"], holds=False, attempts=2, unproven={}, remarks=())
    assert list(_figures(found)) == [(False, "throughput differs")]
    found.lines, found.holds = (lambda: []), True
    ((good, text),) = _figures(found)
    assert good and "of 2 attempts were computed again" in text
    found.unproven, found.remarks = {"operators": 1}, ("a pause",)
    assert list(_figures(found))[1:] == [
        (True, "NOT recorded by 1 of 2 attempts, so that nothing proves it: operators"),
        (True, "NOTE: a pause"),
    ]
    found.holds = False
    assert [text for _, text in _figures(found)][-1] == "NOTE: a pause", "also where something is wrong"


def test_code_is_looked_up_in_a_whole_history(monkeypatch):
    monkeypatch.setattr(verification.code_lookup, "sentences", lambda run, past, root: [(False, f"in {root}")])
    monkeypatch.setattr(
        verification.code_lookup, "withheld", lambda run, unproven, past, root: [f"no {fact}" for fact in unproven]
    )
    assert list(_code(a_run(), ["y"], History(frozenset()), Path("x"))) == [(False, "in x"), (False, "no y")]
    ((good, text),) = _code(a_run(), ["y"], History(frozenset(), "no git"), Path("x"))
    assert good and text == "whether the recorded code is that of the commit was NOT checked: no git"


# Commit


@pytest.mark.parametrize(
    ("environment", "past", "good", "text"),
    [
        ({"git_commit": None}, History(frozenset()), True, "the run names no commit"),
        ({}, History(frozenset({COMMIT})), True, "commit 0123456789ab is in the history"),
        (
            {"git_changed_files": 2},
            History(frozenset({COMMIT})),
            True,
            "0123456789ab (with 2 modified files) is in the",
        ),
        ({}, History(frozenset(), "no git"), True, "0123456789ab is in the history was NOT checked: no git"),
        ({}, History(frozenset()), False, "commit 0123456789ab is in no branch or tag here"),
    ],
)
def test_a_commit_is_looked_up(environment, past, good, text):
    found, said = _commit(a_run(**environment), past)
    assert found is good and text in said


@pytest.mark.parametrize(
    ("archived", "listed", "lost", "good"),
    [
        (True, "SHA256SUMS", {COMMIT}, True),
        (True, "SHA256SUMS", set(), False),
        (True, None, {COMMIT}, False),
        (False, "SHA256SUMS", {COMMIT}, False),
    ],
)
def test_a_commit_that_is_listed_as_lost_is_no_fault_of_a_kept_run(monkeypatch, archived, listed, lost, good):
    monkeypatch.setattr(digests, "list_of", lambda path: listed and Path(listed))
    monkeypatch.setattr(digests, "lost_commits", lambda listed: lost)
    found, text = _commit(a_run(archived=archived), History(frozenset()))
    assert found is good and ("is NOT in the history, as SHA256SUMS says" in text) is good


# Archive


@pytest.mark.parametrize(("fault", "good"), [(None, True), ("it was changed", False)])
def test_an_archive_beside_a_list_is_the_listed_one(tmp_path, monkeypatch, fault, good):
    listed = tmp_path / "SHA256SUMS"
    listed.write_text("")
    monkeypatch.setattr(digests, "list_of", lambda path: listed)
    monkeypatch.setattr(digests, "fault_of", lambda path, listed: fault)
    ((found, text),) = _digest(a_run(archived=True))
    assert found is good and text == (fault or f"it is the archive that {listed} lists")
    assert list(_digest(a_run(archived=False))) == [], "a folder has no digest"


@pytest.mark.parametrize("listed", [None, Path("/nowhere/SHA256SUMS")])
def test_a_kept_archive_elsewhere_is_compared_with_the_list_of_the_checkout(monkeypatch, listed):
    known = {"h200/runs/run.zip": "right"}
    monkeypatch.setattr(digests, "list_of", lambda path: listed)
    monkeypatch.setattr(digests, "read", lambda path: known)
    for digest, good, text in (("right", True, "it is the archive that was kept"), ("wrong", False, "it is NOT the")):
        monkeypatch.setattr(digests, "sha256", lambda path, digest=digest: digest)
        ((found, said),) = _digest(a_run(KEPT, archived=True))
        assert found is good and said.startswith(text)
    ((found, said),) = _digest(a_run(KEPT, archived=True, path=Path("other.zip")))
    assert found and "whether this is the archive that was kept was NOT checked" in said
    assert list(_digest(a_run(archived=True))) == [], "a run that was not kept"


# Signatures


def test_each_log_that_was_cut_is_named_with_what_is_kept_of_it():
    cut = [{"path": "log", "printed": 9, "kept": 4}, {"path": "metrics-rank0.jsonl", "printed": 8, "kept": 2}]
    attempts = [recorded({"folder": "units/a"}), recorded({"folder": "units/b", "cut": cut})]
    assert list(_cut(SimpleNamespace(attempts=lambda: attempts))) == [
        (True, "units/b/log was cut as it was recorded: 4 of the 9 bytes that were printed are kept"),
        (
            True,
            "units/b/metrics-rank0.jsonl was cut as it was recorded: 2 of the 8 bytes that were printed are kept",
        ),
    ]


def test_the_record_may_be_signed_and_the_archive_too(monkeypatch):
    asked = []

    def signature(file, signers):
        asked.append(file.name)
        return SimpleNamespace(good=file.name != "run.zip", text=file.name, key="") if "none" not in signers else None

    monkeypatch.setattr(verification, "signature", signature)
    assert list(_signatures(a_run(archived=True), ["x"])) == [(True, manifest.MANIFEST), (False, "run.zip")]
    assert list(_signatures(a_run(), ["x"])) == [(True, manifest.MANIFEST)]
    assert list(_signatures(a_run(), ["none"])) == []
    assert asked == [manifest.MANIFEST, "run.zip", manifest.MANIFEST, manifest.MANIFEST]


@pytest.mark.parametrize(
    ("pinned", "found", "good", "text"),
    [
        (None, None, True, "a.zip is not signed: whoever can write to the repository could have kept it"),
        (digests.UNSIGNED, None, True, "a.zip is not signed: whoever"),
        (None, ("K", True), True, "by K"),
        (digests.UNSIGNED, ("K", False), False, "by K"),
        ("K", ("K", True), True, "by K"),
        ("K", ("", False), False, "by "),
        ("K", None, False, "a.zip is not signed, but {listed} says that K signed it: the signature was removed"),
        ("K", ("L", True), False, "a.zip is signed by L, but {listed} says that K signed it"),
    ],
)
def test_an_archive_is_signed_by_the_key_that_the_list_names(tmp_path, monkeypatch, pinned, found, good, text):
    archive, listed = tmp_path / "h200" / "runs" / "a.zip", tmp_path / "SHA256SUMS"
    monkeypatch.setattr(
        verification,
        "signature",
        lambda file, signers: found and SimpleNamespace(good=found[1], text=f"by {found[0]}", key=found[0]),
    )
    monkeypatch.setattr(
        digests, "signer", lambda host, given, path: pinned if (host, given) == ("h200", listed) else "?"
    )
    ((holds, said),) = verification.signed_as_listed(archive)
    assert holds is good and said.startswith(text.format(listed=listed))


def test_an_archive_elsewhere_need_not_be_signed(tmp_path, monkeypatch):
    monkeypatch.setattr(verification, "signature", lambda file, signers: None)
    assert list(verification.signed_as_listed(tmp_path / "a.zip")) == []


def test_a_kept_preflight_has_only_a_digest_and_signatures(monkeypatch):
    for name in ("_files", "_figures", "_cut", "_code", "_digest", "_signatures"):
        monkeypatch.setattr(verification, name, lambda *given, name=name: [(True, name)])
    monkeypatch.setattr(verification, "_commit", lambda *given: (False, f"_commit of {given[1].gap}"))
    monkeypatch.setattr(verification, "history", lambda *root: History(frozenset(), "the checkout"))
    monkeypatch.setattr(verification, "examine", lambda run: Evidence(0, ()))
    assert verification.verify(a_run(PREFLIGHT)).holds == ("_digest", "_signatures")
    whole = verification.verify(a_run(), History(frozenset(), "another"))
    assert whole.holds == ("_files", "_figures", "_cut", "_code", "_digest", "_signatures") and whole.faults == (
        "_commit of another",
    )
    assert verification.verify(a_run()).faults == ("_commit of the checkout",)


# The list of kept runs


@pytest.mark.parametrize(
    ("lost", "good", "text"),
    [
        (None, True, "whether a line was ever removed was NOT checked: no git"),
        ([], True, "no line was ever changed or removed"),
        ([f"# chain {'0' * 64}"], True, "no line was ever changed or removed"),
        (
            ["a", f"# chain {'0' * 64}", "b"],
            False,
            "lines were changed or removed since they were committed: a; b",
        ),
    ],
)
def test_the_list_of_kept_runs_only_grew(tmp_path, monkeypatch, lost, good, text):
    listed = tmp_path / "SHA256SUMS"
    monkeypatch.setattr(verification, "lost_lines", lambda listed, lines, root: lost)
    monkeypatch.setattr(verification, "history", lambda root: History(frozenset(), "no git"))
    assert list(verification._committed(listed, tmp_path)) == [(good, f"{listed}: {text}")]


def test_the_list_is_a_chain(tmp_path, monkeypatch):
    listed = tmp_path / "SHA256SUMS"
    listed.write_text("a\nb\n")
    monkeypatch.setattr(digests, "chain_faults", lambda listed: ["line 1", "line 2"])
    assert list(verification._chain(listed)) == [(False, "line 1"), (False, "line 2")]
    monkeypatch.setattr(digests, "chain_faults", lambda listed: [])
    text = f"{listed}: 2 lines, each covered by a chain line below it"
    assert list(verification._chain(listed)) == [(True, text)]


def test_no_run_has_two_names(tmp_path, monkeypatch):
    monkeypatch.setattr(verification.copies, "of_kept", lambda reproduced: ["a is a copy of b"])
    assert list(verification._names(tmp_path)) == [(False, "a is a copy of b")]
    monkeypatch.setattr(verification.copies, "of_kept", lambda reproduced: [])
    assert list(verification._names(tmp_path)) == [(True, "no kept run is another one under a second name")]
    for error in (RecordError("it is damaged"), KeyError("it is damaged")):

        def refuse(reproduced, error=error):
            raise error

        monkeypatch.setattr(verification.copies, "of_kept", refuse)
        ((good, text),) = verification._names(tmp_path)
        assert good and text.startswith("whether a run is kept under two names was NOT checked: ")


def test_all_that_can_be_said_of_the_list_is_said(tmp_path, monkeypatch):
    listed = tmp_path / "SHA256SUMS"
    for name in ("_chain", "_committed", "_names", "_versions"):
        monkeypatch.setattr(verification, name, lambda *given, name=name: [(True, f"{name} {given[0].name}")])
    monkeypatch.setattr(verification, "signature", lambda file, signers: None)
    assert verify_list(listed).holds == (
        "_chain SHA256SUMS",
        "_committed SHA256SUMS",
        f"_names {tmp_path.name}",
        f"_versions {tmp_path.name}",
    )
    monkeypatch.setattr(verification, "signature", lambda file, signers: SimpleNamespace(good=False, text="by nobody"))
    assert verify_list(listed).faults == ("by nobody",)


@pytest.mark.parametrize(
    ("gap", "faults", "said"),
    [
        ("no git", ["x"], [(True, "NOT checked: no git")]),
        ("", ["x", "y"], [(False, "x"), (False, "y")]),
        ("", [], [(True, "the programs at these commits are as it says")]),
    ],
)
def test_the_code_of_older_runs_is_looked_up(tmp_path, monkeypatch, gap, faults, said):
    monkeypatch.setattr(verification, "history", lambda root: History(frozenset(), gap))
    monkeypatch.setattr(verification.code_lookup, "digest_faults", lambda reproduced, root: faults)
    assert list(_versions(tmp_path, tmp_path)) == [], "there is no such list"
    (tmp_path / program_versions.NAME).write_text("")
    found = list(_versions(tmp_path, tmp_path))
    assert [good for good, _ in found] == [good for good, _ in said]
    assert all(text in line for (_, line), (_, text) in zip(found, said, strict=True))


def test_removed_runs_and_other_signers_are_remarked(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "removed", lambda host: {"h200/runs/a.zip": "it was wrong"})
    monkeypatch.setattr(digests, "signers", lambda host: [("K", "b"), ("L", "c"), ("none", "d")])
    assert verification.remarks(tmp_path / "h200") == [
        "NOTE: h200/runs/a.zip was removed: it was wrong",
        "NOTE: from c on archives of h200 are signed by L, before by K: whether that is right only the owner of K knows",
        "NOTE: from d on archives of h200 are signed by none, before by L: whether that is right only the owner of L knows",
    ]
