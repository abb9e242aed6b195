"""`make mutation`: mutates each module, runs the tests that concern it, and records how many mutants they kill."""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import tempfile
import time
from collections.abc import Container, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutation import score, trial
from tests.mutation.score import Known, Survivor, Target, Targets

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

    First the tests that reach the changed statement run; what these let pass has to survive the others too, since what
    one test computes may be kept for the next.
    """
    from tests.mutation.mutants import mutants

    source = (score.ROOT / target.module).read_text()
    baseline = trial.measure(target.module, target.tests, target.without)
    if not baseline.passed:
        raise BaselineError(f"{target.module}: its tests fail without any mutant\n{baseline.output}")
    made, every = mutants(source), sorted(baseline.seconds)
    tried: dict[int, set[str]] = {}
    waiting = [
        (number, each, baseline.tests_of(each.lines) or every)
        for number, each in enumerate(made)
        if only is None or _as_survivor(each) in only
    ]
    running: dict[int, tuple[int, float]] = {}
    survived: list[int] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, mutant, names = waiting.pop(0)
                selected = trial.Selected(names, baseline.seconds)
                files = sorted({name.partition("::")[0] for name in names})
                seconds = sum(baseline.seconds[name] for name in names)
                tried.setdefault(number, set()).update(names)
                limit = START_S + SLOWER * seconds
                pid = trial.start_trial(target.module, mutant.source, files, target.without, selected, limit)
                running[pid] = number, time.monotonic() + HANGING_S + SLOWER * limit
            for pid, (number, deadline) in list(running.items()):
                status = trial.poll(pid)
                if status is None and time.monotonic() < deadline:
                    continue
                trial.end(pid)
                del running[pid]
                if status == trial.USAGE_ERROR:
                    raise BaselineError(f"{target.module}: its tests have changed meanwhile")
                if status in (trial.PASSED, trial.NONE_COLLECTED):
                    if rest := [name for name in every if name not in tried[number]]:
                        waiting.insert(0, (number, made[number], rest))
                    else:
                        survived.append(number)
            time.sleep(0.003)
    finally:
        for pid in running:
            trial.end(pid)
    return len(made), [_as_survivor(made[each]) for each in sorted(survived)]


def in_own_process(target: Target, jobs: int, only: Container[Survivor] | None) -> tuple[int, list[Survivor]]:
    """The same in a process of its own, as what is loaded for one module would be in the way of the next."""
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder, "survivors.json")

        def work() -> int:
            try:
                number, found = survivors_of(target, jobs, only)
                kept.write_text(json.dumps([number, [asdict(each) for each in found]]))
            except BaselineError as error:
                print(error)
                return 1
            return 0

        pid, output = trial.start(work)
        status = trial.wait(pid, math.inf)
        text = Path(output).read_text(errors="replace")
        Path(output).unlink()
        if status != 0:
            raise BaselineError(text)
        number, found = json.loads(kept.read_text())
        return number, [Survivor(**each) for each in found]


def _as_survivor(mutant: Mutant) -> Survivor:
    return Survivor(mutant.function, mutant.before, mutant.after)


class _Named(trial.Selected):
    """Keeps tests of these names with all their parameters."""

    def __init__(self, names: Container[str]):
        super().__init__()
        self._named = names

    def pytest_collection_modifyitems(self, items: list) -> None:
        items[:] = [item for item in items if item.nodeid.partition("[")[0] in self._named]


def try_known(known: Sequence[Known]) -> list[str]:
    """Try mutants that survived once, each on the test that has to notice it; a sentence for each that survives."""
    tests = {each.test for each in known}
    baseline = trial.measure(None, sorted({test.partition("::")[0] for test in tests}), (), _Named(tests))
    if not baseline.passed:
        return [f"the tests of the known mutants fail without any mutant\n{baseline.output}"]
    found = []
    for each in known:
        file = each.test.partition("::")[0]
        pid = trial.start_trial(each.module, score.mutated(each), [file], (), _Named({each.test}), HANGING_S)
        if trial.wait(pid, 2 * HANGING_S) in (trial.PASSED, trial.NONE_COLLECTED):
            found.append(f"{each.module}: {each.what} is not noticed by {each.test}")
        else:
            print(f"noticed: {each.what}", flush=True)
    return found


def record(target: Target, number: int, found: Sequence[Survivor], targets: Targets) -> None:
    """Keep a module's score, unless it or its tests differ from the last commit, and bring the README up to date."""
    commit = score.commit_of([target.module, *(test.partition("::")[0] for test in target.tests)])
    if commit is None:
        print(f"  not recorded: {target.module} or its tests differ from the last commit", flush=True)
        return
    date = datetime.now(UTC).date().isoformat()
    scores = score.load_score() | {target.module: score.scored(target.module, number, found, commit, date)}
    score.save_score(scores, targets)
    score.write_readme(targets, scores)


def score_module(target: Target, targets: Targets, jobs: int, again: bool) -> None:
    """Mutate a module, print and record what survives; with `again` only what did so far. BaselineError as above."""
    began = time.monotonic()
    only = score.survivors_as_is(target.module, score.load_score()) if again else None
    number, found = in_own_process(target, jobs, only)
    seconds = time.monotonic() - began
    print(f"{target.module}: {number - len(found)} of {number} killed, {seconds:.0f} s", flush=True)
    for each in found:
        reason = targets.reason(target.module, each)
        print(f"  {each.function}: {each.before}\n    -> {each.after}" + (f"\n    {reason}" if reason else ""))
    record(target, number, found, targets)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 1 if a mutant survives without a reason or a group is below its share."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--module", help="only this module, by its path or name, this group, or `changed`")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--survivors", action="store_true", help="only what survived, of modules that are as they were")
    parser.add_argument("--known", action="store_true", help="only the mutants that survived once")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *received: sys.exit(143))
    targets = score.load_targets()
    changed = score.changed(score.load_score())
    chosen = targets.chosen(given.module) or [each for each in targets.modules if each.module in changed]
    if given.module and given.module != "changed" and not targets.chosen(given.module):
        names = [*targets.groups, *(each.name for each in targets.modules)]
        print(f"MODULE={given.module}: it is changed, or one of {', '.join(names)}")
        return 2
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        trial.keep_bytecode(folder)
        if given.known or not given.module:
            problems += try_known(targets.known)
        for target in () if given.known else chosen:
            try:
                score_module(target, targets, given.jobs, given.survivors)
            except BaselineError as error:
                problems.append(str(error))
    if not given.known:
        scores = score.load_score()
        problems += [*score.faults(targets.only(chosen), scores), *score.weak_groups(targets, scores)]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
