"""Command line: `python -m repro TASK`, where TASK is a task of the fabfile or one about images."""

from invoke import Collection, Program

from repro import fabfile, image_tasks

tasks = Collection.from_module(fabfile)
for each in Collection.from_module(image_tasks).tasks.values():
    tasks.add_task(each)
Program(name="repro", binary="python -m repro", namespace=tasks).run()
