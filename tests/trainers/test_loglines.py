"""Log lines letter by letter, against lines of the published logs."""

import os

import pytest

from repro.trainers.config import parse
from repro.trainers.log_lines import LogLines, Row, device_lines
from tests.trainers.conftest import configuration


def lines(model: str, generation: str, nodes: int = 1, **changes) -> LogLines:
    config = {"output": "out", **configuration(model, **changes), "log_generation": generation}
    return LogLines(parse(config), nodes)


def row(iteration: int, throughput: float, **values) -> Row:
    return Row(iteration, iteration * 512, throughput, 13124.94, 1597933942.9863544, values)


def test_a_and_b():
    figures = row(20, 288.0884, loss=6.505637, top_1=0.0, top_5=0.117578)
    line = "train: epoch 0, iter 20, loss: 6.505637, top_1: 0.000000, top_k: 0.117578, samples/s: 288.088"
    assert lines("resnet50", "A").opening() == []
    assert lines("resnet50", "A").row(figures) == [line]
    assert lines("resnet50", "B").row(figures) == [line + " 1597933942.9863544"]


def test_b_names_the_batch():
    log = lines("resnet50", "B", nodes=2, layout=(2, 1, 1), global_batch=256)
    assert log.opening() == ["batch_size_per_device = 128", "gpu_num_per_node = 1", "num_nodes = 2"]


def test_c_counts_from_0():
    figures = row(20, 54.98249, loss=9.7251, mlm_loss=8.9596, nsp_loss=0.7657)
    assert lines("bert", "C").row(figures) == [
        "step: 19, total_loss: 9.725, mlm_loss: 8.960, nsp_loss: 0.766, throughput: 54.982 1597933942.9863544"
    ]


def test_d_counts_from_1():
    assert lines("gpt", "D").row(row(10, 95.3, loss=10.1)) == [
        "step: 10, loss: 10.100, throughput: 95.300 1597933942.9863544"
    ]


def test_e_prints_its_head_once(monkeypatch):
    monkeypatch.setattr("repro.trainers.log_lines.device_lines", lambda count: ["81 %, 11838 MiB"])
    log = lines("gpt", "E", accumulation_steps=8)
    assert log.row(row(90, 39.0, loss=7.0))[:3] == [
        "81 %, 11838 MiB",
        "| step     | micro_batches   | samples         | throughput | latency    | loss       |",
        "| -------- | --------------- | --------------- | ---------- | ---------- | ---------- |",
    ]
    assert log.row(row(100, 39.00969, loss=6.82232)) == [
        "| 100      | 800             | 51200           | 39.00969   | 13.12494   | 6.82232    |"
    ]


@pytest.mark.parametrize(
    ("visible", "asked"),
    [("", "--id=0,1"), ("3,1,2", "--id=3,1"), ("3, 1", "--id=3,1"), ("GPU-5145", "--id=GPU-5145")],
)
def test_memory_is_that_of_the_runs_own_gpus(monkeypatch, tmp_path, visible, asked):
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\necho "$1"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device_lines(2) == [asked]


def test_e_dumps_its_arguments():
    dump = lines("gpt", "E", nodes=1, layout=(2, 1, 1), global_batch=16, accumulation_steps=2).opening()
    assert "  adam_beta1 ...................................... 0.9" in dump
    assert "  padded_vocab_size ............................... 512" in dump
    assert "  num_accumulation_steps .......................... 2" in dump
    assert "  num_gpus_per_node ............................... 2" in dump
    assert dump[-2:] == ["-------------------- end of arguments ---------------------", "Training..."]
