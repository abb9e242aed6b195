"""The tasks around a cluster's description: a new one, what its nodes are, and the tests over simulated nodes."""

import os
import sys

from invoke import task

from repro.fabfile import SETTINGS, check_settings, setting

SETTINGS |= {"LIMIT", "FIX", "DRY", "LAUNCHER", "RETRIES", "TAGS", "LONG"}


@task
def e2e(c):
    """The tests over simulated nodes; they need root and start an engine of their own [ONLY=expression LONG=1]."""
    check_settings()
    only = ["-k", setting("ONLY")] if setting("ONLY") else []
    quick = [] if setting("LONG") else ["-m", "not long"]
    arguments = ["-m", "pytest", "tests/cluster", "--timeout=900", "--durations=12", *quick, *only]
    os.execv(sys.executable, [sys.executable, *arguments])
