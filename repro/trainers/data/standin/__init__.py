"""Stand-ins for the published data sets: as many parts, sizes and lengths distributed alike, contents that mean nothing.

`sets.py` says which there are and makes one; the other modules each write one kind. A trainer makes the stand-in of its
configuration before it loads OneFlow, once on a machine: it stays in the folder that the configuration names.
"""
