"""Rules that recompute every published figure and compare statements with each other; `engine` runs them all.

A rule yields what holds and what does not; it never edits data. Imports `published`. Start reading at `engine.py`.
"""
