"""What a withdrawn run measured must have been measured again by a kept one, as its line and the history say."""

import json
import subprocess
import zipfile
from dataclasses import replace

import pytest

from repro.analysis.verification import verify_withdrawn
from repro.analysis.withdrawn import configurations, contradictions, faults
from repro.planning.plan import make_plan
from repro.published.cases import load_catalogue
from repro.runs import history
from repro.runs.digests import REPRODUCED, Withdrawal, enter, list_of, withdraw
from repro.runs.record import Run

CASE, OTHER = "DP_1x1x1_2_1536x16", "bert_1n1g_bs96"
CASES = load_catalogue()


def packed(archive, files):
    with zipfile.ZipFile(archive, "w") as opened:
        for name, text in files.items():
            opened.writestr(name, text)


class Kept:
    """A host's folder in a checkout, with only those parts of its kept runs that these tests read."""

    def __init__(self, folder):
        self.root = folder
        self.host = folder / "reproduced" / "h200"
        (self.host / "runs").mkdir(parents=True)

    def add(self, name, created, cases=CASE, failed=(), change=lambda unit: unit, scale="published"):
        plan = make_plan(CASES.select(None, cases), 1, "published", 1)
        plan = replace(plan, units=tuple(map(change, plan.units)), scale=scale)
        described = {"created": created, "environment": {"gpus": [{"name": "H200"}]}, "plan": plan.as_json()}
        attempts = [
            {"unit": unit.name, "status": "failed" if unit.name in failed else "ok", "folder": f"units/{unit.name}"}
            for unit in plan.units
        ]
        archive = self.host / "runs" / f"{name}.zip"
        lines = "".join(json.dumps(each) + "\n" for each in attempts)
        packed(archive, {"run.json": json.dumps(described), "attempts.jsonl": lines})
        enter(archive, list_of(archive))

    def commit(self):
        git = ["git", "-C", str(self.root), "-c", "user.name=a", "-c", "user.email=a@b"]
        for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Keep"]):
            subprocess.run([*git, *command], check=True, capture_output=True)
        history.history.cache_clear()

    def withdraw(self, name, units, *by):
        named = units if isinstance(units, dict) else {each: each for each in units}
        withdraw(self.host, [Withdrawal(f"h200/runs/{name}.zip", named, by)])

    def against(self):
        """Everything that is said, by the list alone and with the history."""
        return [*faults(self.host), *contradictions(self.host, self.root)]


@pytest.fixture
def kept(tmp_path):
    return Kept(tmp_path)


def test_a_unit_that_was_measured_again_is_no_fault(kept):
    kept.add("a", 1, f"{CASE},{OTHER}", failed=(OTHER,))
    kept.add("b", 2)
    kept.add("c", 3, OTHER)
    kept.commit()
    kept.withdraw("a", [CASE, OTHER], "b", "c")
    assert kept.against() == []
    assert verify_withdrawn(kept.host, kept.root).holds == (
        "runs of h200 that were withdrawn: 1; all that they measured was measured again",
    )


def test_a_unit_of_another_name_is_named_with_it(kept):
    kept.add("a", 1)
    kept.add("b", 2, change=lambda unit: replace(unit, name="renamed"))
    kept.add("c", 3)
    kept.commit()
    kept.withdraw("a", {CASE: "renamed"}, "b")
    assert kept.against() == []
    kept.withdraw("b", {"renamed": CASE}, "c")
    assert kept.against() == []


def test_a_successor_without_the_unit_is_named(kept):
    kept.add("a", 1)
    kept.add("b", 2, OTHER)
    kept.commit()
    kept.withdraw("a", [CASE], "b")
    (fault,) = faults(kept.host)
    assert fault == (
        f"h200/runs/a.zip was withdrawn, but no run that its line names, or that superseded those in turn, measured {CASE}"
    )
    assert fault in verify_withdrawn(kept.host, kept.root).faults


@pytest.mark.parametrize("more", [{"failed": (CASE,)}, {"scale": "smoke"}])
def test_a_successor_in_which_the_unit_gave_no_figure_is_none(kept, more):
    kept.add("a", 1)
    kept.add("b", 2, **more)
    kept.withdraw("a", [CASE], "b")
    assert len(faults(kept.host)) == 1


def test_withdrawn_runs_lead_to_a_kept_one(kept):
    for created, name in enumerate("abc", 1):
        kept.add(name, created)
    kept.commit()
    kept.withdraw("a", [CASE], "b")
    kept.withdraw("b", [CASE], "c")
    assert kept.against() == []


def test_runs_that_supersede_each_other_lead_nowhere(kept):
    kept.add("a", 1)
    kept.add("b", 2)
    kept.withdraw("a", [CASE], "b")
    kept.withdraw("b", [CASE], "a")
    assert len(faults(kept.host)) == 2


def test_a_withdrawn_successor_without_the_unit_leads_nowhere(kept):
    kept.add("a", 1)
    kept.add("b", 2, OTHER)
    kept.add("c", 3, f"{CASE},{OTHER}")
    kept.withdraw("a", [CASE], "b")
    kept.withdraw("b", [OTHER], "c")
    assert len(faults(kept.host)) == 1


def test_the_history_shows_a_unit_that_the_line_leaves_out(kept):
    kept.add("a", 1, f"{CASE},{OTHER}")
    kept.add("b", 2)
    kept.commit()
    kept.withdraw("a", [CASE], "b")
    assert kept.against() == [
        f"h200/runs/a.zip was withdrawn, and its line and its archive in the history differ in {OTHER}"
    ]


def longer(unit):
    return replace(unit, config={**unit.config, "iterations": 7})


@pytest.mark.parametrize(("created", "change"), [(2, longer), (0, lambda unit: unit)])
def test_the_history_shows_another_configuration_of_the_name_and_an_older_run(kept, created, change):
    kept.add("a", 1)
    kept.add("b", created, change=change)
    kept.commit()
    kept.withdraw("a", [CASE], "b")
    assert kept.against() == [
        f"h200/runs/a.zip was withdrawn, but no later run that its line names has the configuration of {CASE}"
    ]


def test_an_archive_that_was_never_committed_is_named(kept):
    kept.add("b", 2)
    kept.commit()
    kept.add("a", 1)
    kept.withdraw("a", [CASE], "b")
    assert kept.against() == ["h200/runs/a.zip was withdrawn, and the history does not have the archive that was kept"]


def test_without_a_history_it_says_so(kept):
    kept.add("a", 1)
    kept.add("b", 2)
    assert verify_withdrawn(kept.host, kept.root).holds == ("runs of h200 that were withdrawn: 0",)
    kept.withdraw("a", [CASE], "b")
    found = verify_withdrawn(kept.host, kept.root)
    assert found.faults == () and "was NOT checked" in found.holds[0]


def test_a_preflight_measures_no_unit(tmp_path):
    archive = tmp_path / "preflight-1.zip"
    packed(archive, {"preflight.json": "{}"})
    assert configurations(Run(archive)) == {}


@pytest.mark.parametrize("host", [path.name for path in REPRODUCED.iterdir() if path.is_dir()])
def test_what_the_withdrawn_runs_of_a_committed_host_measured_was_measured_again(host):
    if gap := history.history().gap:
        pytest.skip(gap)
    assert faults(REPRODUCED / host) == []
    assert contradictions(REPRODUCED / host) == []
