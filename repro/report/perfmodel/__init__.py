"""The page of the performance model: predictions, errors, limitations.

Imports `perfmodel` and `published`. Start reading at `page.py`.
"""
