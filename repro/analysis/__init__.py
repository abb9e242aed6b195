"""Derives results from a run's files: ratios, relations, verdicts, loss curves, convergence, profiles.

Works on pandas DataFrames (`frames`) and is independent of documents. Imports `planning`, `runs`, `published`,
`perfmodel`. Start reading at `frames.py` and `results.py`.
"""
