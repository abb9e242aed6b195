"""Starts a command through whatever login shell an account has: POSIX shells, csh, fish, noisy ones and none at all.

sshd gives the command to that shell. So the command is always the same short line, which every shell reads alike, and
starts `sh`; what is to run follows on the standard input as one line, and `sh` writes a marker before it runs that. What
comes before the marker is the shell's own.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from repro.utils.printable import one_line

MARKER = b"== oneflow-reproduction: the answer follows ==\n"
START = f"""exec sh -c 'IFS= read -r c && printf "%s\\n" "$0" && eval "exec $(printf %b "$c")"' '{MARKER.decode().strip()}'"""
"""The command for sshd. It has no character that csh, tcsh or fish reads otherwise within single quotes."""
MOST = 4096
"""How many bytes of what a login shell prints are looked at."""
CAUSES = {
    r"fork|Resource temporarily unavailable": "its account may start no further process there; end some of them, or raise "
    "the limit nproc in /etc/security/limits.d",
    r"not available|nologin": "its account has no login shell there; `chsh -s /bin/sh ACCOUNT` as root gives it one",
    r"account (has )?expired": "its account has expired there; `chage -E -1 ACCOUNT` as root renews it",
    r"password (has )?expired|password change": "its password has expired there; log in once and change it",
}
EXITS = (
    "its login shell ended (status {status}) before it ran the command; a line of its start-up files there (~/.bashrc, "
    "~/.profile, ~/.cshrc) exits or fails where there is no terminal"
)


def first_line(argv: Sequence[str]) -> bytes:
    """What `START` reads first: the command on one line."""
    return (shlex.join(argv).replace("\\", "\\\\").replace("\n", "\\n") + "\n").encode()


class Answer:
    """Passes on what comes behind the marker; `before` is what a login shell printed, `begun` whether the marker came."""

    def __init__(self) -> None:
        self.before, self.begun = b"", False

    def __call__(self, data: bytes) -> bytes:
        """The part of the next piece that belongs to the command."""
        if self.begun:
            return data
        before, marker, rest = (self.before + data).partition(MARKER)
        self.before, self.begun = before[-MOST:], bool(marker)
        return rest


def why_not_begun(status: int, printed: str) -> str:
    """Why a login shell did not run a command, by its exit status and what it printed, with the remedy."""
    lines = [line for line in map(one_line, printed.splitlines()) if line]
    cause = next((text for form, text in CAUSES.items() if re.search(form, printed, re.IGNORECASE)), "")
    return (cause or EXITS.format(status=status)) + (f" (it printed: {lines[-1]})" if lines else "")
