"""The engine through the SDK: what it is asked, what its answers become, and what to do where there is none."""

import os
import socket

import pytest

from repro.images.engine import Engine, EngineError, ImageError, isolation
from tests.support.docker_engine import CONTAINER, fake_engine

TAG = "oneflow-reproduction:cu102"


@pytest.fixture
def fake(tmp_path, monkeypatch):
    with fake_engine(tmp_path) as (engine, address):
        monkeypatch.setenv("DOCKER_HOST", address)
        engine.images = {TAG: {"reproduction.nccl": "2.7.8"}, "other:1": {}}
        yield engine


def test_labels_are_those_of_the_image(fake):
    assert Engine.connect().labels(TAG) == {"reproduction.nccl": "2.7.8"}


def test_a_missing_image_is_named_with_what_builds_it(fake):
    with pytest.raises(ImageError, match=r"cannot inspect none:1: No such image: none:1; `make image` builds"):
        Engine.connect().labels("none:1")


def test_images_are_saved_together(fake):
    fake.archive = bytes(range(256)) * 20_000
    with Engine.connect().save([TAG, "other:1"]) as archive:
        assert archive.read(512) + archive.read() == fake.archive
    assert fake.saved == [TAG, "other:1"]


def test_an_image_that_cannot_be_saved_is_named(fake):
    with pytest.raises(ImageError, match=f"cannot save {TAG} and none:1: .*No such image: none:1"):
        Engine.connect().save([TAG, "none:1"])


def test_an_engine_that_breaks_off_while_saving_is_an_error(fake):
    fake.archive, fake.length = b"a part", 1000
    with Engine.connect().save([TAG]) as archive, pytest.raises(ImageError, match="the engine broke off when asked to"):
        archive.read()


def test_images_are_loaded_in_pieces(fake):
    Engine.connect().load(iter([b"one", b"two" * 100_000]))
    assert fake.loaded == b"one" + b"two" * 100_000


def test_a_refused_archive_is_an_error(fake):
    fake.refusal = "no space left on device"
    with pytest.raises(ImageError, match="cannot load the images: no space left on device"):
        Engine.connect().load(iter([b"x"]))


def test_names_that_are_gone_need_no_removal(fake):
    Engine.connect().remove([TAG, "none:1", "other:1"])
    assert fake.removed == [TAG, "other:1"]


def test_a_container_gives_both_outputs_and_its_status_and_is_removed(fake):
    fake.output = ("{}", "a warning", 3)
    output = Engine.connect().run(TAG, ["python", "x"], ["/a:/b:ro"], environment={"A": "1"})
    assert (output.stdout, output.stderr, output.status) == ("{}", "a warning", 3)
    (created,) = fake.created
    assert (created["Image"], created["Cmd"], created["Env"]) == (TAG, ["python", "x"], ["A=1"])
    assert created["HostConfig"]["Binds"] == ["/a:/b:ro"]
    assert fake.removed == [CONTAINER]


def test_output_is_handed_over_and_the_status_returned(fake):
    fake.output = ("compiled\n", "", 4)
    shown = []
    assert Engine.connect().follow(TAG, ["warm"], shown.append, (), gpus=True) == 4
    assert "".join(shown) == "compiled\n"


def test_a_container_that_does_not_start_is_removed(fake):
    fake.start_error = 'could not select device driver "" with capabilities: [[gpu]]'
    with pytest.raises(ImageError, match=r"cannot run .*could not select device driver"):
        Engine.connect().run(TAG, ["true"], gpus=True)
    assert fake.removed == [CONTAINER]


def test_an_image_that_is_not_here_is_not_pulled(fake):
    with pytest.raises(ImageError, match="`make image` builds"):
        Engine.connect().run("none:1", ["true"])


def test_an_interrupt_removes_the_container(fake):
    fake.output = ("line\n", "", 0)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Engine.connect().follow(TAG, ["warm"], interrupt, (), gpus=False)
    assert fake.removed == [CONTAINER]


def test_a_container_has_no_privilege(fake):
    Engine.connect().run(TAG, ["true"], gpus=True)
    host = fake.created[0]["HostConfig"]
    assert not host.get("Privileged")
    assert not host.get("CapAdd")
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges"]
    assert host["ReadonlyRootfs"]
    assert host["NetworkMode"] == host["IpcMode"] == "host"
    assert host["DeviceRequests"][0]["Capabilities"] == [["gpu"]]
    assert fake.created[0]["User"] == f"{os.getuid()}:{os.getgid()}"


def test_a_container_without_gpus_asks_for_none():
    assert isolation().keys().isdisjoint({"device_requests", "ulimits"})


def test_without_an_engine_the_message_says_where_and_what_to_do(tmp_path, monkeypatch):
    address = f"unix://{tmp_path}/none.sock"
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(EngineError, match=rf"no Docker engine answers at DOCKER_HOST={address}: nothing listens there"):
        Engine.connect()


def test_a_refused_port_says_what_to_do(monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{unused.getsockname()[1]}")
        with pytest.raises(EngineError, match="nothing listens there: correct DOCKER_HOST"):
            Engine.connect()


def test_without_docker_host_the_message_says_how_to_start_one(monkeypatch):
    def absent(**_):
        raise ConnectionError("Connection aborted.", FileNotFoundError(2, "No such file or directory"))

    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr("repro.images.engine.docker.from_env", absent)
    with pytest.raises(EngineError, match=r"no Docker engine answers here: start it .*or install it"):
        Engine.connect()


def test_a_socket_without_permission_says_which_group_helps(monkeypatch):
    def forbidden(**_):
        raise ConnectionError("Connection aborted.", PermissionError(13, "Permission denied"))

    monkeypatch.setattr("repro.images.engine.docker.from_env", forbidden)
    with pytest.raises(EngineError, match="join the group `docker`"):
        Engine.connect()


def test_a_malformed_address_is_explained(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "bogus://x")
    with pytest.raises(EngineError, match=r"DOCKER_HOST=bogus://x: Invalid bind address protocol.* is such as unix://"):
        Engine.connect()
