"""Kernels with the passes of those of 2020, timed against OneFlow's own (`make effects`); start with `measure.py`.

No program computes with them.
"""
