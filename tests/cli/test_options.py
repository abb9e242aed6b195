"""Groups of options: tasks take them whole, and options that mean nothing where ranks run are refused by name."""

import pytest

from repro.cli import options as options_module
from repro.cli.options import LOCAL, REMOTE, LibraryOptions, RunOptions, RuntimeOptions, refuse_misplaced
from repro.cli.settings import Invocation, OptionTask, task
from repro.cli.tasks import every
from repro.utils.errors import PlanError


def test_a_task_gets_the_options_of_a_group_as_one_value(monkeypatch):
    monkeypatch.setattr("repro.cli.settings.check_set_up", lambda task, variables: None)
    seen = []

    @task(run="a run of this test")
    def example(invocation: Invocation, model: str = "all", *, options: RunOptions, libraries: LibraryOptions) -> None:
        """An example."""
        seen.append((invocation.texts, model, options, libraries))

    assert isinstance(example, OptionTask) and example.options["run"].help == "a run of this test"
    example(model="gpt", retries="2", port="5000", cudnn="/lib")
    ((texts, model, options, libraries),) = seen
    assert texts == {"MODEL": "gpt", "RETRIES": "2", "PORT": "5000", "CUDNN": "/lib"}
    assert (model, options) == ("gpt", RunOptions(retries=2, port=5000))
    assert libraries.libraries(cupti="/cupti").cupti == "/cupti" and libraries.cudnn == "/lib"


@pytest.mark.parametrize("cluster", [None, "mine"])
@pytest.mark.parametrize("name", [*LOCAL, *REMOTE])
def test_options_are_refused_where_they_mean_nothing(name, cluster):
    given, wrong = {name.lower(): False}, name in (LOCAL if cluster else REMOTE)
    if wrong:
        with pytest.raises(PlanError, match=rf"{name}: for runs on (one machine|the nodes)"):
            refuse_misplaced(given, cluster)
    else:
        refuse_misplaced(given, cluster)


def test_options_for_one_place_are_options_of_tasks():
    names = {option.variable for each in every().values() for option in each.options.values()}
    assert {*LOCAL, *REMOTE} <= names


def test_an_image_that_was_not_made_is_missed_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setattr(options_module, "sif_path", lambda stack: tmp_path / f"{stack}.sif")
    monkeypatch.setenv("PATH", str(tmp_path))
    rehearsal = dict.fromkeys(("cluster", "run", "image", "dry_run"), None) | {"runtime": "apptainer"}
    bench = rehearsal | {"stack": None}
    with pytest.raises(
        PlanError, match=r"^RUNTIME=apptainer: apptainer is not installed here; install it, or leave RUNTIME out$"
    ):
        RuntimeOptions.check(bench)
    (tmp_path / "apptainer").touch(mode=0o755)
    missing = r"^RUNTIME=apptainer: \S*/cu102\.sif: no such file; `make image FORMAT=sif` writes it$"
    with pytest.raises(PlanError, match=missing):
        RuntimeOptions.check(bench)
    RuntimeOptions.check(bench | {"dry_run": True})
    RuntimeOptions.check(bench | {"run": "one of a cluster, whose nodes have the image"})
    modern = tmp_path / "cu102-modern.sif"
    modern.touch()
    RuntimeOptions.check(bench)
    RuntimeOptions.check(bench | {"stack": "cu102-modern"})
    RuntimeOptions.check(rehearsal | {"image": str(modern)})
    for values in (rehearsal, bench | {"stack": "cu102"}, bench | {"stack": "cpu"}):
        with pytest.raises(PlanError, match=missing):
            RuntimeOptions.check(values)
