"""What the environment of the baselines in an image consists of: its packages by their versions, and that PyTorch loads.

Prints what probe.py does for the trainers, with the names of packages as docker/*.lock writes them.
"""

import importlib.metadata
import re

from probe import entry, main


def libraries():
    """Name -> version and source of every package, and what PyTorch was built with."""
    import numpy  # noqa: F401
    import torch

    packages = {
        re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower(): entry(package.version, str(package.locate_file("")))
        for package in importlib.metadata.distributions()
    }
    return {**packages, "CUDA that PyTorch was built with": entry(torch.version.cuda, torch.__file__)}, {}


if __name__ == "__main__":
    main(libraries)
