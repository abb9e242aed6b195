"""Simulated nodes: containers on this machine that are provisioned, checked and used as the nodes of a cluster are.

Imports `images` and `utils`. Start reading at `nodes.py`; `engine.py` is the Docker engine around them.
"""
