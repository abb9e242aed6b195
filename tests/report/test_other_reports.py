"""Another framework's report is a folder of data outside the project, and changes nothing of what is there."""

import csv
import json
import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

NVIDIA = ROOT / "tests" / "support" / "nvidia"
REPORT = "nvidia-resnet50-2018-10"
CASES = ("nvidia_resnet50_1n1g_bs128", "nvidia_resnet50_1n4g_bs128", "nvidia_resnet50_1n8g_bs128")
OBSERVED = """
import json, pathlib, sys, tempfile
from repro.analysis.verdict import tolerance
from repro.perfmodel.hardware import describe
from repro.perfmodel.plan_table import plan_json, plan_rows
from repro.perfmodel.training import training_cases
from repro.runs.plan import Plan
from repro.utils.errors import PlanError
from repro.planning.plan import Wanted, make_plan
from repro.published.audit.engine import as_json, audit
from repro.published.cases import load_catalogue
from repro.report.document import markdown
from repro.report.names import subject
from repro.report.published import page
from repro.report.site import claims_page, home, reproduce
from repro.report.site.claims import claims, csv
from repro.runs.record import Run

catalogue, result, name = load_catalogue(), audit(), sys.argv[1]
every = claims(result, ())
planned = make_plan(catalogue.select("resnet50"), 32, Wanted(scale="published"))
kept = [Run.find(str(path)) for path in sorted(pathlib.Path("reports/reproduced").glob("*/runs/2*.zip"))]
units = [unit for run in kept for unit in run.description().plan.units]
seen = {
    "findings": json.loads(as_json(result))["findings"],
    "claims": csv(every).splitlines(),
    "fitted": [case.name for case in training_cases(catalogue.ported)],
    "tolerances": {case.name: tolerance(case, catalogue).value for case in catalogue.ported},
    "labels": [subject(unit) for unit in units],
    "units": [unit.name for unit in planned.units],
    "skipped": {each.case: each.reason.text() for each in planned.skipped},
    "plan": plan_json(plan_rows(catalogue.select("resnet50"), describe("v100x32")), describe("v100x32"))["cases"],
    "site": [
        markdown(made, pathlib.Path("."))
        for language in ("en", "zh")
        for made in (
            page.index(result, language),
            claims_page.build(language, every, ()),
            home.build(language, result, (), every, []),
            reproduce.build(language, every, ()),
        )
    ],
}
try:
    make_plan(catalogue.select(None, name), 8)
except PlanError as error:
    seen["refused"] = str(error)
folder = pathlib.Path(tempfile.mkdtemp(dir=sys.argv[2]))
page.render(folder)
seen["pages"] = {path.name: path.read_text() for path in folder.glob("*.md")}
print(json.dumps(seen))
"""


def observe(folder, scratch, report=REPORT):
    """Everything that the project says of published figures, with the reports of a folder from outside or none."""
    environment = {**os.environ, "REPRO_MODELS": str(folder or "")}
    command = [sys.executable, "-c", OBSERVED, report, str(scratch)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return observe(None, tmp_path_factory.mktemp("alone"), "resnet50-2020-08-21")


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    return observe(NVIDIA, tmp_path_factory.mktemp("beside"))


def without(seen, report, cases):
    """What was observed of all other reports."""
    rest = {name: seen[name] for name in ("fitted", "tolerances", "labels", "units")}
    return rest | {
        "findings": [each for each in seen["findings"] if each["report"] != report],
        "claims": [line for line in seen["claims"] if not line.startswith(tuple(cases))],
        "skipped": {case: why for case, why in seen["skipped"].items() if case not in cases},
        "plan": [each for each in seen["plan"] if each["name"] not in cases],
        "pages": {
            name: text for name, text in seen["pages"].items() if report not in name and not name.startswith("README")
        },
    }


def test_what_is_said_of_every_other_report_stays_the_same(alone, beside):
    assert without(beside, REPORT, CASES) == without(alone, REPORT, CASES)


def test_its_figures_are_audited(beside):
    own = {each["id"]: each for each in beside["findings"] if each["report"] == REPORT}
    scaling = own.pop(f"{REPORT}/scaling/{CASES[2]}/throughput")
    assert scaling["printed"] == "2857.9" and "2.078 times as high" in scaling["rule"]
    assert list(own) == [f"{REPORT}/trainer-commit/trainer"], "a README names no commit of itself"


def test_its_scaling_is_recomputed(tmp_path):
    wrong = outside(tmp_path, ("weak_scaling = 7.87", "weak_scaling = 7.97"))
    found = {each["id"]: each for each in observe(wrong, tmp_path)["findings"] if each["report"] == REPORT}
    each = found[f"{REPORT}/speed-up/{CASES[2]}/weak_scaling"]
    assert (each["printed"], each["recomputed"]) == ("7.97", "7.87")


def test_its_page_has_its_own_columns_rule_and_framework(beside):
    for language, column, title in (
        ("en", "Mixed precision / FP32", "in PyTorch"),
        ("zh", "混合精度 / FP32", "PyTorch"),
    ):
        text = beside["pages"][f"{REPORT}.{language}.md"]
        assert title in text.splitlines()[0] and column in text
        assert "| 4 | 2886.9 | 1375.5 | 2.1 | 3.79 |" in text
        assert "batch size over the mean time" in text and "18.09-py3" in text
        assert "OneFlow" not in text and "make bench" not in text
    overview = beside["pages"]["README.md"]
    assert overview.startswith("# PyTorch, OneFlow: ") and REPORT in overview


def test_it_is_planned_without_a_prediction_and_not_run(beside):
    planned = {each["name"]: each for each in beside["plan"]}
    for case in CASES:
        assert planned[case]["expected"] is None and "PyTorch" in planned[case]["skipped"]
        assert beside["skipped"][case] == planned[case]["skipped"]
    assert "none of these cases can be run" in beside["refused"] and "PyTorch" in beside["refused"]


def test_its_claims_are_on_the_site_without_a_verdict_or_a_command(beside):
    rows = {row["id"]: row for row in csv.DictReader(beside["claims"]) if row["report"] == REPORT}
    assert list(rows) == [f"{case}/throughput" for case in CASES], "it prints neither speed-up nor memory"
    assert [row["published"] for row in rows.values()] == ["363.1", "1375.5", "2857.9"]
    for row in rows.values():
        assert (row["coverage"], row["verdict"]) == ("not-run", "not-measured")
        assert {row[name] for name in ("expected_on_v100", "minutes", "check", "reproduced_within")} == {""}
    for text in beside["site"][:3]:
        assert REPORT in text
    for text in (beside["site"][3], beside["site"][7]):
        assert REPORT not in text, "nobody is told to reproduce it with this project"


def outside(folder, *changes):
    """A copy of NVIDIA's folder with other text in its report."""
    for name in ("data/cases", "data/clusters", "published"):
        (folder / name).mkdir(parents=True)
        for file in (NVIDIA / name).iterdir():
            if file.is_file():
                text = file.read_text()
                for before, after in changes if file.suffix == ".toml" and name == "data/cases" else ():
                    assert before in text
                    text = text.replace(before, after)
                (folder / name / file.name).write_text(text)
    return folder


def test_a_second_report_with_logs_of_one_format_relabels_nothing(alone, tmp_path):
    lettered = outside(tmp_path, ('precision = "fp32"\n', 'precision = "fp32"\nlog_generation = "B"\n'))
    assert without(observe(lettered, tmp_path), REPORT, CASES) == without(alone, REPORT, CASES)
