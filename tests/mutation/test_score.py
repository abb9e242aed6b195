"""The score in the README is the recorded one, what is recorded is of modules that there are, and old mutants stay dead."""

import subprocess
import sys
from dataclasses import replace

import pytest

from tests.mutation import score
from tests.mutation.score import LEAST, README, Accepted, Score, Survivor, Target, Targets
from tests.support.paths import ROOT

TARGETS, SCORES = score.load_targets(), score.load_score()


def test_the_readme_has_the_recorded_scores():
    text = README.read_text()
    assert text == score.rewritten(text, score.render(TARGETS, SCORES)), (
        "`make mutation` writes the table; do not edit it"
    )


def test_every_module_was_scored_every_survivor_has_a_reason_and_every_group_has_its_share():
    assert score.faults(TARGETS, SCORES) == [] and score.weak_groups(TARGETS, SCORES) == []


def test_the_number_of_survivors_is_what_is_left_of_the_mutants():
    for each in SCORES.values():
        assert each.mutants - each.killed == len(each.survivors) and each.killed > 0, each.module


def test_each_row_names_the_commit_that_the_module_was_scored_at():
    """So a module that has changed since, as most will, is not taken for the one that was scored."""
    rows = README.read_text().splitlines()
    for each in SCORES.values():
        (row,) = [row for row in rows if row.startswith(f"| {group_of(each.module)} | `{each.module}` |")]
        assert f"| commit {each.commit}, {each.date} |" in row


def group_of(module):
    return next(target.group for target in TARGETS.modules if target.module == module)


def test_a_changed_module_is_told_by_its_text():
    same = a_score(10)
    other = replace(same, module="repro/utils/sequential.py", sha256="0" * 64)
    assert score.changed({each.module: each for each in (same, other)}) == ["repro/utils/sequential.py"]


def test_mutants_that_survived_once_are_noticed_each_by_the_test_that_it_names():
    done = subprocess.run([sys.executable, "-m", "tests.mutation", "--known"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [f"noticed: {known.what}" for known in TARGETS.known]


# How faults are found


def a_score(killed, mutants=10, survivors=(), module="repro/utils/stats.py"):
    return Score(module, score.sha256(module), "0123456789", "2026-01-01", mutants, killed, tuple(survivors))


TARGET = Target("repro/utils/stats.py", "statistics", ("tests/utils/test_stats.py",))
LEFT = Survivor("median", "a < b", "a <= b")


@pytest.mark.parametrize(
    ("targets", "scores", "fault"),
    [
        (Targets((TARGET,), (), ()), {}, "was never scored"),
        (Targets((replace(TARGET, module="repro/none.py"),), (), ()), {}, "no such file"),
        (Targets((replace(TARGET, tests=("tests/none.py",)),), (), ()), {TARGET.module: a_score(10)}, "do not exist"),
        (Targets((TARGET,), (), ()), {TARGET.module: a_score(9, survivors=[LEFT])}, "survives without a reason"),
        (
            Targets((TARGET,), (), (Accepted(TARGET.module, LEFT.before, LEFT.after, "why"),)),
            {TARGET.module: a_score(10)},
            "has a reason, and does not survive",
        ),
        (
            Targets((TARGET,), (score.Known("x", TARGET.module, "no such text", "", "t"),), ()),
            {TARGET.module: a_score(10)},
            "is not once in",
        ),
    ],
)
def test_each_fault_is_named(targets, scores, fault):
    found = score.faults(targets, scores)
    assert any(fault in each for each in found), found


@pytest.mark.parametrize(("killed", "weak"), [(8, ["group statistics: 8 of 10 killed, below 90%"]), (9, []), (10, [])])
def test_a_group_has_to_reach_its_share(killed, weak):
    targets, scores = Targets((TARGET,), (), ()), {TARGET.module: a_score(killed)}
    assert LEAST == 0.9 and score.weak_groups(targets, scores) == weak
    assert score.weak_groups(targets, {}) == [], "it is not known before every module was scored"


def test_a_survivor_with_a_reason_is_no_fault_and_is_shown_with_it():
    targets = Targets((TARGET,), (), (Accepted(TARGET.module, LEFT.before, LEFT.after, "both are equal"),))
    scores = {TARGET.module: a_score(9, survivors=[LEFT])}
    assert score.faults(targets, scores) == []
    table = score.render(targets, scores)
    assert "| statistics | `repro/utils/stats.py` | 10 | 9 | 90.0% | commit 0123456789, 2026-01-01 |" in table
    assert "| `stats` | `median` | `a < b` | `a <= b` | both are equal |" in table


def test_a_module_by_its_path_its_name_or_its_group():
    assert [each.name for each in TARGETS.chosen("stats")] == ["stats"]
    assert [each.name for each in TARGETS.chosen("statistics")] == ["stats", "sequential", "ratio", "independence"]
    assert {each.group for each in TARGETS.chosen("logs")} == {"logs"}, "a group goes before a module of its name"
    assert TARGETS.chosen("repro/utils/stats.py") == TARGETS.chosen("stats") and TARGETS.chosen("nothing") == []
    assert TARGETS.chosen(None) == list(TARGETS.modules)
