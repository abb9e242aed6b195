"""A trainer's configuration: what is recorded of it is what is read, and an attempt gets what its machine has."""

import json
import zipfile
from dataclasses import replace

import pytest

from repro.models.programs import TUNED
from repro.planning.trainer_config import config_of
from repro.published.cases import load_catalogue
from repro.published.trainer_config import FORM, TrainerConfig, TrainingData
from repro.runs import translation
from tests.support.paths import EARLIER_RUN, ROOT

CONFIG = config_of(load_catalogue().case("bert_1n1g_bs96"), "cuda")
TEXT = TrainingData("text", standin="text", scale="small")


@pytest.mark.parametrize("host", ["h100", "h200"])
def test_kept_configurations_are_written_as_they_were(host):
    seen = 0
    for archive in sorted((ROOT / "reports" / "reproduced" / host / "runs").glob("*.zip")):
        with zipfile.ZipFile(archive) as files:
            for name in (name for name in files.namelist() if name in ("run.json", f"{archive.stem}/run.json")):
                for unit in json.loads(files.read(name))["plan"]["units"]:
                    recorded = unit["config"]
                    written = TrainerConfig.from_json(translation.configuration(dict(recorded))).as_json()
                    assert json.dumps(written) == json.dumps(recorded)
                    seen += 1
    assert seen


def test_a_configuration_of_an_earlier_release_is_written_in_the_terms_of_today():
    for unit in json.loads(EARLIER_RUN.read_text(encoding="utf-8"))["plan"]["units"]:
        recorded = unit["config"]
        assert "program" not in recorded
        config = TrainerConfig.from_json(translation.configuration(dict(recorded)))
        assert config.as_json() == translation.configuration(dict(recorded)) and config.program == TUNED


def test_what_this_release_does_not_know_is_kept():
    recorded = {**CONFIG.as_json(), "own": 1, "data": {"kind": "text", "path": "/text", "more": "x"}}
    config = TrainerConfig.from_json(recorded)
    assert config.further == {"own": 1} and config.data.further == {"more": "x"}
    assert config.as_json() == recorded


def test_what_a_record_lacks_is_named():
    recorded = CONFIG.as_json()
    del recorded["layout"]
    with pytest.raises(KeyError, match="layout"):
        TrainerConfig.from_json(recorded)


def test_a_machine_is_told_where_its_stand_ins_are():
    written = replace(CONFIG, data=TEXT).written("/attempt", "/cache")
    assert written.data == replace(TEXT, folder="/cache") and written.output == "/attempt"
    assert CONFIG.written("/attempt", "/cache") == replace(CONFIG, output="/attempt")
    assert list(written.as_json())[-1] == "output"


@pytest.mark.parametrize(
    ("data", "file", "folder"),
    [
        (TrainingData("synthetic"), None, None),
        (TEXT, None, None),
        (TrainingData("ofrecord", "/data/images", parts=4), "/data/images", "/data/images"),
        (TrainingData("megatron", prefix="/data/text"), "/data/text.idx", "/data"),
    ],
)
def test_files_of_the_user_are_known(data, file, folder):
    assert (data.own_file, data.own_folder) == (file, folder)
    assert data.is_in("/data") is (file is not None) and not data.is_in("/dat")


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("layout", {"data": 1, "tensor": 1}, "has no pipeline"),
        ("layout", {"data": 65536, "tensor": 2, "pipeline": 1}, "at most 65536 are read"),
        ("iterations", 0, "iterations"),
        ("shape", {"layers": 10**6}, "layers"),
        ("dropout", [0.1], "dropout"),
    ],
)
def test_a_value_that_no_run_records_is_refused(key, value, fault):
    assert FORM(CONFIG.as_json()) is None
    assert fault in FORM({**CONFIG.as_json(), key: value})
