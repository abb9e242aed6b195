"""What a training should take: work, memory and communication of a job, fitted constants, and how far they are off.

Imports `cluster` (for inventories), `published`, `models`. Start reading at `predict.py`.
"""
