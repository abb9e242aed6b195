"""Attempts as Slurm jobs: the batch script, the client for Slurm's commands, and how a job's messages are read.

Imports `launch`, `launch.nodes`, `cluster` and `planning`. Start reading at `launcher.py`.
"""
