"""Command line: `python -m repro TASK`, where TASK is a task of the fabfile, or one about images or clusters."""

from invoke import Collection, Program

from repro import cluster_tasks, correctness_tasks, fabfile, image_tasks, preflight_tasks, provision_tasks

tasks = Collection.from_module(fabfile)
for module in (correctness_tasks, image_tasks, cluster_tasks, provision_tasks, preflight_tasks):
    for each in Collection.from_module(module).tasks.values():
        tasks.add_task(each)
Program(name="repro", binary="python -m repro", namespace=tasks).run()
