"""Checks before a run: operators against the CPU (`accuracy.py`), and the speed of collectives (`collectives.py`)."""
