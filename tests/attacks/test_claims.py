"""Tries to have more said of right figures than they show: `python -m tests.attacks.test_claims` prints the table."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from repro.analysis.compare_runs import compare
from repro.analysis.cross_hardware import orders
from repro.analysis.independence import autocorrelation
from repro.analysis.loss_curves import WINDOW, deviation
from repro.analysis.ratio import ratio_over_sessions
from repro.analysis.results import PARITY_ITERATIONS, Parity
from repro.cli import report as tasks
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.report.host.rows import MET, OPEN, HostRow, RatioGoal, RunRatio
from repro.runs.sessions import RunSpan, sessions
from tests.support.bent import Attack, answer, check_stopped, listed_in, print_table
from tests.support.synthetic import measured, published_run, ran_on

CASE = "DP_8x1x1_16_1536x16"
QUICKER, SLOWER = "2D_4x2x1_16_1536x16", "MP_1x8x1_16_1536x16"
"""Two cases of one report on eight GPUs, by their published throughput."""
HOUR = 3600.0
LOSSES = tuple(9.0 - 0.1 * at for at in range(WINDOW))

ATTACKS: list[Attack] = []
attack = listed_in(ATTACKS)


def status(began: list[float], ratios: list[float], **changes) -> str:
    """The status of a target of at least 1.0; `began` has the start of each run, in hours after the first on the machine."""
    spans = [RunSpan(f"run-{at}", at * HOUR, at * HOUR, ran_on(**changes)) for at in began]
    named = sessions(spans)
    measurements = (
        RunRatio(None, None, None, ratio_over_sessions([ratio]), session=named[span.run])
        for span, ratio in zip(spans, ratios, strict=True)
    )
    return HostRow(tuple(measurements), goal=RatioGoal("ratio", 1.0)).status


# Independence


@attack("a target decided by many runs of one session", f"^{OPEN}$")
def one_session(folder):
    assert status([0, 24, 48], [1.1, 1.11, 1.12]) == MET
    return [status([0, 5, 11], [1.1, 1.11, 1.12])]


@attack("… and the machine's names changed between them", f"^{OPEN}$")
def renamed_machine(folder):
    return [status([0, 5, 11], [1.1, 1.11, 1.12], host="another")]


@attack("two sessions far apart, each with many close runs", f"^{OPEN}$")
def two_sessions(folder):
    return [status([0, 1, 2, 24, 25, 26], [0.99, 0.99, 0.99, 1.1, 1.1, 1.1])]


@attack("repeats that depend on each other called independent", r"^above what chance gives$")
def dependent(folder):
    drifting = [[100 + repeat + 0.1 * number for repeat in range(6)] for number in range(6)]
    return ["above what chance gives" if autocorrelation(drifting).seen else None]


# Tolerances


def two_runs(folder: Path, factor: float) -> list:
    return [
        published_run(folder, [CASE], label=name, scale=lambda case, gain=gain: gain)
        for name, gain in (("first", 1.0), ("second", factor))
    ]


@attack(
    "a wide or negative tolerance, or none that is a number",
    r"TOLERANCE=(50|-1|nan): it is a number of per cent from 0 to 5",
)
def no_tolerance(folder):
    return [
        answer(lambda task=task, given=given: task.of_variables({"TOLERANCE": given}))
        for task in (tasks.report, tasks.compare)
        for given in ("50", "-1", "nan")
    ]


@attack("a tolerance of 0 taken for none", r"^inconclusive$")
def tolerance_of_zero(folder):
    runs = two_runs(folder, 1.002)
    assert compare(*runs).pairs[0].outcome == "same"
    return [compare(*runs, 0.0).pairs[0].outcome]


# Order, and numbers that are none


@attack("an order that holds if cases are listed the other way round", r"^swapped$")
def listed_otherwise(folder):
    ((first, one), (second, two)) = measured(QUICKER, SLOWER)
    pairs = [(first, one), (second, replace(two, throughput=1.0515 * one.throughput))]
    found = [orders(listed, lambda case: 0.05)[0] for listed in (pairs, pairs[::-1])]
    return ["swapped" if order.swapped else None for order in found]


@attack("a loss that is no number, before or after others", r"^nan$")
def lost_loss(folder):
    (unit,) = make_plan([load_catalogue().case(CASE)], 8, Wanted(scale="published", repeats=1)).units
    answers = []
    for place in (0, 1, PARITY_ITERATIONS - 1):
        broken = tuple(math.nan if at == place else loss for at, loss in enumerate(LOSSES))
        parity = Parity(unit, "reference", broken, LOSSES)
        answers += [None if parity.holds else str(parity.difference), str(deviation(broken, LOSSES).largest)]
    return answers


@pytest.mark.parametrize("tried", ATTACKS, ids=lambda tried: tried.attempt.__name__)
def test_no_more_is_said_than_was_shown(tmp_path, tried):
    check_stopped(tried.attempt(tmp_path), tried)


if __name__ == "__main__":
    print_table(ATTACKS, lambda folder: folder)
