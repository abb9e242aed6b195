"""Command line: `python -m repro TASK`, where TASK is a task of the fabfile, or one about images or clusters."""

from invoke import Collection, Exit, Program

from repro.cli import cluster as cluster_tasks
from repro.cli import correctness as correctness_tasks
from repro.cli import host as reproduced_tasks
from repro.cli import image as image_tasks
from repro.cli import preflight as preflight_tasks
from repro.cli import tasks as fabfile


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
    preflight_tasks,
    reproduced_tasks,
):
    for each in Collection.from_module(module).tasks.values():
        tasks.add_task(each)
Tasks(name="repro", binary="python -m repro", namespace=tasks).run()
