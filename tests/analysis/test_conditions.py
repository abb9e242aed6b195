"""The conditions of a verdict, each by itself: code, loss, attempts that were left out, and what any of them means."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from repro.analysis import conditions
from repro.analysis.comparability import Reason
from repro.analysis.conditions import (
    Condition,
    UnitEvidence,
    counted_traffic,
    falling_loss,
    nothing_left_out,
    place_of_its_own,
    same_code,
    unmet,
)
from repro.runs.record import LAST_LOSSES
from tests.support.attempts import recorded
from tests.support.synthetic import ran_on

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CODE = {"sha256": "0" * 64, "changed": []}


def attempt(status="ok", **content):
    return {"status": status, "code": CODE, "losses": [10.0, 9.0], "last_losses": [10.0, 9.0], **content}


def evidence(*attempts, **environment):
    found = ran_on(**{"git_commit": COMMIT, **environment})
    return UnitEvidence(None, None, list(map(recorded, attempts)), found, {}, None)


def said(condition, *attempts, **environment):
    """What a condition has against these attempts: kind and text of each reason."""
    return [(reason.kind, reason.text()) for reason in condition(evidence(*attempts, **environment))]


# Code


def code(**changes):
    return attempt(code={**CODE, **changes})


def test_the_code_of_the_commit_is_asked_for_in_every_repeat():
    assert said(same_code, attempt(), attempt()) == []
    (found,) = said(same_code, attempt(), code(changed=["b.py", "a.py"]), code(changed=["b.py"]))
    assert found == ("differs", "code: files of the trainer differ from commit 0123456789ab: a.py, b.py")


def test_only_repeats_that_succeeded_count():
    assert said(same_code, attempt(), attempt("failed", code={**CODE, "changed": ["a.py"]})) == []


@pytest.mark.parametrize(("number", "shown"), [(5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4 …")])
def test_five_changed_files_are_shown(number, shown):
    ((_, text),) = said(same_code, code(changed=[str(each) for each in range(number)]))
    assert text.endswith(f"0123456789ab: {shown}")


def test_a_replaced_trainer_is_the_only_reason():
    (found,) = said(same_code, code(replaced="python3 fast.py", changed=["a.py"]), attempt())
    assert found[0] == "differs" and "the trainer was replaced by python3 fast.py" in found[1]
    assert said(same_code, code(replaced=None)) == []


def test_repeats_of_several_versions_are_told_by_their_digest():
    (found,) = said(same_code, attempt(), code(sha256="1" * 64), code(sha256="2" * 64))
    assert found == ("differs", "code: the repeats ran 3 different versions of the trainer")
    both = said(same_code, attempt(), code(sha256="1" * 64, changed=["a.py"]))
    assert [kind for kind, _ in both] == ["differs", "differs"], "one reason hides no other"


@pytest.mark.parametrize(
    ("attempts", "environment"),
    [
        ([attempt()], {"git_commit": None}),
        ([code(changed=None), attempt()], {}),
        ([attempt(code=None)], {"git_commit": None}),
    ],
)
def test_without_a_checkout_the_version_is_not_known(attempts, environment):
    ((kind, text),) = said(same_code, *attempts, **environment)
    assert kind == "missing" and "the version of the trainer is unknown" in text


@pytest.mark.parametrize(
    ("changed", "shown"), [(0, None), (1, "1 files differ"), (7, "7 files differ"), (None, "? files differ")]
)
def test_repeats_that_recorded_no_code_need_an_unchanged_checkout(changed, shown):
    for attempts in ([attempt(code=None)], [attempt(), attempt(code=None)]):
        found = said(same_code, *attempts, git_changed_files=changed)
        assert len(found) == (shown is not None)
        assert not shown or (found[0][0] == "missing" and f"{shown} from commit 0123456789ab," in found[0][1])
    assert said(same_code, attempt(), git_changed_files=changed) == [], "where the code is recorded it alone counts"


# Loss


@pytest.mark.parametrize(
    ("losses", "last", "falls"),
    [
        ([10.0, 9.0], [10.0, 9.0], True),
        ([10.0, 10.0], [10.0, 10.0], False),
        ([9.0, 10.0], [9.0, 10.0], False),
        ([10.0, 1.0, 9.0], [10.0, 1.0, 9.0], True),
        ([10.0, 9.0], None, True),
        ([9.0, 8.0, 20.0], None, False),
        ([10.0] * 10, [9.99] * 5, True),
        ([12.0, *[10.0] * 9], [10.5] * 5, False),
        ([12.0, *[10.0] * 9], [10.39] * 5, True),
        ([10.0] * 20, [20.0, *[9.0] * 5], True),
    ],
)
def test_the_mean_of_the_last_rows_is_below_that_of_as_many_first_ones(losses, last, falls):
    """Of 5 rows each, or of half of those there are."""
    assert LAST_LOSSES == 5
    found = said(falling_loss, attempt(losses=losses, last_losses=last))
    assert (found == []) is falls
    assert falls or (found[0][0] == "differs" and "it does not fall" in found[0][1])


def test_a_loss_that_does_not_fall_is_shown_with_both_means():
    ((_, text),) = said(falling_loss, attempt(losses=[1.0, 2.0, 3.0, 4.0], last_losses=[1.0, 2.0, 3.0, 4.0]))
    assert text == "loss: it does not fall: 1.5 at the start, 3.5 at the end"


@pytest.mark.parametrize("losses", [None, [], [10.0]])
def test_without_two_losses_none_is_known(losses):
    assert said(falling_loss, attempt(losses=losses)) == [("missing", "loss: none was recorded")]


def test_the_loss_of_every_repeat_that_succeeded_falls():
    flat = attempt(losses=[10.0, 10.0], last_losses=[10.0, 10.0])
    assert len(said(falling_loss, attempt(), flat, flat, attempt(losses=[]))) == 1, "the first is named"
    assert said(falling_loss, attempt(), {**flat, "status": "failed"}) == []
    assert len(said(falling_loss, attempt(losses=[]), flat)) == 1


# Attempts that were left out


@pytest.mark.parametrize("status", ["failed", "interrupted"])
@pytest.mark.parametrize(("content", "counts"), [({"losses": [10.0]}, True), ({"losses": []}, False), ({}, True)])
def test_an_attempt_that_had_begun_to_train_may_not_be_left_out(status, content, counts):
    """One that recorded no losses at all is from before they were, and may have begun."""
    lost = {"status": status, **content}
    found = said(nothing_left_out, attempt(), lost, attempt())
    assert len(found) == counts
    assert not found or "1 of 3 attempts ended after their first row without a figure" in found[0][1]
    assert said(nothing_left_out, attempt(losses=[]), attempt()) == [], "one that succeeded left a figure"


# All of them


def test_a_result_is_comparable_unless_other_work_was_done(monkeypatch):
    def condition(name, comparable, *reasons):
        return Condition(name, lambda found: reasons, comparable=comparable)

    work, code = Reason("precision", "differs", "x"), Reason("code", "differs", "y")
    for chosen, expected in (
        ((condition("work", True), condition("code", False)), (True, ())),
        ((condition("work", True), condition("code", False, code, code)), (True, (code, code))),
        ((condition("work", True, work), condition("code", False)), (False, (work,))),
        ((condition("work", True, work), condition("code", False, code)), (False, (work, code))),
        ((condition("work", True), condition("other", True, work)), (False, (work,))),
    ):
        monkeypatch.setattr(conditions, "CONDITIONS", chosen)
        assert unmet(evidence()) == expected


def test_every_condition_is_asked_and_only_the_work_makes_incomparable():
    assert [(each.name, each.comparable) for each in conditions.CONDITIONS] == [
        ("same work", True),
        ("same code", False),
        ("falling loss", False),
        ("nothing left out", False),
        ("place of its own", False),
        ("counted traffic", False),
    ]


# What adapters counted


def counted(ways, **packets):
    """An attempt over three iterations in which NCCL named these ways, and nodes sent so many packets."""
    adapters = {node: {"mlx5_0:1": {"counters/port_xmit_packets": sent}} for node, sent in packets.items()}
    return attempt(transport={"networks": {}, "ways": ways}, adapters=adapters, folder="units/u/repeat-1.attempt-1")


def test_infiniband_in_the_log_needs_packets_on_every_node():
    unit = SimpleNamespace(config=SimpleNamespace(iterations=3, device="cuda"))

    def of(*attempts):
        return [reason.text() for reason in counted_traffic(replace(evidence(*attempts), unit=unit))]

    assert of(counted(["NET/IB"], n1=3, n2=9000)) == []
    (text,) = of(counted(["P2P", "NET/IB"], n1=9000, n2=2))
    assert "NET/IB" in text and "units/u/repeat-1.attempt-1 (n2)" in text
    assert of(counted(["NET/Socket"], n1=0, n2=0)) == [], "nothing is claimed"
    assert of(counted(["NET/IB"])) == of(attempt()) == [], "nothing was read"


# What ran beside


def placed(nodes, *beside):
    return attempt(
        nodes=nodes, beside=[{"attempt": "units/other/repeat-1.attempt-1", "nodes": each} for each in beside]
    )


@pytest.mark.parametrize(
    ("nodes", "beside"),
    [(["n1"], [["n2"], ["n3", "n4"]]), (["n1", "n2"], [["n3"], ["n4"]]), (["n1", "n2"], []), ([], [])],
)
def test_attempts_on_other_nodes_take_nothing_from_one_another(nodes, beside):
    assert said(place_of_its_own, placed(nodes, *beside)) == []


@pytest.mark.parametrize(
    ("nodes", "other"),
    [(["n1"], ["n1"]), (["n1", "n2"], ["n3", "n4"]), (["n1", "n2"], ["n2"]), (["n1"], []), ([], ["n1"])],
)
def test_a_node_or_the_network_that_is_shared_forbids_a_verdict(nodes, other):
    found = said(place_of_its_own, placed(nodes, ["n4"], other), placed(["n3"], ["n2"]), attempt())
    text = "1 repeats shared a node, or the network between nodes, with another attempt"
    assert found == [("differs", f"measurement: {text}")]


def test_what_ran_beside_an_attempt_that_failed_does_not_count():
    assert said(place_of_its_own, attempt(), {**placed(["n1"], ["n1"]), "status": "failed"}) == []
