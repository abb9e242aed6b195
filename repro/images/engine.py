"""The Docker engine on this machine, through the Docker SDK: images in it, and containers that run them.

Only building goes through a client (`build.py`): BuildKit is not in the SDK.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import docker
from docker.errors import APIError, DockerException, NotFound
from docker.types import DeviceRequest, Ulimit

from repro.utils.errors import FAILED, ReproError

if TYPE_CHECKING:
    from docker.models.containers import Container

CONNECT_S = 30
ANSWER_S = 1800
"""An engine answers a request to load images only when it has written gigabytes."""
CHUNK = 2**18


class ImageError(ReproError):
    """An image cannot be built, loaded or run; the message says why and what to do."""

    status = FAILED


class EngineError(ImageError):
    """No engine answers; the message says at which address, and what to do."""


@dataclass(frozen=True)
class Output:
    """Output and exit status of a container."""

    stdout: str
    stderr: str
    status: int


class Engine:
    """An engine that answers. `connect` finds the one that a Docker client would use."""

    def __init__(self, client: docker.DockerClient) -> None:
        self._client = client

    @classmethod
    def connect(cls) -> Engine:
        """The engine of DOCKER_HOST, or else of the client's current context; EngineError if it does not answer."""
        try:
            client = docker.from_env(timeout=CONNECT_S)
            client.ping()
        except Exception as error:  # the SDK passes on errors of requests, paramiko and sockets
            raise EngineError(_unreachable(error)) from error
        client.api.timeout = ANSWER_S
        return cls(client)

    def labels(self, image: str) -> dict[str, str]:
        """The labels of an image."""
        with _asking(f"inspect {image}"):
            return self._client.images.get(image).labels

    def save(self, images: Sequence[str]) -> BinaryIO:
        """Images as the tar that `docker save` writes, with the layers that they share in it once; to read in order.

        Raises
        ------
        ImageError
            An image is missing. While reading: the engine broke off.
        """
        what, api = f"save {' and '.join(images)}", self._client.api
        # The SDK's own `get_image` saves one image at a time.
        url = f"{api.base_url}/v{api.api_version}/images/get"
        with _asking(what):
            response = api.get(url, params={"names": list(images)}, stream=True, timeout=ANSWER_S)
            if not response.ok:
                raise ImageError(f"the engine cannot {what}: {response.text.strip()}")
        return io.BufferedReader(_Chunks(_content(response, what)), CHUNK)

    def load(self, archive: Iterator[bytes]) -> None:
        """Load the images of a tar, such as `oci_layout.packed` gives; ImageError if the engine does not take it."""
        with _asking("load the images"):
            for line in self._client.api.load_image(archive, quiet=True) or ():
                if "error" in line:
                    raise ImageError(f"the engine cannot load the images: {line['error'].strip()}")

    def import_root(self, archive: Path, tag: str) -> None:
        """Make an image NAME:TAG of a tar of a root folder."""
        name, _, version = tag.rpartition(":")
        with _asking(f"import {archive}"), open(archive, "rb") as file:
            pieces = iter(lambda: file.read(CHUNK), b"")  # the SDK announces chunks, and of a file makes none
            self._client.api.import_image_from_stream(pieces, repository=name, tag=version)

    def remove(self, images: Sequence[str]) -> None:
        """Remove names of images, and images without another name; missing ones are not an error."""
        for image in images:
            with _asking(f"remove {image}"):
                try:
                    self._client.images.remove(image, force=True)
                except NotFound:
                    continue

    def run(
        self,
        image: str,
        command: Sequence[str],
        mounts: Sequence[str] = (),
        *,
        gpus: bool = False,
        environment: dict[str, str] | None = None,
        timeout_s: float = ANSWER_S,
    ) -> Output:
        """Run a command in a new container without privileges; returns its output and exit status."""
        with self._container(image, command, mounts, gpus, environment) as container:
            status = container.wait(timeout=timeout_s)["StatusCode"]
            stdout, stderr = (
                container.logs(stdout=not errors, stderr=errors).decode(errors="replace") for errors in (False, True)
            )
        return Output(stdout, stderr, status)

    def follow(
        self, image: str, command: Sequence[str], show: Callable[[str], None], mounts: Sequence[str], gpus: bool
    ) -> int:
        """Run a command as `run` does, hand over its output as it comes, and return its exit status."""
        with self._container(image, command, mounts, gpus, None) as container:
            for piece in container.logs(stream=True, follow=True):
                show(piece.decode(errors="replace"))
            return container.wait()["StatusCode"]

    @contextmanager
    def _container(
        self,
        image: str,
        command: Sequence[str],
        mounts: Sequence[str],
        gpus: bool,
        environment: dict[str, str] | None,
    ) -> Iterator[Container]:
        """A started container, removed at the end, whatever happens. An image that is not here is not pulled."""
        options = isolation(mounts, gpus)
        with _asking(f"run {image}"):
            container = self._client.containers.create(image, list(command), environment=environment, **options)
            try:
                container.start()
                yield container
            finally:
                container.remove(force=True, v=True)


def isolation(mounts: Sequence[str] = (), gpus: bool = False) -> dict:
    """The SDK's options of a container without privileges, on a read-only root, with the host's network.

    Parameters
    ----------
    mounts : `/host/folder:/folder` or `/host/folder:/folder:ro`; what the trainers write goes to one of them, and
        belongs to the user who runs this.
    gpus : whether the container gets all GPUs, and may lock memory for transfers between them.
    """
    options: dict = {
        "network_mode": "host",
        "ipc_mode": "host",
        "read_only": True,
        "tmpfs": {"/tmp": ""},
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "user": f"{os.getuid()}:{os.getgid()}",
        "volumes": list(mounts),
    }
    if gpus:
        options["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
        options["ulimits"] = [Ulimit(name="memlock", soft=-1, hard=-1)]
    return options


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Turns the SDK's errors into an ImageError that says what the engine was asked to do."""
    try:
        yield
    except NotFound as error:
        raise ImageError(f"the engine cannot {what}: {error.explanation}; `make image` builds the images") from error
    except APIError as error:
        raise ImageError(f"the engine cannot {what}: {error.explanation}") from error
    except (DockerException, OSError) as error:  # requests' errors are OSErrors
        raise EngineError(f"the engine stopped answering when asked to {what}: {error}; see its log") from error


def _unreachable(error: BaseException) -> str:
    """Why there is no connection, from the exceptions that led to this one."""
    address = os.environ.get("DOCKER_HOST")
    where = f"at DOCKER_HOST={address}" if address else "here"
    causes = list(_causes(error))
    if any(isinstance(cause, PermissionError) for cause in causes):
        advice = (
            "you may not use its socket: run as root, or join the group `docker` (sudo usermod -aG docker $USER), which is "
            "as good as root, and log in again"
        )
    elif any(isinstance(cause, FileNotFoundError | ConnectionRefusedError) for cause in causes):
        start = "start it (sudo systemctl start docker) or install it; an engine elsewhere is named by DOCKER_HOST"
        advice = "nothing listens there: correct DOCKER_HOST, or start that engine" if address else start
    else:
        advice = f"{error}; DOCKER_HOST is such as unix:///var/run/docker.sock or ssh://user@host"
    return f"no Docker engine answers {where}: {advice}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those that led to it; requests and urllib3 keep theirs among the arguments."""
    while error is not None:
        yield error
        for argument in error.args:
            if isinstance(argument, BaseException):
                yield from _causes(argument)
        error = error.__cause__ or error.__context__


def _content(response: Any, what: str) -> Iterator[bytes]:
    with response:
        try:
            yield from response.iter_content(CHUNK)
        except OSError as error:
            raise ImageError(f"the engine broke off when asked to {what}: {error}; is its disk full?") from error


class _Chunks(io.RawIOBase):
    """A readable file made of an iterator of bytes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks, self._rest = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count
