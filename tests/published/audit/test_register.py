"""Identifiers of findings: each is registered, none disappears or changes its meaning unseen."""

import shutil
from dataclasses import replace

import pytest

from repro.cli.published import _audit_data
from repro.cli.settings import Exit
from repro.published.audit import engine
from repro.published.audit.engine import REGISTER, audit, register_faults
from repro.published.audit.findings import slug
from tests.support.audited import audited

AUDIT = audited()
FIRST, LAST = AUDIT.findings[0], AUDIT.findings[-1]


@pytest.fixture
def register(tmp_path):
    return shutil.copy(REGISTER, tmp_path / "findings.toml")


def edit(register, before: str, after: str) -> None:
    text = register.read_text(encoding="utf-8")
    assert before in text
    register.write_text(text.replace(before, after, 1), encoding="utf-8")


def test_the_committed_register_is_that_of_the_data():
    assert register_faults(AUDIT) == []


def test_a_finding_that_is_not_registered_is_named(register):
    edit(register, f'    "{FIRST.id}",\n', "")
    assert register_faults(AUDIT, register) == [f"{FIRST.id}: is not in findings.toml"]


def test_a_finding_that_disappears_must_be_withdrawn_with_a_reason(register):
    fewer = replace(AUDIT, findings=AUDIT.findings[1:])
    assert register_faults(fewer, register) == [
        f"{FIRST.id}: is in findings.toml, yet no longer found: withdraw it with a reason"
    ]
    edit(register, f'    "{FIRST.id}",\n', "")
    text = register.read_text(encoding="utf-8")
    for reason, faults in (("", [f"findings.toml: {FIRST.id} is withdrawn without a reason"]), ("it was wrong", [])):
        register.write_text(f'{text}\n[[withdrawn]]\nid = "{FIRST.id}"\nreason = "{reason}"\n', encoding="utf-8")
        assert register_faults(fewer, register) == faults
    assert register_faults(AUDIT, register) == [f"{FIRST.id}: is withdrawn in findings.toml, yet found"]


def test_the_task_refuses_what_is_not_registered(monkeypatch, capsys):
    monkeypatch.setattr(engine, "register_faults", lambda result: ["a/b: is not in findings.toml"])
    with pytest.raises(Exit, match=r"a/b: is not in findings\.toml"):
        _audit_data(None, check=True, format="table")
    monkeypatch.undo()
    _audit_data(None, check=True, format="table")
    assert FIRST.rule.text() in capsys.readouterr().out


def test_an_identifier_is_registered_once(register):
    edit(register, f'    "{LAST.id}",\n', f'    "{LAST.id}",\n    "{LAST.id}",\n')
    assert register_faults(AUDIT, register) == [f"findings.toml: {LAST.id} is there twice"]


def test_identifiers_are_unique_and_made_of_report_rule_and_subject():
    identities = [found.id for found in AUDIT.findings]
    assert len(set(identities)) == len(identities)
    for found in AUDIT.findings:
        report, rule, *subject = found.id.split("/")
        assert report == found.report and rule
        assert subject == [slug(part) for part in (found.place.row, found.place.column) if part]


def test_an_identifier_does_not_depend_on_other_findings_or_figures():
    """Without the case that comes first, every finding of another subject keeps its identifier."""
    material = AUDIT.material
    first = material.cases[0].name
    cases = tuple(case for case in material.cases if case.name != first)
    reports = tuple(
        replace(each, also_printed=()) if each.id == material.cases[0].report else each for each in material.reports
    )
    fewer = audit(replace(material, catalogue=replace(material.catalogue, cases=cases, reports=reports)))
    before, after = ({found.id for found in each.findings} for each in (AUDIT, fewer))
    elsewhere = {identity for identity in before if not identity.startswith(material.cases[0].report)}
    assert elsewhere <= after
