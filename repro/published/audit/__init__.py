"""Rules that recompute every published figure and compare statements with each other; `engine` runs them all.

A rule yields matches and findings; it never edits data. Imports `published`. Start reading at `engine.py`.
"""
