"""Names in the code, held to `[identifiers]` of `repro/data/glossary.toml`; a class name stands once outside the programs."""

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from repro.utils.paths import DATA, PACKAGE

AVOIDED = tomllib.loads((DATA / "glossary.toml").read_text(encoding="utf-8"))["identifiers"]
OF_MODELS = ("models", "trainers", "baselines")
"""Packages that have each model's classes under the same names."""


def avoided_names(folder: Path, avoided: Mapping[str, str] = AVOIDED) -> list[str]:
    """A line for each place below a folder that gives a thing one of these names, with what to do instead."""
    return [
        f"{path.relative_to(folder)}:{line}: {name}: {avoided[name]}"
        for path in sorted(folder.rglob("*.py"))
        for line, name in sorted(set(_given(ast.parse(path.read_text(encoding="utf-8")))))
        if name in avoided
    ]


def repeated_classes(folder: Path) -> list[str]:
    """A line for each class below a folder, outside the packages OF_MODELS, whose name another one has as well."""
    places = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        if path.relative_to(folder).parts[0] not in OF_MODELS:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{path.relative_to(folder)}:{node.lineno}")
    return [f"{place}: {name} stands twice" for name, at in places.items() if len(at) > 1 for place in at]


def _given(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that a module gives to a variable, parameter, attribute, function or import, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield node.lineno, name
            case ast.alias(asname=str(name)):
                yield node.lineno, name


def test_no_name_is_one_to_avoid():
    assert avoided_names(PACKAGE) == []


def test_a_class_name_stands_once():
    assert repeated_classes(PACKAGE) == []


# What the checks see


@pytest.mark.parametrize(
    "source",
    [
        "each = 1",
        "each: int = 1",
        "class A:\n    each: int",
        "print(each := 1)",
        "for each in (): pass",
        "[each for each in ()]",
        "lambda each: 1",
        "def f(*, each=1): pass",
        "def each(): pass",
        "self.each = 1",
        "self.each |= 1",
        "with f() as each: pass",
        "try: pass\nexcept ValueError as each: pass",
        "import os as each",
        "match 1:\n    case each: pass",
        "match ():\n    case [*each]: pass",
    ],
)
def test_a_name_to_avoid_is_seen_wherever_it_is_given(tmp_path, source):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "module.py").write_text(source)
    (line,) = avoided_names(tmp_path, {"each": "name the thing"})
    assert line.startswith("sub/module.py:") and line.endswith(": each: name the thing")


def test_what_only_reads_a_name_or_contains_its_word_is_no_fault(tmp_path):
    (tmp_path / "module.py").write_text("each_row = known(found.kept, each=1)\n")
    assert avoided_names(tmp_path) == []


def test_every_word_to_avoid_is_a_name_and_has_advice(tmp_path):
    for name, instead in AVOIDED.items():
        (tmp_path / "module.py").write_text(f"first = 1\n{name} = 1\n")
        assert avoided_names(tmp_path) == [f"module.py:2: {name}: {instead}"] and instead


def test_a_class_that_stands_twice_is_seen_outside_the_programs(tmp_path):
    for package in ("runs", "images", "trainers", "baselines"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "module.py").write_text("import os\n\n\nclass Layer:\n    pass\n")
    assert repeated_classes(tmp_path) == [
        "images/module.py:4: Layer stands twice",
        "runs/module.py:4: Layer stands twice",
    ]
