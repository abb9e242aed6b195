"""A stand-in for the vendors' package repositories: signed, served to simulated nodes, its packages empty shells.

A package here has a vendor's name and version and, at most, stubs of the programs that other software looks for.
"""

import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from repro.simulation.engine import HOME, SimulationEngine

# What Docker looks for before it takes --gpus, and the runtime that its configuration may name.
TOOLKIT_STUBS = {
    "usr/bin/nvidia-container-runtime-hook": "#!/bin/sh\nexec cat > /dev/null\n",
    "usr/bin/nvidia-container-runtime": '#!/bin/sh\nexec runc "$@"\n',
    "usr/bin/nvidia-ctk": "#!/bin/sh\necho NVIDIA Container Toolkit CLI, a stub of the tests\n",
}


@dataclass(frozen=True)
class Repository:
    """A flat apt repository. `url` is as nodes see it; its packages are signed once `publish` is called."""

    folder: Path
    url: str

    @property
    def line(self) -> str:
        """As apt writes it, without `deb` and options."""
        return f"{self.url} /"

    @property
    def key(self) -> str:
        """Where nodes, and this machine, find the armoured key that it is signed with."""
        return f"{self.url}/key.asc"

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key that was the last to sign."""
        return (self.folder / "fingerprint").read_text()

    def add(self, name: str, version: str, depends: str = "", files: dict[str, str] | None = None) -> None:
        """A package with the given programs, path -> text, and nothing else."""
        with tempfile.TemporaryDirectory() as scratch:
            root = Path(scratch)
            for path, text in (files or {}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text)
                (root / path).chmod(0o755)
            (root / "DEBIAN").mkdir()
            (root / "DEBIAN/control").write_text(
                f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Nobody <nobody@example.org>\n"
                f"{f'Depends: {depends}' if depends else 'Section: misc'}\nDescription: a shell for tests\n"
            )
            root.chmod(0o755)
            target = self.folder / f"{name}_{version}_amd64.deb"
            subprocess.run(
                ["dpkg-deb", "--root-owner-group", "-Znone", "--build", root, target],
                check=True,
                stdout=subprocess.DEVNULL,
            )

    def publish(self, name: str = "vendor") -> None:
        """Sign what is in the folder with the key of a name, made if there is none; its key becomes key.asc."""
        fingerprint = self._fingerprint_of(name)
        packages = _output(["apt-ftparchive", "packages", "."], self.folder)
        (self.folder / "Packages").write_bytes(packages)
        for stale in ("InRelease", "Release"):
            (self.folder / stale).unlink(missing_ok=True)
        release = _output(["apt-ftparchive", "release", "."], self.folder)
        (self.folder / "Release").write_bytes(release)
        signed = self._gpg("--local-user", fingerprint, "--clearsign", "--output", "-", input=release)
        (self.folder / "InRelease").write_bytes(signed)
        (self.folder / "key.asc").write_bytes(self._gpg("--armor", "--export", fingerprint))
        (self.folder / "fingerprint").write_text(fingerprint)

    def tamper(self, name: str) -> None:
        """Change a package after it was signed for, its size the same."""
        (package,) = self.folder.glob(f"{name}_*.deb")
        content = bytearray(package.read_bytes())
        content[-1] ^= 1
        package.write_bytes(content)

    def remove(self) -> None:
        subprocess.run(["gpgconf", "--homedir", self._home, "--kill", "all"], capture_output=True)
        for folder in (self.folder, self._home):
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _home(self):
        return Path(f"{self.folder}.keys")

    def _fingerprint_of(self, name):
        self._home.mkdir(mode=0o700, exist_ok=True)
        kept = self._home / f"{name}.fingerprint"
        if not kept.exists():
            self._gpg("--quick-generate-key", name, "rsa2048", "sign", "never")
            listed = self._gpg("--list-secret-keys", "--with-colons", f"={name}").decode().splitlines()
            kept.write_text(next(line.split(":")[9] for line in listed if line.startswith("fpr")))
        return kept.read_text()

    @property
    def _command(self):
        return [
            "gpg",
            "--homedir",
            str(self._home),
            "--batch",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
        ]

    def _gpg(self, *argv, **options):
        return subprocess.run([*self._command, *argv], check=True, capture_output=True, **options).stdout


def _output(command, folder):
    return subprocess.run(command, cwd=folder, check=True, capture_output=True).stdout


def repository(engine: SimulationEngine, name: str) -> Repository:
    """A new, empty repository that nodes find below /NAME-PROCESS; `remove` it in the end."""
    path = f"{name}-{os.getpid()}"
    made = Repository(HOME / "web" / path, f"{engine.web}/{path}")
    made.remove()
    made.folder.mkdir(parents=True)
    return made


@dataclass(frozen=True)
class Vendors:
    """The repositories of the driver, of the container toolkit, and of MLNX_OFED."""

    driver: Repository
    container: Repository
    ofed: Repository

    def variables(self) -> dict:
        """What an inventory sets so that provisioning takes its packages from here."""
        return {
            "nvidia_driver_repository": self.driver.line,
            "nvidia_driver_key": self.driver.key,
            "nvidia_driver_fingerprint": self.driver.fingerprint,
            "nvidia_container_toolkit_repository": self.container.line,
            "nvidia_container_toolkit_key": self.container.key,
            "nvidia_container_toolkit_fingerprint": self.container.fingerprint,
            "infiniband_ofed_repository": self.ofed.line,
            "infiniband_ofed_key": self.ofed.key,
            "infiniband_ofed_fingerprint": self.ofed.fingerprint,
        }

    def remove(self) -> None:
        for each in (self.driver, self.container, self.ofed):
            each.remove()


def vendors(
    engine: SimulationEngine,
    drivers=("535.183.06-1", "570.124.06-1"),
    toolkits=("1.17.7-1", "1.17.8-1"),
    ofed="24.10-0.7.0.0",
) -> Vendors:
    """All three, filled with the packages of the given versions and signed."""
    made = Vendors(*(repository(engine, name) for name in ("nvidia-driver", "nvidia-container", "ofed")))
    for version in drivers:
        made.driver.add("nvidia-driver", version)
        made.driver.add("cuda-drivers", version, depends=f"nvidia-driver (= {version})")
    for version in toolkits:
        made.container.add("libnvidia-container1", version)
        made.container.add("libnvidia-container-tools", version, depends=f"libnvidia-container1 (= {version})")
        made.container.add("nvidia-container-toolkit-base", version, files=TOOLKIT_STUBS)
        made.container.add("nvidia-container-toolkit", version, depends=f"nvidia-container-toolkit-base (= {version})")
    made.ofed.add("mlnx-ofed-all", ofed)
    for each in (made.driver, made.container, made.ofed):
        each.publish()
    return made
