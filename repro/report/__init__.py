"""Documents in Chinese and English: what a run, a host, the published reports and the performance model show.

Knows blocks, tables and figures (`document`, `html`, `charts/`) and how each kind of page is made of them (`run/`, `host/`,
`published/`, `perfmodel/`). Imports everything below except `launch` and `preflight`: a report is made from files alone.
Start reading at `run/page.py`.
"""
