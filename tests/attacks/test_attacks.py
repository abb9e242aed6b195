"""Tries to bend the figures of a run, and shows what stops it: `python -m tests.attacks.test_attacks` prints the table.

An attack is a function that bends a copy of a kept run and says what the tasks answer. One that nothing stops fails.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from repro.analysis.measurement import LOG
from repro.analysis.results import summarise
from repro.analysis.verdict import DECIDED, judge
from repro.cli import report as tasks
from repro.launch.program_code import program_code, refuse_other_code
from repro.published.cases import load_catalogue
from repro.report.host.keep import keep
from repro.runs import digests
from repro.runs.files import KEPT
from repro.runs.manifest import MANIFEST
from repro.runs.metrics import METRICS
from repro.runs.record import Run
from repro.runs.signature import NAMESPACE
from repro.utils.paths import sha256
from tests.support.bent import (
    Attack,
    Scene,
    answer,
    check_stopped,
    edit,
    edit_lines,
    forge_manifest,
    listed_in,
    print_table,
)
from tests.support.runs import attempts
from tests.support.synthetic import add_attempt, published_run

BENT = "20261122-231005-gpt-published"
"""The kept run that is bent: GPT on one and two GPUs with PyTorch beside it, two repeats each."""
ANOTHER = "20261121-184824-bert-published"
FASTER = 1.25


ATTACKS: list[Attack] = []
attack = listed_in(ATTACKS)


def on_two(scene: Scene, number: int = 0) -> Path:
    """The folder of one of OneFlow's successful attempts on two GPUs."""
    return scene.attempts("as_2x1x1")[number]


def on_two_gpus(attempts: list[dict]) -> list[dict]:
    return [each for each in attempts if each["unit"].endswith("as_2x1x1") and each["status"] == "ok"]


def faster_record(scene: Scene) -> None:
    def change(attempts):
        for each in on_two_gpus(attempts):
            each["throughput"] *= FASTER
            each["latency_ms"] /= FASTER

    edit_lines(scene.run / "attempts.jsonl", change)


def faster_logs(scene: Scene) -> None:
    row = re.compile(r"^(\| \d+ +\| \d+ +\| \d+ +\| )([\d.]+)( +\| )([\d.]+)", re.MULTILINE)
    for each in on_two_gpus(attempts(scene.run)):
        log = scene.run / each["folder"] / LOG
        bent = row.sub(lambda m: f"{m[1]}{float(m[2]) * FASTER}{m[3]}{float(m[4]) / FASTER}", log.read_text())
        log.write_text(bent)


def faster_metrics(scene: Scene, ranks=(0,), clock=False) -> None:
    def change(events):
        begun = events[0]["time"]
        for event in events:
            if "throughput" in event:
                event["throughput"] *= FASTER
                event["latency_ms"] /= FASTER
            if clock:
                event["time"] = begun + (event["time"] - begun) / FASTER

    for each in on_two_gpus(attempts(scene.run)):
        for rank in ranks:
            edit_lines(scene.run / each["folder"] / METRICS.format(rank), change)


def faster_record_of_first_row(scene: Scene) -> None:
    def change(attempts):
        for each in on_two_gpus(attempts):
            events = (scene.run / each["folder"] / METRICS.format(0)).read_text().splitlines()
            first = next(event for event in map(json.loads, events) if event["event"] == "iteration")
            each["first_row_s"] = first["time"] - each["started"]

    edit_lines(scene.run / "attempts.jsonl", change)


def faster_everywhere(scene: Scene) -> None:
    """What nothing in the run itself contradicts any more."""
    faster_record(scene)
    faster_logs(scene)
    faster_metrics(scene, (0, 1), clock=True)
    faster_record_of_first_row(scene)
    forge_manifest(scene.run)


@attack("throughput edited in attempts.jsonl", r"changed: attempts\.jsonl")
def throughput(scene):
    faster_record(scene)
    return scene.both()


@attack("… and the manifest removed", r"throughput: [\d.]+ in attempts\.jsonl, [\d.]+ in logs/local_rank_0/stdout")
def throughput_without_manifest(scene):
    faster_record(scene)
    (scene.run / MANIFEST).unlink()
    return scene.both()


@attack("… and the manifest written to fit", r"latency_ms: [\d.]+ in attempts\.jsonl, [\d.]+ in logs")
def throughput_with_forged_manifest(scene):
    faster_record(scene)
    forge_manifest(scene.run)
    return scene.both()


@attack("… and rank 0's logs edited to fit", r"throughput at iteration \d+: [\d.]+ in logs.*in metrics-rank0\.jsonl")
def throughput_with_logs(scene):
    faster_record(scene)
    faster_logs(scene)
    forge_manifest(scene.run)
    return scene.both()


@attack(
    "… and rank 0's metrics, but for their times",
    r"seconds from iteration .* in the latencies in metrics-rank0\.jsonl, .* in the clock",
)
def throughput_with_metrics(scene):
    faster_record(scene)
    faster_logs(scene)
    faster_metrics(scene)
    forge_manifest(scene.run)
    return scene.both()


@attack("… and their times, but not the other ranks'", r"in metrics-rank0\.jsonl, [\d.]+ in metrics-rank1\.jsonl")
def throughput_with_times(scene):
    faster_record(scene)
    faster_logs(scene)
    faster_metrics(scene, clock=True)
    faster_record_of_first_row(scene)
    forge_manifest(scene.run)
    return scene.both()


@attack("every file of a signed run forged alike", r"the signature beside it is not one of these bytes")
def signed(scene):
    key = scene.runs / "key"
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], **quiet)
    subprocess.run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", NAMESPACE, scene.run / MANIFEST], **quiet)
    assert scene.verify() is None
    faster_everywhere(scene)
    return [scene.verify()]


@attack("every file of a kept run forged alike", r"is not the archive that was kept")
def kept_run(scene):
    faster_everywhere(scene)
    scene.packed(scene.run, scene.kept)
    return [scene.page(), scene.verify(scene.kept)]


@attack("… and its line in SHA256SUMS changed", r"lines were changed or removed since they were committed")
def list_of_digests(scene):
    scene.commit()
    before = digests.entered(scene.kept, scene.listed)
    faster_everywhere(scene)
    scene.packed(scene.run, scene.kept)
    scene.listed.write_text(scene.listed.read_text().replace(str(before), str(sha256(scene.kept))))
    pending = scene.verify_list()
    scene.commit("Tidy")
    return [pending, scene.verify_list()]


@attack("a kept archive swapped for another", r"is not the archive that was kept")
def swapped(scene):
    shutil.copy(scene.kept.with_name(f"{ANOTHER}.zip"), scene.kept)
    return [scene.page(), scene.verify(scene.kept)]


@attack("an unfavourable kept run removed", r"was kept and is gone")
def removed(scene):
    scene.kept.unlink()
    return [scene.page()]


@attack("a run put among the kept ones by hand", r"has no line in .*it was never kept")
def smuggled(scene):
    scene.packed(scene.run, scene.kept.with_name("smuggled.zip"))
    return [scene.page(), scene.verify(scene.kept.with_name("smuggled.zip"))]


@attack("a kept run unpacked, bent, without manifest", r"not as it was recorded")
def unpacked(scene):
    scene.run = scene.unpacked(BENT)
    faster_record(scene)
    (scene.run / MANIFEST).unlink()
    return scene.both()


@attack("a kept run recorded anew", r"a kept run is never recorded anew")
def recorded_anew(scene):
    folder = scene.unpacked(BENT)
    with_kept = scene.report(folder)
    (folder / KEPT).unlink()
    (folder / MANIFEST).unlink()
    without = scene.report(folder)
    scene.kept.unlink()
    return [with_kept, without, answer(lambda: keep(scene.run, scene.kept))]


@attack("memory edited in attempts.jsonl", r"memory_mib: \d+ in attempts\.jsonl, \d+ in logs/local_rank_0/stdout")
def memory(scene):
    edit_lines(scene.run / "attempts.jsonl", lambda lines: [{**each, "memory_mib": 1000} for each in lines])
    forge_manifest(scene.run)
    return scene.both()


@attack("losses edited in the metrics, not in the log", r"loss at iteration \d+: [\d.]+ in logs")
def losses(scene):
    def halve(events):
        for event in events:
            if "loss" in event:
                event["loss"] /= 2

    edit_lines(on_two(scene) / METRICS.format(0), halve)
    forge_manifest(scene.run)
    return scene.both()


@attack("losses edited in the record alone", r"losses: \[.* in attempts\.jsonl, \[.* in metrics-rank0\.jsonl")
def recorded_losses(scene):
    edit_lines(scene.run / "attempts.jsonl", lambda lines: [{**each, "losses": [9.0] * 10} for each in lines])
    forge_manifest(scene.run)
    return scene.both()


@attack("the batch in the plan made larger than it was", r"micro_batch: \d+ in run\.json, \d+ in config\.json")
def planned_batch(scene):
    edit(
        scene.run / "run.json",
        lambda run: [unit["config"].update(micro_batch=64) for unit in run["plan"]["units"]],
    )
    forge_manifest(scene.run)
    return scene.both()


@attack("a failed attempt called a success", r"rows: 10 in logs/local_rank_0/stdout, \d+, not of the same iterations")
def failed_as_ok(scene):
    metrics = on_two(scene) / METRICS.format(0)
    lines = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join(lines[: len(lines) // 2]))
    forge_manifest(scene.run)
    return scene.both()


@attack("a repeat hidden by deleting its line", r"no line of attempts\.jsonl records this attempt")
def hidden_line(scene):
    slow = on_two(scene).relative_to(scene.run).as_posix()
    edit_lines(scene.run / "attempts.jsonl", lambda lines: [each for each in lines if each["folder"] != slow])
    forge_manifest(scene.run)
    scene.packed(scene.run, scene.runs / "hidden.zip")
    return [scene.verify(), scene.report(scene.runs / "hidden.zip")]


@attack("a failed attempt hidden with its files", r"attempt-1: attempt: none in attempts\.jsonl")
def hidden_attempt(scene):
    folder = on_two(scene)
    again = folder.with_name(folder.name.replace("attempt-1", "attempt-2"))
    folder.rename(again)
    old, new = (each.relative_to(scene.run).as_posix() for each in (folder, again))
    attempts = scene.run / "attempts.jsonl"
    attempts.write_text(attempts.read_text().replace(old, new))
    forge_manifest(scene.run)
    return scene.both()


@attack("one repeat copied over another", r"a copy of units/")
def copied(scene):
    first, second = (on_two(scene, number) for number in (0, 1))
    shutil.rmtree(second)
    shutil.copytree(first, second)
    places = [each.relative_to(scene.run).as_posix() for each in (first, second)]

    def alike(lines):
        source = next(each for each in lines if each["folder"] == places[0])
        own = next(each for each in lines if each["folder"] == places[1])
        own.update({**source, "repeat": own["repeat"], "folder": places[1]})

    edit_lines(scene.run / "attempts.jsonl", alike)
    forge_manifest(scene.run)
    return scene.both()


@attack("a repeat run again until it was fast", r"attempts that succeeded: 2 in attempts\.jsonl, 1 in a run")
def best_of_several(scene):
    folder = on_two(scene)
    again = folder.with_name(folder.name.replace("attempt-1", "attempt-2"))
    shutil.copytree(folder, again)
    old, new = (each.relative_to(scene.run).as_posix() for each in (folder, again))
    edit_lines(
        scene.run / "attempts.jsonl",
        lambda lines: [*lines, *({**each, "folder": new} for each in lines if each["folder"] == old)],
    )
    forge_manifest(scene.run)
    return scene.both()


@attack("the measuring rule in run.json bent", r"throughput: .* in attempts\.jsonl")
def rule(scene):
    edit(scene.run / "run.json", lambda run: [unit["rule"].update(rows=1) for unit in run["plan"]["units"]])
    forge_manifest(scene.run)
    return scene.both()


@attack("the commit in run.json bent", r"commit 0{12} is in no branch or tag here")
def commit(scene):
    edit(scene.run / "run.json", lambda run: run["environment"].update(git_commit="0" * 40))
    forge_manifest(scene.run)
    return [scene.verify()]


# Verdicts: bent runs that nothing contradicts, on the hardware that was published


CASE = load_catalogue().case("DP_8x1x1_16_1536x16")
SOUND = (1.0, 1.001, 0.999, 1.0005, 0.9995, 1.0)


def verdict(run: Run) -> str | None:
    """Why a run's only case has no verdict; None if it has one."""
    plan, attempts = run.description().plan, run.attempts()
    (found,) = judge(run, plan, attempts, summarise(plan, attempts)).verdicts
    return None if found.outcome in DECIDED else found.shortfall


def checkout(folder: Path) -> Path:
    """A checkout with a trainer of one file."""
    for name in ("trainers", "models"):
        (folder / "repro" / name).mkdir(parents=True)
        (folder / "repro" / name / "own.py").write_text("lr = 1\n")
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "Begin"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    return folder


def ran(run: Run, code: dict) -> None:
    """Let every attempt have run this code."""
    edit_lines(run.attempts_file, lambda lines: [{**each, "code": code} for each in lines])


@attack("TOLERANCE=50", r"TOLERANCE=50: it is a number of per cent from 0 to 5")
def huge_tolerance(scene):
    run = published_run(scene.runs, [CASE.name], SOUND, scale=lambda case: 0.7)
    asked = {"RUN": str(run.path), "TOLERANCE": "50"}
    return [answer(lambda: tasks.report(**tasks.report.of_variables(asked)))]


@attack("two equal repeats for an interval without width", r"inconclusive")
def two_equal_repeats(scene):
    return [verdict(published_run(scene.runs, [CASE.name], (1.0, 1.0)))]


@attack("a trainer that trains nothing: its loss is constant", r"loss: it does not fall: 9 at the start, 9 at the end")
def constant_loss(scene):
    run = published_run(scene.runs, [CASE.name], SOUND)
    edit_lines(
        run.attempts_file, lambda lines: [{**each, "losses": [9.0] * 10, "last_losses": [9.0] * 5} for each in lines]
    )
    for metrics in run.folder.rglob("metrics-rank*.jsonl"):
        edit_lines(metrics, lambda events: [{**each, "loss": 9.0} if "loss" in each else each for each in events])
    for log in run.folder.rglob("stdout"):
        log.write_text(re.sub(r"[\d.]+ \|$", "9.0 |", log.read_text(), flags=re.MULTILINE))
    assert scene.verify_figures(run) is None
    return [verdict(run)]


@attack("slow repeats broken off and tried again", r"ended after their first row without a figure")
def broken_off(scene):
    run = published_run(scene.runs, [CASE.name], SOUND)
    losses = run.attempts()[0].losses
    for _ in range(3):
        add_attempt(run, CASE, 2, status="failed", losses=losses)
    return [verdict(run)]


@attack("a trainer's file changed before the run", r"files of the trainer differ from commit .*repro/trainers/own\.py")
def changed_trainer(scene):
    root = checkout(scene.runs / "checkout")
    (root / "repro" / "trainers" / "own.py").write_text("lr = 2\n")
    run = published_run(scene.runs, [CASE.name], SOUND)
    ran(run, program_code("trainers", "published", root=root))
    return [verdict(run)]


@attack("RUN= goes on with another trainer", r"was begun with other code of the trainers than is here")
def other_trainer(scene):
    run = published_run(scene.runs, [CASE.name], SOUND[:3])
    ran(run, program_code("trainers", "published", root=checkout(scene.runs / "checkout")))
    return [answer(lambda: refuse_other_code(run))]


@pytest.fixture
def scene(tmp_path):
    return Scene(tmp_path, BENT, ANOTHER)


def test_nothing_is_said_against_what_nobody_bent(scene):
    assert [*scene.both(), scene.page(), scene.verify(scene.kept)] == [None] * 4
    sound = published_run(scene.runs, [CASE.name], SOUND)
    ran(sound, program_code("trainers", "published", root=checkout(scene.runs / "checkout")))
    assert (verdict(sound), scene.verify_figures(sound)) == (None, None)


@pytest.mark.parametrize("tried", ATTACKS, ids=lambda each: each.attempt.__name__)
def test_an_attack_is_stopped(scene, tried):
    check_stopped(tried.attempt(scene), tried)


if __name__ == "__main__":
    print_table(ATTACKS, lambda folder: Scene(folder, BENT, ANOTHER))
