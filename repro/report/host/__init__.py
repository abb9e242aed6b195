"""A host's page: every kept run of one machine, compared, with its machine, its notes and README's table.

Imports `report.run` for what a single run shows, `analysis`, `runs`. Start reading at `page.py`.
"""
