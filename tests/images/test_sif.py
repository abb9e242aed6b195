"""A SIF from an OCI layout, with a stand-in for Apptainer that writes what it was given."""

import hashlib
import json
import os

import pytest

from repro.images import sif
from repro.images.engine import ImageError
from repro.images.oci_layout import LayoutImage
from repro.images.sif import build_sif

APPTAINER = """#!/bin/sh
[ "$1" = --version ] && echo "apptainer version 1.4.5" && exit
[ -n "$REFUSE" ] && echo "FATAL:   no space left" >&2 && exit 255
layout=${4#oci:}
[ -e "$layout/blobs/sha256/1" ] && [ -e "$layout/oci-layout" ] || exit 1
{ echo "$SOURCE_DATE_EPOCH"; cat "$layout/index.json"; } > "$3"
"""
ONE, OTHER = (LayoutImage(f"r:{tag}", f"sha256:{tag}-id", f"sha256:{tag}", (), 1) for tag in ("cu102", "cu102-modern"))


@pytest.fixture
def layout(tmp_path, monkeypatch):
    """A layout of two images, and Apptainer."""
    made = tmp_path / "image"
    (made / "blobs/sha256").mkdir(parents=True)
    (made / "blobs/sha256/1").write_text("")
    (made / "oci-layout").write_text("{}")
    index = {"schemaVersion": 2, "manifests": [{"digest": each.digest} for each in (ONE, OTHER)]}
    (made / "index.json").write_text(json.dumps(index))
    tool = tmp_path / "bin/apptainer"
    tool.parent.mkdir()
    tool.write_text(APPTAINER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(sif, "sif_path", lambda stack: tmp_path / "sif" / f"{stack}.sif")
    return made


def test_one_image_of_a_layout_becomes_a_file_that_is_described(layout, tmp_path):
    made = build_sif(layout, OTHER, "cu102-modern", 7)
    file = tmp_path / "sif/cu102-modern.sif"
    epoch, index = file.read_text().split("\n", 1)
    assert epoch == "7"
    assert [each["digest"] for each in json.loads(index)["manifests"]] == [OTHER.digest]
    assert made.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    described = json.loads(file.with_suffix(".json").read_text())
    assert described == vars(made)
    assert (made.image, made.built_with) == (OTHER.id, "apptainer version 1.4.5")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "image", "sif"], "no scratch folder is left"


def test_a_build_that_fails_leaves_nothing_and_gives_the_reason(layout, tmp_path, monkeypatch):
    monkeypatch.setenv("REFUSE", "1")
    with pytest.raises(ImageError, match=r"cu102\.sif cannot be built:\nFATAL:   no space left"):
        build_sif(layout, ONE, "cu102", 7)
    assert not list((tmp_path / "sif").iterdir())


def test_without_apptainer(layout, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ImageError, match="apptainer is not installed"):
        build_sif(layout, ONE, "cu102", 7)
