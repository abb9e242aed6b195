"""An engine of its own, a base made by debootstrap, and the images built once, for the tests that need them.

They need root, `dockerd` and `debootstrap`. The engine has its own data, socket and processes, a bridge that nothing
uses and no packet filter rules, and is ended with the tests. DEBIAN and DEBIAN_SECURITY may name other mirrors.
"""

import os
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

import pytest

from repro.images.debian import pack_debian
from repro.images.pins import load_pins
from tests.docker.surroundings import DEBIAN, DEBIAN_SECURITY, ROOT, SECRET
from tests.support import tasks
from tests.support.patience import patience

HERE = Path(__file__).resolve().parent
NEEDED = ("dockerd", "debootstrap", "ip", "docker-registry", "apt-ftparchive", "gpg")
BASE = "debootstrapped:bullseye"
UNUSED = "169.254.213.1/24"


def pytest_collection_modifyitems(items):
    missing = [name for name in NEEDED if shutil.which(name) is None]
    reason = "needs root" if os.geteuid() else f"needs {', '.join(missing)}" if missing else None
    if reason:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def scratch():
    """A folder on a file system that overlayfs can stand on."""
    (ROOT / ".cache").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="image-test-", dir=ROOT / ".cache"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def bridge():
    """A bridge for the engine: one that is told to have none takes away the bridge of this machine's own engine."""
    name = f"images{os.getpid()}"
    subprocess.run(["ip", "link", "add", name, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", UNUSED, "dev", name], check=True)
    yield name
    subprocess.run(["ip", "link", "delete", name], check=True)


@pytest.fixture(scope="session")
def engine(scratch, bridge):
    """The environment variables with which a Docker client reaches an engine that is only ours."""
    socket = f"unix://{scratch}/docker.sock"
    command = [
        "dockerd",
        "--data-root",
        str(scratch / "data"),
        "--exec-root",
        str(scratch / "exec"),
        "--pidfile",
        str(scratch / "docker.pid"),
        "--host",
        socket,
        "--bridge",
        bridge,
        "--iptables=false",
        "--ip6tables=false",
        "--ip-masq=false",
        "--storage-driver",
        "overlay2",
    ]
    environment = {"DOCKER_HOST": socket}
    with open(scratch / "engine.log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(300):
            if process.poll() is not None or _answers(environment):
                break
            time.sleep(0.1)
        assert _answers(environment), (scratch / "engine.log").read_text()
        yield environment
    finally:
        process.terminate()
        process.wait(patience(60))
        subprocess.run(["umount", str(scratch / "exec/netns/default")], capture_output=True)


def _answers(environment):
    done = subprocess.run(["/usr/bin/docker", "info"], env={**os.environ, **environment}, capture_output=True)
    return done.returncode == 0


@pytest.fixture(scope="session")
def docker(engine):
    """Runs the Docker client; returns what it printed."""
    from repro.images.build import find_docker

    client = find_docker()

    def run(*arguments, check=True, **options):
        done = subprocess.run(
            [client, *map(str, arguments)],
            env={**os.environ, **engine, "DOCKER_BUILDKIT": "1"},
            capture_output=True,
            text=True,
            cwd=ROOT,
            **options,
        )
        if check:
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()
        return done

    return run


@pytest.fixture(scope="session")
def base(scratch, docker):
    """The name of a minimal Debian in the engine."""
    archive = pack_debian("bullseye", DEBIAN, scratch, load_pins().source_date_epoch)
    docker("import", archive, BASE)
    archive.unlink()
    return BASE


@pytest.fixture(scope="session")
def make_small(docker, scratch):
    """Gives the engine an image of this name with one file, for what is the same for gigabytes."""

    def run(name):
        content, archive = scratch / "content", scratch / "small.tar"
        content.write_text(name)
        with tarfile.open(archive, "w") as files:
            files.add(content, "content")
        docker("import", archive, name)

    return run


@pytest.fixture(scope="session")
def make(engine, base):
    """Runs a target of the Makefile against our engine, base and mirrors; returns the completed process."""

    def run(target, **settings):
        sources = {"BASE": base, "DEBIAN": DEBIAN, "DEBIAN_SECURITY": DEBIAN_SECURITY}
        known = {name: value for name, value in sources.items() if tasks.has(target, name)}
        return tasks.run(target, **engine, **known | settings)

    return run


@pytest.fixture(scope="session")
def ca(scratch):
    """A file with CA certificates that must not get into an image."""
    path = scratch / "ca.pem"
    path.write_text(f"{SECRET}\n{Path('/etc/ssl/certs/ca-certificates.crt').read_text()}")
    return path


@pytest.fixture(scope="session")
def built(make, ca):
    """Both images, built by `make image`; returns tag -> (image ID, manifest digest)."""
    done = make("image", CA=ca)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("oneflow-reproduction")]
    return {row[0]: (row[2], row[4]) for row in rows}
