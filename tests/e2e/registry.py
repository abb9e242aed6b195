"""A registry of images with TLS and a certificate of its own, on this machine, that simulated nodes can pull from."""

import gzip
import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from hashlib import sha256
from pathlib import Path

from repro.simulation.engine import SimulationEngine, SimulationEngineError

PORT = 5443
KIND = "application/vnd.docker"


class Registry:
    """Ready once constructed, until `close`. `certificate` is the CA that nodes must be given."""

    def __init__(self, engine: SimulationEngine, folder: Path):
        self.name = f"{engine.host}:{PORT}"
        self.certificate = folder / "registry.crt"
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                folder / "registry.key",
                "-out",
                self.certificate,
                "-days",
                "1",
                "-subj",
                "/CN=registry",
                "-addext",
                f"subjectAltName=IP:{engine.host}",
            ],
            check=True,
            capture_output=True,
        )
        tls = {"certificate": str(self.certificate), "key": str(folder / "registry.key")}
        described = {
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
            "http": {"addr": self.name, "tls": tls},
        }
        (folder / "registry.yml").write_text(json.dumps(described))
        self._process = subprocess.Popen(
            ["docker-registry", "serve", folder / "registry.yml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._tls = ssl.create_default_context(cafile=str(self.certificate))
        deadline = time.monotonic() + 30
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.close()
                raise SimulationEngineError("docker-registry does not start")
            time.sleep(0.1)

    def push(self, name: str, layer: bytes) -> str:
        """Put an image of one layer, a tar, into it under NAME:TAG; the image's ID."""
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {},
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{sha256(layer).hexdigest()}"]},
            }
        ).encode()
        project, tag = name.split(":")
        parts = {f"{KIND}.container.image.v1+json": config, f"{KIND}.image.rootfs.diff.tar.gzip": gzip.compress(layer)}
        described = [
            {"mediaType": kind, "size": len(part), "digest": self._put_part(project, part)}
            for kind, part in parts.items()
        ]
        kind = f"{KIND}.distribution.manifest.v2+json"
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": described[0], "layers": described[1:]}
        self._ask("PUT", f"https://{self.name}/v2/{project}/manifests/{tag}", json.dumps(manifest).encode(), kind)
        return described[0]["digest"]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _put_part(self, project, part):
        digest = f"sha256:{sha256(part).hexdigest()}"
        place = self._ask("POST", f"https://{self.name}/v2/{project}/blobs/uploads/").headers["Location"]
        self._ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest}", part, "application/octet-stream")
        return digest

    def _ask(self, method, url, data=b"", kind="text/plain"):
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": kind})
        return urllib.request.urlopen(request, context=self._tls, timeout=10)

    def _answers(self):
        try:
            urllib.request.urlopen(f"https://{self.name}/v2/", context=self._tls, timeout=5)
        except (OSError, urllib.error.URLError):
            return False
        return True
