"""The tasks of `fab` and `make`: options in, calls to the packages, printed answers and an exit status out.

May import every package; nothing imports it. No task computes anything itself. Start reading at `bench.py`.
"""
