"""The published reports: cases, figures, log formats, measuring rules; `audit/` checks them against each other.

Reads `data/`, runs nothing. Imports `models` and `utils`. Start reading at `cases.py`.
"""
