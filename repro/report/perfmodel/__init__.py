"""The page of the performance model: what it predicts, how far it is off, what it cannot say.

Imports `perfmodel` and `published`. Start reading at `page.py`.
"""
