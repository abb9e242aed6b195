"""What the READMEs and docs/ promise: targets, settings, files and figures that there are, the same in both languages."""

import json
import re
import shlex

import pytest

from repro.cli.tasks import every
from repro.targets import ENVIRONMENT
from tests.support.paths import ROOT

OPTIONS = {name: {option.variable for option in task.options.values()} for name, task in every().items()}

ENGLISH = [
    ROOT / "README.md",
    *sorted(path for path in (ROOT / "docs").glob("*.md") if not path.name.endswith(".zh.md")),
]
PAIRS = [(page, page.with_name(f"{page.stem}.zh.md")) for page in ENGLISH]
PAGES = [page for pair in PAIRS for page in pair]
REFERENCE = [ROOT / "docs" / "reference.md", ROOT / "docs" / "reference.zh.md"]
FIRST_SCREEN = 40
"""Lines of a README before its reader has seen the answer."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_targets_settings_and_links_are_there(page):
    text = page.read_text(encoding="utf-8")
    targets = {*every(), "setup", "clean", "help"}
    assert set(re.findall(r"(?:`|^)make ([a-z][a-z0-9-]+)", text, re.MULTILINE)) <= targets
    variables = set.union(*OPTIONS.values())
    assert set(re.findall(r"`(?:make [a-z-]+ )?([A-Z_]{2,})=", text)) <= variables | set(ENVIRONMENT)
    for link in re.findall(r"\]\(([^)]+)\)", text):
        file = link.partition("#")[0]
        assert "://" in link or (page.parent / file).exists(), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_has_variables_that_its_task_has(page):
    seen = 0
    for command in commands(page.read_text(encoding="utf-8")):
        _, target, *arguments = shlex.split(command)
        names = {name for name, equals, _ in (word.partition("=") for word in arguments) if equals}
        assert names <= OPTIONS.get(target, set()) | set(ENVIRONMENT)
        seen += len(names)
    assert seen > 10 or page not in REFERENCE


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.name)
def test_figures_are_those_of_the_audit(page):
    audit = json.loads((ROOT / "reports/published/audit.json").read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if "`make audit`" in line)
    numbers = re.findall(r"\d+", row)
    hints = sum(finding["kind"] == "typing" for finding in audit["findings"])
    compared = sum(check["compared"] for check in audit["checks"])
    assert {str(len(audit["findings"]) - hints), str(hints), str(compared)} <= set(numbers)


def commands(text: str) -> list[str]:
    """The make commands of a page in order; what stands for a person's own name is left out."""
    found = re.findall(r"`(make [^`]+)`|^(make .+)$", text, re.MULTILINE)
    return [re.sub(r"=(file|文件)", "=", "".join(each)) for each in found]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].name)
def test_both_languages_have_the_same_commands(pair):
    english, chinese = (commands(page.read_text(encoding="utf-8")) for page in pair)
    assert english == chinese


@pytest.mark.parametrize("page", PAGES[:2], ids=lambda page: page.name)
def test_the_answer_is_on_the_first_screen(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert next(number for number, line in enumerate(lines) if line == "<!-- answer:begin -->") < FIRST_SCREEN / 2
    assert any("11711.2 images/s" in line for line in lines[:FIRST_SCREEN])
