"""An optional signature of a run by an SSH key: `<file>.sig` next to the file, made and verified by ssh-keygen.

What is signed is the manifest in a run's folder, an archive, or the list of kept runs:

    ssh-keygen -Y sign -f ~/.ssh/id_ed25519 -n repro-run runs/<id>/manifest-sha256.txt

Whose key it is says `reports/reproduced/allowed_signers` (see ALLOWED SIGNERS in ssh-keygen(1)), if it is there.
"""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from repro.runs.digests import REPRODUCED
from repro.runs.files import SIGNATURE, RunPath, content

NAMESPACE = "repro-run"
SIGNERS = REPRODUCED / "allowed_signers"
TIMEOUT_S = 60


@dataclass(frozen=True)
class Signature:
    """Result of checking a signature: `good` if it matches these bytes; `text` describes it."""

    good: bool
    text: str


def signature(file: RunPath, signers: Path = SIGNERS) -> Signature | None:
    """The signature next to a file, which may be in an archive; None if there is none.

    A signature by an unlisted key is good, and its text says that the owner is unknown.
    """
    folder: RunPath = file.parent if isinstance(file, Path) else cast(zipfile.Path, file.parent)
    beside = folder / f"{file.name}{SIGNATURE}"
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
                    return Signature(True, f"{file.name} is signed by {name} ({key})")
        except (OSError, subprocess.TimeoutExpired) as error:
            return Signature(False, f"{file.name}: its signature cannot be verified without ssh-keygen: {error}")
    return Signature(True, f"{file.name} is signed by a key that {signers} does not name ({key})")


def _principals(signed: str, signers: Path) -> list[str]:
    if not signers.is_file():
        return []
    done = _keygen(["-Y", "find-principals", "-s", signed, "-f", str(signers)])
    return done.stdout.decode("utf-8", "replace").split() if done.returncode == 0 else []


def _keygen(arguments: list[str], given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", *arguments], input=given, capture_output=True, timeout=TIMEOUT_S)
