"""`make reproduce CLUSTER=` over provisioned nodes, rehearsed to its last page in a checkout of its own, and interrupted.

The stand-in trainer takes the place of OneFlow: what is tested is the way from the first check to the claims table.
"""

import csv
import json
import shutil
import signal
import subprocess

import pytest

from tests.e2e.launching import containers, trainer, wait_until
from tests.support import tasks
from tests.support.paths import ROOT, TRAINER_PYTHON
from tests.support.patience import patience
from tests.support.processes import heed_interrupts, processes_of
from tests.support.runs import attempts

STEPS = ("preflight", "bench", "curves")
KEPT = "reports/reproduced/"


@pytest.fixture
def checkout(tmp_path):
    """A copy of this checkout, with its history and without kept runs: archives and pages are written there."""
    copy, listing = tmp_path / "checkout", ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, copy], check=True)
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        (copy / name).unlink(missing_ok=True)
        if (ROOT / name).exists() and not name.startswith(KEPT):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    (copy / ".venv-trainer").symlink_to(TRAINER_PYTHON.parent.parent.resolve())
    return copy


@pytest.mark.timeout(600)
def test_a_rehearsal_goes_on_after_an_interrupt_and_reaches_its_last_page(provisioned_nodes, checkout, tmp_path):
    host, runs = provisioned_nodes.name, tmp_path / "runs"
    argv, environment = tasks.call(
        "reproduce",
        CLUSTER=provisioned_nodes.inventory,
        SCALE="smoke",
        MODEL="bert",
        CASES="bert_1n1g_bs96,bert_2n8g_bs96",
        REPEATS=2,
        STEPS=",".join(STEPS),
        RUNS=runs,
        TRAINER_COMMAND=f"python {trainer(tmp_path / 'trainer', 'learns slow=2@0', '0')}",
    )
    given = {"cwd": checkout, "env": environment, "stdin": subprocess.DEVNULL, "text": True}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(argv, preexec_fn=heed_interrupts, **output, **given) as first:
        wait_until(lambda: any(runs.glob("*-bert-smoke/attempts.jsonl")) or first.poll() is not None, 120)
        first.send_signal(signal.SIGINT)
        said, _ = first.communicate(timeout=patience(60))
    assert first.returncode == 130 and said.endswith("interrupted; the same command goes on\n"), said
    (bench,) = runs.glob("*-bert-smoke")
    before = attempts(bench)
    assert [each["status"] for each in before][-1] == "interrupted", before
    assert not (checkout / KEPT / host / "runs" / f"{bench.name}.zip").exists()
    assert processes_of(runs) == []
    assert [containers(provisioned_nodes, node) for node in provisioned_nodes.names] == [[], []]

    trainer(tmp_path / "trainer", "learns", "0")
    done = subprocess.run(argv, capture_output=True, timeout=patience(300), **given)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "== 1 of 3: make preflight" in done.stdout and "done before" in done.stdout
    after = attempts(bench)
    assert after[: len(before)] == before
    units = json.loads((bench / "run.json").read_text())["plan"]["units"]
    assert {each["unit"]: each["status"] for each in after} == {unit["name"]: "ok" for unit in units}
    assert sum(each["status"] == "ok" for each in after) == 2 * len(units)

    kept = {path.name for path in (checkout / KEPT / host / "runs").glob("*.zip")}
    assert kept == {f"{path.name}.zip" for path in runs.iterdir() if path.is_dir()} and len(kept) == len(STEPS)
    for page in ("README.md", "README.zh.md"):
        assert "bert-smoke" in (checkout / KEPT / host / page).read_text()
    assert (checkout / "reports/site/en" / f"host-{host}.html").exists()
    claims, every = (list(csv.DictReader((each / "reports/claims.csv").open())) for each in (checkout, ROOT))
    assert [row["id"] for row in claims] == [row["id"] for row in every]
    assert {row["evidence"] for row in claims} == {""}, "a rehearsal is evidence of nothing"
