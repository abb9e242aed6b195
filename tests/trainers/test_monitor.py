"""What a window's row says: losses as each published program printed them, and a classifier's hits."""

import re

import numpy as np
import pytest

from repro.trainers.config import parse
from repro.trainers.monitor import Monitor, Transfer, hits_among
from tests.trainers.conftest import configuration

LOSSES = [[5.0, 3.0], [4.0, 2.0], [2.0, 1.0], [1.0, 2.0]]
"""Of four iterations, by micro-batch or sample."""
MEANS = [4.0, 3.0, 1.5, 1.5]
ROW = re.compile(r"iter \d|step: \d|^\| \d")
MODELS = {"B": "resnet50", "C": "bert", "D": "gpt", "E": "gpt"}


class Arrays(Transfer):
    def mean(self, value):
        return float(np.mean(value))

    def rows(self, value):
        return value

    def total(self, counts):
        return counts


class Nowhere:
    used_mib = staticmethod(lambda: 0.0)
    peak_mib = 0.0


class Events(list):
    def write(self, event, **values):
        self.append({"event": event, **values})


def rows_of(capsys, generation: str, fetches_each: bool = True, **outputs) -> tuple[list[dict], list[str]]:
    """The row events of four iterations, two a row and two micro-batches each, and the rows that were printed."""
    two = {"accumulation_steps": 2} if generation == "E" else {}
    config = configuration(MODELS[generation], iterations=4, log_interval=2, log_generation=generation, **two)
    events = Events()
    monitor = Monitor(parse({**config, "output": "."}), 1, True, events, Nowhere, Arrays(), fetches_each)
    capsys.readouterr()
    for iteration, loss in enumerate(LOSSES, start=1):
        extra = {"mlm_loss": np.array(loss), "nsp_loss": np.zeros(2)} if generation == "C" else outputs
        monitor.after(iteration, {"loss": np.array(loss), **extra})
    monitor.finish()
    printed = [line for line in capsys.readouterr().out.splitlines() if ROW.search(line)]
    return [event for event in events if event["event"] == "iteration"], printed


@pytest.mark.parametrize(
    ("generation", "printed"),
    [
        ("B", [3.0, 1.5]),
        ("C", [3.5, 1.5]),
        ("D", [3.5 / 8, 1.5 / 8]),
        ("E", [3.5, 1.5 + 3.5 / 4]),
    ],
    ids=["last", "mean", "mean divided by the batch", "mean with the row before"],
)
def test_a_row_prints_the_loss_as_its_published_program_did(capsys, generation, printed):
    scores = {"scores": np.eye(10)[:2], "labels": np.arange(2)} if generation == "B" else {}
    events, lines = rows_of(capsys, generation, **scores)
    assert [event["printed_loss"] for event in events] == pytest.approx(printed)
    assert [event["loss"] for event in events] == [MEANS[1], MEANS[3]], "the metrics have the last iteration's"
    for line, loss in zip(lines, printed, strict=True):
        assert f"{loss:.3f}" in line


def test_all_losses_of_bert_are_means(capsys):
    _, lines = rows_of(capsys, "C")
    assert lines[0].startswith("step: 1, total_loss: 3.500, mlm_loss: 3.500, nsp_loss: 0.000")


def test_a_program_that_fetches_printed_outputs_only_prints_the_last_loss(capsys):
    events, _ = rows_of(capsys, "D", fetches_each=False)
    assert [event["printed_loss"] for event in events] == [MEANS[1], MEANS[3]]


@pytest.mark.parametrize(("top", "hits"), [(1, 1), (5, 5), (20, 10)])
def test_equal_scores_have_as_many_hits_as_places(top, hits):
    """A partition selects exactly `top` classes, so of equal scores not every one is a hit."""
    assert hits_among(np.ones((10, 10)), np.arange(10), top) == hits


def test_hits_are_among_the_best_scores():
    scores = np.array([[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]])
    assert [hits_among(scores, np.array([1, 2]), top) for top in (1, 2)] == [1, 2]
    assert hits_among(np.zeros((0, 3)), np.zeros(0, int), 1) == 0
