"""Bill of materials and licences of an image, and the answer of the advisory database."""

import contextlib
import copy
import json
import subprocess
import tomllib

import pytest

from repro.cli.image import sbom
from repro.cli.settings import Exit
from repro.images.engine import ImageError
from repro.images.oci_layout import LayoutImage
from repro.images.pins import load_pins
from repro.images.sbom import Scan, complete, judge, licence_rows, scan, scan_lines, write_sbom
from repro.utils.paths import ROOT

IMAGE = LayoutImage("oneflow-reproduction:cu102", "sha256:" + "a" * 64, "sha256:" + "b" * 64, ("c" * 64,), 10)


def test_a_scan_knows_found_accepted_and_unknown(tmp_path):
    packages = [
        {"name": "requests", "version": "1", "vulns": [{"id": "X", "aliases": ["CVE-1"], "fix_versions": ["2"]}]},
        {"name": "numpy", "version": "1", "vulns": [{"id": "CVE-1", "aliases": []}]},
        {"name": "tqdm", "skip_reason": "not found"},
    ]
    accepted = [{"package": "requests", "ids": ["CVE-1"], "reason": "not used"}]
    result = judge(packages, accepted, ["requests", "numpy", "tqdm", "rich"])
    assert [row["package"] for row in result.unaccepted] == ["numpy"]
    assert [row["reason"] for row in result.accepted] == ["not used"]
    assert result.unknown == ("tqdm", "rich"), "skipped, and not even named"
    assert "does not accept" in result.problem
    lines = "\n".join(scan_lines(result, tmp_path))
    assert "NOT ACCEPTED: numpy 1: CVE-1" in lines
    assert "no answer of the advisory database for tqdm, rich: nothing is known" in lines
    assert json.loads((tmp_path / "vulnerabilities.json").read_text())["unknown"] == ["tqdm", "rich"]


def test_what_the_database_did_not_answer_for_is_a_problem():
    package = {"name": "numpy", "version": "1", "vulns": []}
    assert judge([package], [], ["numpy"]).problem == ""
    assert "no vulnerability can be ruled out" in judge([package], [], ["numpy", "tqdm"]).problem
    assert "no vulnerability can be ruled out" in judge([], [], ["numpy"]).problem


def test_without_an_answer_the_last_line_of_pip_audit_says_why(monkeypatch):
    done = subprocess.CompletedProcess([], 1, "", "Traceback\nConnectionError: no route to host\n\n")
    monkeypatch.setattr("repro.images.sbom.subprocess.run", lambda *args, **options: done)
    result = scan(load_pins())
    assert {"oneflow", "numpy"} <= set(result.unknown)
    assert result.problem.endswith("pip-audit ended with: ConnectionError: no route to host")


@pytest.mark.parametrize("answered", [True, False])
def test_the_task_fails_without_an_answer(answered, monkeypatch, tmp_path):
    monkeypatch.setattr("repro.images.sbom.write_sbom", lambda stack, pins: (tmp_path / stack,))
    monkeypatch.setattr("repro.images.sbom.scan", lambda pins: Scan((), (), () if answered else ("numpy",)))
    monkeypatch.setattr("repro.images.sbom.scan_lines", lambda result: ["a line"])
    with contextlib.nullcontext() if answered else pytest.raises(Exit, match="no vulnerability can be ruled out"):
        sbom(stack="cu102")


def test_every_accepted_vulnerability_is_of_a_pinned_package_and_has_a_reason():
    accepted = tomllib.loads((ROOT / "docker/vulnerabilities.toml").read_text())["accepted"]
    packages = {pin.name for pin in load_pins().packages}
    for entry in accepted:
        assert entry["package"] in packages
        assert entry["ids"]
        assert len(entry["reason"]) > 20


def test_a_bill_of_materials_depends_on_the_image_alone_and_lists_what_wheels_hold():
    document = {
        "serialNumber": "urn:uuid:random",
        "metadata": {"timestamp": "now"},
        "components": [
            {"type": "library", "name": "oneflow", "version": "0.8.0", "purl": "pkg:pypi/oneflow@0.8.0"},
            {
                "type": "library",
                "name": "libc6",
                "version": "2",
                "purl": "pkg:deb/debian/libc6@2",
                "licenses": [{"license": {"id": "LGPL-2.1-only"}}, {"expression": "MIT"}],
            },
            {"type": "file", "name": "/etc/passwd"},
        ],
    }
    one, two = (complete(copy.deepcopy(document), IMAGE, "cu102", load_pins()) for _ in range(2))
    assert one == two
    assert one["serialNumber"] != "urn:uuid:random"
    rows = licence_rows(one)
    assert ["pypi", "oneflow", "0.8.0", "Apache-2.0"] in rows
    assert ["deb", "libc6", "2", "LGPL-2.1-only; MIT"] in rows
    assert ["bundled", "NCCL", "2.7.8", "BSD-3-Clause"] in rows
    modern = licence_rows(complete(copy.deepcopy(document), IMAGE, "cu102-modern", load_pins()))
    assert ["bundled", "NCCL", "2.7.8", "BSD-3-Clause"] not in modern


def test_without_images_the_error_says_how_to_build_them(tmp_path):
    with pytest.raises(ImageError, match=r"image holds no images; `make image` builds them"):
        write_sbom("cu102", load_pins(), tmp_path / "sbom", tmp_path / "image")
    (tmp_path / "image/blobs").mkdir(parents=True)  # as a build leaves it that was interrupted
    with pytest.raises(ImageError, match="holds no images"):
        write_sbom("cu102", load_pins(), tmp_path / "sbom", tmp_path / "image")


def test_an_image_of_another_stack_is_no_image_of_this(tmp_path, monkeypatch):
    monkeypatch.setattr("repro.images.sbom.read_layout", lambda layout: [IMAGE])
    with pytest.raises(ImageError, match="`make image STACK=cu102-modern` builds it"):
        write_sbom("cu102-modern", load_pins(), tmp_path / "sbom", tmp_path)


def test_without_syft_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setattr("repro.images.sbom.read_layout", lambda layout: [IMAGE])
    monkeypatch.setattr("repro.images.sbom.shutil.which", lambda name, path=None: None)
    with pytest.raises(ImageError, match="syft is not installed"):
        write_sbom("cu102", load_pins(), tmp_path / "sbom", tmp_path)
