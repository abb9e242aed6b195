"""What a host's page says of how it was checked: what nothing proves, what is remarked, the chain, and who signed."""

from types import SimpleNamespace

import pytest

from repro.analysis.evidence import Evidence
from repro.report.host.evidence import evidence
from repro.runs.digests import NAME, UNSIGNED, enter, lines, remove
from repro.utils.i18n import Message, catalogue
from tests.support.synthetic import ran_on

KEY = f"SHA256:{'a' * 43}"
COMMIT = "0" * 40


def kept(label, **found):
    run = SimpleNamespace(id=f"20261126-00000{label[1:]}-all-published")
    return SimpleNamespace(
        began=label, run=run, environment=ran_on(git_commit=COMMIT), evidence=Evidence(2, (), (), **found)
    )


@pytest.fixture
def folder(tmp_path):
    """The folder of a host with two archives."""
    return add(add(tmp_path / "h200", "a"), "b")


def add(folder, name, key=None):
    archive = folder / "runs" / f"{name}.zip"
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.write_bytes(name.encode())
    enter(archive, folder.parent / NAME, key)
    return folder


def texts(folder, *runs, language="en"):
    """The blocks of the section, by kind: texts, and rows of tables."""
    (section,) = evidence(catalogue(language).gettext, SimpleNamespace(name="h200", folder=folder, runs=runs))
    rows = [[cell.text for cell in row] for block in section.blocks if block.kind == "table" for row in block.rows]
    return [block.text for block in section.blocks if block.kind == "text"], rows


def test_without_runs_there_is_nothing_to_say(folder):
    assert evidence(str, SimpleNamespace(name="h200", folder=folder, runs=())) == []


def test_what_nothing_proves_is_counted_over_all_runs(folder):
    said, rows = texts(
        folder, kept("R1", unproven={"operators": 1}), kept("R2", unproven={"operators": 2, "framework": 1})
    )
    assert "all 4 successful attempts" in said[0] and rows == []
    assert "Not recorded, so that nothing proves it: operators (3 attempts) and framework (1 attempt)." in said[1]
    chinese, _ = texts(folder, kept("R1", unproven={"operators": 1}), language="zh")
    assert "以下信息未记录，无从核实：算子（1 次尝试）。" in chinese
    assert not any("Not recorded" in each for each in texts(folder, kept("R1"))[0])


def test_the_chain_line_below_the_last_run_is_shown(folder):
    digest = lines(folder.parent / NAME)[3].split()[2]
    add(folder.with_name("h100"), "c")
    said, _ = texts(folder, kept("R1"))
    assert any(f"Line 4 of {NAME}, below the last run of this page" in each and f"`{digest}`" in each for each in said)


def test_keys_are_shown_with_the_run_from_which_on_they_signed(folder):
    assert any(each.startswith("The archives are not signed.") for each in texts(folder, kept("R1"))[0])
    add(add(folder, "c", KEY), "d", UNSIGNED)
    said, _ = texts(folder, kept("R1"))
    assert any(f"Keys that signed the archives: `{KEY}` from c on and none from d on." in each for each in said), said


def test_a_lost_commit_is_named_with_its_runs(folder):
    with open(folder.parent / NAME, "a") as listed:
        listed.write(f"# no commit {COMMIT}: lost\n")
    (text,) = (each for each in texts(folder, kept("R1"), kept("R2"))[0] if "does not contain commit" in each)
    assert "R1" in text and "R2" in text and COMMIT[:12] in text


def test_remarks_are_a_table_with_their_runs(folder):
    remark = Message(
        "{attempt}: recorded as {status}, although all of its ranks trained to their end", attempt="x", status="failed"
    )
    _, rows = texts(folder, kept("R1"), kept("R2", remarks=(remark,)))
    assert [row[1] for row in rows] == ["x: recorded as failed, although all of its ranks trained to their end"]
    assert "R2" in rows[0][0]
    _, chinese = texts(folder, kept("R2", remarks=(remark,)), language="zh")
    assert "各 rank 均训练至结束" in chinese[0][1]


def test_removed_runs_are_named(folder):
    remove(folder, [folder / "runs" / "a.zip"], "it was wrong")
    said, _ = texts(folder, kept("R1"))
    assert any(each == f"Kept runs that were removed, with the reasons in {NAME}: a." for each in said), said
