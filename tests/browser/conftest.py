"""A real Chromium for the tests of the HTML report, and a report for it to open."""

import os
import shutil
from pathlib import Path

import pytest

FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    """The browser to use: CHROMIUM, or the one on the path."""
    return os.environ.get("CHROMIUM") or shutil.which("chromium")


@pytest.fixture(scope="session")
def browser():
    path = chromium()
    if not path or not Path(path).is_file():
        pytest.skip("no Chromium (CHROMIUM or `chromium` on the path): in Debian, apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: make setup")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *root], chromium_sandbox=not root)
        yield running
        running.close()
