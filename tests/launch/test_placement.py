"""Which cases a cluster can hold, and the reason that is given where it cannot."""

from dataclasses import replace

import pytest

from repro.launch.placement import misfit_on
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.utils.errors import PlanError
from tests.support.clusters import NODES, V100


def test_a_case_that_cannot_fit_is_left_out_with_the_reason(monkeypatch):
    from repro.launch import placement as fit
    from repro.perfmodel.hardware import from_devices

    small = replace(V100, nodes=NODES[:1])
    hardware = from_devices("Tesla V100-SXM2-16GB", 8)
    monkeypatch.setattr(
        fit,
        "of_inventory",
        lambda name: replace(hardware, node=replace(hardware.node, gpu=replace(hardware.gpu, memory_mib=8000))),
    )
    cases = load_catalogue().select("gpt", None)
    plan = make_plan(cases, 8, Wanted(scale="published"), misfit=misfit_on(small))
    reasons = {skipped.case: skipped.reason.text() for skipped in plan.skipped}
    assert any(reason.startswith("needs about ") and "performance model" in reason for reason in reasons.values())
    assert any(reason == "needs 32 GPUs, 8 are here" for reason in reasons.values())
    assert not {unit.name for unit in plan.units} & reasons.keys()
    with pytest.raises(PlanError, match=r"none of these cases fits: .* needs about"):
        refused = next(case for case in cases if reasons.get(case.name, "").startswith("needs about"))
        make_plan([refused], 8, Wanted(scale="published"), misfit=misfit_on(small))


def test_smoke_runs_keep_to_the_ranks_that_a_cluster_has():
    plan = make_plan(load_catalogue().select("gpt", None), 0, Wanted(scale="smoke"), processes=2)
    assert max(unit.world_size for unit in plan.units) == 2


def test_ranks_that_cannot_be_shared_out_are_a_reason():
    cluster = replace(V100, gpu="", nodes=NODES[:3], gpus_per_node=8)
    case = next(case for case in load_catalogue().select("gpt", None) if case.layout.world_size == 16)
    reason = misfit_on(replace(cluster, gpus_per_node=5))(case)
    assert reason.text().startswith("16 ranks cannot be shared out equally among 3")
