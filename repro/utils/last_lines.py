"""The lines with which tasks end that a reviewer is told to expect."""

TESTED = "all checks and tests passed"
"""`make test`."""


def verified(host: str, runs: int) -> str:
    """`make verify HOST=`, of a host with this many kept runs."""
    return f"verified: all {runs} kept runs of {host} are as they were recorded"
