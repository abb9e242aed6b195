"""Command line: `python -m repro TASK`, where TASK is a task of the fabfile."""

from invoke import Collection, Program

from repro import fabfile

Program(name="repro", binary="python -m repro", namespace=Collection.from_module(fabfile)).run()
