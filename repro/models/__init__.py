"""One specification for each published model, and the ways in which PyTorch is run as its baseline.

What the controller, the trainers, the baselines and the performance model must agree on: shape keys, smoke, curve and
convergence shapes, optimizer, data kinds, log generations. Standard library only, Python 3.9; imports nothing of the project.
Start reading at `spec.py`.
"""
