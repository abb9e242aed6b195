"""The task that writes the static site, the claims table and what the READMEs say of both."""

from __future__ import annotations

from repro.cli.settings import Exit, Invocation, task
from repro.utils.errors import FAILED


@task(check="write nothing; exit 1 if a file that is in git is not what the data gives")
def site(invocation: Invocation, check: bool = False) -> None:
    """Write the static site, reports/site/, and reports/claims.csv, ARTIFACT.md and the READMEs' answer.

    The site needs no server: open reports/site/index.html, or serve the folder reports/. Git ignores it and holds the
    other files. Exit status: 0 done; 1 with --check, one of the others is not up to date; 2 wrong data.
    """
    from repro.report.site import build

    if check:
        if stale := build.differing():
            raise Exit("not as the data gives them: " + ", ".join(map(str, stale)), FAILED)
        print("up to date")
        return
    for path in build.write():
        print(path)
