"""A whole `make bench` with the stand-in trainer: what is recorded, resumed and said."""

import csv
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from repro.cli.session import Session
from repro.cli.settings import Invocation
from repro.runs.occupied import occupied
from repro.runs.record import Run
from repro.utils.errors import PlanError
from tests.support.patience import patience, slowness, wait_until
from tests.support.runs import attempts, begin, only_run
from tests.support.synthetic import published_run


@pytest.mark.parametrize(("model", "units", "repeats"), [("gpt", 12, 1), ("bert", 3, 1), ("resnet50", 10, 2)])
def test_a_model_runs_to_its_reports_which_say_the_same_figures(task, tmp_path, model, units, repeats):
    done = task("bench", MODEL=model, REPEATS=repeats)
    assert done.returncode == 0, done.stderr
    folder = only_run(tmp_path)
    for language in ("zh", "en"):
        assert str(folder / f"report.{language}.md") in done.stdout
        assert (folder / f"report.{language}.md").read_text()
    rows = list(csv.DictReader((folder / "results.csv").open()))
    assert len(rows) == units
    assert all(float(row["throughput_samples_per_s"]) == pytest.approx(800, rel=1e-6) for row in rows)
    english, chinese = ((folder / f"report.{language}.md").read_text() for language in ("en", "zh"))
    tables = [[line for line in text.splitlines() if line.startswith("|")] for text in (english, chinese)]
    assert len(tables[0]) == len(tables[1]) > 2 * units
    for one, other in zip(*tables, strict=True):
        assert re.findall(r"\d+\.\d+", one) == re.findall(r"\d+\.\d+", other)
    assert re.search(r"[一-鿿]", chinese)
    assert not re.search(r"[一-鿿]", english)


def test_nothing_english_is_left_in_the_chinese_report(task, tmp_path):
    task("bench", MODEL="gpt", REPEATS=1, STANDIN="kill@0", CASES="gpt2_small_1n8g_bs1*")
    text = re.sub(r"```.*?```", "", (only_run(tmp_path) / "report.zh.md").read_text(), flags=re.DOTALL)
    sentences = [line for line in text.splitlines() if len(re.findall(r"[A-Za-z]{3,} [a-z]{2,} [a-z]{2,}", line)) > 0]
    sources = [line for line in sentences if not re.search(r"used|/|make bench|global batch size", line)]
    assert sources == []


def test_a_failed_case_does_not_stop_the_others_and_can_be_resumed(task, tmp_path):
    done = task("bench", MODEL="bert", REPEATS=1, STANDIN="exit=5@2")
    assert done.returncode == 1
    assert "1 configurations failed" in done.stderr
    folder = only_run(tmp_path)
    first = attempts(folder)
    assert [attempt["status"] for attempt in first] == ["ok", "failed", "ok"]
    assert "rank 2 exited with status 5" in (folder / "report.en.md").read_text()
    again = task("bench", RUN=folder.name)
    assert again.returncode == 0, again.stderr
    both = attempts(folder)
    assert both[:3] == first, "what is recorded is never rewritten"
    assert [attempt["status"] for attempt in both] == ["ok", "failed", "ok", "ok"], "only what had failed ran again"
    assert both[3]["folder"].endswith("attempt-2")
    assert "rank 2 exited with status 5" in (folder / "report.en.md").read_text(), "a failed attempt stays visible"
    third = task("bench", RUN=folder.name)
    assert third.returncode == 0
    assert len(attempts(folder)) == 4


def test_a_run_belongs_to_one_process_at_a_time(task, tmp_path):
    """A second process is refused before it starts anything, so a half-written run is never recorded."""
    assert task("bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS=1).returncode == 0
    folder = only_run(tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with occupied(Run(folder)):
        for name in ("bench", "report"):
            refused = task(name, RUN=folder.name)
            assert refused.returncode == 2
            assert f"{folder} is in use: another process carries the run out or records it" in refused.stderr
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert task("verify", RUN=folder.name).returncode == 0
    assert task("report", RUN=folder.name).returncode == 0


def test_a_run_that_goes_on_says_what_it_does_not_take_from_the_command(task, tmp_path):
    assert task("bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS=1, STANDIN="exit=5@0").returncode == 1
    folder = only_run(tmp_path)
    refused = task("bench", RUN=folder.name, MODEL="gpt")
    assert refused.returncode == 2
    assert f"RUN={folder.name} trains bert: leave MODEL=gpt out" in refused.stderr
    done = task("bench", RUN=folder.name, MODEL="bert", REPEATS=3, SCALE="smoke")
    assert done.returncode == 0
    assert f"RUN={folder.name} goes on as it was planned, without SCALE, REPEATS" in done.stderr
    assert {attempt["repeat"] for attempt in attempts(folder)} == {1}


def test_a_run_does_not_go_on_with_fewer_gpus_than_it_was_planned_for(tmp_path, monkeypatch):
    monkeypatch.setattr("repro.launch.host_environment.gpu_count", lambda: 2)
    run = published_run(tmp_path, ["DP_8x1x1_16_1536x16"])
    with pytest.raises(PlanError, match=f"RUN={run.id} was planned for 8 GPUs, and 2 are here"):
        Session(invocation=Invocation("bench", {})).run_here(run, lambda: run)


def test_a_log_that_cannot_be_read_fails_the_case_and_the_hint_names_the_folder_of_the_runs(task, tmp_path):
    place = tmp_path / "with a blank"
    done = task("bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS=1, STANDIN="garbage@0", RUNS=place)
    assert done.returncode == 1
    assert "the log cannot be read by its rule" in done.stderr
    (folder,) = place.iterdir()
    assert attempts(folder)[0]["status"] == "failed"
    (hint,) = re.findall(r"Try the failed ones again with: (.*)", done.stderr)
    assert shlex.split(hint) == ["make", "bench", f"RUN={folder.name}", f"RUNS={place}"]


def test_a_lost_loss_ends_and_fails_the_attempt_as_it_is_seen(task, tmp_path):
    """Nobody waits for the rest of a training that computes nothing: here that would not end."""
    started = time.monotonic()
    done = task("bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS=1, STANDIN="nan stay@0")
    assert time.monotonic() - started < 60 * slowness()
    assert done.returncode == 1
    assert "the loss at iteration 3 is not a number" in done.stderr
    attempt = attempts(only_run(tmp_path))[0]
    assert attempt["status"] == "failed"
    assert "throughput" not in attempt, "the speed of a training that computes nothing is no result"


def test_a_run_folder_that_is_deleted_under_way_is_said_in_a_sentence(tmp_path):
    process = begin(tmp_path, "bench", MODEL="bert", REPEATS="1", STANDIN="slow=4@0", DATA="synthetic")
    wait_until(lambda: list(tmp_path.glob("runs/*/units/*/*/metrics-rank0.jsonl")))
    folder = only_run(tmp_path)
    shutil.rmtree(folder)
    _, err = process.communicate(timeout=patience())
    assert process.returncode == 1
    assert f"{folder} was deleted or moved while the run went on" in err
    assert "Traceback" not in err
    assert not folder.exists(), "nothing is written into the place of a run that is gone"


def test_what_ranks_print_reaches_neither_terminal_nor_report_as_it_is(task, tmp_path):
    """Control characters, sequences that move the cursor, a line of 30 MB, HTML, and the end of a fence."""
    nasty = tmp_path / "nasty.py"
    nasty.write_text(
        "import sys\n"
        "sys.stderr.write('x' * 30_000_000 + '\\n')\n"
        "sys.stderr.write('\\x1b[2J\\x1b]0;title\\x07 cleared \\x00\\x08\\u202e\\n')\n"
        "sys.stderr.write('```\\n# heading\\n<script>alert(1)</script> <img src=x>\\n')\n"
        "sys.exit('| cell | <b>bold</b>')\n"
    )
    done = task(
        "bench",
        MODEL="bert",
        CASES="bert_1n1g_bs96",
        REPEATS=1,
        TRAINER_COMMAND=shlex.join([sys.executable, str(nasty)]),
    )
    assert done.returncode == 1
    folder = only_run(tmp_path)
    pages = [(folder / name).read_text() for name in ("report.en.md", "report.zh.md", "report.html")]
    for text in (done.stderr, *pages):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        assert "x" * 5000 not in text
        assert " cleared " in text
    for text in pages[:2]:
        fences = re.findall(r"^(`{4,})$", text, re.MULTILINE)
        assert fences, "the block has a longer fence than what is in it"
        inside = text.split(fences[0])[1]
        assert "```\n# heading\n<script>" in inside
        assert "<script>" not in text.replace(inside, "")
    assert "<script>alert" not in pages[2]
    assert "&lt;script&gt;alert" in pages[2]


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopping_by_hand_keeps_what_is_done(tmp_path, kind):
    process = begin(tmp_path, "bench", MODEL="bert", REPEATS="1", STANDIN="hang@3")
    wait_until(lambda: list(tmp_path.glob("runs/*/units/*4x1x1/*/metrics-rank3.jsonl")))
    process.send_signal(kind)
    out, err = process.communicate(timeout=patience())
    assert process.returncode == 130
    folder = only_run(tmp_path)
    assert f"RUN={folder.name}" in err
    assert [attempt["status"] for attempt in attempts(folder)] == ["ok", "interrupted"]
    assert str(folder / "report.zh.md") in out


def test_an_attempt_that_is_killed_with_its_run_is_named_and_recorded_when_the_run_goes_on(task, tmp_path):
    process = begin(
        tmp_path, "bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS="1", STANDIN="hang@0", DATA="synthetic"
    )
    wait_until(lambda: list(tmp_path.glob("runs/*/units/*/*/metrics-rank0.jsonl")))
    process.kill()
    process.communicate(timeout=patience())
    folder = only_run(tmp_path)
    (there,) = (folder / "units").glob("*/*")
    killed = there.relative_to(folder).as_posix()
    assert task("report", RUN=folder.name).returncode == 0, "a run may be reported while it goes on"
    assert killed in (folder / "report.en.md").read_text().partition("Attempts without a record")[2]
    refused = task("verify", RUN=folder.name)
    assert refused.returncode == 1 and f"{killed}: no line of attempts.jsonl records this attempt" in refused.stderr
    assert task("bench", RUN=folder.name).returncode == 0
    assert [(each["folder"], each["status"]) for each in attempts(folder)] == [
        (killed, "interrupted"),
        (killed.replace("attempt-1", "attempt-2"), "ok"),
    ]
    assert "Attempts without a record" not in (folder / "report.en.md").read_text()
    assert task("verify", RUN=folder.name).returncode == 0


def test_damaged_metrics_fail_their_attempt_and_nothing_else(task, tmp_path):
    done = task("bench", MODEL="bert", REPEATS=1, STANDIN="damage@1")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    folder = only_run(tmp_path)
    first = attempts(folder)
    assert "failed" in {each["status"] for each in first} and "ok" in {each["status"] for each in first}
    for attempt in first:
        ranks = len(list((folder / attempt["folder"]).glob("metrics-*")))
        assert attempt["status"] == ("failed" if ranks > 1 else "ok"), "a case of one rank has no rank 1"
        lines = [(line["file"], line["line"]) for line in attempt.get("damaged", [])]
        assert lines == ([("metrics-rank1.jsonl", 2)] if ranks > 1 else [])
    assert "line 2 of metrics-rank1.jsonl is damaged" in (folder / "report.en.md").read_text()
    assert "metrics-rank1.jsonl 的第 2 行已损坏" in (folder / "report.zh.md").read_text()
    assert task("bench", RUN=folder.name).returncode == 0


def test_a_run_goes_on_whatever_a_killed_rank_0_has_left(task, tmp_path):
    damage = [b'{"event": "iter{}\n', b"\x00\x00\n", b"17\n", b"\xff\n"]
    assert task("bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS=1).returncode == 0
    folder = only_run(tmp_path)
    attempt, *others = attempts(folder)
    (folder / "attempts.jsonl").write_text("".join(json.dumps(other) + "\n" for other in others))
    metrics = folder / attempt["folder"] / "metrics-rank0.jsonl"
    metrics.write_bytes(b"".join(damage) + metrics.read_bytes())
    done = task("bench", RUN=folder.name)
    assert done.returncode == 0, done.stderr
    killed, again = attempts(folder)[-2:]
    assert (killed["status"], again["status"]) == ("interrupted", "ok")
    assert [(line["file"], line["line"]) for line in killed["damaged"]] == [
        ("metrics-rank0.jsonl", number) for number, _ in enumerate(damage, 1)
    ]
    assert killed["losses"] == attempt["losses"]
    report = (folder / "report.en.md").read_text()
    assert "4 lines of its metrics are damaged, the first is line 1 of metrics-rank0.jsonl" in report


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"MODEL": "nope"}, "no model 'nope'"),
        ({"MODEL": "gpt", "CASES": "nothing*"}, "nothing*"),
        ({"CLUSTER": "nope"}, "CLUSTER=nope"),
        ({"SCALE": "huge"}, "SCALE=huge"),
        ({"REPEATS": "many"}, "REPEATS=many"),
        ({"REPEATS": "0"}, "REPEATS=0"),
        ({"RUN": "nope"}, "RUN=nope: no such run"),
        ({"RUN": "../x"}, "RUN=../x: no such run"),
        ({"PORT": "70000"}, "PORT=70000"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(refused, settings, message):
    assert message in refused("bench", **settings)


def test_a_taken_port_is_refused(refused):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"PORT={port} is taken" in refused("bench", MODEL="bert", PORT=port)


def test_a_full_disk_loses_nothing(task, tmp_path):
    """On a file system of 1 MiB that another program fills: needs root to mount it."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small tmpfs")
    runs = tmp_path / "runs"
    runs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", runs], check=True)
    try:
        first = task("bench", MODEL="bert", CASES="bert_1n1g_bs96", REPEATS=1)
        assert first.returncode == 0, first.stderr
        (folder,) = runs.glob("*-bert-*")
        with open(runs / "filler", "wb") as filler:
            filler.write(b"\0" * (250 << 20))
        description = json.loads((folder / "run.json").read_text())
        description["plan"]["repeats"] = 2
        (folder / "run.json").write_text(json.dumps(description))
        second = task("bench", RUN=folder.name)
        assert second.returncode == 1
        assert re.search(r"1\d\d MiB are free there, and an attempt begins with 200 at least", second.stderr)
        assert f"RUN={folder.name}" in second.stderr
        assert len(attempts(folder)) == 2
        (runs / "filler").unlink()
        assert task("bench", RUN=folder.name).returncode == 0
        assert len(attempts(folder)) == 4
    finally:
        subprocess.run(["umount", runs], check=True)
