"""Set-up: which Python it takes, what it leaves when it is interrupted, and what it says when it cannot go on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from repro import bootstrap
from repro.bootstrap import SetupError
from tests.support.paths import ROOT

FAKE_UV = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2" in
  "--version "*) echo "uv {version} (test)" ;;
  "venv "*) for last; do :; done; mkdir -p "$last/bin" && ln -sf {python} "$last/bin/python" ;;
  "pip sync") [ ! -e {broken} ] ;;
  "export "*) : ;;
  *) exit 2 ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with no Python for the trainers but what a test puts there; its `uv` only writes down its calls."""
    for name in ("TRAINER_PYTHON", "PYENV_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(bootstrap, "TOOLS", tmp_path / "tools")
    locks = [tmp_path / "a.lock"]
    locks[0].write_text("pinned")
    controller, trainer = tmp_path / "venv", tmp_path / "venv-trainer"
    monkeypatch.setattr(bootstrap, "CONTROLLER", controller)
    monkeypatch.setattr(bootstrap, "TRAINER", trainer)
    monkeypatch.setattr(bootstrap, "INPUTS", {controller: locks, trainer: locks})
    monkeypatch.setattr(bootstrap, "NEEDED_MIB", {controller: 1, trainer: 1})
    pinned = (ROOT / "docker" / "tools.lock").read_text().split("==", 1)[1].split()[0]
    text = FAKE_UV.format(log=tmp_path / "calls", version=pinned, python=sys.executable, broken=tmp_path / "broken")
    uv = script(tmp_path / "bin" / "uv", text)
    monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
    return tmp_path


def python_of(version: str, system: str = "Linux", machine: str = "x86_64") -> str:
    return f"#!/bin/sh\necho cpython {version} {system} {machine}\n"


def calls(machine) -> list[str]:
    return (machine / "calls").read_text().splitlines()


def test_a_shim_that_does_not_run_is_passed_over_for_one_under_pyenv(machine):
    script(machine / "bin" / "python3.10", "#!/bin/sh\nexit 127\n")
    found = script(machine / "home/.pyenv/versions/3.10.13/bin/python", python_of("3.10"))
    assert bootstrap.find_trainer_python("uv") == str(found)


def test_the_newer_of_the_two_is_preferred(machine):
    script(machine / "bin" / "python3.9", python_of("3.9"))
    newer = script(machine / "bin" / "python3.10", python_of("3.10"))
    assert bootstrap.find_trainer_python("uv") == str(newer)


def test_the_older_one_will_do(machine):
    older = script(machine / "home/.pyenv/versions/3.9.18/bin/python", python_of("3.9"))
    assert bootstrap.find_trainer_python("uv") == str(older)


@pytest.mark.parametrize("text", [python_of("3.12"), python_of("3.10", machine="aarch64"), "#!/bin/sh\nexit 1\n"])
def test_a_given_python_must_fit(machine, monkeypatch, text):
    given = script(machine / "other" / "python", text)
    monkeypatch.setenv("TRAINER_PYTHON", str(given))
    with pytest.raises(SetupError, match="TRAINER_PYTHON="):
        bootstrap.find_trainer_python("uv")


def test_without_any_it_says_what_to_do(machine):
    with pytest.raises(SetupError, match=r"pyenv install 3\.10"):
        bootstrap.find_trainer_python(str(machine / "bin" / "uv"))
    assert any(call.startswith("python install 3.10") for call in calls(machine)), "uv was asked to download one"


def test_an_interrupted_set_up_goes_on_where_it_stopped(machine):
    script(machine / "bin" / "python3.10", python_of("3.10"))
    (machine / "broken").touch()
    with pytest.raises(SetupError, match="Run the same command again"):
        bootstrap.ready(bootstrap.TRAINER)
    assert not (bootstrap.TRAINER / "ready").exists()
    (machine / "broken").unlink()
    bootstrap.ready(bootstrap.TRAINER)
    assert (bootstrap.TRAINER / "ready").exists()
    assert sum(call.startswith("venv") for call in calls(machine)) == 1, "what is there is kept"
    done = len(calls(machine))
    bootstrap.ready(bootstrap.TRAINER)
    assert len(calls(machine)) == done, "nothing is done the second time"


@pytest.mark.parametrize("change", ["lock", "interpreter"])
def test_a_changed_lock_or_a_broken_interpreter_builds_anew(machine, change):
    script(machine / "bin" / "python3.10", python_of("3.10"))
    bootstrap.ready(bootstrap.TRAINER)
    if change == "lock":
        (machine / "a.lock").write_text("pinned otherwise")
    else:
        (bootstrap.TRAINER / "bin" / "python").unlink()
    assert not bootstrap.is_ready(bootstrap.TRAINER)
    bootstrap.ready(bootstrap.TRAINER)
    assert bootstrap.is_ready(bootstrap.TRAINER)


def test_too_little_space_is_said_before_the_download(machine, monkeypatch):
    monkeypatch.setattr(bootstrap, "NEEDED_MIB", {bootstrap.TRAINER: 10**9})
    with pytest.raises(SetupError, match="MiB free"):
        bootstrap.ready(bootstrap.TRAINER)
    assert not (machine / "calls").exists()


def test_everything_is_installed_by_hash(machine):
    script(machine / "bin" / "python3.10", python_of("3.10"))
    bootstrap.ready(bootstrap.TRAINER)
    bootstrap.ready(bootstrap.CONTROLLER)
    installs = [call for call in calls(machine) if call.startswith("pip")]
    assert len(installs) == 2
    assert all("--require-hashes" in call for call in installs)


def test_make_lists_every_target_once():
    listed = subprocess.run(
        ["make", "--no-print-directory"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "MAKEFLAGS": ""},
    ).stdout
    targets = [line.split()[1] for line in listed.splitlines()]
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:"))
    assert sorted(targets) == sorted(phony.split()[1:])
