"""From a run's files to statements: results, ratios, relations, verdicts, loss curves, convergence, profiles.

Works on pandas DataFrames (`frames`); knows nothing of documents. Imports `planning`, `runs`, `published`, `perfmodel`. Start
reading at `frames.py` and `results.py`.
"""
