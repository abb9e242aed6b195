"""What the forge's workflows may do: nothing privileged for code from outside, and nothing that is not pinned."""

import re

import yaml

from repro.utils.paths import ROOT

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github/workflows").glob("*.yml")}
CI, PAGES = WORKFLOWS["ci"], WORKFLOWS["pages"]
SAME = "github.event.pull_request.head.repo.full_name == github.repository"


def test_only_code_of_this_repository_runs_privileged():
    for name, job in CI["jobs"].items():
        privileged = "--privileged" in job["container"].get("options", "")
        assert privileged == (name == "ci")
        assert SAME in job["if"] if privileged else SAME.replace("==", "!=") in job["if"]
    assert CI["permissions"] == {"contents": "read"}


def test_containers_and_actions_are_pinned():
    for job in CI["jobs"].values():
        assert re.fullmatch(r"debian:12@sha256:[0-9a-f]{64}", job["container"]["image"])
    for job in (job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()):
        assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step)


def test_no_checkout_leaves_its_credentials_behind():
    for job in (job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()):
        for step in (step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@")):
            assert step["with"]["persist-credentials"] is False


def test_the_site_is_published_from_the_main_branch_by_a_job_that_runs_no_code_of_the_repository():
    assert PAGES[True] == {"push": {"branches": ["main"]}, "workflow_dispatch": None}  # YAML reads `on` as true
    assert PAGES["permissions"] == {}
    build, publish = PAGES["jobs"]["build"], PAGES["jobs"]["publish"]
    assert build["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert all("run" not in step for step in publish["steps"])
    assert [step["with"]["path"] for step in build["steps"] if "upload" in step.get("uses", "")] == ["reports"]
