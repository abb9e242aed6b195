"""Figures: what a chart is (`figure`), its axes and text (`canvas`), and one module for each kind of chart.

Knows nothing of runs or cases; a page gives it numbers and labels. Imports `utils` and `report.document`. Start reading at
`figure.py`.
"""
