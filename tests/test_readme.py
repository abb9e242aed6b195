"""What the two READMEs promise: targets, settings, files and figures that there are, the same in both."""

import importlib
import json
import re

import pytest

from repro.cli.tasks import SETTINGS
from tests.support.paths import ROOT

for module in sorted((ROOT / "repro" / "cli").glob("*.py")):
    importlib.import_module(f"repro.cli.{module.stem}")  # each adds its own settings

PAGES = [ROOT / "README.md", ROOT / "README.zh.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_settings_and_links_are_there(page):
    text = page.read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z0-9-]+)", text, re.MULTILINE)) <= targets
    assert set(re.findall(r"`(?:make [a-z-]+ )?([A-Z_]{2,})=", text)) <= SETTINGS | {"UV_DEFAULT_INDEX"}
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ROOT / link).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_figures_are_those_of_the_audit(page):
    audit = json.loads((ROOT / "reports/published/audit.json").read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if "`make audit`" in line)
    assert str(len(audit["findings"])) in re.findall(r"\d+", row)
    assert str(sum(check["compared"] for check in audit["checks"])) in re.findall(r"\d+", row)


def commands(text: str) -> list[str]:
    """The make commands of a page in order; what stands for a person's own name is left out."""
    found = re.findall(r"`(make [^`]+)`|^(make .+)$", text, re.MULTILINE)
    return [re.sub(r"=(file|文件)", "=", "".join(each)) for each in found]


def test_both_pages_have_the_same_commands():
    english, chinese = (commands(page.read_text(encoding="utf-8")) for page in PAGES)
    assert english == chinese
