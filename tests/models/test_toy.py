"""A fourth model from a folder of its own, from the catalogue to the report, without a change to the project."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT, TRAINER_PYTHON
from tests.support.patience import patience

FOLDER = ROOT / "tests" / "support" / "toymodel"
SHIPPED = """
import json, sys
from repro.launch.nodes.code_upload import UploadedCode
from repro.planning.plan import make_plan
from repro.published.cases import load_catalogue
plan = make_plan(list(load_catalogue().select("toy")), 0)
config = next(unit.config.as_json() for unit in plan.units if unit.world_size == 1)
print(json.dumps({"files": UploadedCode().files, "config": config}))
"""
PUBLISHED = """
import sys
from pathlib import Path
from repro.report.published.page import render
render(Path(sys.argv[1]))
"""


def controller(program: str, *arguments) -> str:
    """What a program of the controller prints that knows the toy model."""
    environment = {**os.environ, "REPRO_MODELS": str(FOLDER)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def toy(task):
    """Callable that runs a task for the toy model with the real trainers."""

    def run(name: str, **settings) -> str:
        done = task(name, MODEL="toy", REPRO_MODELS=FOLDER, TRAINER_COMMAND="", **settings)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_catalogue_and_the_plan_have_its_cases(toy):
    assert "toy_2g" in toy("cases")
    assert "2 cases to run" in toy("plan", CLUSTER="v100x32")


def test_a_smoke_run_trains_it_on_one_and_two_ranks_and_reports(toy, tmp_path):
    toy("bench", SCALE="smoke", REPEATS=1)
    (run,) = (tmp_path / "runs").iterdir()
    with open(run / "results.csv", newline="") as file:
        results = {row["stands_for"]: row for row in csv.DictReader(file)}
    assert {name: row["world_size"] for name, row in results.items()} == {"toy_1g": "1", "toy_2g": "2"}
    assert "| smoke_toy-2026-01_2x1x1 | toy_2g |" in (run / "report.en.md").read_text()
    two, one = (losses(run, name) for name in ("2x1x1", "1x1x1"))
    assert two == pytest.approx(one, rel=1e-5)


def losses(run, layout: str) -> list[float]:
    (metrics,) = run.glob(f"units/*_{layout}/*/metrics-rank0.jsonl")
    events = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = [event["loss"] for event in events if event["event"] == "iteration"]
    assert len(found) == 6
    return found


def test_what_is_sent_to_nodes_trains_it_there(tmp_path):
    """Nodes have neither the project nor the model's folder."""
    shipped = json.loads(controller(SHIPPED))
    for name, text in shipped["files"].items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "config.json").write_text(json.dumps({**shipped["config"], "output": str(tmp_path)}))
    command = [TRAINER_PYTHON, tmp_path / "repro/trainers/run.py", "--config", tmp_path / "config.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    assert "throughput:" in done.stdout


def test_its_report_is_rendered_with_the_published_ones(tmp_path):
    controller(PUBLISHED, tmp_path)
    page = (tmp_path / "toy-2026-01.zh.md").read_text()
    assert page.startswith("# 感知机评测报告") and "19000.0" in page


def test_a_folder_that_is_not_there_is_named(task):
    done = task("cases", REPRO_MODELS="/nowhere")
    assert done.returncode == 2
    assert "REPRO_MODELS: there is no folder /nowhere" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("syntax error(", r"repro\.models\.odd cannot be imported: SyntaxError"),
        ("raise RuntimeError('x')", r"repro\.models\.odd cannot be imported: RuntimeError: x"),
        ("SPEC = 1", r"repro\.models\.odd: SPEC is a int; it has to be a ModelSpec"),
    ],
)
def test_a_model_that_is_none_is_named(task, tmp_path, content, message):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "odd.py").write_text(content)
    done = task("cases", REPRO_MODELS=tmp_path)
    assert done.returncode == 2 and re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "name",
    ["models/gpt.py", "trainers/models/gpt.py", "data/cases/gpt-3d-2021-05.toml", "data/clusters/v100x32.toml"],
)
def test_a_file_with_the_name_of_one_of_the_project_is_refused_by_both(task, tmp_path, name):
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    done = task("cases", REPRO_MODELS=tmp_path)
    both = f"REPRO_MODELS: {tmp_path / name} has the name of {ROOT / 'repro' / name}; give it another\n"
    assert (done.returncode, done.stderr) == (2, both)


def test_of_two_folders_neither_hides_a_file_of_the_other(task, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "copy")
    done = task("cases", REPRO_MODELS=f"{FOLDER}:{tmp_path / 'copy'}")
    assert done.returncode == 2
    for name in ("models/toy.py", "perfmodel/toy.py", "data/cases/toy-2026-01.toml"):
        assert f"{tmp_path / 'copy' / name} has the name of {FOLDER / name}" in done.stderr
    assert task("cases", REPRO_MODELS=f"{FOLDER}:{FOLDER}").returncode == 0


def test_a_report_with_the_id_of_another_is_refused_by_both(task, tmp_path):
    (tmp_path / "data" / "cases").mkdir(parents=True)
    published = ROOT / "repro" / "data" / "cases" / "gpt-3d-2021-05.toml"
    shutil.copy(published, tmp_path / "data" / "cases" / "mine.toml")
    done = task("cases", REPRO_MODELS=tmp_path)
    assert done.returncode == 2
    assert "mine.toml: report: id: 'gpt-3d-2021-05' is the id of gpt-3d-2021-05.toml too" in done.stderr
