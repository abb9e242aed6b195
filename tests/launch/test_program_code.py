"""Which code an attempt ran: its hash, what differs from the commit, and that a run goes on with the same code alone."""

import ast
import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from repro.launch.program_code import program_code, refuse_other_code
from repro.planning.plan import Wanted, make_plan
from repro.published.cases import load_catalogue
from repro.runs.record import Run
from repro.utils.errors import PlanError
from tests.support.attempts import recorded
from tests.support.runs import attempts, only_run
from tests.support.synthetic import described


@pytest.fixture
def checkout(tmp_path):
    """A committed checkout with a trainer, a baseline and a model's specification."""
    root = tmp_path / "checkout"
    for name in ("trainers/run.py", "trainers/models/gpt.py", "baselines/run.py", "models/gpt.py"):
        path = root / "repro" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n")
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "All")
    return root


def git(root, *arguments):
    subprocess.run(["git", "-C", root, *arguments], check=True)


def test_an_unchanged_checkout_has_no_changes_and_always_the_same_hash(checkout):
    found = program_code("trainers", "published", root=checkout)
    assert found == program_code("trainers", "published", root=checkout)
    assert found["changed"] == [] and len(found["sha256"]) == 64 and "replaced" not in found
    assert found["sha256"] != program_code("baselines", "published", root=checkout)["sha256"]


def test_every_way_to_change_a_trainer_is_seen(checkout):
    before = program_code("trainers", "published", root=checkout)["sha256"]
    trainers = checkout / "repro" / "trainers"
    git(checkout, "update-index", "--assume-unchanged", "repro/trainers/run.py")
    (trainers / "run.py").write_text("# faster\n")
    (trainers / "new.py").write_text("")
    (trainers / "models" / "gpt.py").unlink()
    found = program_code("trainers", "published", root=checkout)
    assert found["changed"] == ["repro/trainers/models/gpt.py", "repro/trainers/new.py", "repro/trainers/run.py"]
    assert found["sha256"] != before
    assert program_code("baselines", "published", root=checkout)["changed"] == [], "a baseline does not run them"


IMPORTS = {
    "__init__": "",
    "program": "from repro.trainers.tuning.rewrite import A\n",
    "rewrite": "",
    "gpt": "from repro.trainers.tuning import layers\n",
    "layers": "",
    "resnet50": "from repro.trainers.tuning.channels import B\n",
    "channels": "",
}


@pytest.mark.parametrize(
    ("module", "seen"),
    [
        ("program", {"gpt", "resnet50", ""}),
        ("rewrite", {"gpt", "resnet50", ""}),
        ("__init__", {"gpt", "resnet50", ""}),
        ("gpt", {"gpt", ""}),
        ("layers", {"gpt", ""}),
        ("channels", {"resnet50", ""}),
        ("resnet50", {"resnet50", ""}),
    ],
)
def test_tuning_one_model_leaves_the_others(checkout, module, seen):
    tuning = checkout / "repro" / "trainers" / "tuning"
    tuning.mkdir()
    for name, text in IMPORTS.items():
        (tuning / f"{name}.py").write_text(text)

    def codes() -> dict:
        models = ("gpt", "resnet50", "")
        return {model: program_code("trainers", "tuned", root=checkout, model=model)["sha256"] for model in models}

    before = codes()
    (tuning / f"{module}.py").write_text(IMPORTS[module] + "# another\n")
    after = codes()
    assert {model for model in before if before[model] != after[model]} == seen


@pytest.mark.parametrize(
    ("file", "seen"),
    [("tuning/gpt.py", {"tuned"}), ("checks/accuracy.py", set()), ("models/gpt.py", {"published", "tuned"})],
)
def test_a_program_has_the_code_that_it_imports(checkout, file, seen):
    before = {program: program_code("trainers", program, root=checkout) for program in ("published", "tuned")}
    path = checkout / "repro" / "trainers" / file
    path.parent.mkdir(exist_ok=True)
    path.write_text("# another\n")
    after = {program: program_code("trainers", program, root=checkout) for program in before}
    assert {program for program in before if before[program]["sha256"] != after[program]["sha256"]} == seen
    assert {program for program in before if after[program]["changed"]} == seen


def test_attempts_that_begin_at_once_parse_one_after_another(monkeypatch):
    """CPython 3.11 raises SystemError where threads parse at once."""
    parse, parsing = ast.parse, threading.Lock()

    def alone(*given):
        assert parsing.acquire(blocking=False), "another thread parses"
        try:
            time.sleep(0.01)
            return parse(*given)
        finally:
            parsing.release()

    monkeypatch.setattr(ast, "parse", alone)
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: program_code("trainers", "tuned", model="gpt"), range(4)))
    assert all(each == found[0] for each in found)


def test_without_git_it_is_not_known_what_changed(checkout):
    subprocess.run(["rm", "-rf", checkout / ".git"], check=True)
    assert program_code("trainers", "published", root=checkout)["changed"] is None


def test_models_from_outside_are_part_of_the_code(checkout, tmp_path, monkeypatch):
    before = program_code("trainers", "published", root=checkout)["sha256"]
    (tmp_path / "outside" / "trainers" / "models").mkdir(parents=True)
    (tmp_path / "outside" / "trainers" / "models" / "toy.py").write_text("# toy\n")
    monkeypatch.setenv("REPRO_MODELS", str(tmp_path / "outside"))
    found = program_code("trainers", "published", root=checkout)
    assert found["sha256"] != before and found["changed"] == []


def test_a_run_records_its_code_and_goes_on_with_no_other(task, tmp_path):
    settings = {"MODEL": "bert", "CASES": "bert_1n1g_bs96"}
    assert task("bench", REPEATS=2, **settings).returncode == 0
    folder = only_run(tmp_path)
    first = attempts(folder)
    assert len({attempt["code"]["sha256"] for attempt in first}) == 1
    assert all("standin" in attempt["code"]["replaced"] for attempt in first), "tests replace the trainer"
    assert task("bench", RUN=folder.name).returncode == 0
    for change, message in (
        ({"code": {**first[0]["code"], "sha256": "f" * 64}}, "was begun with other code of the trainers than is here"),
        (
            {"code": {**first[0]["code"], "replaced": ""}},
            "was begun with the project's own program as its trainer, and now",
        ),
        ({"code": None}, "does not record which code of the trainers it ran"),
    ):
        lines = [json.dumps({**attempt, **change}) for attempt in first]
        (folder / "attempts.jsonl").write_text("".join(line + "\n" for line in lines))
        refused = task("bench", RUN=folder.name)
        assert refused.returncode == 2 and message in refused.stderr
        assert len(attempts(folder)) == len(first), "nothing was started"


def test_failed_attempts_alone_do_not_bind_a_run_to_their_code(tmp_path):
    plan = make_plan(load_catalogue().select("bert", None), 0, Wanted(scale="smoke"))
    plan = replace(plan, units=(replace(plan.units[0], name="a"),))
    run = Run.create("test", described(plan), tmp_path)
    run.add_attempt(recorded({"status": "failed", "code": {"sha256": "0"}}))
    refuse_other_code(run)
    run.add_attempt(recorded({"code": {"sha256": "0"}}))
    with pytest.raises(PlanError, match=r"begun with other code .*SHA-256 0, now"):
        refuse_other_code(run)
    with pytest.raises(PlanError, match=r"own program as its trainer, .* with python x\.py: give it the same"):
        refuse_other_code(run, ["python", "x.py"])
