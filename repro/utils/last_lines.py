"""The last lines of tasks, which ARTIFACT.md quotes as expected results."""

TESTED = "all checks and tests passed"
"""`make test`."""


def verified(host: str, runs: int) -> str:
    """`make verify HOST=`, of a host with this many kept runs."""
    return f"verified: all {runs} kept runs of {host} are as they were recorded"


def benched(succeeded: int, configurations: int) -> str:
    """`make bench` begins its last line so, with how many configurations succeeded."""
    return f"{succeeded} of {configurations} configurations succeeded in every repeat"


def rehearsed(ended: int, cases: int) -> str:
    """`make rehearse` likewise, with how many cases ended in order."""
    return f"{ended} of {cases} cases ran to their end"
