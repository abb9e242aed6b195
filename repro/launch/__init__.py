"""Starts attempts and watches them to their end: on this machine, over SSH, or as Slurm jobs.

`base` says what a launcher and its session are, `select` finds one by name, `attempt` has what all attempts share, and
`runner` makes a run's attempts. `local` is the launcher of one machine; `ssh` and `slurm` are those of clusters, and
share `nodes`. `agent/` is the only code of the controller that is copied to nodes. Imports `analysis` (to measure an
attempt as it ends) and everything below. Start reading at `base.py`, then `runner.py`.
"""
