"""Two archives that differ only in times, names and order of writing become the same layout, byte for byte."""

import hashlib
import io
import json
import tarfile

import pytest

from repro.images.engine import ImageError
from repro.images.oci_layout import (
    _plain_step,
    differences,
    is_complete,
    lone_image,
    normalise,
    packed,
    read_layout,
)

EPOCH = 1_700_000_000


def tar(members, **options):
    """A tar of (name, content or kind, changes of the TarInfo)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", **options) as archive:
        for name, content, changes in members:
            member = tarfile.TarInfo(name)
            member.size = len(content) if isinstance(content, bytes) else 0
            for key, value in changes.items():
                setattr(member, key, value)
            archive.addfile(member, io.BytesIO(content) if isinstance(content, bytes) else None)
    return buffer.getvalue()


def layer(mtime=EPOCH + 5, **changes):
    return tar(
        [
            ("bin", b"", {"type": tarfile.DIRTYPE, "mode": 0o755, "mtime": EPOCH - 9}),
            ("bin/tool", b"content", {"mode": 0o755, "mtime": mtime, "uname": "root", **changes}),
            ("bin/link", None, {"type": tarfile.SYMTYPE, "linkname": "tool", "mtime": mtime}),
        ]
    )


def config(created):
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "container": "abc",
        "config": {"Env": ["A=1"], "Hostname": "abc", "Image": "sha256:x", "User": "1:1", "Labels": None},
        "history": [{"created": created, "created_by": "RUN x", "comment": "buildkit"}],
        "rootfs": {"type": "layers", "diff_ids": ["sha256:old"]},
    }


def saved(layers, created="2026-01-01T00:00:00Z", tags=("thing:a",)):
    """A `docker save` as engines up to 24 write it."""
    members = [(f"{number}/layer.tar", content, {}) for number, content in enumerate(layers)]
    members.append(("config.json", json.dumps(config(created)).encode(), {}))
    entries = [
        {"Config": "config.json", "RepoTags": [tag], "Layers": [f"{n}/layer.tar" for n in range(len(layers))]}
        for tag in tags
    ]
    return io.BytesIO(tar([*members, ("manifest.json", json.dumps(entries).encode(), {})]))


def saved_as_blobs(layers, created="2026-01-01T00:00:00Z"):
    """The same as engines from 25 on write it."""
    contents = (*layers, json.dumps(config(created)).encode())
    blobs = {hashlib.sha256(content).hexdigest(): content for content in contents}
    names = [f"blobs/sha256/{digest}" for digest in blobs]
    entries = [{"Config": names[-1], "RepoTags": ["thing:a"], "Layers": names[:-1]}]
    files = [(name, content, {}) for name, content in zip(names, blobs.values(), strict=True)]
    return io.BytesIO(tar([*files, ("manifest.json", json.dumps(entries).encode(), {})]))


def test_times_and_names_do_not_matter(tmp_path):
    one = normalise(saved([layer(EPOCH + 5)]), tmp_path / "1", EPOCH)
    two = normalise(saved([layer(EPOCH + 99.5, uname="me")], "2027-07-07T00:00:00Z"), tmp_path / "2", EPOCH)
    assert one == two
    assert b"".join(packed(tmp_path / "1")) == b"".join(packed(tmp_path / "2"))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        (
            "RUN |2 A=http://mirror/debian B=x y /bin/sh -c apt-get update # buildkit",
            "RUN /bin/sh -c apt-get update # buildkit",
        ),
        ("RUN /bin/sh -c true", "RUN /bin/sh -c true"),
        ("ARG DEBIAN=http://mirror/debian", "ARG DEBIAN"),
        ("ARG NCCL", "ARG NCCL"),
        ("COPY /opt/venv /opt/venv # buildkit", "COPY /opt/venv /opt/venv # buildkit"),
    ],
)
def test_where_a_build_took_its_parts_from_does_not_matter(written, kept):
    step = {"created": "2026-01-01T00:00:00Z", "created_by": written, "empty_layer": True}
    assert _plain_step(step, "then") == {"created": "then", "empty_layer": True, "created_by": kept}


def test_a_packed_layout_is_a_tar_with_every_file(tmp_path):
    normalise(saved([layer()]), tmp_path / "layout", EPOCH)
    with tarfile.open(fileobj=io.BytesIO(b"".join(packed(tmp_path / "layout")))) as archive:
        archive.extractall(tmp_path / "again", filter="data")
    files = {path.relative_to(tmp_path / "layout") for path in (tmp_path / "layout").rglob("*")}
    assert {path.relative_to(tmp_path / "again") for path in (tmp_path / "again").rglob("*")} == files
    for name in files:
        if (tmp_path / "layout" / name).is_file():
            assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "layout" / name).read_bytes()


def test_both_kinds_of_archive_give_the_same_image(tmp_path):
    one = normalise(saved([layer()]), tmp_path / "1", EPOCH)
    assert normalise(saved_as_blobs([layer()]), tmp_path / "2", EPOCH) == one


@pytest.mark.parametrize(
    "changes", [{"mode": 0o700}, {"uid": 3}, {"mtime": EPOCH - 1}, {"linkname": "x", "type": tarfile.SYMTYPE}]
)
def test_what_belongs_to_the_content_matters(tmp_path, changes):
    one = normalise(saved([layer()]), tmp_path / "1", EPOCH)
    two = normalise(saved([layer(**changes)]), tmp_path / "2", EPOCH)
    assert one[0].digest != two[0].digest
    assert differences(
        *(tmp_path / name / "blobs/sha256" / image[0].layers[0] for name, image in (("1", one), ("2", two)))
    )


def test_no_time_is_later_than_the_epoch_and_earlier_ones_stay(tmp_path):
    (image,) = normalise(saved([layer()]), tmp_path / "1", EPOCH)
    with tarfile.open(tmp_path / "1/blobs/sha256" / image.layers[0]) as archive:
        assert {member.name: member.mtime for member in archive} == {
            "bin": EPOCH - 9,
            "bin/tool": EPOCH,
            "bin/link": EPOCH,
        }


def test_digests_are_those_of_the_files(tmp_path):
    images = normalise(saved([layer(), layer(EPOCH - 3)], tags=("thing:a", "thing:b")), tmp_path / "1", EPOCH)
    for path in (tmp_path / "1/blobs/sha256").iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    kept = json.loads((tmp_path / "1/blobs/sha256" / images[0].id.removeprefix("sha256:")).read_text())
    assert kept["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in images[0].layers]
    assert kept["config"] == {"Env": ["A=1"], "User": "1:1"}
    assert "container" not in kept
    assert [image.tag for image in images] == ["thing:a", "thing:b"]
    assert images[0].layers == images[1].layers


def test_a_layout_is_read_back(tmp_path):
    written = normalise(
        saved([layer()], tags=("thing:a-draft",)), tmp_path / "1", EPOCH, rename=lambda tag: tag.removesuffix("-draft")
    )
    assert read_layout(tmp_path / "1") == written
    assert written[0].tag == "thing:a"


def test_a_layout_that_was_not_completed_is_none(tmp_path):
    """`make image` reads the layout before it builds, so a half-written one must not stop it."""
    with pytest.raises(tarfile.ReadError):
        normalise(io.BytesIO(saved([layer()]).read()[:1024]), tmp_path / "1", EPOCH)
    assert (tmp_path / "1").is_dir() and not is_complete(tmp_path / "1")
    with pytest.raises(ImageError, match="1 holds no images; `make image` builds them"):
        read_layout(tmp_path / "1")
    normalise(saved([layer()]), tmp_path / "1", EPOCH)
    assert is_complete(tmp_path / "1")


def test_a_layout_of_one_image_has_the_blobs_of_the_whole(tmp_path):
    other = normalise(saved([layer()], tags=("thing:a",)), tmp_path / "1", EPOCH)[0]
    with lone_image(tmp_path / "1", other) as alone:
        (entry,) = json.loads((alone / "index.json").read_text())["manifests"]
        assert entry["digest"] == other.digest
        assert (alone / "blobs/sha256" / other.digest.removeprefix("sha256:")).is_file()
        assert (alone / "oci-layout").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_extended_attributes_and_whiteouts_survive(tmp_path):
    content = tar(
        [
            ("file", b"x", {"pax_headers": {"SCHILY.xattr.user.a": "1", "atime": "5.5"}}),
            (".wh.gone", None, {"type": tarfile.LNKTYPE, "linkname": "elsewhere"}),
        ],
        format=tarfile.PAX_FORMAT,
    )
    (image,) = normalise(saved([content]), tmp_path / "1", EPOCH)
    with tarfile.open(tmp_path / "1/blobs/sha256" / image.layers[0]) as archive:
        file, gone = archive
    assert file.pax_headers == {"SCHILY.xattr.user.a": "1"}
    assert (gone.name, gone.isreg(), gone.size) == (".wh.gone", True, 0)


def test_an_empty_layer_and_a_linked_one(tmp_path):
    empty = tar([])
    members = [
        ("0/layer.tar", layer(), {}),
        ("1/layer.tar", empty, {}),
        ("2/layer.tar", None, {"type": tarfile.SYMTYPE, "linkname": "../0/layer.tar"}),
        ("config.json", json.dumps(config("x")).encode(), {}),
        (
            "manifest.json",
            json.dumps(
                [
                    {
                        "Config": "config.json",
                        "RepoTags": ["a:b"],
                        "Layers": ["0/layer.tar", "1/layer.tar", "2/layer.tar"],
                    }
                ]
            ).encode(),
            {},
        ),
    ]
    (image,) = normalise(io.BytesIO(tar(members)), tmp_path / "1", EPOCH)
    assert image.layers[0] == image.layers[2] != image.layers[1]
