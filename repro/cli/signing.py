"""Which SSH key signs an archive that is kept: the host's, the one that is named, or one at hand, which is offered once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from repro.cli.settings import OptionError
from repro.utils.paths import in_home

if TYPE_CHECKING:
    from repro.runs.signature import Key


def at_terminal() -> bool:
    """Whether a person can answer: a background process that asks at its terminal is stopped."""
    try:
        return sys.stdin.isatty() and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False


def chosen_key(host: str, signer: str | None, given: str | None) -> tuple[Key | None, str | None]:
    """The key that signs a host's next archive, or None, and the signer to append to the list if it changes, or None.

    Parameters
    ----------
    signer : the fingerprint in the list, UNSIGNED, or None if it says nothing of this host.
    given : KEY, the file of a key, or "none".

    Raises
    ------
    OptionError
        KEY is no key, or the host's key is not at hand.
    """
    from repro.runs.digests import UNSIGNED
    from repro.runs.signature import Key, fingerprint, keys_at_hand

    if given == UNSIGNED:
        return None, None if signer in (None, UNSIGNED) else UNSIGNED
    if given:
        file = in_home(given)
        if not (digest := fingerprint(file)):
            raise OptionError(f"KEY={given}: this is no SSH key that ssh-keygen can read; or none, to sign nothing")
        return Key(file, digest), None if digest == signer else digest
    if signer == UNSIGNED:
        return None, None
    there = keys_at_hand()
    if signer:
        for key in there:
            if key.fingerprint == signer:
                return key, None
        raise OptionError(
            f"HOST={host}: its archives are signed by the key {signer}, which is not in ~/.ssh: KEY=<file> names it, or "
            "another one from now on; KEY=none signs no more"
        )
    return _offered(host, there)


def _offered(host: str, there: list[Key]) -> tuple[Key | None, str | None]:
    """The first key, if a person says so; the answer is kept in the list. Nothing is decided where nobody can answer."""
    from repro.runs.digests import UNSIGNED

    if not there:
        return None, None
    key = there[0]
    if not at_terminal():
        print(f"not signed: KEY={key.file} signs this and all later archives of {host}", file=sys.stderr)
        return None, None
    print(
        f"Sign this and all later archives of {host} by {key.file} ({key.fingerprint})?\n"
        "It shows readers that one person kept them all; the list of kept runs names the key. [Y/n] ",
        end="",
        flush=True,
    )
    if sys.stdin.readline().strip().lower() in ("", "y", "yes"):
        return key, key.fingerprint
    return None, UNSIGNED
