"""`make rehearse` with the real OneFlow: kinds of layouts on 8 ranks; every kind, all trainings, and nodes, where time allows."""

import json
import shlex
from pathlib import Path

import pytest

from tests.e2e.launching import prepare
from tests.support import tasks
from tests.support.paths import ROOT, TRAINER_PYTHON
from tests.support.runs import attempts, only_run

KINDS = {
    "data": "DP_8x1x1_16_1536x16",
    "sharded": "gpt2_small_1n8g_bs1_zero1",
    "tensor": "MP_1x8x1_16_1536x16",
    "data x tensor": "2D_2x4x1_16_1536x16",
    "data x pipeline": "DP_PP_8x1x4_512_1536x16",
    "data x tensor x pipeline": "2D_PP_2x4x4_512_2304x24",
}
"""A case of every kind of layout."""
CANNOT_END = {
    "MP_1x32x1_16_3072x32": "cannot split",
    "DP_PP_8x1x4_512_1536x16": "shuffle_indices_.size()",
    "MP_PP_1x8x4_512_2304x24": "shuffle_indices_.size()",
    "2D_PP_2x4x4_512_2304x24": "shuffle_indices_.size()",
    "2D_PP_2x8x2_512_2304x24": "shuffle_indices_.size()",
}
"""The cases that a reader without its signature ended, and what OneFlow then says."""
UNSIGNED = shlex.join([str(TRAINER_PYTHON), str(ROOT / "tests" / "support" / "unsigned_reader.py")])


def rehearse(folder: Path, timeout: float, **settings):
    return tasks.run("rehearse", timeout, RUNS=folder / "runs", **settings)


def rehearsed_cases(folder: Path) -> set[str]:
    """The published cases whose attempts ended in order."""
    run = only_run(folder)
    plan = json.loads((run / "run.json").read_text())["plan"]
    ended = {attempt["unit"] for attempt in attempts(run) if attempt["status"] == "ok"}
    return {
        case for unit in plan["units"] if unit["name"] in ended for case in (*unit["stands_for"], *unit["derived_from"])
    }


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "kinds",
    [("data x tensor x pipeline",), pytest.param(tuple(KINDS), marks=pytest.mark.long)],
    ids=["every axis", "all"],
)
def test_kinds_of_layouts_end_on_8_ranks_with_the_losses_of_one_process(tmp_path, kinds):
    cases, count = {KINDS[kind] for kind in kinds}, len(kinds)
    done = rehearse(tmp_path, 1400, CASES=",".join(cases), MAX_RANKS=8, ITERATIONS=6)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rehearsed_cases(tmp_path) == cases
    ended = f"{count} of {count} cases ran to their end; {count} of {count} layouts have the losses of one process"
    assert ended in done.stdout


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_all_trainings_that_fit_end(tmp_path):
    """All 38 where there is enough memory; the iterations are few, since two processors are enough to start them."""
    done = rehearse(tmp_path, 4 * 3600, ITERATIONS=6, STALL_TIMEOUT=3600, ATTEMPT_TIMEOUT=7200)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads((only_run(tmp_path) / "run.json").read_text())["plan"]
    skipped = {skipped["case"] for skipped in plan["skipped"]}
    assert len(rehearsed_cases(tmp_path) | skipped) == 57
    assert len(rehearsed_cases(tmp_path)) >= 30


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", CANNOT_END)
def test_a_reader_without_its_signature_ends_these_cases(tmp_path, case):
    """At their published length, on as few ranks as show it; the published reader ends in order."""
    settings = {"CASES": case, "MAX_RANKS": 4, "STALL_TIMEOUT": 1200, "ATTEMPT_TIMEOUT": 3000}
    if case == "MP_1x32x1_16_3072x32":
        del settings["MAX_RANKS"]  # 16 rows cannot be split over 32 ranks, and can over fewer
    done = rehearse(tmp_path, 3500, TRAINER_COMMAND=UNSIGNED, **settings)
    assert done.returncode != 0
    logs = [path.read_text(errors="replace") for path in only_run(tmp_path).rglob("stderr")]
    assert any(CANNOT_END[case] in log for log in logs)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_four_nodes_of_8_ranks_rehearse_a_pipeline_at_its_full_world_size(make_nodes, tmp_path):
    """In containers, over SSH; the iterations are few, since two processors are enough to start 32 ranks."""
    nodes = make_nodes("four", 4, image=True)
    inventory = prepare(nodes, tmp_path, cluster_gpus_per_node=8)
    settings = {"CASES": "DP_PP_8x1x4_512_1536x16", "ITERATIONS": 6, "STALL_TIMEOUT": 3600, "ATTEMPT_TIMEOUT": 7200}
    done = rehearse(tmp_path, 3 * 3600, CLUSTER=inventory, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 cases ran to their end" in done.stdout
    (unit,) = (attempt for attempt in attempts(only_run(tmp_path)) if attempt["unit"].startswith("DP_PP"))
    starts = [
        json.loads((only_run(tmp_path) / unit["folder"] / f"metrics-rank{rank}.jsonl").read_text().splitlines()[0])
        for rank in range(32)
    ]
    assert [start["host"] for start in starts] == [node for node in nodes.names for _rank in range(8)]
