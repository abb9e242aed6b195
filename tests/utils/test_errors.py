"""One base class for errors that a person can cause, so that tasks map errors to exit statuses in one place."""

import importlib
import inspect
import pkgutil

import repro
from repro.utils.errors import BAD_INPUT, FAILED, ReproError

# They run without the controller: set-up, what is sent to nodes, what trains, and the specifications that these read.
STANDALONE = (
    "repro.bootstrap",
    "repro.models",
    "repro.cluster.node_probe",
    "repro.launch.agent",
    "repro.trainers",
    "repro.baselines",
)


def exceptions_of_the_controller() -> set[type]:
    found = set()
    for module in pkgutil.walk_packages(repro.__path__, "repro.", onerror=lambda name: None):
        if module.name.startswith(STANDALONE) or module.name.endswith("__main__"):
            continue
        members = vars(importlib.import_module(module.name)).values()
        found |= {each for each in members if inspect.isclass(each) and issubclass(each, Exception)}
    ours = {each for each in found if each.__module__.startswith("repro.")}
    return {each for each in ours if not each.__module__.startswith(STANDALONE)}


def test_every_exception_of_the_controller_has_the_base():
    found = exceptions_of_the_controller()
    assert len(found) > 15
    assert sorted(each.__qualname__ for each in found if not issubclass(each, ReproError)) == []


def test_every_exception_has_the_exit_status_of_a_failure():
    assert {each.status for each in exceptions_of_the_controller()} == {BAD_INPUT, FAILED}
