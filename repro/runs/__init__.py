"""A run's folder or archive: description, attempts, raw files, manifest, failures.

The only package that opens a run's raw files: `files.py` reads them in a folder and in a ZIP archive alike. A run's folder
is append-only, an archive is never changed. Imports `published`, `models`, `utils`. Start reading at `record.py`, then
`description.py`.
"""
