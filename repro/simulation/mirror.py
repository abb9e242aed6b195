"""The one web server that simulated nodes reach: the archives of their packages, kept once fetched, and folders of this machine.

`python -m repro.simulation.mirror ADDRESS PORT FOLDER` serves /debian, /debian-security and /ubuntu from the archives that
DEBIAN, DEBIAN_SECURITY and UBUNTU name, and everything else from FOLDER/web. What never changes under its name is kept in FOLDER/apt.
With FOLDER alone it serves the one connection that its standard input is, as QEMU gives it one of a virtual machine.
"""

import os
import shutil
import socket
import sys
import tempfile
import urllib.error
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

ARCHIVES = {
    "debian": os.environ.get("DEBIAN") or "http://deb.debian.org/debian",
    "debian-security": os.environ.get("DEBIAN_SECURITY") or "http://deb.debian.org/debian-security",
    "ubuntu": os.environ.get("UBUNTU") or "http://archive.ubuntu.com/ubuntu",
}
UNCHANGING = ("/pool/", "/by-hash/")


class Mirror(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, folder: Path, **options: Any) -> None:
        self.folder = folder
        super().__init__(*arguments, directory=folder / "web", **options)

    def do_GET(self) -> None:
        archive, _, path = self.path.lstrip("/").partition("/")
        if archive not in ARCHIVES:
            super().do_GET()
        elif any(part in self.path for part in UNCHANGING):
            self._send(self._kept(archive, path))
        else:
            self._send(self._fetched(archive, path))

    def log_message(self, *arguments: object) -> None:
        """Only errors are of interest, and apt reports those."""

    def _kept(self, archive: str, path: str) -> IO[bytes] | None:
        file = (self.folder / "apt" / archive / path).resolve()
        if not file.is_relative_to(self.folder / "apt"):
            self.send_error(400)
            return None
        if not file.exists():
            fetched = self._fetched(archive, path)
            if fetched is None:
                return None
            file.parent.mkdir(parents=True, exist_ok=True)
            os.link(fetched.name, f"{fetched.name}.whole")
            os.replace(f"{fetched.name}.whole", file)
        return open(file, "rb")

    def _fetched(self, archive: str, path: str) -> Any:
        """An open file with what the archive answers, None once an error is sent."""
        scratch = self.folder / "apt"
        scratch.mkdir(parents=True, exist_ok=True)
        file = tempfile.NamedTemporaryFile(dir=scratch)  # noqa: SIM115 - whoever asked closes it
        try:
            with urllib.request.urlopen(f"{ARCHIVES[archive]}/{path}", timeout=120) as answer:
                shutil.copyfileobj(answer, file)
                if answer.length:
                    raise OSError(f"{answer.length} bytes of {path} are missing")
        except urllib.error.HTTPError as error:
            self.send_error(error.code)
            return None
        except OSError as error:
            self.send_error(502, str(error))
            return None
        file.flush()
        file.seek(0)
        return file

    def _send(self, file: Any) -> None:
        if file is None:
            return
        with file:
            self.send_response(200)
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)


def main(home: str, address: str = "", port: str = "") -> None:
    folder = Path(home).resolve()
    (folder / "web").mkdir(parents=True, exist_ok=True)
    if address:
        ThreadingHTTPServer((address, int(port)), partial(Mirror, folder=folder)).serve_forever()
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - it is the connection, too
    Mirror(socket.socket(fileno=0), ("a virtual machine", 0), None, folder=folder)


if __name__ == "__main__":
    *listening, home = sys.argv[1:]
    main(home, *listening)
