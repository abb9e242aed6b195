"""Attempts as Slurm jobs: the batch script, the client for Slurm's commands, and how a job's messages are read.

Imports `launch` and `launch.ssh`. Start reading at `site.py`.
"""
