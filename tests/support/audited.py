"""The audit of the published reports, made once in each process for all tests that read it."""

from functools import cache

from repro.published.audit.engine import audit

audited = cache(audit)
