"""The crate of a run: files, command, code, software and hardware, flat, and at one with the manifest."""

import json

import pytest
from rocrate.rocrate import ROCrate

from repro.published.cases import load_catalogue
from repro.runs.archive import archive
from repro.runs.files import content, open_files
from repro.runs.manifest import read_manifest, record
from repro.runs.ro_crate import METADATA
from tests.support.synthetic import GPU, VERSIONS, add_attempt, published_run

CASE = load_catalogue().case("DP_1x1x1_2_1536x16")


@pytest.fixture
def root(run):
    """The files of an archive of a run of one case."""
    return open_files(archive(run).path)


def crate_of(root) -> dict:
    return json.loads(content(root / METADATA))


def test_the_crate_lists_files_command_code_software_and_hardware(root):
    crate = ROCrate(crate_of(root))
    recorded = read_manifest(root)
    payload = {entity.id: entity for entity in crate.data_entities}
    assert {path: entity["sha256"] for path, entity in payload.items()} == {
        path: digest for path, digest in recorded.items() if path != METADATA
    }
    assert all(int(entity["contentSize"]) == len(content(root / path)) for path, entity in payload.items())
    action = crate.dereference("#run")
    assert (action["name"], action["startTime"]) == ("make bench", "2020-09-13T12:26:40+00:00")
    assert action["actionStatus"].endswith("CompletedActionStatus")
    assert {result.id for result in action["result"]} == payload.keys() - {"run.json"}
    bundled = action["instrument"]
    assert bundled["softwareVersion"] == "0123456789abcdef0123456789abcdef01234567"
    properties = {each["name"]: each["value"] for each in bundled["additionalProperty"]}
    assert properties["SHA-256 of docker/trainer.lock"] == "0" * 64 and properties["changed files"] == 0
    assert {each["name"]: each["softwareVersion"] for each in bundled["softwareRequirements"]} == VERSIONS
    gpus = [entity for entity in crate.contextual_entities if entity.id.startswith("#gpu") and entity.type == "Product"]
    assert [gpu["name"] for gpu in gpus] == [GPU["name"]] * 8


def test_the_crate_is_flat_and_every_reference_in_it_is_resolved(root):
    graph = crate_of(root)["@graph"]
    identities = [entity["@id"] for entity in graph]
    assert len(identities) == len(set(identities))
    outside = ("https://w3id.org/ro/crate/1.1",)
    for entity in graph:
        for value in entity.values():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, dict):
                    assert set(each) == {"@id"} and (each["@id"] in identities or each["@id"] in outside), each


def test_a_run_with_a_case_that_never_succeeded_has_failed(tmp_path):
    run = published_run(tmp_path, [CASE.name], ())
    add_attempt(run, CASE, 1, status="failed")
    record(run)
    action = ROCrate(crate_of(open_files(archive(run).path))).dereference("#run")
    assert action["actionStatus"].endswith("FailedActionStatus") and "1 did not succeed" in action["description"]
