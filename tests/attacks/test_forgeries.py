"""Forges what a kept run says it ran, when, and in which order: `python -m tests.attacks.test_forgeries` prints the table.

Whoever forges here rewrites the record, the manifest and the chain of the list to fit, so that only contradictions with
what the ranks left, with the repository, or with other runs can tell.
"""

import json
import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from repro.analysis import verification
from repro.analysis.evidence import examine
from repro.analysis.measurement import LOG, RankZero, measure, read_log
from repro.runs import digests
from repro.runs.history import history
from repro.runs.metrics import METRICS
from repro.runs.record import Run
from repro.runs.signature import Key, fingerprint, sign
from repro.utils.paths import sha256
from tests.support.bent import (
    HOST,
    Attack,
    Scene,
    chain_again,
    check_stopped,
    edit,
    edit_lines,
    forge_manifest,
    kept_archive,
    listed_in,
    print_table,
)
from tests.support.runs import attempts
from tests.support.synthetic import published_run

BENT = "20261126-025735-all-published"
"""ResNet50 on two GPUs, the published program from files, the tuned one and PyTorch from memory, two repeats in turn."""
ANOTHER = "20261126-030250-all-published"
CASE = "resnet50_0808_1n2g_bs128"
FASTER = 1.5

ATTACKS: list[Attack] = []
attack = listed_in(ATTACKS)


def scene_in(folder: Path) -> Scene:
    return Scene(folder, BENT, ANOTHER)


def record_again(scene: Scene) -> None:
    """Let the record say what logs and metrics say now, as a run would have, and the manifest agree."""
    run = Run(scene.run)
    units = {unit.name: unit for unit in run.description().plan.units}

    def change(attempts):
        for each in attempts:
            folder, zero = scene.run / each["folder"], RankZero(each["started"])
            for line in (folder / METRICS.format(0)).read_text().splitlines():
                zero.see(json.loads(line))
            each |= measure(units[each["unit"]], read_log(folder)) | zero.figures()

    edit_lines(run.attempts_file, change)
    forge_manifest(scene.run)


def edit_record(scene: Scene, change) -> None:
    """Change each line of the record."""

    def changed(lines):
        for line in lines:
            change(line)

    edit_lines(scene.run / "attempts.jsonl", changed)


def edit_units(scene: Scene, change) -> None:
    """Change each unit of the plan, by its name, and the configuration that its attempts had."""
    edit(scene.run / "run.json", lambda run: [change(unit["name"], unit) for unit in run["plan"]["units"]])
    units = {unit["name"]: unit for unit in json.loads((scene.run / "run.json").read_text())["plan"]["units"]}
    for config in scene.run.rglob("config.json"):
        unit = units[config.parent.parent.name]
        edit(config, lambda own, unit=unit: own.update(unit["config"]))


def edit_events(scene: Scene, unit: str, change, ranks=(0, 1)) -> None:
    """Change the events of each of a unit's attempts."""
    for folder in scene.attempts(unit):
        for rank in ranks:
            edit_lines(folder / METRICS.format(rank), change)


def starts(**values):
    """A change of start events."""

    def change(events):
        events[0].update(values)

    return change


def swap_units(scene: Scene, one: str, other: str) -> None:
    """Let the attempts of one unit be those of another, in everything but what their ranks wrote of themselves."""
    pairs = list(zip(scene.attempts(one), scene.attempts(other), strict=True))
    for first, second in pairs:
        aside = first.with_name("aside")
        first.rename(aside)
        second.rename(first)
        aside.rename(second)
        for name in ("config.json", "command.json"):
            own, its = first / name, second / name
            texts = own.read_text(), its.read_text()
            own.write_text(texts[1])
            its.write_text(texts[0])
    kept = {each["folder"]: each for each in attempts(scene.run)}
    places = [tuple(each.relative_to(scene.run).as_posix() for each in pair) for pair in pairs]
    of = dict(places) | {second: first for first, second in places}

    def change(line):
        if line["folder"] in of:
            theirs = kept[of[line["folder"]]]
            line.update({key: theirs[key] for key in ("started", "wall_s", "trainer_s")})

    edit_record(scene, change)
    record_again(scene)


# The list


def forge_list(scene: Scene) -> None:
    """Bend the kept run, and its line in the list, with every chain line below it."""
    edit_record(scene, lambda line: line.update(log_tail="bent"))
    forge_manifest(scene.run)
    before = digests.entered(scene.kept, scene.listed)
    scene.packed(scene.run, scene.kept)
    chain_again(scene.listed, scene.listed.read_text().replace(str(before), str(sha256(scene.kept))))


CHANGED = r"lines were changed or removed since they were committed"


@attack("a line of SHA256SUMS changed within a merge", CHANGED)
def in_a_merge(scene):
    scene.commit()
    scene.git("checkout", "-qb", "other")
    scene.git("commit", "-q", "--allow-empty", "-m", "More")
    scene.git("checkout", "-q", "-")
    scene.git("merge", "-q", "--no-ff", "--no-commit", "other")
    forge_list(scene)
    scene.git("add", "-A")
    scene.git("commit", "-qm", "Merge")
    return [scene.verify_list()]


def hidden_by(scene: Scene, *settings: str, attributes: str = "") -> list[str | None]:
    """What is said of a changed line if the checkout is set up so."""
    scene.commit()
    forge_list(scene)
    if attributes:
        (scene.hosts / ".gitattributes").write_text(attributes)
    scene.commit("Tidy")
    for setting in settings:
        scene.git("config", *setting.split("=", 1))
    return [scene.verify_list()]


@attack("… hidden by -diff in .gitattributes", CHANGED)
def without_diff(scene):
    return hidden_by(scene, attributes="SHA256SUMS -diff\n")


@attack("… hidden by color.ui always", CHANGED)
def coloured(scene):
    return hidden_by(scene, "color.ui=always")


@attack("… hidden by an external diff", CHANGED)
def external_diff(scene):
    return hidden_by(scene, "diff.external=true", "diff.x.textconv=true")


@attack("… hidden by a commit put in place of another", CHANGED)
def replaced_commit(scene):
    scene.commit()
    forge_list(scene)
    scene.commit("Tidy")
    orphan = scene.git("commit-tree", "-m", "Keep", "HEAD^{tree}").strip()
    scene.git("replace", "HEAD", orphan)
    return [scene.verify_list()]


@attack("… and no history, chain lines left as they were", r"line \d+ is not the SHA-256 of the lines above it")
def without_history(scene):
    text = scene.listed.read_text()
    forge_list(scene)
    forged, old = scene.listed.read_text().splitlines(), text.splitlines()
    kept = [old[at] if digests.CHAIN.fullmatch(line) else line for at, line in enumerate(forged)]
    scene.listed.write_text("".join(f"{line}\n" for line in kept))
    return [scene.verify_list(), scene.page()]


@attack("a run appended to SHA256SUMS by hand", r"no chain line covers the lines from \d+ on")
def appended_by_hand(scene):
    other = scene.kept.with_name("20261126-999999-all-published.zip")
    shutil.copy(scene.kept, other)
    with open(scene.listed, "a") as listed:
        listed.write(f"{sha256(other)}  {HOST}/runs/{other.name}\n")
    return [scene.verify_list(), scene.page()]


@attack("an unfavourable run removed, with its line", CHANGED)
def removed_with_its_line(scene):
    scene.commit()
    scene.kept.unlink()
    lines = [line for line in scene.listed.read_text().splitlines(keepends=True) if BENT not in line]
    chain_again(scene.listed, "".join(lines[1:]))
    scene.commit("Tidy")
    return [scene.verify_list()]


@attack("one run kept under two names", r"is a copy of .*units/")
def under_two_names(scene):
    folder = scene.unpacked("20261127-030000-all-published")
    edit(folder / "run.json", lambda run: run.update(id=folder.name, created=run["created"] + 86_543))
    edit_lines(
        folder / "attempts.jsonl", lambda lines: [each | {"started": each["started"] + 86_543} for each in lines]
    )
    for metrics in folder.rglob("metrics-rank*.jsonl"):
        edit_lines(metrics, lambda events: [each | {"time": each["time"] + 86_543} for each in events])
    forge_manifest(folder)
    copy = scene.kept.with_name(f"{folder.name}.zip")
    scene.packed(folder, copy)
    digests.enter(copy, scene.listed)
    return [scene.page(), scene.verify_list()]


@attack("… as that of another host, 10 % faster", r"is a copy of h200/runs/")
def of_another_host(scene):
    folder = scene.unpacked("20261127-030000-all-published")
    for metrics in folder.rglob("metrics-rank*.jsonl"):

        def scaled(events):
            return [each | {key: each[key] / 1.1 for key in ("latency_ms", "time") if key in each} for each in events]

        edit_lines(metrics, scaled)
    forge_manifest(folder)
    copy = scene.hosts / "h100" / "runs" / f"{folder.name}.zip"
    copy.parent.mkdir(parents=True)
    scene.packed(folder, copy)
    digests.enter(copy, scene.listed)
    return [scene.verify_list()]


# Times


def rows_of(events):
    return [event for event in events if event["event"] == "iteration"]


def favoured(events):
    """Make the later rows faster, and the first one slower by as much: the rule leaves out the first."""
    rows = rows_of(events)
    saved = sum(row["latency_ms"] * (1 - 1 / FASTER) for row in rows[1:])
    for row in rows[1:]:
        row["latency_ms"] /= FASTER
        row["throughput"] *= FASTER
    rows[0]["throughput"] *= rows[0]["latency_ms"] / (rows[0]["latency_ms"] + saved)
    rows[0]["latency_ms"] += saved


def log_of_metrics(scene: Scene, unit: str) -> None:
    """Let rank 0's log print what its metrics say."""
    for folder in scene.attempts(unit):
        rates = {
            event["iteration"]: event["throughput"]
            for event in map(json.loads, (folder / METRICS.format(0)).read_text().splitlines())
            if event["event"] == "iteration"
        }
        pattern = re.compile(r"(iter (\d+), .*samples/s: )[\d.]+")
        text = (folder / LOG).read_text()
        printed = pattern.sub(lambda m, rates=rates: f"{m[1]}{rates[int(m[2])]:.3f}", text)
        (folder / LOG).write_text(printed)


@attack("only the rows that the rule reads made faster", r"seconds of the row of iteration \d+ and of 9 others")
def favoured_rows(scene):
    edit_events(scene, CASE, favoured, ranks=(0,))
    log_of_metrics(scene, CASE)
    record_again(scene)
    return scene.both()


def restamped(events):
    """Let stamps follow from latencies, backwards from the end."""
    favoured(events)
    rows = rows_of(events)
    for before, row in reversed(list(pairwise(rows))):
        before["time"] = row["time"] - row["latency_ms"] * (row["iteration"] - before["iteration"]) / 1e3


@attack(
    "… and rank 0's stamps, of a program whose other ranks wait", r"in metrics-rank0\.jsonl, [\d.]+ in metrics-rank1"
)
def favoured_with_stamps(scene):
    edit_events(scene, f"{CASE}.pytorch", restamped, ranks=(0,))
    log_of_metrics(scene, f"{CASE}.pytorch")
    record_again(scene)
    return scene.both()


def sped_up(events):
    """Let everything take less time after the first event."""
    for event in events:
        event["time"] = events[0]["time"] + (event["time"] - events[0]["time"]) / FASTER
        if "latency_ms" in event:
            event |= {"latency_ms": event["latency_ms"] / FASTER, "throughput": event["throughput"] * FASTER}


@attack("a whole attempt squeezed on rank 0 alone", r"seconds from start to end: [\d.]+ in metrics-rank0\.jsonl")
def squeezed(scene):
    edit_events(scene, f"{CASE}.tuned", sped_up, ranks=(0,))
    log_of_metrics(scene, f"{CASE}.tuned")
    record_again(scene)
    return scene.both()


@attack(
    "… on all ranks, and in the record", r"seconds of the attempt: [\d.]+ in attempts\.jsonl, .* samples in gpu\.csv"
)
def squeezed_everywhere(scene):
    edit_events(scene, f"{CASE}.tuned", sped_up)
    log_of_metrics(scene, f"{CASE}.tuned")

    def shorter(line):
        if line["unit"] == f"{CASE}.tuned":
            line.update(wall_s=line["wall_s"] / FASTER, trainer_s=line["trainer_s"] / FASTER)

    edit_record(scene, shorter)
    record_again(scene)
    return scene.both()


@attack("an attempt's metrics from another day", r"time of the attempt: .* in attempts\.jsonl, .* in metrics-rank0")
def of_another_day(scene):
    def change(events):
        for event in events:
            event["time"] -= 86_400

    edit_events(scene, CASE, change)
    record_again(scene)
    return scene.both()


@attack("throughput raised without the latency", r"samples per iteration in the row of iteration \d+ and of 9 others")
def throughput_alone(scene):
    def change(events):
        for row in rows_of(events):
            row["throughput"] *= FASTER

    edit_events(scene, CASE, change)
    log_of_metrics(scene, CASE)
    record_again(scene)
    return scene.both()


# What ran


@attack("the tuned program called the published one", r"operators: the (published|tuned) program's in the plan")
def swapped_programs(scene):
    swap_units(scene, CASE, f"{CASE}.tuned")
    return scene.both()


@attack("… and the operators of the other copied", r"program whose switches were on: (tuned|published) in the plan")
def swapped_programs_with_operators(scene):
    jobs = {}
    for unit in (CASE, f"{CASE}.tuned"):
        text = (scene.attempts(unit)[0] / METRICS.format(0)).read_text()
        jobs[unit] = next(each for each in map(json.loads, text.splitlines()) if each["event"] == "census")
    swap_units(scene, CASE, f"{CASE}.tuned")
    for unit, job in jobs.items():
        edit_events(
            scene,
            unit,
            lambda events, job=job: [
                each | {"operators": job["operators"]} if each["event"] == "census" else each for each in events
            ],
            ranks=(0,),
        )
    record_again(scene)
    return scene.both()


@attack("PyTorch called OneFlow", r"framework: oneflow in the plan, pytorch in metrics-rank0\.jsonl")
def swapped_frameworks(scene):
    swap_units(scene, f"{CASE}.tuned", f"{CASE}.pytorch")
    return scene.both()


@attack("… and its versions called OneFlow's", r"framework whose library was loaded: oneflow in the plan, pytorch")
def swapped_frameworks_and_versions(scene):
    swap_units(scene, f"{CASE}.tuned", f"{CASE}.pytorch")
    edit_events(scene, f"{CASE}.tuned", starts(versions={"oneflow": "0.8.0"}))
    record_again(scene)
    return scene.both()


@attack("synthetic data called OFRecord", r"kind of data: ofrecord in the plan, synthetic in metrics-rank0\.jsonl")
def synthetic_as_files(scene):
    def change(name, unit):
        if name.endswith(".tuned"):
            unit["config"]["data"] = {"kind": "ofrecord", "parts": 44}

    edit_units(scene, change)
    forge_manifest(scene.run)
    return scene.both()


@attack("… in the start event too", r"operators: the published program's in the plan, \d+\.\d% other ones")
def synthetic_as_files_everywhere(scene):
    """A published program without its reader: here the tuned one's job in its place."""

    def change(name, unit):
        if name == CASE:
            unit["config"]["data"] = {"kind": "synthetic"}

    edit_units(scene, change)
    edit_events(scene, CASE, starts(data={"kind": "synthetic"}))

    def without_many(events):
        for event in events:
            if event["event"] == "census":
                event["operators"] = {name: count for name, count in event["operators"].items() if "conv" not in name}

    edit_events(scene, CASE, without_many, ranks=(0,))
    record_again(scene)
    return scene.both()


@attack("fp32 called half precision", r"precision: amp in the plan, no amp in its operators")
def other_precision(scene):
    edit_units(scene, lambda name, unit: unit["config"].update(precision="amp"))
    record_again(scene)
    return scene.both()


@attack("fp32 of PyTorch called TF32", r"setting tf32 of PyTorch: True in the plan, False in metrics-rank0\.jsonl")
def pytorch_tf32(scene):
    def change(name, unit):
        if name.endswith(".pytorch"):
            unit["config"]["baseline"]["tf32"] = True

    edit_units(scene, change)
    forge_manifest(scene.run)
    return scene.both()


@attack("the GPUs renamed in run.json", r"GPU: NVIDIA H300 in run\.json, NVIDIA H200 in metrics-rank0\.jsonl")
def renamed_gpus(scene):
    edit(
        scene.run / "run.json",
        lambda run: [gpu.update(name="NVIDIA H300") for gpu in run["environment"]["gpus"]],
    )
    forge_manifest(scene.run)
    return scene.both()


@attack("one rank's file given as another's", r"rank: 1 in the plan, 0 in metrics-rank1\.jsonl")
def copied_rank(scene):
    for folder in scene.attempts(f"{CASE}.pytorch"):
        shutil.copy(folder / METRICS.format(0), folder / METRICS.format(1))
    forge_manifest(scene.run)
    return scene.both()


@attack("a second run's rows appended to the first's file", r"start events: 2 in metrics-rank0\.jsonl, 1 in a rank")
def two_starts(scene):
    edit_events(scene, CASE, lambda events: [events[0], *events])
    forge_manifest(scene.run)
    return scene.both()


@attack(
    "what contradicts it taken out: operators",
    r"operators: not recorded, although the programs of commit [0-9a-f]{12} record",
)
def without_operators(scene):
    edit_events(scene, CASE, lambda events: [each for each in events if each["event"] != "census"], ranks=(0,))
    record_again(scene)
    return [scene.verify()]


@attack(
    "… the digest of the code", r"digest of the code: not recorded, although the programs of commit [0-9a-f]{12} record"
)
def without_code(scene):
    edit_lines(scene.run / "attempts.jsonl", lambda lines: [{**each, "code": None} for each in lines])
    forge_manifest(scene.run)
    return [scene.verify()]


# Plan and code


@attack("the digest of the code bent", r"was recorded, which is not that of commit [0-9a-f]{12} in the repository")
def code_digest(scene):
    edit_record(scene, lambda line: line["code"].update(sha256="0" * 64))
    forge_manifest(scene.run)
    return [scene.verify()]


@attack("another commit of the history named", r"was recorded, but commit [0-9a-f]{12} has no program of resnet50")
def other_commit(scene):
    if gap := history().gap:
        pytest.skip(gap)
    known = subprocess.run(
        ["git", "-C", str(digests.REPRODUCED), "rev-list", "--all", "--max-parents=0"], capture_output=True, text=True
    )
    edit(scene.run / "run.json", lambda run: run["environment"].update(git_commit=known.stdout.split()[0]))
    forge_manifest(scene.run)
    return [scene.verify()]


@attack(
    "the measuring rule bent, and the record read by it", r"measuring rule: mean_rows .*'skip_first': 5.* in run\.json"
)
def bent_rule(scene):
    edit(scene.run / "run.json", lambda run: [unit["rule"].update(skip_first=5) for unit in run["plan"]["units"]])
    record_again(scene)
    return scene.both()


@attack(
    "… that of the baseline alone",
    r"pytorch: measuring rule: .* in run\.json, .* in the report of|pytorch: measuring rule",
)
def bent_rule_of_the_baseline(scene):
    edit(
        scene.run / "run.json",
        lambda run: [
            unit["rule"].update(skip_first=0) for unit in run["plan"]["units"] if unit["name"].endswith(".pytorch")
        ],
    )
    record_again(scene)
    return scene.both()


@attack("a baseline with a smaller batch", r"pytorch: micro_batch: 64 in run\.json, 128 in resnet50")
def smaller_baseline(scene):
    def change(name, unit):
        if name.endswith(".pytorch"):
            unit["config"]["micro_batch"] = 64

    edit_units(scene, change)
    forge_manifest(scene.run)
    return scene.both()


@attack("fewer repeats planned than were asked for", r"repeats: 1 in its plan, 2 in its command")
def fewer_repeats(scene):
    edit(scene.run / "run.json", lambda run: run["plan"].update(repeats=1))
    for folder in [path for path in scene.run.glob("units/*/repeat-2.*") if path.is_dir()]:
        shutil.rmtree(folder)
    edit_lines(scene.run / "attempts.jsonl", lambda lines: [each for each in lines if each["repeat"] == 1])
    forge_manifest(scene.run)
    return scene.both()


@attack("a case stopped early and called decided", r"enough: decided in attempts\.jsonl, None in the stopping rule")
def called_decided(scene):
    run = published_run(scene.runs, ["DP_8x1x1_16_1536x16"], (1.0, 1.1, 0.9))
    edit_lines(run.attempts_file, lambda lines: [*lines[:-1], lines[-1] | {"enough": "decided"}])
    return [scene.verify_figures(run)]


# The course of the run


@attack("the time of the run changed", r"time of the run: 20261126-025735 in its name, 20261126-025")
def other_day(scene):
    edit(scene.run / "run.json", lambda run: run.update(id=BENT, created=run["created"] - 400))
    forge_manifest(scene.run)
    return [scene.verify_figures(Run(scene.run))]


@attack("… to one after its attempts", r"start of the attempt: [\d.]+ in attempts\.jsonl, [\d.]+ in run\.json, created")
def created_later(scene):
    edit(scene.run / "run.json", lambda run: run.update(created=run["created"] + 3600))
    forge_manifest(scene.run)
    return scene.both()


@attack(
    "a slow repeat deleted and run again with RUN=",
    r"start of the first attempt: [\d.]+ in repeat 1, [\d.]+ in repeat 2",
)
def run_again(scene):
    def later(line):
        if line["repeat"] == 1 and line["unit"] == CASE:
            line["started"] += 1000

    for rank in (0, 1):
        edit_lines(
            scene.attempts(CASE)[0] / METRICS.format(rank),
            lambda events: [each | {"time": each["time"] + 1000} for each in events],
        )
    edit_record(scene, later)
    record_again(scene)
    return scene.both()


@attack("… the last one", r"nothing is recorded for the 60 s before it: the run was continued with RUN=, or attempts")
def last_run_again(scene):
    folder = scene.attempts(f"{CASE}.pytorch")[1]
    for rank in (0, 1):
        edit_lines(
            folder / METRICS.format(rank), lambda events: [each | {"time": each["time"] + 60} for each in events]
        )

    def later(line):
        if scene.run / line["folder"] == folder:
            line["started"] += 60

    edit_record(scene, later)
    record_again(scene)
    evidence = examine(Run(scene.run))
    return ["\n".join(evidence.remarks)]


@attack(
    "two repeats exchanged, the fast one first", r"start of the first attempt: [\d.]+ in repeat 1, [\d.]+ in repeat 2"
)
def exchanged(scene):
    first, second = scene.attempts(CASE)
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)
    names = [each.relative_to(scene.run).as_posix() for each in (first, second)]

    def change(line):
        if line["folder"] in names:
            line["repeat"] = 3 - line["repeat"]
            line["folder"] = names[line["repeat"] - 1]

    edit_record(scene, change)
    for folder in (first, second):
        edit(folder / "config.json", lambda config, folder=folder: config.update(output=str(folder)))
    forge_manifest(scene.run)
    return scene.both()


@attack("an attempt that ran beside another", r"beside units/.*: not named in its `beside` in attempts\.jsonl")
def overlapping(scene):
    def longer(line):
        if line["repeat"] == 1 and line["unit"] == CASE:
            line["wall_s"] += 30

    edit_record(scene, longer)
    forge_manifest(scene.run)
    return scene.both()


@attack("… named as a neighbour that it did not have", r"beside units/.*: named in its `beside` in attempts\.jsonl")
def invented_neighbour(scene):
    edit_record(scene, lambda line: line.update(beside=[{"attempt": f"units/{CASE}/repeat-9.attempt-1", "nodes": []}]))
    forge_manifest(scene.run)
    return scene.both()


@attack(
    "a repeat copied, moved in time and made faster", r"an attempt of its own: yes in attempts\.jsonl, a copy of units/"
)
def copied_and_scaled(scene):
    first, second = scene.attempts(CASE)
    begun = next(each.started for each in Run(scene.run).attempts() if scene.run / each.folder == second)
    for rank in (0, 1):
        text = (first / METRICS.format(rank)).read_text()
        origin = json.loads(text.splitlines()[0])["time"]

        def moved(events, origin=origin):
            for event in events:
                event["time"] = begun + 5 + (event["time"] - origin) / 1.02
                if "latency_ms" in event:
                    event |= {"latency_ms": event["latency_ms"] / 1.02, "throughput": event["throughput"] * 1.02}

        (second / METRICS.format(rank)).write_text(text)
        edit_lines(second / METRICS.format(rank), moved)
    shutil.copy(first / LOG, second / LOG)
    log_of_metrics(scene, CASE)
    record_again(scene)
    return scene.both()


@attack("a slow repeat called a failure", r"recorded as failed, although all of its ranks trained to their end")
def called_failed(scene):
    failure = {"message": "rank {rank} exited with status {status}", "values": {"rank": 0, "status": 1}}

    def change(line):
        if line["repeat"] == 1 and line["unit"] == CASE:
            line.update(status="failed", failure=failure)

    edit_record(scene, change)
    forge_manifest(scene.run)
    return ["\n".join(examine(Run(scene.run)).remarks)]


# Signatures


def new_key(folder: Path, name: str) -> Key:
    """A key without a passphrase."""
    file = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True, capture_output=True)
    return Key(file, str(fingerprint(file)))


def signed_archive(scene: Scene, key: Key) -> Path:
    """A third run of the host, from which on its archives are signed."""
    archive = scene.kept.with_name("20261126-060153-all-published.zip")
    archive.write_bytes(kept_archive(archive.stem))
    sign(archive, key)
    digests.enter(archive, scene.listed, key.fingerprint)
    assert scene.verify(archive) is None
    return archive


@attack("the signature of a signed archive removed", r"is not signed, but .* says that SHA256:\S+ signed it")
def unsigned(scene):
    archive = signed_archive(scene, new_key(scene.runs, "own"))
    archive.with_name(f"{archive.name}.sig").unlink()
    return [scene.verify(archive), scene.page()]


@attack("… replaced by a stranger's", r"is signed by SHA256:\S+, but .* says that SHA256:\S+ signed it")
def by_a_stranger(scene):
    archive = signed_archive(scene, new_key(scene.runs, "own"))
    sign(archive, new_key(scene.runs, "strangers"))
    return [scene.verify(archive), scene.page()]


@attack("… with the line that names the signer", CHANGED)
def signer_removed(scene):
    archive = signed_archive(scene, new_key(scene.runs, "own"))
    scene.commit()
    archive.with_name(f"{archive.name}.sig").unlink()
    lines = scene.listed.read_text().splitlines(keepends=True)
    chain_again(scene.listed, "".join(line for line in lines if not line.startswith("# signer")))
    scene.commit("Tidy")
    return [scene.verify_list()]


@attack(
    "… and the stranger named as the signer", r"are signed by SHA256:\S+, before by SHA256:\S+: whether that is right"
)
def signer_exchanged(scene):
    signed_archive(scene, new_key(scene.runs, "own"))
    stranger = new_key(scene.runs, "strangers")
    archive = scene.kept.with_name("20261126-061615-all-published.zip")
    archive.write_bytes(kept_archive(archive.stem))
    sign(archive, stranger)
    digests.enter(archive, scene.listed, stranger.fingerprint)
    return ["\n".join(verification.remarks(scene.hosts / HOST))]


@attack(
    "an unfavourable run removed with a line",
    r"NOTE: h200/runs/20261126-025735-all-published\.zip was removed: a mistake",
)
def removed_with_a_line(scene):
    digests.remove(scene.hosts / HOST, [scene.kept], "a mistake")
    return ["\n".join(verification.remarks(scene.hosts / HOST))]


@pytest.fixture
def scene(tmp_path):
    return scene_in(tmp_path)


def test_nothing_is_said_against_what_nobody_forged(scene):
    record_again(scene)
    assert [*scene.both(), scene.page(), scene.verify(scene.kept)] == [None] * 4
    scene.commit()
    assert scene.verify_list() is None and examine(Run(scene.run)).remarks == ()


@pytest.mark.parametrize("tried", ATTACKS, ids=lambda each: each.attempt.__name__)
def test_a_forgery_is_found(scene, tried):
    check_stopped(tried.attempt(scene), tried)


if __name__ == "__main__":
    print_table(ATTACKS, scene_in)
