"""Signatures by SSH keys: `<file>.sig` next to the file, made and verified by ssh-keygen.

What is signed is an archive of a host, the manifest in a run's folder, or the list of kept runs. `make archive` signs a
host's archives with the key that their list names (`repro.runs.digests`); by hand it is

    ssh-keygen -Y sign -f ~/.ssh/id_ed25519 -n repro-run runs/<id>/manifest-sha256.txt

Whose key it is says `reports/reproduced/allowed_signers` (see ALLOWED SIGNERS in ssh-keygen(1)), if it is there.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from repro.runs.digests import REPRODUCED
from repro.runs.files import SIGNATURE, RecordError, RunPath, content
from repro.utils.printable import one_line

NAMESPACE = "repro-run"
SIGNERS = REPRODUCED / "allowed_signers"
NAMES = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")
TIMEOUT_S = 60


@dataclass(frozen=True)
class Signature:
    """Result of checking a signature: `good` if it matches these bytes; `text` describes it.

    `key` is the fingerprint of its key, empty if it is not good.
    """

    good: bool
    text: str
    key: str = ""


@dataclass(frozen=True)
class Key:
    """A key that can sign: the file of its private or public part, the latter for an agent, and its fingerprint."""

    file: Path
    fingerprint: str


def signature(file: RunPath, signers: Path = SIGNERS) -> Signature | None:
    """The signature next to a file, which may be in an archive; None if there is none.

    A signature by an unlisted key is good, and its text says that the owner is unknown.
    """
    beside = cast(RunPath, file.parent) / f"{file.name}{SIGNATURE}"
    if not beside.is_file():
        return None
    with tempfile.NamedTemporaryFile(suffix=SIGNATURE) as copy:
        copy.write(content(beside))
        copy.flush()
        by_anyone = ["-Y", "check-novalidate", "-n", NAMESPACE, "-s", copy.name]
        bytes_signed = content(file)
        try:
            done = _keygen(by_anyone, bytes_signed)
            if done.returncode:
                return Signature(False, f"{file.name}: the signature beside it is not one of these bytes")
            key = done.stdout.decode("utf-8", "replace").strip().rpartition(" ")[2]
            principals = _principals(copy.name, signers)
            for name in principals:
                verify = ["-Y", "verify", "-f", str(signers), "-I", name, "-n", NAMESPACE, "-s", copy.name]
                if _keygen(verify, bytes_signed).returncode == 0:
                    return Signature(True, f"{file.name} is signed by {name} ({key})", key)
        except (OSError, subprocess.TimeoutExpired) as error:
            return Signature(False, f"{file.name}: its signature cannot be verified without ssh-keygen: {error}")
    return Signature(True, f"{file.name} is signed by a key that {signers} does not name ({key})", key)


def keys_at_hand(folder: Path | None = None) -> list[Key]:
    """The user's SSH keys by which ssh-keygen can sign: in `folder`, ~/.ssh unless given, under ssh's own names."""
    folder = folder or Path.home() / ".ssh"
    there = (folder / name for name in NAMES if (folder / name).is_file())
    return [Key(file, digest) for file in there if (digest := fingerprint(file))]


def fingerprint(key: Path) -> str | None:
    """The fingerprint of a key, by the file of either part; None if it is none or there is no ssh-keygen."""
    try:
        done = _keygen(["-l", "-E", "sha256", "-f", str(key.absolute())])
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").split()[1] if done.returncode == 0 else None


def sign(file: Path, key: Key, at_terminal: bool = False) -> None:
    """Write the signature next to a file; at a terminal, a passphrase is asked for. RecordError if it cannot."""
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key.file.absolute()), "-n", NAMESPACE, str(file.absolute())]
    beside = file.with_name(f"{file.name}{SIGNATURE}")
    beside.unlink(missing_ok=True)
    try:
        done = subprocess.run(
            command,
            stdin=None if at_terminal else subprocess.DEVNULL,
            capture_output=True,
            start_new_session=not at_terminal,  # without a terminal nothing is asked, which would stop it for ever
        )
    except OSError as error:
        raise RecordError(f"{file} cannot be signed without ssh-keygen: {error}") from error
    signed = signature(file)
    if signed is None or signed.key != key.fingerprint:
        beside.unlink(missing_ok=True)
        said = done.stderr.decode("utf-8", "replace").split("\n") if done.returncode else ["another key signed it"]
        raise RecordError(
            f"{file.name} cannot be signed by {key.file}: {one_line(' '.join(said).strip())}; `ssh-add {key.file}` unlocks a key, and "
            "KEY=<file> names another"
        )


def _principals(signed: str, signers: Path) -> list[str]:
    if not signers.is_file():
        return []
    done = _keygen(["-Y", "find-principals", "-s", signed, "-f", str(signers)])
    return done.stdout.decode("utf-8", "replace").split() if done.returncode == 0 else []


def _keygen(arguments: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *arguments], input=given, capture_output=True, timeout=TIMEOUT_S)
