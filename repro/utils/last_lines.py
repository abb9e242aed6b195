"""The last lines of tasks, which ARTIFACT.md quotes as expected results."""

TESTED = "all checks and tests passed"
"""`make test`."""


def verified(host: str, runs: int) -> str:
    """`make verify HOST=`, of a host with this many kept runs."""
    return f"verified: all {runs} kept runs of {host} are as they were recorded"
