"""Commands reach their node through every login shell, whatever that prints, and one that runs none is named."""

import os
import shlex
import shutil
import subprocess

import pytest

from repro.cluster.login_shell import START, Answer, first_line, why_not_begun
from tests.support.patience import patience

SHELLS = ["sh", "bash", "dash", "tcsh", "csh", "fish", "zsh"]
NASTY = [
    "printf",
    "%s|",
    "two\nlines",
    "it's",
    'a "quote"',
    "$HOME `id`",
    "!! !x",
    "back\\slash \\n \\0101",
    "%s %b",
    "é",
    "",
]


def through(shell, argv, stdin=b"", before="", environment=None):
    """What a command prints that a login shell starts, as sshd gives it to that; `before` are its start-up files."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", f"{before}{START}"],
        input=first_line(argv) + stdin,
        capture_output=True,
        timeout=patience(),
        env={**os.environ, **(environment or {})},
    )
    answer = Answer()
    pieces = b"".join(answer(done.stdout[i : i + 7]) for i in range(0, len(done.stdout), 7))
    return answer, pieces, done


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_runs_the_command_as_it_is(shell):
    answer, printed, done = through(shell, NASTY)
    assert answer.begun and done.returncode == 0, done.stderr
    assert printed.decode() == "".join(f"{word}|" for word in NASTY[2:])


@pytest.mark.parametrize("shell", SHELLS)
def test_the_input_of_the_command_is_left_as_it_is(shell):
    data = b"first\nsecond\\n\x00\xff\n" * 1000
    answer, printed, _ = through(shell, ["sh", "-c", "cat; exit 3"], data)
    assert (answer.begun, printed) == (True, data)
    assert through(shell, ["sh", "-c", "exit 3"])[2].returncode == 3
    assert through(shell, ["no-such-command"])[2].returncode == 127


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_start_up_file_prints_is_not_the_answer(shell):
    answer, printed, _ = through(shell, ["echo", "answer"], before="echo '[1]'; echo welcome; ")
    assert printed == b"answer\n"
    assert b"welcome" in answer.before


@pytest.mark.parametrize("before", ["exit 0; ", "echo bye; exit 0; ", "exec cat >/dev/null; "])
def test_a_shell_that_exits_first_has_not_begun(before):
    answer, printed, _ = through("bash", ["echo", "answer"], before=before)
    assert (answer.begun, printed) == (False, b"")


def test_the_marker_may_come_in_pieces_and_long_noise_is_not_kept():
    answer = Answer()
    assert answer(b"x" * 1_000_000) == b""
    assert len(answer.before) < 10_000
    assert shlex.join(["a"]) == "a"


@pytest.mark.parametrize(
    ("status", "printed", "said"),
    [
        (1, "This account is currently not available.\n", "no login shell there; `chsh -s /bin/sh ACCOUNT`"),
        (1, "Your account has expired; please contact your system administrator.", "`chage -E -1 ACCOUNT`"),
        (1, "WARNING: Your password has expired.\nPassword change required but no TTY available.", "log in once"),
        (0, "", "ended (status 0) before it ran the command; a line of its start-up files there (~/.bashrc"),
        (1, "module: not here\n", "(it printed: module: not here)"),
    ],
)
def test_why_a_login_shell_ran_nothing(status, printed, said):
    assert said in why_not_begun(status, printed)
