"""Ranks of this machine in an image, with a stand-in for Apptainer: it starts the program as its child, as that does."""

import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from repro.images.runtime import Bind, Container
from repro.images.stack import Stack
from repro.launch import local_attempt, local_container
from repro.launch.agent.leftovers import mark, sweep_processes
from repro.launch.agent.processes import end, identity, of_session
from repro.launch.attempt import Limits
from repro.launch.base import LaunchOptions
from repro.launch.local import LocalLauncher
from repro.launch.local_attempt import LocalAttempt
from repro.launch.local_container import LocalContainer, RuntimeUnavailable
from repro.planning.plan import Wanted
from repro.published.cases import Layout, load_catalogue
from repro.published.trainer_config import TrainingData
from repro.runs.description import BaselineProgram
from repro.utils.errors import PlanError
from repro.utils.paths import TRAINER_PYTHON
from tests.support.patience import wait_until
from tests.support.processes import processes_of
from tests.support.runs import CONFIG
from tests.support.synthetic import ran_on

CPU = Stack("cpu", {})
APPTAINER = r"""#!/bin/bash
[ "$1" = --version ] && echo "apptainer version 1.4.5" && exit
[ -n "$REFUSE" ] && echo "FATAL:   $REFUSE" >&2 && exit 255
printf '%s\n' "$@" > "$RECORD"
while [ "${1%.sif}" = "$1" ]; do shift; done
shift
"$@" &
trap 'kill -TERM $!' TERM
wait $!
status=$?
wait $! 2>/dev/null
exit $status
"""


@pytest.mark.parametrize("image", ["--privileged", "-v", "a\nb", " x"])
def test_an_image_that_would_be_an_option_is_refused(image):
    with pytest.raises(ValueError, match="no image's name"):
        Container(image=image, folder="/", binds=(), environment={})


@pytest.fixture
def container(tmp_path, monkeypatch, standin):
    """A SIF of a few bytes, whose Python and launcher are the trainer environment's."""
    tool, sif = tmp_path / "bin" / "apptainer", tmp_path / "image.sif"
    tool.parent.mkdir()
    tool.write_text(APPTAINER)
    tool.chmod(0o755)
    sif.write_bytes(b"image")
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path / "asked"))
    for module in (local_attempt, local_container):
        monkeypatch.setattr(module, "IMAGE_PYTHON", str(TRAINER_PYTHON))
    monkeypatch.setattr(local_attempt, "IMAGE_LAUNCHER", str(local_attempt._launcher_of_oneflow(TRAINER_PYTHON)))
    return LocalContainer.of("apptainer", CPU, str(sif))


def attempt(container, folder, standin, ranks):
    config = replace(CONFIG, layout=Layout(ranks))
    folder.mkdir()
    return LocalAttempt(config, folder, Limits(total_s=60), trainer=standin, container=container)


def test_compiled_gpu_code_takes_the_place_of_the_images(container, tmp_path):
    libraries = tmp_path / "sm_90" / "oneflow.libs"
    libraries.mkdir(parents=True)
    (libraries / "liboneflow-1.so").touch()
    (libraries / "libother.so").symlink_to("/nowhere")
    modern = replace(container, stack=Stack("cu102-modern", {"PYTHONPATH": f"{tmp_path}/sm_90:/mine"}))
    command = modern.command(tmp_path, replace(CONFIG, device="cuda"), {}, "a", tmp_path / "run.py")
    inside = "/opt/venv/lib/python3.9/site-packages/oneflow.libs/liboneflow-1.so"
    assert [word for word in command if "oneflow.libs" in word] == [f"{libraries}/liboneflow-1.so:{inside}:ro"]
    assert not [word for word in command if "PYTHONPATH" in word], "the links in it lead to this machine's environment"


def test_the_image_is_recorded_by_its_hash(container, tmp_path):
    assert container.record() == {
        "name": "apptainer",
        "version": "apptainer version 1.4.5",
        "image": str(tmp_path / "image.sif"),
        "sha256": hashlib.sha256(b"image").hexdigest(),
    }


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_end_well_and_see_what_they_need(container, tmp_path, standin, monkeypatch, ranks):
    monkeypatch.setenv("NCCL_IB_TIMEOUT", "22")
    monkeypatch.setenv("SECRET", "s")
    outcome = attempt(container, tmp_path / "run", standin, ranks).run()
    assert outcome.failure is None
    asked = (tmp_path / "asked").read_text().splitlines()
    assert f"{tmp_path}/run:{tmp_path}/run" in asked
    assert "NCCL_IB_TIMEOUT=22" in asked
    assert not [word for word in asked if word.startswith("SECRET")]
    assert not processes_of(tmp_path / "run")


@pytest.mark.parametrize(
    ("fault", "ranks", "message"),
    [
        ("exit=3@0", 1, "rank 0 exited with status 3"),
        ("kill@0", 1, "rank 0 was killed by SIGKILL"),
        ("exit=3@1", 2, "rank 1 exited with status 3"),
        ("kill@1", 2, "rank 1 was killed by SIGKILL"),
    ],
)
def test_a_rank_that_fails_is_named(container, tmp_path, standin, monkeypatch, fault, ranks, message):
    monkeypatch.setenv("STANDIN", fault)
    outcome = attempt(container, tmp_path / "run", standin, ranks).run()
    assert outcome.failure.text() == message
    assert not processes_of(tmp_path / "run")


def test_a_runtime_that_refuses_gives_its_reason(container, tmp_path, standin, monkeypatch):
    monkeypatch.setenv("REFUSE", "container creation failed")
    outcome = attempt(container, tmp_path / "run", standin, 1).run()
    assert outcome.failure.text() == "Apptainer did not start the container: container creation failed"


def test_an_image_that_is_not_here(tmp_path):
    with pytest.raises(PlanError, match="RUNTIME=podman: on one machine it is docker, venv, apptainer"):
        LocalContainer.of("podman", CPU)
    with pytest.raises(RuntimeUnavailable, match=r"none\.sif: .*make image FORMAT=sif"):
        LocalContainer.of("apptainer", CPU, str(tmp_path / "none.sif"))


def test_a_run_goes_on_in_the_image_that_it_was_begun_in(container, tmp_path):
    launcher = LocalLauncher(LaunchOptions(image=str(tmp_path / "image.sif")))
    began = ran_on(runtime=container.record())
    assert launcher.container(CPU, began) == container
    (tmp_path / "image.sif").write_bytes(b"another")
    with pytest.raises(PlanError, match="is not the image that the run was begun in, whose sha256 is"):
        launcher.container(CPU, began)
    with pytest.raises(PlanError, match="RUNTIME=docker: the run was begun with apptainer"):
        LocalLauncher(LaunchOptions(runtime="docker")).container(CPU, began)
    assert LocalLauncher(LaunchOptions()).container(CPU, ran_on()) is None


def test_processes_of_a_dead_agent_are_ended_and_no_others(tmp_path):
    """A killed agent takes nothing along; what it started is found by its environment."""
    mine = subprocess.Popen(["sleep", "60"], env={**os.environ, **mark(str(tmp_path))})
    program = (
        "import subprocess, os; from repro.launch.agent.leftovers import mark; "
        f"print(subprocess.Popen(['sleep', '61'], env={{**os.environ, **mark({str(tmp_path)!r})}}, stdout=-3, stderr=-3).pid)"
    )
    left = int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert sweep_processes(str(tmp_path / "other")) == []
    assert sweep_processes(str(tmp_path)) == [f"process {left} (sleep 61)"]
    assert mine.poll() is None
    mine.send_signal(signal.SIGKILL)
    mine.wait()
    assert not identity(left)


def test_what_is_in_a_group_of_its_own_ends_with_the_session():
    """Apptainer's process that mounts the image is; it stays where its parent was killed."""
    script = "import os, time\nif os.fork():\n    time.sleep(60)\nos.setpgid(0, 0)\ntime.sleep(60)\n"
    leader = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    wait_until(lambda: len(of_session(leader.pid)) >= 2)
    leader.kill()
    leader.wait()
    (left,) = of_session(leader.pid)
    assert end([left]) == []
    assert of_session(leader.pid) == []


@pytest.mark.parametrize("ranks", [1, 2])
def test_baselines_run_in_the_image_of_their_environment_and_start_their_ranks_without_oneflow(
    container, tmp_path, standin, monkeypatch, ranks
):
    theirs = replace(container, stack=Stack("baseline", {}))
    outcome = replace(attempt(theirs, tmp_path / "run", standin, ranks), is_baseline=True).run()
    assert outcome.failure is None
    asked = (tmp_path / "asked").read_text().splitlines()
    assert "LOGNAME=reproduction" in asked
    assert [word.rpartition("/")[2] for word in asked if word.endswith("launch.py")] == []
    assert any(word.endswith("agent/rank_launcher.py") for word in asked) == (ranks > 1)
    assert (tmp_path / "run" / "logs" / f"local_rank_{ranks - 1}" / "stdout").exists()


@pytest.mark.parametrize(("name", "option"), [("baseline", " STACK=baseline"), ("cu102-modern", "")])
def test_a_missing_image_says_what_builds_it(tmp_path, monkeypatch, name, option):
    monkeypatch.setattr(local_container, "image_ids", lambda names: {"found": dict.fromkeys(names)})
    message = rf"oneflow-reproduction:{name}: the engine has no such image; `make image{option}` builds it"
    with pytest.raises(RuntimeUnavailable, match=message):
        LocalContainer.of("docker", Stack(name, {}))


def test_only_baselines_may_run_what_they_compile(tmp_path):
    """Docker's /tmp is mounted noexec, and Triton loads what it compiled from there."""
    ours, theirs = (
        LocalContainer.of("docker", Stack(name, {}), ask=False).command(tmp_path, CONFIG, {}, "a", tmp_path / "run.py")
        for name in ("cu102", "baseline")
    )
    assert ours[ours.index("--tmpfs") + 1] == "/tmp"
    assert theirs[theirs.index("--tmpfs") + 1] == "/tmp:exec"
    assert "HOME=/tmp" in theirs and "oneflow-reproduction:baseline" in theirs


def test_a_run_goes_on_with_the_image_of_baselines_that_it_was_begun_with(monkeypatch):
    monkeypatch.setattr(local_container, "image_ids", lambda names: {"found": {name: name for name in names}})
    monkeypatch.setattr(local_container, "_version", lambda tool: "1")
    launcher = LocalLauncher(LaunchOptions(runtime="docker"))
    before = BaselineProgram(("python",), image="sha256:1", lock="docker/baseline.lock")
    container = launcher.baseline_container(before, None)
    assert (container.image, container.stack.name) == ("sha256:1", "baseline")
    assert launcher.baseline_container(replace(before, image=""), None) is None


@pytest.mark.parametrize("name", ["a:b", "a,b"])
@pytest.mark.parametrize("place", ["runs", "data"])
def test_a_path_that_cannot_be_mounted_is_refused_before_a_run_is_made(container, tmp_path, standin, place, name):
    folder = tmp_path / name
    data = TrainingData("ofrecord", str(folder), parts=1) if place == "data" else CONFIG.data
    runs = folder if place == "runs" else tmp_path
    launcher = LocalLauncher.of(LaunchOptions(trainer=standin, runtime="apptainer", image=container.image, runs=runs))
    plan = launcher.plan(load_catalogue().select("bert", "bert_1n1g_bs96"), Wanted(scale="smoke"))
    plan = replace(plan, units=[replace(unit, config=replace(unit.config, data=data)) for unit in plan.units])
    with (
        launcher.open("make bench") as session,
        pytest.raises(PlanError, match=rf"^{folder} cannot be mounted into a container: '{name[1]}' ends a path there"),
    ):
        session.environment(plan)


def test_docker_takes_a_comma_in_a_path():
    bind = Bind("/a,b", "/a,b")
    assert bind.text(":") == "/a,b:/a,b:ro"
    with pytest.raises(PlanError, match="/a,b cannot be mounted"):
        bind.text()
