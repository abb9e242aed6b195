"""Attempts on the nodes of a cluster, whichever way they are reached: what nodes are sent, and what becomes of it.

`ssh` and `slurm` each bring a transport and a launcher to it. Imports `launch`, `cluster`, `perfmodel`, `planning` and
`runs`, and neither `ssh` nor `slurm`. Start reading at `attempt.py`.
"""
