"""The task that writes the static site and the claims table."""

from __future__ import annotations

from repro.cli.settings import Exit, Invocation, task
from repro.utils.errors import FAILED


@task(
    check="write nothing; exit 1 if a page or the claims table is not what the data gives",
    pdf="also print every page to reports/site/pdf/, which needs Chromium",
    base_url="address at which reports/site/ will be served, for the preview picture that chats show",
)
def site(invocation: Invocation, check: bool = False, pdf: bool = False, base_url: str = "") -> None:
    """Write the static site, reports/site/, and the claims table, reports/claims.csv.

    The site needs no server: open reports/site/index.html, or serve the folder reports/. Exit status: 0 done; 1 with
    --check, something is not up to date, or a page could not be printed; 2 wrong data or address.
    """
    from repro.report.site import build, print_pages

    address = build.address(base_url)
    if check:
        if stale := build.differing(base_url=address):
            raise Exit("not as the data gives them: " + ", ".join(map(str, stale)), FAILED)
        print("up to date")
        return
    printer = print_pages.chromium() if pdf else None
    for path in build.write(address):
        print(path)
    if printer:
        print(print_pages.write(build.FOLDER, printer))
