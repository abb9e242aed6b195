"""Signatures by SSH keys: those of these bytes are good, all others are not, and whose they are is said."""

import subprocess
import zipfile

import pytest

from repro.runs.signature import NAMESPACE, signature


@pytest.fixture
def signed(tmp_path):
    """A file and its signature."""
    quiet = {"check": True, "capture_output": True}
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], **quiet)
    file = tmp_path / "manifest"
    file.write_text("what was recorded\n")
    subprocess.run(["ssh-keygen", "-Y", "sign", "-f", tmp_path / "key", "-n", NAMESPACE, file], **quiet)
    return file


@pytest.fixture
def signers(signed):
    """The list that says whose key it is."""
    key = signed.with_name("key.pub").read_text()
    listed = signed.with_name("allowed_signers")
    listed.write_text(f'someone@example.org namespaces="{NAMESPACE}" {key}')
    return listed


def test_a_signature_is_optional(signed, signers):
    assert signature(signers, signers) is None


def test_a_named_signer_is_named(signed, signers):
    found = signature(signed, signers)
    assert found.good and found.text.startswith("manifest is signed by someone@example.org (SHA256:")


def test_a_signer_nobody_named_is_said(signed, tmp_path):
    found = signature(signed, tmp_path / "absent")
    assert found.good and "by a key that" in found.text and "does not name" in found.text


def test_other_bytes_or_another_purpose_are_not_signed(signed, signers):
    signed.write_text("nicer\n")
    assert not signature(signed, signers).good
    signed.with_name("manifest.sig").unlink()
    key = signed.with_name("key")
    subprocess.run(["ssh-keygen", "-Y", "sign", "-f", key, "-n", "email", signed], check=True, capture_output=True)
    assert not signature(signed, signers).good


def test_it_is_read_inside_an_archive(signed, signers, tmp_path):
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.write(signed, "manifest")
        archive.write(signed.with_name("manifest.sig"), "manifest.sig")
    assert signature(zipfile.Path(tmp_path / "run.zip") / "manifest", signers).good


def test_without_ssh_keygen_it_does_not_pass(signed, signers, monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = signature(signed, signers)
    assert not found.good and "without ssh-keygen" in found.text
