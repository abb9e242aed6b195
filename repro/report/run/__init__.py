"""A run's report: outcome, verdicts, results, environment, and a section for each kind of run.

Imports `analysis`, `perfmodel`, `planning`, `runs`. Start reading at `page.py`.
"""
