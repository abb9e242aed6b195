"""The schema that editors use for inventories: it knows what the reader knows."""

import json

import jsonschema
import pytest
import yaml

from repro.cluster.cluster import ALLOCATIONS, LAUNCHERS, BaselinePlace, Image, Slurm, _names
from repro.images.runtime import RUNTIMES
from repro.images.stack import IMAGE_STACKS
from tests.support.paths import ROOT

SCHEMA = json.loads((ROOT / "ansible/inventory.schema.json").read_text())
PROPERTIES = SCHEMA["properties"]


def test_it_names_what_the_reader_names():
    assert set(PROPERTIES) == {f"cluster_{name}" for name in _names()}
    for name, kind in (("image", Image), ("slurm", Slurm), ("baseline", BaselinePlace)):
        assert set(PROPERTIES[f"cluster_{name}"]["properties"]) == set(kind.__annotations__)
    choices = {"runtime": RUNTIMES, "launcher": LAUNCHERS, "stack": IMAGE_STACKS}
    for name, known in choices.items():
        assert PROPERTIES[f"cluster_{name}"]["enum"] == list(known)
    assert PROPERTIES["cluster_slurm"]["properties"]["allocation"]["enum"] == list(ALLOCATIONS)


@pytest.mark.parametrize("file", sorted((ROOT / "ansible/inventories").glob("*/group_vars/all.yml")), ids=str)
def test_the_inventories_here_hold_to_it(file):
    values = yaml.safe_load(file.read_text())
    jsonschema.validate(values, SCHEMA)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values | {"cluster_interfaces": "ib0"}, SCHEMA)
