"""From published cases to the units of a run: scales, derived cases, repeats, baselines, data sets.

A plan (`repro.runs.plan`) is data: nothing is started here. Imports `images`, `runs`, `published`,
`models`. Start reading at `plan.py`.
"""
