"""What `make plan` says, and how quickly."""

import os
import re
import subprocess

import pytest

from repro.perfmodel.hardware import describe
from repro.perfmodel.plan_table import START_UP_S, duration, plan_rows, plan_summary, plan_table
from repro.published.cases import load_catalogue
from tests.support import tasks
from tests.support.paths import ROOT

CASES = load_catalogue().cases


def test_every_case_of_the_published_cluster_runs():
    rows = plan_rows(CASES, describe("v100x32"))
    assert not [row for row in rows if row.skipped]
    assert plan_summary(rows, describe("v100x32")).startswith(f"v100x32: {len(CASES)} cases")


def test_left_out_with_the_reason():
    rows = {row.case.name: row for row in plan_rows(CASES, describe("v100-16-edrx1"))}
    assert rows["DP_32x1x1_64_1536x16"].skipped == "needs 32 GPUs of 8"
    assert not rows["DP_8x1x1_16_1536x16"].skipped


def test_duration_counts_the_repeats_until_the_first_look_and_all_of_them():
    case, cluster = load_catalogue().case("bert_1n1g_bs96"), describe("v100x32")
    (row,) = plan_rows([case], cluster)
    once = START_UP_S + 140 * row.expectation.latency_ms / 1000
    assert (row.first_look_hours * 3600, row.hours * 3600) == pytest.approx((6 * once, 12 * once))
    (seven,) = plan_rows([case], cluster, repeats=7)
    assert seven.hours == seven.first_look_hours == pytest.approx(7 * once / 3600)


def test_the_summary_has_the_hours_with_the_stopping_rule_and_without():
    cluster = describe("v100-16-edrx1")
    rows = plan_rows(CASES, cluster)
    first, most = sum(row.first_look_hours for row in rows), sum(row.hours for row in rows)
    said = plan_summary(rows, cluster)
    assert f"about {first:.1f} hours if every verdict is decided after 6 repeats" in said
    assert f"{most:.1f} hours without stopping before 12" in said and most == pytest.approx(2 * first)
    assert "SIDE_BY_SIDE" not in said, "on one node there is nothing beside it"
    fixed = plan_rows(CASES, cluster, 7)
    assert "stopping" not in plan_summary(fixed, cluster, 7)


def test_the_summary_has_the_hours_side_by_side_and_one_at_a_time():
    cluster = describe("v100x32")
    rows = plan_rows(CASES, cluster)
    first, most = duration(rows, 4, 6), duration(rows, 4, 12, of_all=True)
    said = plan_summary(rows, cluster)
    for found in (first, most):
        assert f"{found.side_by_side:.1f} hours ({found.alone:.1f} with SIDE_BY_SIDE=0)" in said
    assert most.alone == pytest.approx(2 * first.alone) and first.side_by_side < first.alone
    assert f"never idle would take {first.least:.1f} hours" in said


@pytest.mark.parametrize(("document", "unit"), [("clusters.md", "hours"), ("clusters.zh.md", "小时")])
def test_the_hours_of_the_published_cluster_are_those_that_the_documents_state(document, unit):
    rows = plan_rows(CASES, describe("v100x32"))
    first, most = duration(rows, 4, 6), duration(rows, 4, 12, of_all=True)
    figures = (first.side_by_side, first.alone, most.side_by_side, most.alone, first.least)
    text = (ROOT / "docs" / document).read_text()
    (line,) = (line for line in text.splitlines() if f"{first.least:.1f} {unit}" in line)
    assert re.search(".*?".join(rf"\b{figure:.1f} " for figure in figures), line)
    assert f" {len(CASES)} " in line


def test_rows_are_as_wide_as_the_titles():
    titles, rows = plan_table(plan_rows(CASES, describe("v100-16-edrx1")))
    assert {len(row) for row in rows} == {len(titles)}


def _task(name: str, **settings) -> tuple[float, subprocess.CompletedProcess]:
    """The processor's time that a task takes, in seconds, which is its time on a machine that does nothing else."""
    before = os.times()
    done = tasks.run(name, **settings)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system, done


def test_plan_takes_less_than_a_second():
    _task("plan")
    seconds, done = _task("plan")
    assert done.returncode == 0, done.stderr
    assert seconds < 1


def test_explore_1024_gpus_takes_less_than_10_s():
    seconds, done = _task("explore", CLUSTER="dgx-a100-80x128", SHAPE="12288x96", BATCH="1536")
    assert done.returncode == 0, done.stderr
    assert "the best 10 of" in done.stdout
    assert seconds < 10


def test_unknown_cluster_is_a_message(refused):
    assert "CLUSTER=nowhere: no such cluster" in refused("plan", CLUSTER="nowhere")
