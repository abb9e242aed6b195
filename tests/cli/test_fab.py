"""Fabric as the command line: the list, help, completion, options that are refused, and exit statuses."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from repro.cli.tasks import every
from tests.support.paths import LOGS, ROOT

FAB = Path(sys.executable).with_name("fab")
SCHEMA = json.loads((ROOT / "repro/data/output.schema.json").read_text(encoding="utf-8"))


def fab(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([FAB, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True)


def test_every_task_is_listed_without_importing_what_it_needs():
    listed = fab("--list")
    assert listed.returncode == 0
    assert {line.split()[0] for line in listed.stdout.splitlines() if line.startswith("  ") and line[2] != " "} == set(
        every()
    )
    code = "import sys, fabfile; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert not {"numpy", "pandas", "matplotlib", "jinja2", "paramiko", "docker"} & set(loaded.split())


def test_help_has_every_option_with_its_default():
    shown = " ".join(fab("bench", "--help").stdout.split())
    for option in every()["bench"].options.values():
        assert option.flag in shown
    assert "--model=STRING one model, or all (default: all)" in shown
    assert "--repeats=INT runs of each case" in shown
    assert "--dry-run print every command" in shown
    assert "Exit status: 0 all cases ran; 1" in shown


def test_there_is_completion_for_the_shell():
    assert "complete -F" in fab("--print-completion-script", "bash").stdout
    assert "--max-gpus" in fab("--complete", "--", "fab", "bench", "--m").stdout.split()


def test_options_reach_the_task():
    done = fab("cases", "--model", "bert", "--cases", "bert_1n1g*")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "4 cases"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("profile", "--image", "x"), 1, "No idea what '--image' is!"),
        (("bench", "--repeats", "x"), 2, "--repeats x: it is a whole number from 1 to 1000"),
        (("cases", "--model", "nope"), 2, "no model 'nope'"),
        (("parse", "--log", "fabfile.py"), 1, "fabfile.py"),
        (("report", "--run", "nope"), 2, "RUN=nope: no such run"),
    ],
)
def test_the_status_of_a_task_reaches_the_caller(arguments, status, message):
    done = fab(*arguments)
    assert (done.returncode, message in done.stderr) == (status, True), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("definition", "arguments"),
    [
        ("cases", ("cases",)),
        ("plan", ("plan", "--model", "gpt")),
        ("plan", ("plan", "--model", "gpt", "--cluster", "v100-16-edrx1", "--repeats", 1)),
        ("explore", ("explore", "--shape", "1536x16")),
        ("audit", ("audit", "--check")),
        ("audit_logs", ("audit", "--logs", LOGS)),
    ],
)
def test_json_is_all_that_is_printed_and_as_documented(definition, arguments):
    done = fab(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    validator = Draft202012Validator({**SCHEMA, "$ref": f"#/$defs/{definition}"})
    content = json.loads(done.stdout)
    assert [error.message for error in validator.iter_errors(content)] == []
    assert content


def test_json_has_the_figures_of_the_table():
    plan = json.loads(
        fab("plan", "--cases", "DP_1x1x1*,2D_PP*", "--cluster", "v100-16-edrx1", "--format", "json").stdout
    )
    rows = {row["name"]: row for row in plan["cases"]}
    skipped = next(row for name, row in rows.items() if name.startswith("2D_PP"))
    assert skipped["skipped"].startswith("needs ") and skipped["minutes"] is None
    run = next(row for name, row in rows.items() if name.startswith("DP_1x1x1"))
    assert run["skipped"] is None and run["minutes"] > 0 and run["expected"]["throughput_samples_per_s"] > 0
