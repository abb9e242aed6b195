"""`make effects`: what was timed elsewhere is recorded, and what is wrong is said before anything starts."""

import pytest

from repro.cli.effects import effects
from repro.cli.settings import Exit
from repro.launch import host_environment
from repro.perfmodel import past_kernels
from repro.perfmodel.past_kernels import file_of, measurements
from tests.support.past import NAME, write_results


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """The folder that measurements are recorded in."""
    folder = tmp_path / "past"
    monkeypatch.setattr(past_kernels, "file_of", lambda gpu: file_of(gpu, folder))
    return folder


def test_results_from_elsewhere_are_recorded(tmp_path, recorded, capsys):
    effects(results=write_results(tmp_path))
    (measured,) = measurements(recorded)
    assert [(each.form, each.direction) for each in measured.operators] == [
        ("softmax 2020-12", "forward"),
        ("softmax 2020-12", "backward"),
    ]
    said = capsys.readouterr().out
    assert f"recorded in {recorded / 'h100-80.json'}" in said and "3.0000" in said


def test_an_operator_that_was_left_out_is_named_and_the_rest_recorded(tmp_path, recorded):
    refused = {"event": "refused", "subject": "layer norm 2020-12 8x64", "reason": "no cuDNN"}
    with pytest.raises(Exit) as caught:
        effects(results=write_results(tmp_path, more=[refused]))
    assert caught.value.status == 1 and "layer norm 2020-12 8x64: no cuDNN" in caught.value.message
    assert [each.form for each in measurements(recorded)[0].operators] == ["softmax 2020-12"] * 2
    assert NAME not in measurements(recorded)[0].left_out


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(Exit) as caught:
        effects(results=tmp_path / "nothing")
    assert caught.value.status == 2
    assert caught.value.message == (
        f"RESULTS={tmp_path / 'nothing'}: no such folder (record what was timed elsewhere: the folder with its metrics and its "
        "trace)"
    )


def test_without_a_gpu_nothing_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(host_environment, "gpus", list)
    with pytest.raises(Exit) as caught:
        effects(runs=tmp_path / "runs")
    assert caught.value.status == 2
    assert "none was found here; RESULTS=<folder> takes what was timed elsewhere" in caught.value.message
    assert not (tmp_path / "runs").exists()
