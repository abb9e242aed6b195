"""Command line: `python -m repro TASK`, where TASK is a task of the fabfile, or one about images or clusters."""

from invoke import Collection, Exit, Program

from repro import (
    cluster_tasks,
    correctness_tasks,
    fabfile,
    image_tasks,
    preflight_tasks,
    profile_tasks,
    provision_tasks,
    reproduced_tasks,
)


class Tasks(Program):
    """A program whose tasks say that they were interrupted, and end with a status of its own for it."""

    def execute(self):
        try:
            super().execute()
        except KeyboardInterrupt:
            raise Exit("interrupted", fabfile.INTERRUPTED) from None


tasks = Collection.from_module(fabfile)
for module in (
    correctness_tasks,
    image_tasks,
    cluster_tasks,
    provision_tasks,
    preflight_tasks,
    profile_tasks,
    reproduced_tasks,
):
    for each in Collection.from_module(module).tasks.values():
        tasks.add_task(each)
Tasks(name="repro", binary="python -m repro", namespace=tasks).run()
