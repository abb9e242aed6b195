"""The tasks of `fab` and `make`: options in, calls to the packages, printed answers and an exit status out.

May import every package; nothing imports it. No task computes anything itself. `tasks.py` collects the tasks of the
other modules, `settings.py` says what an option is and how errors become exit statuses, `session.py` carries out a
run, `fab.py` gives the tasks to Fabric, `make.py` takes the variables of make. What a task needs is imported when it
runs, so that a list of the tasks is quick. Start reading at `bench.py`.
"""
