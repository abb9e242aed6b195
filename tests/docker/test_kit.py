"""The kit for one host: made of what is installed, set up and trained from where there is no network."""

import json
import os
import shutil
import subprocess

import pytest

from repro.images.offline_folder import OfflineError
from repro.images.offline_kit import make_kit
from repro.planning.datasets import datasets_for
from repro.targets import TASK_GROUPS
from tests.support.patience import patience

WITHOUT_NETWORK = ["unshare", "--net", "env", "-i", "PATH=/usr/bin:/bin", "LANG=C.UTF-8"]
INSTEAD_OF_XZ = "#!/bin/sh\nexec cat\n"
"""Real xz needs four minutes of CPU time for the environments; what it writes is read again in tests/images."""


@pytest.fixture(scope="module")
def quick(scratch):
    """A directory with a fake `xz` that compresses nothing, to go first on the PATH."""
    folder = scratch / "quick"
    folder.mkdir()
    (folder / "xz").write_text(INSTEAD_OF_XZ)
    (folder / "xz").chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def with_tests(request) -> bool:
    """Whether a test that is to run needs what `make test` needs: another 700 MB to pack and unpack."""
    return any(item.get_closest_marker("long") for item in request.session.items if item.path == request.path)


@pytest.fixture(scope="module")
def kit(scratch, quick, with_tests):
    """Without newer libraries, for the environments alone have all that a host without a GPU uses."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{quick}:{os.environ['PATH']}")
            datasets = [dataset.folder for dataset in datasets_for(None).values()]
            made = make_kit(scratch / "kit", (90,), 60, datasets=datasets, tests=with_tests)
    except OfflineError as error:
        if "last commit" in str(error):
            pytest.skip(str(error))
        raise
    yield made
    shutil.rmtree(made.folder)


@pytest.fixture(scope="module")
def host(kit, quick, scratch):
    """What the kit sets up, in a folder with a space in its name."""
    folder = scratch / "a host"
    argv = [*WITHOUT_NETWORK, f"PATH={quick}:/usr/bin:/bin", f"HOME={scratch}", "sh", kit.folder / "setup.sh", folder]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    yield folder
    shutil.rmtree(folder)


def test_no_piece_is_larger_than_asked(kit):
    assert max(path.stat().st_size for path in kit.folder.iterdir()) <= 60 * 2**20
    assert kit.contents.zeroed, "code of other architectures was left out"


def test_a_smoke_bench_runs_from_it_alone(host, scratch):
    bench = ["make", "bench", "MODEL=bert", "CASES=bert_1n1g_bs24", "REPEATS=1"]
    done = subprocess.run(
        [*WITHOUT_NETWORK, f"HOME={scratch}", *bench], cwd=host, capture_output=True, text=True, timeout=patience(280)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = (host / "runs").glob("*/run.json")
    environment = json.loads(record.read_text())["environment"]
    commit = json.loads((host / ".kit" / "kit.json").read_text())["commit"]
    assert environment["git_commit"] == commit and environment["git_changed_files"] == 0
    assert environment["kit"]["architectures"] == [90]


def test_all_but_images_and_tests_needs_nothing_else(host):
    """No task would install anything there, or fetch what models learn."""
    tasks = sorted(task for task, groups in TASK_GROUPS.items() if not {"image", "test"} & set(groups))
    assert {"archive", "convergence", "curves", "provision"} <= set(tasks)
    program = f"""
from repro.bootstrap import is_complete, needs_of
from repro.planning.datasets import datasets_for
print([task for task in {["bench", "report", *tasks]} if not all(is_complete(*need) for need in needs_of(task, {{"CLUSTER": "mine"}}))])
print(sorted(dataset.facts["kind"] for dataset in datasets_for(None).values()))
"""
    for argv, said in (
        (["python", "-c", program], "[]\n['digits', 'text']\n"),
        (["ansible-doc", "--type", "test", "--list"], "ansible.builtin.version"),
    ):
        command = [*WITHOUT_NETWORK, f"HOME={host}", host / ".venv" / "bin" / argv[0], *argv[1:]]
        done = subprocess.run(command, cwd=host, capture_output=True, text=True, timeout=patience(120))
        assert said in done.stdout, done.stdout + done.stderr


def test_its_interpreters_are_its_own(host):
    for name in (".venv", ".venv-trainer"):
        python = host / name / "bin" / "python"
        assert os.path.realpath(python).startswith(str(host / ".kit" / "python"))
        program = "import sys, os; print(os.path.realpath(sys.base_prefix)); import sysconfig, ctypes, ssl, lzma"
        done = subprocess.run([*WITHOUT_NETWORK, python, "-c", program], capture_output=True, text=True)
        assert done.stdout.startswith(str(host / ".kit" / "python")), done.stderr


def test_an_environment_may_be_reached_through_a_link(host, scratch):
    """As the venv in the work folder of a node is."""
    (scratch / "venv").symlink_to(host / ".venv-trainer")
    python = scratch / "venv" / "bin" / "python"
    done = subprocess.run([*WITHOUT_NETWORK, python, "-c", "import numpy"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_what_make_test_needs_is_there(host):
    """The programs that check the code and run the tests; those of one module, for all take a while."""
    for program in (["ruff", "check", "."], ["lint-imports"], ["pytest", "-q", "tests/utils/test_stats.py"]):
        argv = [*WITHOUT_NETWORK, host / ".venv" / "bin" / program[0], *program[1:]]
        done = subprocess.run(argv, cwd=host, capture_output=True, text=True, timeout=patience(250))
        assert done.returncode == 0, done.stdout + done.stderr
    complete = "from repro.bootstrap import is_complete, needs_of; print(all(is_complete(*each) for each in needs_of('test', {})))"
    argv = [*WITHOUT_NETWORK, host / ".venv" / "bin" / "python", "-c", complete]
    assert subprocess.run(argv, cwd=host, capture_output=True, text=True).stdout == "True\n"


def test_one_changed_byte_is_refused_by_name(kit, scratch):
    piece = sorted(kit.folder.glob("environments.*"))[-1]
    with open(piece, "r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    try:
        argv = ["sh", kit.folder / "setup.sh", scratch / "never"]
        done = subprocess.run([*WITHOUT_NETWORK, *argv], capture_output=True, text=True)
    finally:
        with open(piece, "r+b") as file:
            file.seek(1000)
            file.write(byte)
    assert done.returncode == 1
    assert f"{piece.name} is damaged" in done.stderr
    assert not (scratch / "never").exists()
