"""Samples of the GPUs while an attempt runs: what is read of nvidia-smi's lines, and that nothing is left of it."""

import os
from dataclasses import replace

import pytest

from repro.launch.attempt import Limits
from repro.launch.gpu_sampler import Sampler, events_of
from repro.launch.local_attempt import LocalAttempt
from tests.support.patience import wait_until
from tests.support.runs import CONFIG

LINES = """0, GPU-aaaa, 99, 15014, 1530, 61
1, GPU-bbbb, 7, 4, 135, 30
"""
FAKE = """#!/bin/sh
echo $$ > {folder}/pid
case "$*" in *--query-gpu=index,uuid,utilization.gpu*--loop=5*) ;; *) exit 9 ;; esac
printf '0, GPU-aaaa, 93, 15014, 1530, 61\\n'
exec sleep 60
"""


@pytest.mark.parametrize(
    ("visible", "seen"),
    [("", [(0, 99), (1, 7)]), ("1", [(0, 7)]), ("1,0", [(1, 99), (0, 7)]), ("GPU-bbbb", [(0, 7)]), ("5", [])],
)
def test_samples_are_counted_as_the_ranks_see_the_gpus(visible, seen):
    assert [(event["index"], event["utilisation"]) for event in events_of(LINES, visible)] == seen


@pytest.mark.parametrize("line", ["", "Unable to determine the device handle", "0, GPU-aaaa, [N/A], 1, 1, 1", "0, 99"])
def test_a_line_that_is_no_sample_is_passed_over(line):
    assert events_of(line + "\n") == []


def test_lines_after_one_that_is_no_sample_are_read():
    assert len(events_of("Unable to determine the device handle\n" + LINES)) == 2
    assert events_of("none, GPU-aaaa, 99, 15014, 1530, 61\n") == []


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """A stand-in on PATH that prints one sample and waits; the file in which it leaves its process id."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(FAKE.format(folder=tmp_path))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "pid"


def alive(pid):
    try:
        return "sleep" in open(f"/proc/{pid}/comm").read()
    except OSError:
        return False


def test_an_attempt_on_gpus_hands_over_the_samples_and_ends_the_sampling(tmp_path, nvidia_smi, standin, monkeypatch):
    monkeypatch.setenv("STANDIN", "hang@0")
    config = replace(CONFIG, device="cuda", iterations=3)
    folder = tmp_path / "attempt"
    events = []
    LocalAttempt(config, folder, Limits(total_s=1.5), trainer=standin).run(events.append)
    assert {"event": "gpu", "index": 0, "utilisation": 93} in events
    assert (folder / "gpu.csv").read_text() == "0, GPU-aaaa, 93, 15014, 1530, 61\n"
    assert not alive(nvidia_smi.read_text().strip())


def test_a_machine_without_gpus_is_not_sampled(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with Sampler(tmp_path, True) as sampler:
        assert sampler.read() == []
    assert not list(tmp_path.iterdir())


def test_only_whole_lines_are_read(tmp_path, nvidia_smi):
    with Sampler(tmp_path, True) as sampler:
        assert len(wait_until(sampler.read)) == 1
        with open(tmp_path / "gpu.csv", "a") as file:
            file.write("0, GPU-aaaa, 5")
        assert sampler.read() == []
        with open(tmp_path / "gpu.csv", "a") as file:
            file.write("0, 15014, 1530, 61\n")
        assert sampler.read() == [{"event": "gpu", "index": 0, "utilisation": 50}]


def test_a_line_that_has_only_begun_is_left_for_the_next_read(tmp_path, nvidia_smi):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.write_text("#!/bin/sh\nprintf '0, GPU-aaaa, 9'\nexec sleep 60\n")
    with Sampler(tmp_path, True) as sampler:
        wait_until(lambda: (tmp_path / "gpu.csv").read_text())
        assert sampler.read() == []
        with open(tmp_path / "gpu.csv", "a") as file:
            file.write("3, 15014, 1530, 61\n")
        assert sampler.read() == [{"event": "gpu", "index": 0, "utilisation": 93}]
        assert sampler.read() == []
