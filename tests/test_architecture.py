"""ARCHITECTURE.md and the packages' own words: what they name is there, and no package is left without a word."""

import ast
import re

import pytest

from tests.support.paths import ROOT

TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "repro"


def test_every_file_of_a_cases_way_is_there():
    way = TEXT.partition("## One case")[2].partition("##")[0]
    named = set(re.findall(r"[a-z_]+(?:/[a-z_0-9]+)*\.py", way))
    assert len(named) > 15
    assert sorted(name for name in named if not (PACKAGE / name).is_file() and not (ROOT / name).is_file()) == []


def test_the_table_of_packages_is_the_layers_that_are_held():
    import tomllib

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if each["type"] == "layers")
    table = re.findall(
        r"^\| `([a-z]+)` \|", TEXT.partition("## Direction")[2].partition("## One case")[0], re.MULTILINE
    )
    assert [f"repro.{name}" for name in table] == layers
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {*table, "trainers", "baselines", "data", "locale"}


@pytest.mark.parametrize(
    "init", sorted(PACKAGE.rglob("__init__.py")), ids=lambda path: str(path.parent.relative_to(ROOT))
)
def test_every_package_says_what_it_knows(init):
    words = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    assert len(words.split()) > 8


def test_what_a_text_in_the_code_names_is_there():
    """By its full name, as `repro.launch.host_environment.gpus`: a module, or what one has at its top or in a class."""
    named = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"`(repro(?:\.\w+)+)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert sorted(each for each in named if not _is_there(each[1])) == []


def test_a_name_that_is_not_there_is_seen():
    assert _is_there("repro.launch.host_environment.gpus") and _is_there("repro.cluster.ssh.Remote.run")
    assert not _is_there("repro.environment.gpus") and not _is_there("repro.cluster.ssh.Remote.get")


def test_no_module_imports_itself_by_way_of_others():
    """Imports inside functions count too; those for type checkers alone do not."""
    modules = {_name(path): path for path in PACKAGE.rglob("*.py")}
    graph = {name: _imported(path) & modules.keys() - {name} for name, path in modules.items()}
    assert len(graph) > 200
    while leaves := {name for name, imported in graph.items() if not imported & graph.keys()}:
        graph = {name: imported for name, imported in graph.items() if name not in leaves}
    assert sorted(graph) == [], "these import each other in a circle, or one that does"


def _is_there(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = ROOT.joinpath(*parts[:length])
        file = next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
        if file:
            return _has(ast.parse(file.read_text(encoding="utf-8")), parts[length:])
    return False


def _has(node: ast.AST, names: list[str]) -> bool:
    if not names:
        return True
    for each in ast.iter_child_nodes(node):
        defined = [each.name] if isinstance(each, ast.FunctionDef | ast.ClassDef) else []
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            defined = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        if names[0] in defined:
            return _has(each, names[1:])
    return False


def _name(path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imported(path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checked = [
        each for each in ast.walk(tree) if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
    ]
    skipped = {id(node) for each in checked for node in ast.walk(each)}
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{each.name}" for each in node.names}
            inside = {name for name in names if _is_module(name)}
            found |= inside or {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


def _is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_no_test_imports_a_test():
    found = []
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            found += [f"{path.relative_to(ROOT)}: {name}" for name in modules if re.search(r"(^|\.)test_\w+$", name)]
    assert found == []
