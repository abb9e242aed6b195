"""What runs on nodes, by a Python that the node has, imports the standard library and itself, and compiles there."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

AGENT = ROOT / "repro" / "launch" / "agent"
PROBE = ROOT / "repro" / "cluster" / "node_probe.py"
ON_NODES = [*sorted(AGENT.glob("*.py")), PROBE]
OLDEST = {AGENT: (3, 8), PROBE: (3, 6)}
"""The oldest Python by which each must run, as their docstrings say."""
COMPILE = "import sys; [compile(open(path, encoding='utf-8').read(), path, 'exec') for path in sys.argv[1:]]"


def imported(path: Path) -> set[str]:
    """The modules that a file imports anywhere in it, by their full names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}, line {node.lineno}: an import by a relative name"
            found.add(node.module)
    return found


def interpreter(version: tuple[int, int]) -> str | None:
    """A Python of that version: one on PATH, or one of pyenv's."""
    name = "python{}.{}".format(*version)
    folder = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    own = sorted(folder.glob("{}.{}.*/bin/python".format(*version)))
    for found in (*map(str, own), shutil.which(name)):
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    return None


def test_there_is_something_to_read():
    assert {path.name for path in ON_NODES} >= {"__main__.py", "node.py", "ranks.py", "slurm_task.py", "node_probe.py"}


@pytest.mark.parametrize("path", ON_NODES, ids=lambda path: path.name)
def test_what_runs_on_nodes_needs_the_standard_library_alone(path):
    foreign = {name for name in imported(path) if name.partition(".")[0] not in sys.stdlib_module_names}
    own = {name for name in foreign if path != PROBE and f"{name}.".startswith("repro.launch.agent.")}
    assert foreign - own == set()


def test_the_check_sees_what_is_imported_in_a_function(tmp_path):
    path = tmp_path / "module.py"
    path.write_text("def work():\n    import numpy as np\n    from repro.utils import paths\n")
    assert imported(path) == {"numpy", "repro.utils"}


@pytest.mark.parametrize("where", OLDEST, ids=lambda path: path.name)
def test_it_compiles_for_the_oldest_python_of_a_node(where):
    python = interpreter(OLDEST[where])
    if python is None:
        pytest.skip("there is no Python {}.{} on this machine".format(*OLDEST[where]))
    paths = sorted(where.glob("*.py")) if where.is_dir() else [where]
    done = subprocess.run([python, "-c", COMPILE, *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_probe_runs_by_the_oldest_python_of_a_node():
    python = interpreter(OLDEST[PROBE])
    if python is None:
        pytest.skip("there is no Python {}.{} on this machine".format(*OLDEST[PROBE]))
    with open(PROBE, "rb") as program:
        done = subprocess.run([python, "-", "60", "lo", ""], stdin=program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"commands"' in done.stdout


def test_the_agent_starts_by_the_oldest_python_of_a_node():
    python = interpreter(OLDEST[AGENT])
    if python is None:
        pytest.skip("there is no Python {}.{} on this machine".format(*OLDEST[AGENT]))
    argv = [python, "-B", "-m", "repro.launch.agent"]
    done = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.stderr.strip() == "node agent: no order came"
