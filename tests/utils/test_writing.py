"""Writing a file: whole or not at all, and never where a link leads."""

import pytest

from repro.utils.writing import new_file, replacing, write_bytes


def test_a_file_takes_the_place_of_what_was_there(tmp_path):
    target = tmp_path / "a"
    for content in (b"one", b"two"):
        write_bytes(target, content)
        assert target.read_bytes() == content and list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("name", ["a", "a.partial"])
def test_a_link_in_its_place_is_replaced_and_not_followed(tmp_path, name):
    secret, folder = tmp_path / "secret", tmp_path / "folder"
    secret.write_text("mine")
    folder.mkdir()
    (folder / name).symlink_to(secret)
    write_bytes(folder / "a", b"new")
    assert secret.read_text() == "mine"
    assert [path.name for path in folder.iterdir()] == ["a"] and not (folder / "a").is_symlink()


def test_of_a_block_that_fails_nothing_is_left(tmp_path):
    write_bytes(tmp_path / "a", b"old")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a") as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert (tmp_path / "a").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


def test_a_new_file_is_new(tmp_path):
    (tmp_path / "a").symlink_to("nowhere")
    with pytest.raises(FileExistsError):
        new_file(tmp_path / "a")
    assert not (tmp_path / "nowhere").exists()
