"""`make mutation`: mutates each module, runs the tests that concern it, and records how many mutants they kill."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.mutation import score, trial
from tests.mutation.score import Known, Survivor, Target

if TYPE_CHECKING:
    from tests.mutation.mutants import Mutant

START_S, SLOWER = 2.0, 5.0
"""A mutant counts as killed once its tests take this much CPU time, and so many times what they take without it."""
HANGING_S = 60.0
"""The same for what waits without computing."""


class BaselineError(Exception):
    """The tests of a module fail without any mutant."""


def survivors_of(target: Target, jobs: int, only: Container[Survivor] | None = None) -> tuple[int, list[Survivor]]:
    """The number of a module's mutants, and those that none of its tests notices; of `only` these, if given.

    First the tests that reach the changed statement run; what these let pass has to survive all others too, since what
    one test computes may be kept for the next.
    """
    from tests.mutation.mutants import mutants

    source = (score.ROOT / target.module).read_text()
    baseline = trial.measure(target.module, target.tests, target.without)
    if not baseline.passed:
        raise BaselineError(f"{target.module}: its tests fail without any mutant\n{baseline.output}")
    made = mutants(source)
    waiting = [
        (number, each, baseline.tests_of(each.lines))
        for number, each in enumerate(made)
        if only is None or _as_survivor(each) in only
    ]
    running: dict[int, tuple[int, list[str], float]] = {}
    survived: list[int] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, mutant, names = waiting.pop(0)
                selected = trial.Selected(names, baseline.seconds)
                files = sorted({name.partition("::")[0] for name in names}) or list(target.tests)
                seconds = sum(baseline.seconds[name] for name in names or baseline.seconds)
                limit = START_S + SLOWER * seconds
                pid = trial.start_trial(target.module, mutant.source, files, target.without, selected, limit)
                running[pid] = number, names, time.monotonic() + HANGING_S + SLOWER * limit
            for pid, (number, names, deadline) in list(running.items()):
                status = trial.poll(pid)
                if status is None and time.monotonic() < deadline:
                    continue
                trial.end(pid)
                del running[pid]
                if status in (trial.PASSED, trial.NONE_COLLECTED):
                    if names and set(names) != set(baseline.seconds):
                        waiting.insert(0, (number, made[number], []))
                    else:
                        survived.append(number)
            time.sleep(0.003)
    finally:
        for pid in running:
            trial.end(pid)
    return len(made), [_as_survivor(made[each]) for each in sorted(survived)]


def _as_survivor(mutant: Mutant) -> Survivor:
    return Survivor(mutant.function, mutant.before, mutant.after)


def survives(known: Known) -> bool:
    """Whether a known mutant passes the test that has to notice it."""
    file = known.test.partition("::")[0]
    pid = trial.start_trial(known.module, score.mutated(known), [file], (), _Prefixed(known.test), HANGING_S)
    return trial.wait(pid, 2 * HANGING_S) in (trial.PASSED, trial.NONE_COLLECTED)


class _Prefixed(trial.Selected):
    """Keeps a test with all its parameters."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = [item for item in items if item.nodeid.partition("[")[0] == self._name]


def _end(*received: object) -> None:
    raise SystemExit(143)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 1 if a mutant survives without a reason or a group is below its share."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--module", help="only this module, by its path or name, or this group")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--survivors", action="store_true", help="only what survived, of modules that are as they were")
    parser.add_argument("--known", action="store_true", help="only the mutants that survived once")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _end)
    targets, scores = score.load_targets(), score.load_score()
    chosen = targets.chosen(given.module)
    if not chosen:
        print(
            f"MODULE={given.module}: none of {', '.join([*targets.groups, *(each.name for each in targets.modules)])}"
        )
        return 2
    problems = []
    bytecode = tempfile.TemporaryDirectory(prefix="mutation-")
    trial.keep_bytecode(bytecode.name)
    for known in targets.known if given.known or not given.module else ():
        if survives(known):
            problems.append(f"{known.module}: {known.what} is not noticed by {known.test}")
    for target in () if given.known else chosen:
        began = time.monotonic()
        try:
            only = score.survivors_as_is(target.module, score.load_score()) if given.survivors else None
            number, found = survivors_of(target, given.jobs, only)
        except BaselineError as error:
            problems.append(str(error))
            continue
        print(
            f"{target.module}: {number - len(found)} of {number} killed, {time.monotonic() - began:.0f} s", flush=True
        )
        for each in found:
            reason = targets.reason(target.module, each)
            print(f"  {each.function}: {each.before}\n    -> {each.after}" + (f"\n    {reason}" if reason else ""))
        commit = score.commit_of([target.module, *(test.partition("::")[0] for test in target.tests)])
        if commit is None:
            print(f"  not recorded: {target.module} or its tests differ from the last commit", flush=True)
        else:
            date = datetime.now(UTC).date().isoformat()
            scores = score.load_score()
            scores[target.module] = score.scored(target.module, number, found, commit, date)
            score.save_score(scores, targets)
            score.write_readme(targets, scores)
    problems += [] if given.known else score.faults(targets.only(chosen), scores)
    print("\n".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
