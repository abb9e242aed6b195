"""What the environment of the baselines in an image consists of: its packages by their versions, and that PyTorch loads.

Prints one JSON object as probe.py does for the trainers, with the names of packages as docker/*.lock writes them.
"""

import importlib.metadata
import json
import os
import re
import time

from probe import can_load, driver, entry, privileged_files


def main():
    """Print the report."""
    started = time.monotonic()
    import numpy  # noqa: F401
    import torch

    import_s = time.monotonic() - started
    packages = {
        re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(): entry(package.version, str(package.locate_file("")))
        for package in importlib.metadata.distributions()
    }
    of_driver, unknown = driver()
    built_with = {"CUDA that PyTorch was built with": entry(torch.version.cuda, torch.__file__)}
    report = {
        "libraries": {**packages, **built_with, **of_driver},
        "called": {},
        "unknown": unknown,
        "import_s": import_s,
        "libibverbs": can_load("libibverbs.so.1"),
        "user": os.getuid(),
        "root_writable": os.access("/", os.W_OK),
        "privileged_files": privileged_files(),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
