"""Finds what would invalidate a run before it starts (GPUs, kernels, network, collectives, node), with fixes.

Knows the checks and the commands they run; measures with `launch`. Imports everything below `report`. Start reading at
`framework.py`.
"""
