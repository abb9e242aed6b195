"""What would spoil a run, found before it starts: GPUs, kernels, network, collectives, node, each with its fix.

Knows checks and what they ask of a machine; measures with `launch`. Imports everything below `report`. Start reading at
`framework.py`.
"""
