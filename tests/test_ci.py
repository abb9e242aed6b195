"""What the forge's workflow may do: nothing privileged for code from outside, and nothing that is not pinned."""

import re

import yaml

from repro.utils.paths import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
SAME = "github.event.pull_request.head.repo.full_name == github.repository"


def test_only_code_of_this_repository_runs_privileged():
    for name, job in WORKFLOW["jobs"].items():
        privileged = "--privileged" in job["container"].get("options", "")
        assert privileged == (name == "ci")
        assert SAME in job["if"] if privileged else SAME.replace("==", "!=") in job["if"]
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_containers_and_actions_are_pinned():
    for job in WORKFLOW["jobs"].values():
        assert re.fullmatch(r"debian:12@sha256:[0-9a-f]{64}", job["container"]["image"])
        assert all(re.search(r"@[0-9a-f]{40}$", step["uses"]) for step in job["steps"] if "uses" in step)
