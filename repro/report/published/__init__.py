"""The five published reports, rendered from the catalogue with the audit next to the figures.

Imports `published` and `report.charts`. Start reading at `page.py`.
"""
