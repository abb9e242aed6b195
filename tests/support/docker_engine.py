"""A Docker engine with recorded answers on a Unix socket, for the tests of what asks one through the SDK."""

import json
import re
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

CONTAINER = "c0ffee"


class FakeEngine:
    """What the engine has and was asked for.

    Attributes
    ----------
    images : tag -> labels.
    archive : the answer to a request to save, and `length`, its announced length where that is another.
    imported : NAME:TAG and the tar of each root folder that it was to make an image of.
    loaded : what it was given to load; `refusal` is its answer then, "" for none.
    output : standard output, standard error and exit status of each container.
    created : the descriptions of containers that were asked for; `removed` the names of containers and images.
    """

    def __init__(self) -> None:
        self.images: dict[str, dict[str, str]] = {}
        self.archive, self.length = b"", None
        self.saved: list[str] = []
        self.imported: list[tuple[str, bytes]] = []
        self.loaded, self.refusal = b"", ""
        self.output: tuple[str, str, int] = ("", "", 0)
        self.start_error = ""
        self.created: list[dict] = []
        self.removed: list[str] = []


@contextmanager
def fake_engine(folder: Path) -> Iterator[tuple[FakeEngine, str]]:
    """An engine, and the DOCKER_HOST under which it answers."""
    engine = FakeEngine()
    handler = type("Handler", (_Handler,), {"engine": engine})
    with socketserver.ThreadingUnixStreamServer(str(folder / "docker.sock"), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield engine, f"unix://{folder}/docker.sock"
        server.shutdown()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: FakeEngine

    def do_GET(self) -> None:
        path, query = self._request()
        if path in ("/_ping", "/version"):
            self._json({"ApiVersion": "1.41", "Version": "20.10.24"})
        elif path == "/images/get":
            self.engine.saved = query["names"]
            missing = [name for name in query["names"] if name not in self.engine.images]
            if missing:
                self._json({"message": f"No such image: {missing[0]}"}, 404)
            else:
                self._bytes(self.engine.archive, self.engine.length)
        elif found := re.fullmatch(r"/images/(.+)/json", path):
            if found[1] in self.engine.images:
                self._json({"Id": "sha256:1", "Config": {"Labels": self.engine.images[found[1]]}})
            else:
                self._json({"message": f"No such image: {found[1]}"}, 404)
        elif path.endswith("/logs"):
            streams = [number for number, name in ((1, "stdout"), (2, "stderr")) if query.get(name) == ["1"]]
            parts = [(number, self.engine.output[number - 1].encode()) for number in streams]
            self._bytes(b"".join(struct.pack(">BxxxL", number, len(part)) + part for number, part in parts if part))
        else:
            self._json({"Id": CONTAINER, "Config": {"Tty": False}})

    def do_POST(self) -> None:
        path, query = self._request()
        body = self._body()
        if path == "/images/create":
            self.engine.imported.append((f"{query['repo'][0]}:{query['tag'][0]}", body))
            self._json({"status": "sha256:1"})
        elif path == "/images/load":
            self.engine.loaded = body
            self._json({"error": self.engine.refusal} if self.engine.refusal else {"stream": "Loaded"})
        elif path == "/containers/create":
            content = json.loads(body)
            self.engine.created.append(content)
            if content["Image"] in self.engine.images:
                self._json({"Id": CONTAINER}, 201)
            else:
                self._json({"message": f"No such image: {content['Image']}"}, 404)
        elif path.endswith("/start"):
            self._json({"message": self.engine.start_error}, 500) if self.engine.start_error else self._bytes(
                b"", 0, 204
            )
        else:
            self._json({"StatusCode": self.engine.output[2]})

    def do_DELETE(self) -> None:
        path, _ = self._request()
        name = path.removeprefix("/images/").removeprefix("/containers/")
        known = path.startswith("/containers/") or name in self.engine.images
        self.engine.removed += [name] if known else []
        self._json([] if known else {"message": f"No such image: {name}"}, 200 if known else 404)

    def _request(self) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        return unquote(re.sub(r"^/v1\.\d+", "", parts.path)), parse_qs(parts.query)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _json(self, content: object, status: int = 200) -> None:
        self._bytes(json.dumps(content).encode(), status=status)

    def _bytes(self, content: bytes, length: int | None = None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = True

    def address_string(self) -> str:
        return "client"

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""
