"""The tasks of `fab` and `make`: options in, calls to the packages, printed answers and an exit status out.

May import every package; nothing imports it. Tasks compute nothing themselves. `tasks.py` collects the tasks of the
other modules, `settings.py` defines options and the mapping of errors to exit statuses, `session.py` carries out a run,
`fab.py` registers the tasks with Fabric, `make.py` translates make variables. A task imports what it needs when it
runs, so that listing the tasks is fast. Start reading at `bench.py`.
"""
