"""Attempts over SSH: connects to the nodes, locks them, starts an agent on each, and ends it.

Imports `launch`, `launch.nodes`, `cluster` and `planning`. Start reading at `launcher.py`.
"""
