"""What stands in front of a program in each runtime, from one description."""

import pytest

from repro.images.runtime import ALL_GPUS, RUNTIMES, Bind, Container, Pyxis, refusal

WANTED = Container(
    image="sha256:1",
    folder="/srv/a b",
    binds=(Bind("/srv/a b", "/srv/a b", True), Bind("/data", "/data")),
    environment={"NCCL_DEBUG": "INFO"},
    user="1000:1000",
    gpus="0,1",
    infiniband=True,
    cpus="0-3",
    memory="0",
    name="unit-0",
    labels=(("reproduction.run", "r1"),),
)


def after(argv, option):
    return [argv[i + 1] for i, word in enumerate(argv) if word == option]


def test_a_venv_gets_its_variables_and_nothing_else():
    assert RUNTIMES["venv"].command(WANTED) == ["env", "NCCL_DEBUG=INFO"]


def test_docker_is_asked_for_everything():
    argv = RUNTIMES["docker"].command(WANTED)
    assert argv[:2] == ["docker", "run"]
    assert argv[-1] == "sha256:1"
    assert after(argv, "--volume") == ["/srv/a b:/srv/a b", "/data:/data:ro"]
    assert (after(argv, "--gpus"), after(argv, "--cpuset-cpus"), after(argv, "--cpuset-mems")) == (
        ['"device=0,1"'],
        ["0-3"],
        ["0"],
    )
    assert (after(argv, "--name"), after(argv, "--label")) == (["unit-0"], ["reproduction.run=r1"])


def test_apptainer_cleans_the_environment_and_hides_the_home():
    argv = RUNTIMES["apptainer"].command(WANTED)
    assert argv[:5] == ["taskset", "--cpu-list", "0-3", "apptainer", "--silent"]
    assert {"exec", "--cleanenv", "--no-home", "--nv"} <= set(argv)
    assert after(argv, "--bind") == ["/srv/a b:/srv/a b", "/data:/data:ro", "/dev/infiniband:/dev/infiniband"]
    assert after(argv, "--env") == ["NCCL_DEBUG=INFO", "CUDA_VISIBLE_DEVICES=0,1"]
    assert (after(argv, "--pwd"), argv[-1]) == (["/srv/a b"], "sha256:1")


def test_a_cpu_container_asks_for_no_gpu():
    cpu = Container("i", "/f", (), {}, locks_memory=False)
    assert not {"--gpus", "--ulimit", "--device"} & set(RUNTIMES["docker"].command(cpu))
    assert not {"--nv", "taskset", "--bind"} & set(RUNTIMES["apptainer"].command(cpu))
    everything = Container("i", "/f", (), {}, gpus=ALL_GPUS)
    assert after(RUNTIMES["docker"].command(everything), "--gpus") == ["all"]
    assert not after(RUNTIMES["apptainer"].command(everything), "--env")


def test_pyxis_puts_a_whole_step_into_the_image():
    options = Pyxis.step_options("/p/image.sqsh", WANTED.binds)
    assert options[:2] == ["--container-image=/p/image.sqsh", "--container-mounts=/srv/a b:/srv/a b,/data:/data:ro"]
    assert RUNTIMES["pyxis"].command(WANTED) == ["env", "NCCL_DEBUG=INFO"]


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["docker: no such image", "See 'docker run --help'."], "no such image"),
        (["FATAL:   could not open image"], "could not open image"),
        ([], "?"),
    ],
)
def test_why_it_did_not_start(lines, reason):
    assert refusal(lines) == reason
