"""What tasks print fits a terminal of 80 columns, with whole names and numbers."""

import unicodedata
from itertools import pairwise

import pytest

from repro.published.cases import load_catalogue
from tests.support import tasks

CASES = tuple(load_catalogue().select())


def lines_of(name: str, **settings) -> list[str]:
    done = tasks.run(name, COLUMNS=80, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "FW" else 1 for character in line)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cases", {}),
        ("plan", {}),
        ("plan", {"CLUSTER": "v100-16-edrx1"}),
        ("explore", {}),
        ("audit", {"CHECK": 1}),
        ("pins", {}),
    ],
)
def test_every_line_fits(name, settings):
    lines = lines_of(name, **settings)
    assert len(lines) > 10
    assert [line for line in lines if width(line) > 80] == []


@pytest.mark.parametrize("name", ["cases", "plan"])
def test_every_case_has_its_whole_name_on_one_line(name):
    first_words = [line.split()[0] for line in lines_of(name) if line]
    assert [word for word in first_words if word in {case.name for case in CASES}] == [case.name for case in CASES]


def test_a_plan_begins_with_the_cluster_it_is_for():
    assert lines_of("plan", MODEL="bert")[:2] == ["expected on v100x32; CLUSTER= names another", ""]
    assert lines_of("plan", MODEL="bert", CLUSTER="v100-16-edrx1")[:2] == ["expected on v100-16-edrx1", ""]


def test_published_figures_are_whole():
    rows = {line.split()[0]: line.split() for line in lines_of("cases") if line}
    for case in CASES:
        published = case.published
        figures = (published.throughput, published.latency_ms, published.memory_mib, published.speedup)
        assert {str(figure) for figure in figures if figure is not None} <= set(rows[case.name])


def test_the_audit_begins_with_its_totals_and_errors_and_has_a_line_for_each_finding():
    comparisons, totals, _, heading, *rest = lines_of("audit", CHECK=1)
    assert comparisons.endswith(" comparisons") and totals.startswith("Findings: ")
    assert heading.startswith("errors in ")
    headings = [heading, *(line for before, line in pairwise(rest) if not before)]
    severities = [line.split(" in ")[0].split(" on ")[0] for line in headings[:-1]]
    order = ["errors", "doubtful", "notes", "typing errors"]
    assert severities == sorted(severities, key=order.index)
    figures = [int(word.strip("();.")) for word in totals.split() if word.strip("();.").isdigit()]
    assert len([line for line in rest if line.startswith("  ")]) == figures[0] + figures[-1]
    assert rest[-1] == "up to date"
