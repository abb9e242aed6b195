"""Which key signs an archive: the host's, a named one, or the one at hand, once somebody agreed."""

import io
import subprocess
from types import SimpleNamespace

import pytest

from repro.cli import signing
from repro.cli.settings import OptionError
from repro.cli.signing import at_terminal, chosen_key
from repro.runs.digests import UNSIGNED
from repro.runs.signature import fingerprint

PINNED = f"SHA256:{'a' * 43}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with one key, at no terminal; returns the key's file."""
    folder = tmp_path / ".ssh"
    folder.mkdir()
    file = folder / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True, capture_output=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(signing, "at_terminal", lambda: False)
    return file


def answering(monkeypatch, text):
    monkeypatch.setattr(signing, "at_terminal", lambda: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(text))


@pytest.mark.parametrize("said", ["", "y\n", "Yes\n", " \n"])
def test_a_key_at_hand_signs_once_somebody_agrees(home, monkeypatch, capsys, said):
    answering(monkeypatch, said)
    key, signer = chosen_key("h200", None, None)
    assert (key.file, key.fingerprint, signer) == (home, fingerprint(home), fingerprint(home))
    asked = capsys.readouterr().out
    assert f"Sign this and all later archives of h200 by {home} ({key.fingerprint})?" in asked


def test_a_question_is_shown_before_its_answer_is_read(home, monkeypatch):
    shown = io.BytesIO()

    def readline():
        assert shown.getvalue().endswith(b"[Y/n] ")
        return "n\n"

    monkeypatch.setattr(signing, "at_terminal", lambda: True)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(readline=readline))
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BufferedWriter(shown)))
    assert chosen_key("h200", None, None) == (None, UNSIGNED)


def test_of_several_keys_the_first_is_offered(home, monkeypatch):
    answering(monkeypatch, "y\n")
    other = home.with_name("id_rsa")
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", other], check=True, capture_output=True)
    assert chosen_key("h200", None, None)[0].file == home


@pytest.mark.parametrize("said", ["n\n", "no\n", "what?\n"])
def test_any_other_answer_is_no_and_is_kept(home, monkeypatch, said):
    answering(monkeypatch, said)
    assert chosen_key("h200", None, None) == (None, UNSIGNED)


def test_where_nobody_can_answer_nothing_is_decided(home, capsys):
    assert chosen_key("h200", None, None) == (None, None)
    assert f"not signed: KEY={home} signs this and all later archives of h200" in capsys.readouterr().err


def test_without_a_key_nothing_is_asked(home, monkeypatch, capsys):
    answering(monkeypatch, "y\n")
    home.unlink()
    assert chosen_key("h200", None, None) == (None, None) and capsys.readouterr().out == ""


def test_what_was_decided_is_not_asked_again(home, monkeypatch, capsys):
    answering(monkeypatch, "y\n")
    assert chosen_key("h200", UNSIGNED, None) == (None, None)
    key, signer = chosen_key("h200", fingerprint(home), None)
    assert (key.file, signer) == (home, None) and capsys.readouterr().out == ""


def test_the_key_of_the_host_must_be_at_hand(home):
    with pytest.raises(OptionError, match=f"HOST=h200: its archives are signed by the key {PINNED}, which is not in"):
        chosen_key("h200", PINNED, None)


@pytest.mark.parametrize("before", [None, UNSIGNED, PINNED])
def test_a_named_key_signs_from_now_on(home, before):
    key, signer = chosen_key("h200", before, str(home))
    assert (key.file, signer) == (home, fingerprint(home))
    assert chosen_key("h200", fingerprint(home), "~/.ssh/id_ed25519.pub")[1] is None


def test_signing_is_given_up_in_the_open(home):
    assert chosen_key("h200", PINNED, "none") == (None, UNSIGNED)
    assert chosen_key("h200", UNSIGNED, "none") == (None, None) == chosen_key("h200", None, "none")


def test_a_file_that_is_no_key_is_refused(home):
    with pytest.raises(OptionError, match="KEY=/nowhere: this is no SSH key"):
        chosen_key("h200", None, "/nowhere")


@pytest.mark.parametrize(
    ("there", "foreground", "expected"),
    [(True, 7, True), (True, 8, False), (False, 7, False), (True, OSError(), False), (True, ValueError(), False)],
)
def test_a_person_answers_in_the_foreground_of_a_terminal(monkeypatch, there, foreground, expected):
    def group(number):
        if isinstance(foreground, Exception):
            raise foreground
        return foreground

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: there, fileno=lambda: 0))
    monkeypatch.setattr("os.tcgetpgrp", group)
    monkeypatch.setattr("os.getpgrp", lambda: 7)
    assert at_terminal() is expected
