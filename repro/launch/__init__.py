"""Starts attempts and watches them to their end: on this machine, over SSH, or as Slurm jobs.

`base` says what a launcher and its session are, `select` finds one by name, `runner` leads a run's attempts. `agent/` is the
only code that is copied to nodes. Imports `analysis` (to measure an attempt as it ends) and everything below. Start reading
at `base.py`, then `runner.py`.
"""
