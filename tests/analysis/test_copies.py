"""An attempt that is a copy of another is found by the noise of its rows, however it was moved or scaled."""

import json
import re

import pytest

from repro.analysis.copies import between, noise, noises, of_kept, within
from repro.runs.archive import write_archive
from repro.runs.digests import NAME, enter
from repro.runs.files import PREFLIGHT
from repro.runs.metrics import METRICS
from repro.runs.record import Run


def rows(seed, count=6):
    """Rows whose durations are noise."""
    return [
        {
            "event": "iteration",
            "iteration": 10 * at,
            "time": 1e3 + at,
            "latency_ms": 50 + (seed * at**3) % 1.7,
            "throughput": 1.0,
            "loss": 1.0,
        }
        for at in range(1, count + 1)
    ]


def copies_among(runs):
    return between({name: noises(run) for name, run in runs.items()})


def scaled(every, factor):
    return [{**row, "latency_ms": row["latency_ms"] * factor, "time": row["time"] - 500} for row in every]


@pytest.fixture
def run_of(tmp_path):
    """Makes a run whose attempts have these rows."""

    def make(name, *attempts):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.json").write_text("{}")
        lines = []
        for number, each in enumerate(attempts, 1):
            where = f"units/x/repeat-{number}.attempt-1"
            (folder / where).mkdir(parents=True)
            (folder / where / METRICS.format(0)).write_text("".join(json.dumps(row) + "\n" for row in each))
            common = {"unit": "x", "repeat": number, "started": 0.0, "wall_s": 1.0}
            lines.append({**common, "folder": where, "status": "ok"})
        (folder / "attempts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return Run(folder)

    return make


def test_noise_is_the_quotients_of_rows_that_differ():
    assert noise(rows(1)) == noise(scaled(rows(1), 1.25)) != noise(rows(2))
    assert len(noise(rows(1))) == 5 and noise(rows(1)[:1]) == frozenset()
    even = [{**row, "latency_ms": 50.0} for row in rows(1)]
    assert noise(even) == frozenset(), "rows of equal length were not measured"
    assert noise([{"iteration": 1, "latency_ms": 0}, {"iteration": 2, "latency_ms": 1}]) == frozenset()
    short = [{"iteration": at, "latency_ms": latency} for at, latency in ((1, 0.5), (2, 0.4))]
    assert noise(short) == frozenset({(2, 0.8)})
    first, second = rows(1)[:2]
    assert noise([first, second]) == frozenset({(20, round(second["latency_ms"] / first["latency_ms"], 9))})


def test_copies_within_a_run_are_named():
    every = {"a": noise(rows(1)), "b": noise(rows(2)), "c": noise(scaled(rows(1), 0.9))}
    (found,) = within(every)
    assert str(found) == "c: an attempt of its own: yes in attempts.jsonl, a copy of a in metrics-rank0.jsonl"


def test_of_many_copies_each_is_named_once_with_the_first():
    every = {f"a{number}": noise(scaled(rows(1, 40), 1 + number / 1e4)) for number in range(600)}
    said = [str(difference) for difference in within(every)]
    assert len(said) == 599 and all("a copy of a0 in" in line for line in said)


def test_a_copy_of_what_a_copy_has_of_its_own_is_named():
    own = [{**row, "iteration": row["iteration"] + 1000} for row in rows(2, 30)]
    first, second = noise(rows(1, 30)), noise([*rows(1, 6), *own])
    said = [str(difference) for difference in within({"a": first, "b": second, "c": noise(own)})]
    assert [re.search("a copy of (.)", line)[1] for line in said] == ["a", "b"]


@pytest.mark.parametrize(("equal", "named"), [(3, False), (4, True)])
def test_three_equal_quotients_show_a_copy(equal, named):
    partly = [*rows(1)[:equal], *rows(2)[equal:]]
    assert bool(list(within({"a": noise(rows(1)), "b": noise(partly)}))) is named


def test_only_attempts_that_succeeded_are_compared(run_of):
    runs = {"a": run_of("a", rows(1)), "b": run_of("b", rows(1))}
    assert len(copies_among(runs)) == 1
    attempts = runs["b"].attempts_file
    whole = attempts.read_text()
    for other in ('"status": "failed"', '"status": "ok", "x": 1'):
        attempts.write_text(whole.replace('"status": "ok"', other))
        assert bool(copies_among(runs)) is ('"ok"' in other)
    attempts.write_text(whole.replace('"folder": "units', '"folder": "x/units'))
    assert copies_among(runs) == []


def test_copies_between_runs_are_named_by_both(run_of):
    first, second, third = run_of("a", rows(1), rows(2)), run_of("b", rows(3)), run_of("c", rows(4), rows(2))
    runs = {"h/a": first, "h/b": second, "h/c": third}
    assert copies_among(runs) == [
        "h/c: units/x/repeat-2.attempt-1 is a copy of h/a: units/x/repeat-1.attempt-1".replace("repeat-1", "repeat-2")
    ]
    assert copies_among({"h/a": first, "h/b": second}) == []
    same = run_of("d", rows(1), rows(1))
    assert copies_among({"h/d": same}) == [], "within one run another check says so"


def test_all_kept_runs_are_compared_in_the_order_in_which_they_were_kept(run_of, tmp_path):
    reproduced = tmp_path / "reproduced"
    for host, name, seed in (("h200", "b", 1), ("h100", "a", 1), ("h100", "c", 5)):
        archive = reproduced / host / "runs" / f"{name}.zip"
        archive.parent.mkdir(parents=True, exist_ok=True)
        run = run_of(f"{host}-{name}", rows(seed))
        files = {
            path: (run.folder / path).read_bytes()
            for path in ("attempts.jsonl", f"units/x/repeat-1.attempt-1/{METRICS.format(0)}")
        }
        write_archive(archive, files)
        enter(archive, reproduced / NAME)
    preflight = reproduced / "h100" / "runs" / "preflight-1.zip"
    write_archive(preflight, {PREFLIGHT: b"{}"})
    enter(preflight, reproduced / NAME)
    assert of_kept(reproduced) == [
        "h100/runs/a.zip: units/x/repeat-1.attempt-1 is a copy of h200/runs/b.zip: units/x/repeat-1.attempt-1"
    ]
    (reproduced / "h200" / "runs" / "b.zip").unlink()
    assert of_kept(reproduced) == []
