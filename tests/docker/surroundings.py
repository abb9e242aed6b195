"""What the image tests find around them: the repository, the Debian mirrors, and a secret that no image may hold."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = os.environ.get("DEBIAN", "http://deb.debian.org/debian")
DEBIAN_SECURITY = os.environ.get("DEBIAN_SECURITY", "http://deb.debian.org/debian-security")
SECRET = "# this-line-is-in-the-build-secret-only"
