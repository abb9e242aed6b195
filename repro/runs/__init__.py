"""The run folder: record, raw files, manifest, failures, archive.

The only package that opens a run's raw files. A run folder is append-only. Imports `utils`. Start reading at `record.py`.
"""
