"""Prints the pages of the site to PDF with Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repro.utils.errors import ReproError
from repro.utils.i18n import LANGUAGES

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 120
PRINTED = "pdf"
"""The folder within the site for the PDFs, which are made on demand and not compared."""


class PrintError(ReproError):
    """No browser is there, or it could not print a page."""


def chromium() -> str:
    """The browser: CHROMIUM, or the first that is on the path; PrintError without one."""
    given = os.environ.get("CHROMIUM")
    found = given if given and shutil.which(given) else next(filter(None, map(shutil.which, BROWSERS)), None)
    if not found:
        raise PrintError(
            f"PDF=1 needs Chromium: none of {', '.join(BROWSERS)} is on the path; set CHROMIUM=/path/to/it"
        )
    return found


def write(folder: Path, browser: str) -> Path:
    """Print every page of the site in `folder`; the folder with the PDFs. PrintError names the first that failed."""
    target = folder / PRINTED
    shutil.rmtree(target, ignore_errors=True)
    pages = {}
    for language in LANGUAGES:
        (target / language).mkdir(parents=True)
        for page in sorted((folder / language).glob("*.html")):
            pages[page] = target / language / f"{page.stem}.pdf"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        printing = [pool.submit(print_page, page, pdf, browser) for page, pdf in pages.items()]
        try:
            for each in printing:
                each.result()
        except PrintError:
            pool.shutdown(cancel_futures=True)
            raise
    return target


def print_page(page: Path, pdf: Path, browser: str) -> None:
    """Print one page; PrintError if the browser fails. Each call has a profile of its own, so several can run at once."""
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser, "--headless", "--disable-gpu", f"--user-data-dir={profile}", *root]
        command += ["--no-pdf-header-footer", f"--print-to-pdf={pdf}", page.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise PrintError(f"{page}: {browser} did not print it within {PATIENCE_S} s") from None
    if done.returncode or not pdf.is_file():
        raise PrintError(f"{page}: {browser} could not print it: {done.stderr.strip()[-300:]}")
