"""Attempts on the nodes of an inventory: connect, lock, upload, start, follow, collect, end.

Imports `launch`, `cluster`, `planning`, `runs`. Start reading at `site.py`.
"""
