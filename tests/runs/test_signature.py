"""Signatures by SSH keys: those of these bytes are good, all others are not, and whose they are is said."""

import subprocess
import zipfile

import pytest

from repro.runs.record import RecordError
from repro.runs.signature import NAMESPACE, Key, fingerprint, keys_at_hand, sign, signature


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


# Signing


@pytest.fixture
def key(signed):
    file = signed.with_name("key")
    return Key(file, fingerprint(file))


def test_a_fingerprint_is_that_of_either_part_of_a_key(signed, key):
    assert key.fingerprint.startswith("SHA256:") and fingerprint(signed.with_name("key.pub")) == key.fingerprint
    assert signature(signed).key == key.fingerprint
    assert fingerprint(signed) is None and fingerprint(signed.with_name("absent")) is None


def test_keys_at_hand_are_those_that_ssh_uses(signed, tmp_path, monkeypatch):
    folder = tmp_path / "home" / ".ssh"
    folder.mkdir(parents=True)
    for name in ("id_rsa", "id_ed25519", "other"):
        (folder / name).write_bytes(signed.with_name("key").read_bytes())
        (folder / name).chmod(0o600)
    (folder / "id_ecdsa").write_text("no key")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert [each.file.name for each in keys_at_hand()] == ["id_ed25519", "id_rsa"]
    assert {each.fingerprint for each in keys_at_hand()} == {fingerprint(signed.with_name("key.pub"))}
    assert keys_at_hand(tmp_path) == []


def test_a_file_is_signed_and_signed_again(signed, key, tmp_path):
    file = tmp_path / "-a.zip"
    for text in ("one", "another"):
        file.write_text(text)
        sign(file, key)
        assert signature(file).good and signature(file).key == key.fingerprint


def test_without_its_passphrase_a_key_signs_nothing(tmp_path):
    """No terminal: nobody is asked, or a process in the background would wait for ever."""
    locked = tmp_path / "locked"
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked]
    subprocess.run(made, check=True, capture_output=True)
    file = tmp_path / "a.zip"
    file.write_text("one")
    with pytest.raises(RecordError, match=r"a\.zip cannot be signed by .*locked: .*ssh-add"):
        sign(file, Key(locked, fingerprint(locked)))
    assert not file.with_name("a.zip.sig").exists()


def test_a_key_that_is_not_the_named_one_signs_nothing(signed, key, tmp_path):
    file = tmp_path / "a.zip"
    file.write_text("one")
    with pytest.raises(RecordError, match="another key signed it"):
        sign(file, Key(key.file, "SHA256:other"))
    assert not file.with_name("a.zip.sig").exists()


@pytest.mark.parametrize("at_terminal", [True, False])
def test_a_passphrase_is_asked_for_at_a_terminal_alone(signed, key, monkeypatch, at_terminal):
    asked, run = [], subprocess.run

    def recording(command, **options):
        asked.append((options.get("stdin"), options.get("start_new_session")))
        return run(command, **options)

    monkeypatch.setattr(subprocess, "run", recording)
    sign(signed, key, **({"at_terminal": True} if at_terminal else {}))
    assert asked[0] == ((None, False) if at_terminal else (subprocess.DEVNULL, True))


def test_without_a_signature_nothing_is_signed(signed, key, monkeypatch):
    """Whatever the exit status says."""
    monkeypatch.setattr(subprocess, "run", lambda command, **options: subprocess.CompletedProcess(command, 0, b"", b""))
    with pytest.raises(RecordError, match="cannot be signed by"):
        sign(signed, key)


def test_without_ssh_keygen_nothing_is_signed(signed, key, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RecordError, match="cannot be signed without ssh-keygen"):
        sign(signed, key)
    assert fingerprint(key.file) is None and keys_at_hand(key.file.parent) == []
