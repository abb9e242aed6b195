"""The cache of a checkout, and names for new files that no other has."""

import os
import re
from pathlib import Path

from repro.utils.paths import cache_folder, in_home, named_by_time


def test_a_checkout_keeps_its_cache_unless_it_is_read_only(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    checkouts = [tmp_path / "a", tmp_path / "b"]
    checkouts[0].mkdir()
    assert cache_folder(checkouts[0]) == tmp_path / "a" / ".cache"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    first, second = map(cache_folder, checkouts)
    assert first != second and first.parent == second.parent == tmp_path / "users" / "oneflow-reproduction"


def test_a_writable_cache_of_a_read_only_checkout_is_used(tmp_path, monkeypatch):
    (tmp_path / ".cache").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: path.name == ".cache")
    assert cache_folder(tmp_path) == tmp_path / ".cache"


def test_what_is_named_by_the_time_is_never_there_already(tmp_path):
    made = []
    for _ in range(3):
        made.append(named_by_time(tmp_path, "preflight-", ".json"))
        made[-1].touch()
    assert len(set(made)) == 3
    assert all(re.fullmatch(r"preflight-\d{8}-\d{6}(-[23])?\.json", path.name) for path in made)


def test_the_home_of_an_unknown_user_is_no_error():
    assert str(in_home("~nobody-here/x")) == "~nobody-here/x"
    assert in_home("~/x") == Path.home() / "x"
