"""Reproduce OneFlow's published training benchmarks and say which figures hold.

Data flows one way through the packages, and each imports only those below it: `cli`, `report`, `preflight`, `launch`,
`analysis`, `perfmodel`, `planning`, `cluster`, `images`, `runs`, `published`, `models`, `utils`. `trainers` and `baselines` are
the programs that a run starts; they import `models` and nothing else. ARCHITECTURE.md has the picture.
"""

import sys

# Python reads this file before any other of the package, so it keeps to syntax that every Python 3 has.
if sys.version_info < (3, 8):  # noqa: UP036
    sys.exit(
        f"set-up: Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable}) is too old: this needs Python 3.8 or newer to start from, and finds or downloads by "
        "itself those that it installs. Install one (RHEL 8: `dnf install python3.11`) and name it: "
        "`make bench PYTHON=python3.11`."
    )
