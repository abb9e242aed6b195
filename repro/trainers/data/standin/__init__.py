"""Stand-ins for the published data sets: same number of parts, same distribution of sizes, meaningless contents.

`sets.py` lists the stand-ins and generates them; the other modules each write one kind. A trainer generates its
configuration's stand-in before it loads OneFlow, once per machine, and keeps it in the configured folder.
"""
